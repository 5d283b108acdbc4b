"""The compiled steps of large batches and of small pairs: what ``test_compiled`` does not say of them.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats
from statistical.support import FAILURE_RATE, all_states, exact_statistics, largest_z
from statistical.test_coupled import estimates, p_value

import harmonium as hm
from harmonium.backends import calls, choice, half_steps
from harmonium.coupled import Block, CommonNoise, Gibbs, Maximal
from harmonium.coupled.kernels import _find_field
from harmonium.coupled.meeting import run_pairs
from harmonium.machine import Graph, Hamiltonian, Part, Statistics
from harmonium.machine.coupling_matrices import CouplingMatrices

from .test_compiled import ROWS, TWO_VALUED, machine

pytest.importorskip("numba")
pytestmark = pytest.mark.statistical
LAYERS = {"bernoulli": hm.Bernoulli, "spin": hm.Spin}


def deep_machine() -> hm.BoltzmannMachine:
    return machine(hm.Bernoulli(4), hm.Spin(3), hm.Bernoulli(3))


def pairs_of(made: hm.BoltzmannMachine, rows: int, share: float):
    """States of pairs that differ in a share of the units."""
    generator = torch.Generator().manual_seed(1)
    x, other = (made.random_states(rows, seed=generator) for _ in range(2))
    y = [
        torch.where(torch.rand(a.shape, generator=generator) < share, b, a)
        for a, b in zip(x, other, strict=True)
    ]
    return [torch.cat(pair) for pair in zip(x, y, strict=True)]


@pytest.mark.parametrize("kinds", [("bernoulli",), ("spin",), ("bernoulli", "spin")], ids="-".join)
@pytest.mark.parametrize("gap", [0.1, 1.5])
def test_both_marginals_are_exact_and_meet_as_often_as_the_distributions_overlap(kinds, gap):
    """A block of one layer, and of two kinds of unit at once."""
    generator = torch.Generator().manual_seed(2)
    layers = tuple(LAYERS[kind](4 if len(kinds) == 1 else 2) for kind in kinds)
    thetas = tuple(layer.natural() for layer in layers)
    hamiltonian = Hamiltonian(layers, Graph(layers, (), range(len(layers)), {}), thetas, CouplingMatrices())
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
    assert choice.two_valued(p.fields[0], p.values)
    drawn = Maximal(common_noise=True).draw(p, q, generator)
    parts = [all_states(layer).float() for layer in layers]
    states = parts[0] if len(parts) == 1 else torch.cat(
        [parts[0].repeat_interleave(len(parts[1]), 0), parts[1].repeat(len(parts[0]), 1)], 1
    )  # fmt: skip
    distributions = []
    for fields, value in ((first, drawn.x), (second, drawn.y)):
        split = torch.split(states, [layer.width for layer in layers], 1)
        log_p = sum(
            layer.log_conditional(s, field.expand_as(s)).sum(-1)
            for layer, s, field in zip(layers, split, fields, strict=True)
        )
        distributions.append(log_p.double().detach().softmax(0))
        assert p_value(torch.cat(value, 1), states, distributions[-1]) > FAILURE_RATE / 3
    equal = (torch.cat(drawn.x, 1) == torch.cat(drawn.y, 1)).all(-1).double().unsqueeze(-1)
    z, limit = largest_z(equal, torch.minimum(*distributions).sum().unsqueeze(0))
    assert z < limit
    assert bool((drawn.tries[equal.squeeze(-1) == 0] > 0).all())


@pytest.mark.parametrize(("widths", "rows"), [((37, 13), 1), ((300, 5), 3), ((300, 5), 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_chains_get_equal_fields(widths, rows, dtype):
    """Of few columns libraries round a row by where it stands."""
    generator = torch.Generator().manual_seed(0)
    made = hm.BoltzmannMachine([hm.Spin(n) for n in widths], seed=0)
    hm.machine.orthogonal_(made, 1.0, generator)
    hamiltonian = made.to(dtype).hamiltonian()
    x, y = (made.random_states(rows, seed=generator) for _ in range(2))
    half = (rows + 1) // 2
    y = [torch.cat((a[:half], b[half:])) for a, b in zip(x, y, strict=True)]
    states = [torch.cat(pair) for pair in zip(x, y, strict=True)]
    for l in range(2):
        with torch.no_grad():
            field = _find_field(hamiltonian, Part(l), states, 2)
            torch.testing.assert_close(field, hamiltonian.field(l, states))
        assert torch.equal(field[:half], field[rows : rows + half])


def test_chains_of_different_temperatures_get_fields_of_their_own():
    made = deep_machine()
    states = [x.repeat(2, 1) for x in made.random_states(4, seed=torch.Generator().manual_seed(0))]
    hamiltonian = made.hamiltonian().tempered(torch.tensor([1.0, 0.5]).repeat_interleave(4).unsqueeze(-1))
    for l in range(3):
        with torch.no_grad():
            assert torch.equal(_find_field(hamiltonian, Part(l), states, 2), hamiltonian.field(l, states))


def test_numbers_of_threads_do_not_change_the_bits(always):
    made = deep_machine()
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(estimates(made, Gibbs(), 1, 1, 1, lots=2, pairs=300, compiled=True))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("horizon", [(3, 10, 1), (2, 8, 3)], ids=str)
def test_the_estimate_is_unbiased(always, horizon):
    made = deep_machine()
    z, limit = largest_z(
        estimates(made, Gibbs(), *horizon, lots=12, pairs=1000, compiled=True).double(),
        exact_statistics(made.hamiltonian()),
    )
    assert z < limit


@pytest.mark.parametrize("pairs", [Gibbs(), Gibbs(Maximal(common_noise=True), CommonNoise())], ids=repr)
@pytest.mark.parametrize("horizon", [(1, 1, 1), (3, 10, 1), (2, 8, 3), (0, 0, 1), (0, 4, 2)], ids=str)
def test_the_estimate_of_small_pairs_is_unbiased(horizon, pairs):
    made = TWO_VALUED["spin"]()
    assert choice.small_pairs(made.hamiltonian())
    z, limit = largest_z(
        estimates(made, pairs, *horizon, lots=12, pairs=1000, compiled=True).double(),
        exact_statistics(made.hamiltonian()),
    )
    assert z < limit


@pytest.mark.parametrize("readings", [[()], [(0,)], [(0,), (1,)]], ids=str)
def test_small_pairs_are_read_as_asked(readings):
    """Sums over pairs are whole for the layers that no reading sums out, and only for these."""
    made = TWO_VALUED["spin"]()
    hamiltonian, generator = made.hamiltonian(), torch.Generator().manual_seed(2)
    into = Statistics(hamiltonian).in_readings(readings)
    run_pairs(hamiltonian, Gibbs(), made.random_states(40, seed=1), k=0, m=0, lag=1, max_sweeps=None,
              generator=generator, into=into)  # fmt: skip
    for l, theta in enumerate(into.thetas):
        total = 40 * theta[0].double()
        whole = bool((total - total.round()).abs().max() < 1e-4)
        assert whole == all(l not in reading for reading in readings)


def test_other_units_and_types_take_the_general_way():
    for layers, dtype in (
        ((hm.Bernoulli(4), hm.Bernoulli(3)), torch.float64),
        ((hm.Categorical(2, 3), hm.Bernoulli(3)), torch.float32),
    ):
        made = hm.BoltzmannMachine(list(layers)).to(dtype)
        hamiltonian, values = made.hamiltonian(), [layer.two_values for layer in layers]
        assert not choice.two_valued(hamiltonian.thetas[0][0], values)
        assert not choice.small_pairs(hamiltonian)


@pytest.mark.parametrize("gap", [1e-3, 4.99, 19.9, 39.9, 41.0])
def test_ratios_of_distributions_that_differ_everywhere_stay_in_range(gap):
    from harmonium.backends import per_unit

    s = np.repeat(np.array([-0.1, 0.1], np.float32), 500)
    step = np.copysign(np.float32(gap), -s)
    up, rare = np.empty_like(s), np.empty_like(s)
    per_unit.probabilities(s, up, rare)
    change = per_unit.change(s, step, rare, np.empty_like(s), np.empty(len(s)))
    exact = np.logaddexp(0, s.astype(float) + step).sum() - np.logaddexp(0, s.astype(float)).sum()
    assert abs(change - exact) < 1e-6 * abs(step).sum()


@pytest.mark.parametrize("gap", [1e-6, 1e-3, 1.0])
def test_ratios_of_wide_distributions_that_nearly_agree_keep_their_digits(gap):
    """In single precision the difference of log-partitions would be off by more than they differ.

    Then one distribution would seem to exceed the other nowhere, and rejection would find nothing left over.
    """
    from harmonium.backends import per_unit

    generator = torch.Generator().manual_seed(5)
    width = 3000
    s = (3 * torch.randn(width, generator=generator)).numpy()
    step = (
        gap * torch.randn(width, generator=generator) * (torch.rand(width, generator=generator) < 0.01)
    ).numpy()
    up, rare = np.empty(width, np.float32), np.empty(width, np.float32)
    per_unit.probabilities(s, up, rare)
    change = per_unit.change(s, step, rare, np.empty(width, np.float32), np.empty(width))
    p = 1 / (1 + np.exp(-s.astype(np.float64)))
    exact = np.log1p(p * np.expm1(step.astype(np.float64))).sum()
    assert abs(change - exact) < 1e-6 * abs(step).sum()

    layer = hm.Bernoulli(width)
    hamiltonian = Hamiltonian((layer,), Graph((layer,), (), (0,), {}), (layer.natural(),), CouplingMatrices())
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
def test_saturated_units_keep_their_distribution(kind, first, second):
    """Two units of which the first is nearly certain in one chain; its log-odds are 2 · field for spins."""
    layer = LAYERS[kind](2)
    scale = 0.5 if kind == "spin" else 1.0
    hamiltonian = Hamiltonian((layer,), Graph((layer,), (), (0,), {}), (layer.natural(),), CouplingMatrices())
    fields = [torch.tensor([[scale * s, scale * 0.3]]).expand(ROWS, -1) for s in (first, second)]
    p, q = (Block(hamiltonian, (Part(0),), (field,)) for field in fields)
    drawn = Maximal(common_noise=True).draw(p, q, torch.Generator().manual_seed(6))
    states = all_states(layer).float()
    distributions = []
    for field, value in zip(fields, (drawn.x[0], drawn.y[0]), strict=True):
        distribution = (
            layer.double().log_conditional(states.double(), field[:1].double()).sum(-1).exp().detach()
        )
        distributions.append(distribution)
        counts = (value.unsqueeze(1) == states).all(-1).sum(0)
        for count, probability in zip(counts.tolist(), distribution.tolist(), strict=True):
            p_value = stats.binomtest(count, ROWS, min(probability, 1.0)).pvalue
            assert p_value > FAILURE_RATE / 9
    together = int((drawn.x[0] == drawn.y[0]).all(-1).sum())
    overlap = min(float(torch.minimum(*distributions).sum()), 1.0)
    assert stats.binomtest(together, ROWS, overlap).pvalue > FAILURE_RATE / 9


@pytest.mark.parametrize("kind", ["bernoulli", "spin"])
@pytest.mark.parametrize("betas", [(0.0, 0.005), (0.5, 0.505), (0.505, 0.5), (0.0, 1.0)])
@pytest.mark.parametrize("scale", [0.01, 3.0, 1000.0])
def test_log_partitions_rise_as_exactly_as_in_eager_code(kind, betas, scale):
    """As annealing asks for it; where fields are strong and β changes little, many times as exactly."""
    generator = torch.Generator().manual_seed(6)
    layer, field = LAYERS[kind](700), scale * torch.randn(40, 700, generator=generator)
    first = torch.randn(700, generator=generator)
    thetas = [(first,), (first + 0.01 * torch.randn(700, generator=generator),)]

    def log_partitions(dtype: torch.dtype) -> list[torch.Tensor]:
        cases = zip(betas, thetas, strict=True)
        return [layer.log_partition(beta * field.to(dtype), theta=(b.to(dtype),)) for beta, (b,) in cases]

    before, after = log_partitions(torch.float64)
    (eager_before, eager_after), exact = log_partitions(torch.float32), (after - before).sum(-1)
    assert half_steps.way_of(layer, thetas[0], field) == "compiled"
    (first,), (second,) = thetas
    given = layer.two_values, betas, (first, second), np.uint64(3)
    x, rise = calls.anneal(field.clone(), *given, summed=True)
    assert torch.equal(x, calls.draw(layer, second, betas[1] * field, np.uint64(3)))
    assert rise.dtype is torch.float64 and float(exact.abs().min()) > 0
    error = (rise - exact).abs()
    eager = ((eager_after - eager_before).sum(-1, dtype=torch.float64) - exact).abs()
    rounding = 700 * torch.finfo(torch.float32).eps
    assert float(error.max()) <= max(2 * float(eager.max()), rounding / 4)
    if scale == 1000.0 and betas[0] == 0.5:
        assert float(error.max()) < float(eager.max()) / 8

    field[3, 8], field[5, 6] = torch.nan, torch.inf
    _, rise = calls.anneal(field.clone(), *given, summed=True)
    assert rise.isfinite().logical_not().nonzero().flatten().tolist() == [3, 5]
    assert calls.anneal(field.clone(), *given, summed=False)[1] == 0


@pytest.mark.parametrize("kind", ["bernoulli", "spin"])
def test_small_rises_add_up_to_the_whole(kind):
    """Nothing rounds in one direction: a product of ratios would, by 5e-4 here and 4e-3 elsewhere."""
    generator = torch.Generator().manual_seed(7)
    layer, field = LAYERS[kind](500), torch.randn(100, 500, generator=generator)
    thetas = torch.randn(2, 500, generator=generator)
    betas = torch.linspace(0, 1, 1001, dtype=torch.float64).tolist()
    total = torch.zeros(100, dtype=torch.float64)
    for now, following in itertools.pairwise(betas):
        biases = torch.lerp(*thetas, now), torch.lerp(*thetas, following)
        given = layer.two_values, (now, following), biases, np.uint64(0)
        total += calls.anneal(field.clone(), *given, summed=True)[1]
    ends = [
        layer.log_partition(beta * field.double(), theta=(bias.double(),)).sum(-1)
        for beta, bias in zip((0.0, 1.0), thetas, strict=True)
    ]
    error = total - (ends[1] - ends[0])
    assert abs(float(error.mean())) < 1e-4 and float(error.abs().max()) < 1e-3
