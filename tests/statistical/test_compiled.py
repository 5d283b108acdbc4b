"""Compiled code has the law of the eager code beside it, whatever the number of threads.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.chains import GibbsLangevin
from harmonium.compiled import serving
from harmonium.couplings import Block, Gibbs, Maximal, run_pairs
from harmonium.couplings.gibbs import _field
from harmonium.couplings.ledger import add_signed
from harmonium.couplings.pairs import Place
from harmonium.machine import Graph, Hamiltonian, Part, Statistics

from .support import (
    FAILURE_RATE,
    all_states,
    exact_states,
    exact_statistics,
    flat,
    largest_z,
)
from .test_couplings import estimates, p_value, visible_kernel

pytest.importorskip("numba")
ROWS = 20_000
LAYERS = {"bernoulli": hm.Bernoulli, "spin": hm.Spin}


@pytest.fixture
def always(monkeypatch):
    """Uses the compiled steps of batches whatever the size."""
    monkeypatch.setattr(serving, "HALF_STEP", 0)
    monkeypatch.setattr(serving, "NARROW", 0)
    monkeypatch.setattr(serving, "WORTHWHILE", 0)
    monkeypatch.setattr(serving, "FEW_DIFFERENCES", 1.0)
    monkeypatch.setattr(serving, "SMALL_PAIRS", 0)


def machine(*layers: hm.layers.Layer, scale: float = 0.8) -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine(list(layers))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=generator))
    return made


def grid(*layers: hm.layers.Layer) -> torch.Tensor:
    """All joint states of some layers side by side, float64."""
    whole = torch.zeros(1, 0, dtype=torch.float64)
    for layer in layers:
        states = all_states(layer)
        whole = torch.cat([whole.repeat_interleave(len(states), 0), states.repeat(len(whole), 1)], 1)
    return whole


# Every path returns what it drew, (rows, units), with all states and their law by enumeration.


def half_step(made, generator):
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    field = hamiltonian.field(l, made.random_states(1, generator=generator))
    x = hamiltonian.sample(l, field.expand(ROWS, -1), generator)
    yield x, *conditional(made.layers[l], field)


def mirrored_half_step(made, generator):
    """Pairs of rows whose uniform variates are u and 1 - u."""
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    field = hamiltonian.field(l, made.random_states(1, generator=generator))
    x = hamiltonian.sample(l, field.expand(ROWS, -1), generator, antithetic=True)
    layer = made.layers[l]
    up = (layer.moments(field).mean[0].double() - layer.two_values[0]) / np.ptp(layer.two_values)
    both, none = (2 * up - 1).clamp(min=0), (1 - 2 * up).clamp(min=0)
    one = (1 - both - none) / 2
    states = grid(layer, layer)
    a, b = (states > 0).chunk(2, 1)
    law = torch.where(a & b, both, torch.where(a | b, one, none)).prod(1)
    yield torch.cat(x.chunk(2), 1), states, law


def coupled_half_step(made, generator):
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    fields = [hamiltonian.field(l, made.random_states(1, generator=generator)) for _ in range(2)]
    p, q = (Block(hamiltonian, (Part(l),), (field.expand(ROWS, -1),)) for field in fields)
    drawn = Maximal(common_noise=True).draw(p, q, generator)
    laws = [conditional(made.layers[l], field) for field in fields]
    yield drawn.x[0], *laws[0]
    yield drawn.y[0], *laws[1]
    overlap = torch.minimum(laws[0][1], laws[1][1]).sum()
    together = (drawn.x[0] == drawn.y[0]).all(-1, keepdim=True)
    yield together.double(), torch.eye(2)[:, 1:].double(), torch.stack((1 - overlap, overlap))


def differences(made, generator):
    """Both chains of pairs in the machine's law, after a sweep whose fields come from differences."""
    x, y = (own_law(made, generator) for _ in range(2))
    both = Place([torch.cat(pair) for pair in zip(x, y, strict=True)], {})
    place, _ = Gibbs().coupled(made.hamiltonian(), both, generator)
    exact = made.hamiltonian().to(torch.float64)
    states = grid(*made.layers)
    law = (-exact.energy(list(torch.split(states, [layer.width for layer in made.layers], 1)))).softmax(0)
    for half in zip(*(x.chunk(2) for x in place.states), strict=True):
        yield torch.cat(half, 1), states, law


def small_pairs(made, generator, antithetic=False):
    """The first chains after three sweeps, two of them coupled, from one state."""
    start = made.random_states(1, generator=generator)
    end = run_pairs(
        made.hamiltonian(), Gibbs(), [x.repeat(ROWS, 1) for x in start], k=3, m=3, lag=1, max_steps=None,
        generator=generator, antithetic=antithetic,
    ).states[0]  # fmt: skip
    v, _, P = visible_kernel(made.double())
    here = (v == start[0].double()).all(-1).nonzero().item()
    yield end, v, torch.linalg.matrix_power(P, 3)[here]


def mirrored_small_pairs(made, generator):
    ((end, v, law),) = small_pairs(made, generator, antithetic=True)
    for half in end.chunk(2):
        yield half, v, law


def small_chains(made, generator):
    """Hidden states after sweeps with a Metropolis test from the machine's own law."""
    hamiltonian, start = made.hamiltonian(), own_law(made, generator)
    kernel, into = GibbsLangevin(0.2, 5, "metropolis"), Statistics(hamiltonian)
    if serving.small_chains(hamiltonian):
        from harmonium.chains.small import advance_small

        end, _ = advance_small(
            hamiltonian, kernel, start, 6, generator, into=into, weight=1.0, burn_in=0, marginal=True
        )
    else:
        end = hm.chains.advance(hamiltonian, kernel, start, 6, generator)
    h = grid(made.layers[1])
    free = hamiltonian.to(torch.float64).free_energy([torch.empty(0), h], (0,))
    yield end[1], h, (-free).softmax(0)


def rounded_means(made, generator):
    """Every unit lies on one of two neighbouring whole numbers."""
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    layer, field = made.layers[l], hamiltonian.field(l, made.random_states(1, generator=generator))
    out = torch.empty(ROWS, layer.width, dtype=torch.int8)
    units = serving.units_of(hamiltonian.thetas[l], [layer.two_values])
    key = np.uint64(5)
    serving.over_rows("round_means", ROWS, field.repeat(ROWS, 1), *units, key, 127, out)
    mean = 127 * layer.moments(field).mean.double()
    states = mean.floor() + grid(hm.Bernoulli(layer.width))
    up = mean - mean.floor()
    yield out, states, torch.where(states > mean, up, 1 - up).prod(1)


def own_law(made, generator):
    return [x.float() for x in exact_states(deepcopy(made).double(), ROWS, generator)]


def conditional(layer, field):
    states = all_states(layer)
    log_p = layer.double().log_conditional(states, field.double().expand_as(states)).sum(-1)
    return states, log_p.softmax(0)


TWO_VALUED = {
    "bernoulli": lambda: machine(hm.Bernoulli(4), hm.Bernoulli(3)),
    "spin": lambda: machine(hm.Spin(4), hm.Spin(3), scale=0.5),
    "both": lambda: machine(hm.Bernoulli(4), hm.Spin(3), scale=1.5),
}
GAUSSIAN = {
    "bernoulli": lambda: machine(hm.Gaussian(2), hm.Bernoulli(4)),
    "spin": lambda: machine(hm.Gaussian(3), hm.Spin(3), scale=0.5),
    "natural": lambda: machine(hm.StandardisedGaussian(2), hm.Spin(4)),
}
PATHS = {
    half_step: TWO_VALUED,
    mirrored_half_step: TWO_VALUED,
    coupled_half_step: TWO_VALUED,
    differences: TWO_VALUED,
    small_pairs: TWO_VALUED,
    mirrored_small_pairs: TWO_VALUED,
    small_chains: GAUSSIAN,
    rounded_means: TWO_VALUED,
}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", range(3))
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_every_path_has_the_enumerated_law(request, monkeypatch, path, name, compiled):
    """By χ²; compiled paths draw the same bits on one thread and on two."""
    if "small" in path.__name__:
        monkeypatch.setattr(serving, "WORTHWHILE", 1 << 60)
    else:
        request.getfixturevalue("always")
    monkeypatch.setattr(serving, "COMPILED", compiled)
    make = list(PATHS[path].values())[name]
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 2) if compiled else (1,):
            torch.set_num_threads(threads)
            with torch.no_grad():
                runs.append(list(path(make(), torch.Generator().manual_seed(1))))
    finally:
        torch.set_num_threads(before)
    for drawn, states, law in runs[0]:
        assert p_value(drawn.double(), states, law) > FAILURE_RATE / len(runs[0])
    assert all(torch.equal(a[0], b[0]) for a, b in zip(runs[0], runs[-1], strict=True))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_the_paths_are_compiled(always, monkeypatch, path):
    """So that the test above compares what it says."""
    if "small" in path.__name__:
        monkeypatch.undo()
        made = next(iter(PATHS[path].values()))().hamiltonian()
        assert serving.small_chains(made) if path is small_chains else serving.small_pairs(made, False)
        return
    names, over_rows = [], serving.over_rows

    def noted(name, *rest):
        names.append(name)
        over_rows(name, *rest)

    monkeypatch.setattr(serving, "over_rows", noted)
    with torch.no_grad():
        list(path(TWO_VALUED["both"](), torch.Generator().manual_seed(1)))
    expected = {
        half_step: "draw",
        mirrored_half_step: "draw",
        coupled_half_step: "couple",
        differences: "add_products_of_differences",
        rounded_means: "round_means",
    }
    assert expected[path] in names


def test_normal_noise_is_normal_to_its_tails():
    """By its distribution function and by how many of 2^24 variates lie beyond 4.5 and 5 deviations."""
    from harmonium.compiled.noise import fill_normal, room_for, seed, stream

    n = 1 << 24
    out, state = np.empty(n), stream()
    seed(state, np.uint64(7), 3)
    fill_normal(out, room_for(2 * n), state)
    assert stats.kstest(out[: 1 << 20], "norm").pvalue > FAILURE_RATE / 4
    for limit in (4.5, 5.0):
        beyond = int((abs(out) > limit).sum())
        assert stats.binomtest(beyond, n, 2 * stats.norm.sf(limit)).pvalue > FAILURE_RATE / 4
    assert abs(np.corrcoef(out[::2], out[1::2])[0, 1]) < 4 / (n / 2) ** 0.5


def deep_machine() -> hm.BoltzmannMachine:
    return machine(hm.Bernoulli(4), hm.Spin(3), hm.Bernoulli(3))


def pairs_of(made: hm.BoltzmannMachine, rows: int, share: float):
    """States of pairs that differ in a share of the units."""
    generator = torch.Generator().manual_seed(1)
    x, other = (made.random_states(rows, generator=generator) for _ in range(2))
    y = [
        torch.where(torch.rand(a.shape, generator=generator) < share, b, a)
        for a, b in zip(x, other, strict=True)
    ]
    return [torch.cat(pair) for pair in zip(x, y, strict=True)]


@pytest.mark.parametrize("kinds", [("bernoulli",), ("spin",), ("bernoulli", "spin")], ids="-".join)
@pytest.mark.parametrize("gap", [0.1, 1.5])
def test_both_marginals_are_exact_and_meet_as_often_as_the_laws_overlap(kinds, gap):
    """A block of one layer, and of two kinds of unit at once."""
    generator = torch.Generator().manual_seed(2)
    layers = tuple(LAYERS[kind](4 if len(kinds) == 1 else 2) for kind in kinds)
    thetas = tuple(layer.natural() for layer in layers)
    hamiltonian = Hamiltonian(layers, Graph(layers, (), range(len(layers)), {}), thetas, ())
    first = [torch.randn(layer.width, generator=generator) for layer in layers]
    second = [field + gap * torch.randn(field.shape, generator=generator) for field in first]
    p, q = (
        Block(
            hamiltonian,
            tuple(Part(l) for l in range(len(layers))),
            tuple(field.expand(ROWS, -1) for field in fields),
        )
        for fields in (first, second)
    )
    assert serving.two_valued(p.fields[0], p.values)
    drawn = Maximal(common_noise=True).draw(p, q, generator)
    parts = [all_states(layer).float() for layer in layers]
    states = parts[0] if len(parts) == 1 else torch.cat(
        [parts[0].repeat_interleave(len(parts[1]), 0), parts[1].repeat(len(parts[0]), 1)], 1
    )  # fmt: skip
    laws = []
    for fields, value in ((first, drawn.x), (second, drawn.y)):
        split = torch.split(states, [layer.width for layer in layers], 1)
        log_p = sum(
            layer.log_conditional(s, field.expand_as(s)).sum(-1)
            for layer, s, field in zip(layers, split, fields, strict=True)
        )
        laws.append(log_p.double().detach().softmax(0))
        assert p_value(torch.cat(value, 1), states, laws[-1]) > FAILURE_RATE / 3
    equal = (torch.cat(drawn.x, 1) == torch.cat(drawn.y, 1)).all(-1).double().unsqueeze(-1)
    z, limit = largest_z(equal, torch.minimum(*laws).sum().unsqueeze(0))
    assert z < limit
    assert bool((drawn.tries[equal.squeeze(-1) == 0] > 0).all())


@pytest.mark.parametrize("threads", [1, 2])
def test_fields_from_differences_are_the_fields(always, threads):
    made = deep_machine()
    hamiltonian = made.hamiltonian().tempered(0.7)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for share in (0.0, 0.2, 1.0):
            states = pairs_of(made, 300, share)
            for l in range(3):
                with torch.no_grad():
                    fields = _field(hamiltonian, Part(l), states, 2)
                    torch.testing.assert_close(fields, hamiltonian.field(l, states))
                    if share == 0:
                        assert torch.equal(fields[:300], fields[300:])
    finally:
        torch.set_num_threads(before)


def test_numbers_of_threads_do_not_change_the_bits(always):
    made = deep_machine()
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(estimates(made, Gibbs(), 1, 1, 1, replicates=2, pairs=300))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("horizon", [(1, 1, 1), (3, 10, 1), (2, 8, 3), (0, 4, 2)], ids=str)
def test_the_estimate_is_unbiased(always, horizon):
    made = deep_machine()
    z, limit = largest_z(estimates(made, Gibbs(), *horizon).double(), exact_statistics(made.hamiltonian()))
    assert z < limit


def signed_sums(made, states, signs, repeats):
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(3)
    rows = []
    for _ in range(repeats):
        total = Statistics(hamiltonian)
        with torch.no_grad():
            fields = {1: hamiltonian.field(1, states)}
            add_signed(total, hamiltonian, states, fields, signs, 0.01, (1,), generator)
        rows.append(flat(total))
    expected = Statistics(hamiltonian)
    with torch.no_grad():
        expected.add(hamiltonian, states, 0.01 * signs, (1,))
    return torch.stack(rows), flat(expected)


def test_signed_sums_of_rounded_means_are_right_in_expectation_and_close_every_time():
    made = deep_machine()
    states = pairs_of(made, 50, 0.3)
    signs = torch.cat((torch.ones(50), -torch.ones(50)))
    rows, expected = signed_sums(made, states, signs, 4000)
    fixed = rows.std(0) == 0  # sums of whole numbers alone
    torch.testing.assert_close(rows[0, fixed], expected[fixed], rtol=1e-5, atol=1e-6)
    assert 0 < int(fixed.sum()) < len(expected)
    z, limit = largest_z(rows[:, ~fixed].double(), expected[~fixed].double())
    assert z < limit
    # A mean is off by less than 2/127: the sum of 100 by far less than their number.
    assert float((rows - expected).abs().max()) < 0.01 * 100 * 2 / 127 / 2


def test_what_is_not_finite_stays_so():
    made = deep_machine()
    with torch.no_grad():
        made.couplings[0].weight[0, 0] = float("nan")
    states = pairs_of(made, 50, 0.3)
    rows, _ = signed_sums(made, states, torch.ones(100), 1)
    assert bool(rows.isnan().any())


def test_other_units_and_types_take_the_general_way():
    for layers, dtype in (
        ((hm.Bernoulli(4), hm.Bernoulli(3)), torch.float64),
        ((hm.Categorical(2, 3), hm.Bernoulli(3)), torch.float32),
    ):
        made = hm.BoltzmannMachine(list(layers)).to(dtype)
        hamiltonian, values = made.hamiltonian(), [layer.two_values for layer in layers]
        assert not serving.two_valued(hamiltonian.thetas[0][0], values)
        assert not serving.whole_numbers_pay(hamiltonian, hamiltonian.thetas[0][0], 10**6)
        assert not serving.small_pairs(hamiltonian, False)


@pytest.mark.parametrize("gap", [1e-6, 1e-3, 1.0])
def test_ratios_of_wide_laws_that_nearly_agree_keep_their_digits(gap):
    """Of log-partitions in single precision the difference would be off by more than the laws differ.

    Then one law would seem to exceed the other nowhere, and rejection would find nothing left over.
    """
    from harmonium.compiled import units

    generator = torch.Generator().manual_seed(5)
    width = 3000
    s = (3 * torch.randn(width, generator=generator)).numpy()
    step = (
        gap * torch.randn(width, generator=generator) * (torch.rand(width, generator=generator) < 0.01)
    ).numpy()
    up, rare = np.empty(width, np.float32), np.empty(width, np.float32)
    units.probabilities(s, up, rare)
    change = units.change(s, step, rare, np.empty(width))
    p = 1 / (1 + np.exp(-s.astype(np.float64)))
    exact = np.log1p(p * np.expm1(step.astype(np.float64))).sum()
    assert abs(change - exact) < 1e-6 * abs(step).sum()

    layer = hm.Bernoulli(width)
    hamiltonian = Hamiltonian((layer,), Graph((layer,), (), (0,), {}), (layer.natural(),), ())
    fields = [torch.from_numpy(s).unsqueeze(0), torch.from_numpy(s + step).unsqueeze(0)]
    first, second = (Block(hamiltonian, (Part(0),), (field,)) for field in fields)
    exact_step = (fields[1].double() - fields[0].double()).squeeze(0).numpy()
    exact = np.log1p(p * np.expm1(exact_step)).sum()
    assert abs(float(first.log_ratio(second, [torch.zeros(1, width)]).detach()) + exact) < 1e-9 * width * gap


@pytest.mark.parametrize(
    ("first", "second"),
    [(20, 0), (20, -2), (15, 0), (-20, 0), (0, 18), (30, 25), (100, -50), (45, 44)],
    ids=str,
)
@pytest.mark.parametrize("kind", LAYERS)
def test_saturated_units_keep_their_law(kind, first, second):
    """Two units of which the first is nearly certain in one chain; its log-odds are 2 · field for spins."""
    layer = LAYERS[kind](2)
    scale = 0.5 if kind == "spin" else 1.0
    hamiltonian = Hamiltonian((layer,), Graph((layer,), (), (0,), {}), (layer.natural(),), ())
    fields = [torch.tensor([[scale * s, scale * 0.3]]).expand(ROWS, -1) for s in (first, second)]
    p, q = (Block(hamiltonian, (Part(0),), (field,)) for field in fields)
    drawn = Maximal(common_noise=True).draw(p, q, torch.Generator().manual_seed(6))
    states = all_states(layer).float()
    laws = []
    for field, value in zip(fields, (drawn.x[0], drawn.y[0]), strict=True):
        law = layer.double().log_conditional(states.double(), field[:1].double()).sum(-1).exp().detach()
        laws.append(law)
        counts = (value.unsqueeze(1) == states).all(-1).sum(0)
        for count, probability in zip(counts.tolist(), law.tolist(), strict=True):
            p_value = stats.binomtest(count, ROWS, min(probability, 1.0)).pvalue
            assert p_value > FAILURE_RATE / 9
    together = int((drawn.x[0] == drawn.y[0]).all(-1).sum())
    overlap = min(float(torch.minimum(*laws).sum()), 1.0)
    assert stats.binomtest(together, ROWS, overlap).pvalue > FAILURE_RATE / 9
