"""Compiled sweeps of layers with inner edges, unit by unit, and compiled half-steps of categorical layers.

Failure rate of every statistical test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact.graphs import oracle_of, with_drawn_parameters
from scipy.stats import norm
from statistical.support import FAILURE_RATE, all_states, largest_z
from statistical.test_coupled import p_value
from torch import Tensor

import harmonium as hm
from harmonium import _random
from harmonium.backends import calls, choice
from harmonium.backends.calls import draw_in_turn
from harmonium.backends.choice import layers_in_turn
from harmonium.machine import Hamiltonian, Part

pytest.importorskip("numba")
pytest.importorskip("harmonium.backends.sparse_sweeps")  # which takes `over` as it is now
Bernoulli, Spin, Categorical, Masked = hm.Bernoulli, hm.Spin, hm.Categorical, hm.Masked


def ring(units: int) -> Tensor:
    """Each unit joined to the next and to the second next, of a closed chain."""
    step = (torch.arange(units).unsqueeze(1) - torch.arange(units)).remainder(units)
    return (step == 1) | (step == 2) | (step == units - 1) | (step == units - 2)


def sparse(joined: Tensor) -> hm.Sparse:
    return hm.Sparse(joined.triu(1).nonzero())


MACHINES = {
    "Potts": lambda: hm.BoltzmannMachine([Categorical(4, 3)], edges=[(0, 0)]),
    "Potts of two states": lambda: hm.BoltzmannMachine([Categorical(6, 2)], edges=[(0, 0)]),
    "Potts of nine states": lambda: hm.BoltzmannMachine([Categorical(3, 9)], edges=[(0, 0)]),
    "Potts, masked": lambda: hm.BoltzmannMachine([Categorical(6, 3)], {(0, 0): Masked(ring(6))}),
    "spins": lambda: hm.BoltzmannMachine([Spin(7)], edges=[(0, 0)]),
    "spins, masked": lambda: hm.BoltzmannMachine([Spin(9)], {(0, 0): Masked(ring(9))}),
    "Bernoulli": lambda: hm.BoltzmannMachine([Bernoulli(7)], edges=[(0, 0)]),
    "spins, sparse": lambda: hm.BoltzmannMachine([Spin(9)], {(0, 0): sparse(ring(9))}),
    "Bernoulli, sparse": lambda: hm.BoltzmannMachine([Bernoulli(6)], {(0, 0): sparse(ring(6))}),
    "sparse beside others": lambda: hm.BoltzmannMachine(
        [Spin(5), Categorical(2, 3)], {(0, 0): sparse(ring(5)), (0, 1): hm.Dense()}
    ),
    "semi-restricted Potts": lambda: hm.BoltzmannMachine(
        [Categorical(3, 3), Spin(3)], edges=[(0, 0), (0, 1)]
    ),
    "lateral hidden units": lambda: hm.BoltzmannMachine([Categorical(2, 3), Spin(4)], edges=[(0, 1), (1, 1)]),
    "inner edges twice": lambda: hm.BoltzmannMachine(
        [Categorical(3, 3), Spin(4)], edges=[(0, 0), (0, 1), (1, 1)]
    ),
}
PURE = ["Potts", "Potts, masked", "spins", "spins, masked", "Bernoulli"]
SPARSE = ["spins, sparse", "Bernoulli, sparse"]
CATEGORICAL = ["Potts", "Potts of two states", "Potts of nine states", "Potts, masked"]
CATEGORICAL += ["semi-restricted Potts", "inner edges twice"]
TWO_VALUED = ["spins", "spins, masked", "Bernoulli", *SPARSE]
ROWS = 40_000
SWEEPS = 2


def make(name: str, scale: float = 0.6, dtype: torch.dtype = torch.float32) -> hm.BoltzmannMachine:
    return with_drawn_parameters(MACHINES[name]().to(dtype), scale)


def exact_hamiltonian(machine: hm.BoltzmannMachine) -> tuple[list[Tensor], Tensor]:
    """All states and their probabilities, from an oracle that shares no code with the library."""
    states, probability = oracle_of(machine.double()).probabilities()
    machine.float()
    return [x.detach() for x in states], probability.detach()


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Serves batches of any size; the names of the compiled functions that were called."""
    names, over, sweep_two_valued = [], calls.over, calls.sweep_two_valued

    def noted(name: str, *rest: object) -> None:
        names.extend([name[6:]] if str(name).startswith("potts.") else [])
        over(name, *rest)

    monkeypatch.setattr(choice, "IN_TURN", 0)
    monkeypatch.setattr(choice, "HALF_STEP", 0)
    monkeypatch.setattr(choice, "NARROW", 0)

    def noted_sparse(hamiltonian, layer, states, keys, metropolis=False):
        names.extend(["sweep_two_valued"] * len(keys))
        return sweep_two_valued(hamiltonian, layer, states, keys, metropolis)

    monkeypatch.setattr(calls, "over", noted)
    monkeypatch.setattr(calls, "sweep_two_valued", noted_sparse)
    yield names


def plainly(hamiltonian: Hamiltonian, l: int, states: list[Tensor], noise: Tensor | None = None) -> tuple:
    """A layer after a draw of its units in turn by tensor code, and the noise that it was drawn with.

    Without noise to use it is within 1e-10 of where the draw would change.
    """
    generator = torch.Generator().manual_seed(7)
    layer, moved, used = hamiltonian.layers[l], list(states), {}
    columns = torch.arange(layer.width).view(layer.n_units, -1)
    for i in hamiltonian.graph.in_turn[l][0].tolist():
        part = Part(l, columns[i], layer.part([i]))
        units, theta = hamiltonian.units(part)
        field = hamiltonian.field(part, moved)
        if noise is None:
            u = thresholds(units, field, theta, generator)
            side = torch.randint(2, u.shape, generator=generator) * 2 - 1
            u = (u + 1e-10 * side).clamp(0, 1 - 1e-10)
        else:
            u = noise[i]
        used[i] = u
        moved[l] = hamiltonian.apply_clamp(
            l, part.put_states(units.sample(field, u.unsqueeze(-1), theta), moved[l])
        )
    return moved[l], torch.stack([used[i] for i in range(layer.n_units)])


def thresholds(units, field, theta, generator):
    """A value of the noise, for each row, at which the state of one unit changes."""
    if units.two_values is not None:
        low, high = units.two_values
        return torch.sigmoid((high - low) * (field + theta[0])).squeeze(-1)
    cumulative = torch.softmax(field + theta[0], -1).cumsum(-1)
    return cumulative.gather(1, torch.randint(units.n_states, (len(field), 1), generator=generator))[:, 0]


@pytest.mark.parametrize("name", CATEGORICAL)
@pytest.mark.parametrize("what", ["free", "held", "tempered"])
@pytest.mark.nightly
def test_the_draws_of_tensor_code_in_float64(name, what):
    """Given noise within 1e-10 of where a draw changes: conditional distributions are equal to that."""
    machine = make(name, dtype=torch.float64)
    generator, rows = torch.Generator().manual_seed(1), 150
    states = machine.random_states(rows, seed=generator)
    hamiltonian = machine.hamiltonian()
    if what == "tempered":
        hamiltonian = hamiltonian.tempered(torch.rand(rows, 1, dtype=torch.float64, generator=generator))
    if what == "held":
        hamiltonian = hamiltonian.clamp(clamped(machine, rows, generator), rows)
        states = hamiltonian.clamp_states(states)
    with torch.no_grad():
        for l in hamiltonian.graph.inner:
            if not hamiltonian.layers[l].one_hot:
                continue
            for _ in range(3):
                expected, noise = plainly(hamiltonian, l, states)
                found = draw_in_turn(hamiltonian, l, states, _random.key(generator), noise)
                assert torch.equal(found, expected)
                states[l] = found


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.nightly
def test_the_order_is_that_of_a_sweep(name):
    """Part by part, as tensor code draws them."""
    graph = make(name).graph
    assert set(graph.in_turn) == set(graph.inner)
    for l, (order, _, _) in graph.in_turn.items():
        layer, columns = MACHINES[name]().layers[l], []
        for part in (part for colour in graph.colours for part in colour if part.layer == l):
            columns += part.columns.tolist()
        expected = torch.arange(layer.width).view(layer.n_units, -1)[order.tolist()]
        assert columns == expected.flatten().tolist()


@pytest.mark.nightly
def test_a_layer_around_another_is_left_to_tensor_code():
    """Its units have the colours 0, 1, 3 and 4, and a layer that it is joined to has colour 2."""
    machine = hm.BoltzmannMachine(
        [Spin(2), Bernoulli(5), Spin(4)], edges=[(0, 0), (0, 1), (1, 2), (2, 2)], visible=[0, 1, 2]
    )
    layers = [part.layer for colour in machine.graph.colours for part in colour]
    assert layers == [0, 2, 0, 2, 1, 2, 2]
    assert layers_in_turn(machine.hamiltonian(), 10_000) == {0}


@pytest.mark.nightly
def test_many_lots_of_rows():
    machine = make("Potts, masked", dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    hamiltonian, states = machine.hamiltonian(), machine.random_states(2500, seed=generator)
    noise = torch.rand(6, 2500, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        expected, _ = plainly(hamiltonian, 0, states, noise)
        assert torch.equal(draw_in_turn(hamiltonian, 0, states, _random.key(generator), noise), expected)


@pytest.mark.parametrize("bias", [-torch.inf, -1e4])
@pytest.mark.nightly
def test_states_without_probability_are_not_drawn(served, bias):
    machine = make("Potts")
    with torch.no_grad():
        machine.layers[0].bias[:, 1] = bias
        hamiltonian, generator = machine.hamiltonian(checked=False), torch.Generator().manual_seed(0)
        start = machine.layers[0].from_digits(torch.zeros(5000, 4))
        for x in (
            draw_in_turn(hamiltonian, 0, [start], _random.key(generator)),
            hamiltonian.sample(0, hamiltonian.field(0, [start]), generator),
        ):
            assert float(x.view(-1, 4, 3)[..., 1].sum()) == 0
            assert bool((x.view(-1, 4, 3).sum(-1) == 1).all())
    assert served == ["sweep_categorical", "draw_categorical"]


def clamped(machine: hm.BoltzmannMachine, rows: int, generator: torch.Generator) -> dict[int, Tensor]:
    """Some units of every layer held, others in every row."""
    clamp = {}
    for l, x in enumerate(machine.random_states(rows, seed=generator)):
        layer = machine.layers[l]
        free = torch.rand(rows, layer.n_units, generator=generator) < 0.5
        clamp[l] = x.masked_fill(free.repeat_interleave(layer.width // layer.n_units, 1), torch.nan)
    return clamp


def start_at(states: list[Tensor], probability: Tensor, generator: torch.Generator) -> list[Tensor]:
    drawn = torch.multinomial(probability, ROWS, replacement=True, generator=generator)
    return [x[drawn].float().contiguous() for x in states]


def drift(machine, states, probability, clamp=None, generator=None):
    """The largest z of the means of states and of pairs, after sweeps of chains that begin exactly."""
    generator = torch.Generator().manual_seed(1) if generator is None else generator
    begun = start_at(states, probability, generator)
    moved = hm.chains.run(machine, hm.chains.Gibbs(), begun, SWEEPS, clamp, seed=generator)
    joint = torch.cat(moved, 1).double()
    whole = torch.cat(states, 1).double()
    pairs = torch.triu_indices(whole.shape[1], whole.shape[1])
    seen, all_ = (torch.cat([x, x[:, pairs[0]] * x[:, pairs[1]]], 1) for x in (joint, whole))
    return (*largest_z(seen, probability.double() @ all_), moved)


@pytest.mark.statistical
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.nightly
def test_no_drift(served, name):
    machine = make(name)
    z, limit, _ = drift(machine, *exact_hamiltonian(machine))
    assert z < limit
    assert len(served) >= SWEEPS


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *((name, hm.chains.Gibbs()) for name in PURE + SPARSE),
        *((name, hm.chains.Metropolis()) for name in TWO_VALUED),
    ],
    ids=str,
)
@pytest.mark.mostly_nightly(2)
def test_joint_states_have_their_distribution(served, name, kernel):
    """By χ² over all joint states, from chains that begin elsewhere and have forgotten it."""
    machine = make(name)
    states, probability = exact_hamiltonian(machine)
    generator = torch.Generator().manual_seed(3)
    begun = machine.random_states(ROWS, seed=generator)
    (x,) = hm.chains.run(machine, kernel, begun, 60, seed=generator)
    assert p_value(x.double(), states[0], probability) > FAILURE_RATE
    assert len(served) == 60


@pytest.mark.parametrize("kernel", [hm.chains.Gibbs(), hm.chains.Metropolis()], ids=repr)
@pytest.mark.parametrize("name", [*TWO_VALUED, "sparse beside others"])
def test_sweeps_at_once_have_the_bits_of_sweeps(served, name, kernel):
    """All in one call, in two, and one by one beside an observer; also where other layers are held."""
    machine = make(name)
    start = machine.random_states(300, seed=0)
    clamp = {1: start[1]} if len(start) > 1 else None
    ends, noted = [], []
    for cuts, observer in (((5,), None), ((2, 3), None), ((5,), lambda *what: noted.append(what[2]))):
        states, generator = start, torch.Generator().manual_seed(1)
        for sweeps in cuts:
            states = hm.chains.run(machine, kernel, states, sweeps, clamp, seed=generator, observer=observer)
        ends.append(states)
    assert all(torch.equal(x, y) for end in ends[1:] for x, y in zip(ends[0], end, strict=True))
    assert served == ["sweep_two_valued"] * 15
    assert not torch.equal(start[0], ends[0][0])
    if isinstance(kernel, hm.chains.Metropolis):
        assert all(0.5 < float(info["acceptance"]) < 1 for info in noted)


def test_the_acceptance_of_sparse_layers(served, monkeypatch):
    """It is that of tensor code, in the mean; units that are held count as accepted there."""
    machine, kernel = make("spins, sparse"), hm.chains.Metropolis()
    start = machine.random_states(ROWS, seed=0)
    clamp = torch.full((ROWS, 9), torch.nan)
    clamp[: ROWS // 2, 0], clamp[:, 3] = start[0][: ROWS // 2, 0], start[0][:, 3]
    found: list[float] = []

    def note(sweep: int, state: object, info: dict[str, Tensor]) -> None:
        found.append(float(info["acceptance"]))

    for limit in (0, 1 << 60):
        monkeypatch.setattr(choice, "IN_TURN", limit)
        hm.chains.run(machine, kernel, start, 1, clamp, seed=1, observer=note)
    assert len(served) == 1
    assert abs(found[0] - found[1]) < 0.01


def test_couplings_that_change_are_read_again(served):
    """Sums of them are kept with the distribution, and made again where an optimiser steps in place."""
    machine = make("spins, sparse")
    hamiltonian, start = machine.hamiltonian(), machine.random_states(500, seed=0)
    keys = np.arange(3, dtype=np.uint64)
    with torch.no_grad():
        before = calls.sweep_two_valued(hamiltonian, 0, start, keys)
        assert torch.equal(calls.sweep_two_valued(hamiltonian, 0, start, keys), before)
        hamiltonian.J[0].fill_(3.0)
        after = calls.sweep_two_valued(hamiltonian, 0, start, keys)
        assert not torch.equal(after, before)
        free = Hamiltonian(
            hamiltonian.layers, hamiltonian.graph, hamiltonian.thetas, (torch.zeros_like(hamiltonian.J[0]),)
        )
        expected = calls.sweep_two_valued(free, 0, start, keys)
        assert torch.equal(calls.sweep_two_valued(hamiltonian.tempered(0.0), 0, start, keys), expected)


@pytest.mark.statistical
@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("wrong", ["an edge forgotten", "all units at once"])
@pytest.mark.nightly
def test_a_wrong_kernel_is_caught(served, monkeypatch, name, wrong):
    machine = make(name, scale=0.9)
    states, probability = exact_hamiltonian(machine)
    if wrong == "an edge forgotten":
        if name in TWO_VALUED:
            rows = machine.graph.rows_in_turn(0)
            rows.starts[-1] -= 1
        order, starts, others = machine.graph.in_turn[0]
        starts = starts.copy()
        starts[0, 1 if name.endswith("masked") else 0] += -1 if name.endswith("masked") else 2
        monkeypatch.setitem(machine.graph.in_turn, 0, (order, starts, others))
    else:  # as if the fields were not updated where units change

        def at_once(hamiltonian, l, x, key):
            return hamiltonian.sample(
                l, hamiltonian.field(l, x), torch.Generator().manual_seed(int(key) >> 1)
            )

        def all_at_once(hamiltonian, l, x, keys, metropolis=False):
            for key in keys:
                x = [at_once(hamiltonian, l, x, key)]
            return x[0]

        monkeypatch.setattr(calls, "draw_in_turn", at_once)
        monkeypatch.setattr(calls, "sweep_two_valued", all_at_once)
    z, limit, _ = drift(machine, states, probability)
    assert z > limit


@pytest.mark.statistical
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.nightly
def test_held_units_stay_and_others_have_their_conditional_distribution(served, name):
    """The first unit of the first layer is held in every other row only, at its most probable state."""
    machine = make(name)
    states, probability = exact_hamiltonian(machine)
    columns = machine.layers[0].width // machine.layers[0].n_units
    value = states[0][int(probability.argmax()), :columns]
    fits = (states[0][:, :columns] == value).all(-1)
    conditional = torch.where(fits, probability, 0.0)
    clamp = torch.full((ROWS, machine.layers[0].width), torch.nan)
    clamp[:, :columns] = value
    z, limit, moved = drift(machine, states, conditional / conditional.sum(), {0: clamp})
    assert z < limit
    assert bool((moved[0][:, :columns] == value).all())
    clamp[::2] = torch.nan
    generator = torch.Generator().manual_seed(2)
    begun = start_at(states, conditional / conditional.sum(), generator)
    (x, *_) = hm.chains.run(machine, hm.chains.Gibbs(), begun, 1, {0: clamp}, seed=generator)
    same = (x[:, :columns] == value).all(-1)
    assert bool(same[1::2].all()) and not bool(same[::2].all())


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["Potts, masked", "spins"])
@pytest.mark.nightly
def test_tempered_chains_keep_the_distribution(served, name):
    """β differs by chain: replicas at their own distributions are at rest together."""
    kernel, generator = hm.chains.Tempering(3), torch.Generator().manual_seed(4)
    lots = []
    for beta in kernel.betas:
        warm = make(name)
        with torch.no_grad():
            warm.couplings[0].weight.mul_(beta)
        lots.append(start_at(*exact_hamiltonian(warm), generator))
    machine = make(name)
    states, probability = exact_hamiltonian(machine)
    hamiltonian = machine.hamiltonian()
    state = kernel.init(hamiltonian, lots[0], generator, SWEEPS)
    replicas = [torch.cat(parts) for parts in zip(*lots, strict=True)]
    state = state._replace(memory=replace(state.memory, states=replicas))
    with torch.no_grad():
        (x,) = hm.chains.run_kernel(hamiltonian, kernel, state, SWEEPS, generator).states
    pairs = torch.triu_indices(x.shape[1], x.shape[1])
    seen, all_ = (torch.cat([y, y[:, pairs[0]] * y[:, pairs[1]]], 1) for y in (x.double(), states[0]))
    z, limit = largest_z(seen, probability @ all_)
    assert z < limit
    assert len(served) == SWEEPS


@pytest.mark.statistical
@pytest.mark.parametrize(("units", "n_states"), [(1, 2), (3, 3), (2, 21)])
@pytest.mark.nightly
def test_half_steps_have_the_distribution_of_the_units(served, units, n_states):
    machine = hm.BoltzmannMachine([Categorical(units, n_states), Bernoulli(2)])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        machine.layers[0].bias.copy_(torch.randn(units, n_states, generator=generator))
        hamiltonian = machine.hamiltonian()
        field = torch.randn(1, units * n_states, generator=generator)
        x = hamiltonian.sample(0, field.expand(ROWS, -1), generator)
    states = all_states(machine.layers[0])
    log_p = machine.layers[0].double().log_conditional(states, field.double().expand_as(states)).sum(-1)
    assert p_value(x.double(), states, log_p.detach().exp()) > FAILURE_RATE
    assert served == ["draw_categorical"]


@pytest.mark.parametrize("name", ["Potts", "spins, masked", "semi-restricted Potts"])
@pytest.mark.nightly
def test_the_same_bits_whatever_the_number_of_threads(served, name):
    machine = make(name)
    start = machine.random_states(1337, seed=0)
    before, runs, ends = torch.get_num_threads(), [], []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            generator = torch.Generator().manual_seed(6)
            runs.append(hm.chains.run(machine, hm.chains.Gibbs(), start, 3, seed=generator))
            ends.append(generator.get_state())
    finally:
        torch.set_num_threads(before)
    for run, end in zip(runs, ends, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(run, runs[0], strict=True))
        assert torch.equal(end, ends[0])
    other = hm.chains.run(machine, hm.chains.Gibbs(), start, 3, seed=7)
    assert not torch.equal(other[0], runs[0][0])


@pytest.mark.nightly
def test_the_given_states_are_not_changed(served):
    machine = make("semi-restricted Potts")
    start = machine.random_states(300, seed=0)
    copies = [x.clone() for x in start]
    hamiltonian, kernel, generator = (
        machine.hamiltonian(),
        hm.chains.Gibbs(),
        torch.Generator().manual_seed(0),
    )
    with torch.no_grad():
        kernel.step(hamiltonian, kernel.init(hamiltonian, start, generator), generator)
    assert all(torch.equal(x, y) for x, y in zip(start, copies, strict=True))
    assert "sweep_categorical" in served


@pytest.mark.nightly
def test_fields_that_a_sweep_keeps_are_those_of_its_states(served):
    machine = make("semi-restricted Potts")
    hamiltonian, kernel, generator = (
        machine.hamiltonian(),
        hm.chains.Gibbs(),
        torch.Generator().manual_seed(0),
    )
    state = kernel.init(hamiltonian, machine.random_states(300, seed=0), generator)
    with torch.no_grad():
        for _ in range(3):
            state, _ = kernel.step(hamiltonian, state, generator)
            for l, field in state.fields.items():
                np.testing.assert_allclose(field, hamiltonian.field(l, state.states), rtol=1e-5, atol=1e-5)
    assert set(state.fields) == {1}


@pytest.mark.nightly
def test_what_is_left_to_tensor_code(monkeypatch):
    machine, rows = make("Potts"), 4000
    hamiltonian = machine.hamiltonian()
    assert layers_in_turn(hamiltonian, rows) == {0}
    assert layers_in_turn(hamiltonian, 10) == set()  # few units
    assert layers_in_turn(hamiltonian.to(torch.float64), rows) == set()
    with hm.backends.precision("bf16"):
        assert layers_in_turn(hamiltonian, rows) == set()
    theirs = tuple((p.expand(rows, -1),) for (p,) in hamiltonian.thetas)
    by_row = Hamiltonian(hamiltonian.layers, hamiltonian.graph, theirs, hamiltonian.J)
    assert layers_in_turn(by_row, rows) == {0}  # a bias of every row is a part of its field
    generator = torch.Generator().manual_seed(0)
    start = machine.random_states(rows, seed=generator)
    noise = torch.rand(machine.layers[0].n_units, rows, generator=generator)
    drawn = [draw_in_turn(each, 0, start, np.uint64(0), noise) for each in (hamiltonian, by_row)]
    assert torch.equal(*drawn)
    monkeypatch.setattr(choice, "COMPILED", False)
    assert layers_in_turn(hamiltonian, rows) == set()
    real = hm.BoltzmannMachine([hm.Gaussian(40), Bernoulli(40)], edges=[(0, 1), (1, 1)])
    monkeypatch.undo()
    assert layers_in_turn(real.hamiltonian(), rows) == {1}
    counts = hm.BoltzmannMachine([hm.Binomial(40, 3)], edges=[(0, 0)])
    assert layers_in_turn(counts.hamiltonian(), rows) == set()


@pytest.mark.statistical
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.mostly_nightly(2)
def test_annealing_draws_units_in_turn(served, name):
    """ln Z within its errors of enumeration, either way along the path, where the compiled draw serves."""
    machine = make(name)
    exact = hm.likelihood.exact_log_partition(machine)
    states, probability = exact_hamiltonian(machine)
    rows = start_at(states, probability, torch.Generator().manual_seed(5))
    data = machine.hamiltonian().visible_states(rows)[:4000]
    found = hm.likelihood.ais(machine, 4000, 10, data=data, seed=1)
    assert abs(found.value - exact) < norm.isf(FAILURE_RATE / 2) * found.standard_error
    assert found.lower < exact < found.upper
    assert len(served) >= 20


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["Potts", "semi-restricted Potts", "spins, masked"])
def test_annealing_at_another_temperature_is_caught(served, monkeypatch, name):
    """Fields of units in turn that lack their β shift the estimate by many errors."""
    machine, draw = make(name), calls.draw_in_turn
    exact = hm.likelihood.exact_log_partition(machine)
    monkeypatch.setattr(
        calls,
        "draw_in_turn",
        lambda hamiltonian, l, x, key: draw(replace(hamiltonian, beta=0.5 * hamiltonian.beta), l, x, key),
    )
    rows = machine.hamiltonian().visible_states(machine.random_states(4000, seed=0))
    found = hm.likelihood.ais(machine, 4000, 10, data=rows, reverse=False, seed=1)
    assert abs(found.value - exact) > 5 * found.standard_error
