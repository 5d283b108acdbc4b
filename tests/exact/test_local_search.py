"""Local search against a plain loop in numpy, its ends, and what it does where the end is not sure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.backends import calls, choice
from harmonium.chains import local_search
from harmonium.chains.local_modes import _PATIENCE, search

from . import machines, oracle
from .specifications import SPECIFICATIONS, Specification, random_states

pytestmark = pytest.mark.slow

REAL = {"gaussian", *oracle.TRUNCATED}
DISCRETE = [s for s in SPECIFICATIONS if REAL.isdisjoint(s.kinds)]
ONE_REAL_PARITY = [
    s for s in SPECIFICATIONS if REAL.isdisjoint(s.kinds[::2]) != REAL.isdisjoint(s.kinds[1::2])
]
ROWS = 60


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mode(layer: oracle.Layer, field: np.ndarray) -> np.ndarray:
    """The most probable state of a unit given its field, ties to the upper value."""
    if layer.kind == "gaussian":
        linear, precision = layer.natural
        return (linear + field) / precision
    if layer.bounds is not None:
        low, high = layer.bounds
        slope, curvature = field + layer.natural[0], layer.natural[1]
        x = np.where((slope - curvature * high / 2) * high >= (slope - curvature * low / 2) * low, high, low)
        x = np.where(curvature > 0, np.clip(slope / np.maximum(curvature, 1e-300), low, high), x)
        if layer.kind == "truncated_gaussian":
            return x
        x = np.where(x == 0, np.finfo(float).tiny, x)  # as near to 0 as can be without being absent
        return np.where((slope - curvature * x / 2) * x + layer.natural[2] >= 0, x, 0.0)
    total = field + layer.natural[0].reshape(-1)
    if layer.kind == "categorical":
        states = layer.natural[0].shape[1]
        best = total.reshape(len(total), -1, states)
        last = states - 1 - best[..., ::-1].argmax(-1)
        return np.eye(states)[last].reshape(len(total), -1)
    return (total >= 0) * (2.0 if layer.kind == "spin" else 1.0) - (layer.kind == "spin")


def reference(description: oracle.Description, states: list[np.ndarray], first: int) -> list[np.ndarray]:
    """One row, one order, until a whole sweep changes no discrete unit."""
    states = [x.copy() for x in states]
    layers = description.layers
    while True:
        before = [x.copy() for x in states]
        for parity in (first, 1 - first):
            for l in range(parity, len(layers), 2):
                field = np.zeros_like(states[l])
                if l > 0:
                    field += states[l - 1] @ description.couplings[l - 1]
                if l < len(description.couplings):
                    field += states[l + 1] @ description.couplings[l].T
                states[l] = mode(layers[l], field)
        if all(np.allclose(a, b, atol=1e-12) for a, b in zip(before, states, strict=True)):
            return states


@pytest.fixture(params=[False, True], ids=["eager", "compiled"])
def compiled(request, monkeypatch):
    if request.param:
        pytest.importorskip("numba")
    monkeypatch.setattr(choice, "COMPILED", request.param)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("specification", DISCRETE + ONE_REAL_PARITY, ids=lambda s: s.name)
@pytest.mark.mostly_nightly(8)
def test_every_chain_ends_where_one_of_the_two_orders_ends(specification: Specification, dtype):
    machine = machines.build(specification)
    description = oracle.natural(machines.describe(machine))
    start = random_states(specification, ROWS)
    machine.to(dtype)
    modes, sweeps = local_search(machine, machines.tensors(start), seed=generator())
    orders = set()
    for row in range(ROWS):
        found = [x[row].numpy() for x in modes]
        ends = [reference(description, [x[row : row + 1] for x in start], first) for first in (0, 1)]
        same = [
            all(np.allclose(a, b[0], 1e-5, 1e-6) for a, b in zip(found, end, strict=True)) for end in ends
        ]
        assert any(same)
        orders |= {first for first in (0, 1) if same == [first == 0, first == 1]}
    assert int(sweeps.min()) >= 1
    if specification.name in ("bernoulli-bernoulli", "largest", "spin-bernoulli-spin"):
        assert orders == {0, 1}  # the coin falls on either side


@pytest.mark.parametrize("specification", DISCRETE, ids=lambda s: s.name)
def test_a_mode_is_where_a_search_stays(specification: Specification):
    machine = machines.build(specification)
    start = machines.tensors(random_states(specification, ROWS))
    modes, _ = local_search(machine, start, seed=generator())
    assert bool((machine.energy(modes) <= machine.energy(start) + 1e-12).all())
    again, sweeps = local_search(machine, modes, seed=generator(1))
    assert all(torch.equal(a, b) for a, b in zip(modes, again, strict=True))
    assert int(sweeps.max()) == 1


def test_held_values_stay_and_the_rest_is_a_mode_given_them():
    specification = next(s for s in DISCRETE if s.name == "largest")
    machine = machines.build(specification)
    start = machines.tensors(random_states(specification, ROWS))
    clamp = start[0].clone()
    clamp[:, 2:] = torch.nan
    modes, _ = local_search(machine, start, clamp, seed=generator())
    assert torch.equal(modes[0][:, :2], start[0][:, :2])
    hamiltonian = machine.hamiltonian()
    for l in range(3):
        best = machine.layers[l].mode(hamiltonian.field(l, modes))
        free = slice(2, None) if l == 0 else slice(None)
        assert torch.equal(best[:, free], modes[l][:, free])
    whole, _ = local_search(machine, start, start[0], seed=generator())
    assert torch.equal(whole[0], start[0])


def test_the_given_states_are_not_changed():
    specification = DISCRETE[1]
    machine = machines.build(specification)
    start = machines.tensors(random_states(specification, ROWS))
    kept = [x.clone() for x in start]
    local_search(machine, start, seed=generator())
    assert all(torch.equal(a, b) for a, b in zip(start, kept, strict=True))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_large_machines_end_at_modes(dtype):
    machine = hm.BoltzmannMachine([hm.Spin(150), hm.Bernoulli(120), hm.Spin(90)]).to(dtype)
    hm.machine.orthogonal_(machine, 1.0, generator())
    start = machine.random_states(40, seed=generator())
    modes, sweeps = local_search(machine, start, seed=generator())
    assert int(sweeps.max()) > 3
    hamiltonian = machine.hamiltonian()
    for l in range(3):
        assert torch.equal(machine.layers[l].mode(hamiltonian.field(l, modes)), modes[l])


DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]


def two_valued(kinds, edges=None, widths=(30, 37, 44, 51)):
    machine = hm.BoltzmannMachine([kind(n) for kind, n in zip(kinds, widths, strict=False)], edges)
    hm.machine.normal_(machine, 0.4, seed=generator(5))
    with torch.no_grad():
        for layer in machine.layers:
            layer.bias.normal_(generator=generator(6))
    return machine


MACHINES = {
    "two layers": lambda: two_valued([hm.Bernoulli, hm.Bernoulli]),
    "four layers": lambda: two_valued([hm.Spin, hm.Bernoulli, hm.Spin, hm.Spin]),
    "one unit between": lambda: two_valued([hm.Spin, hm.Bernoulli, hm.Spin], widths=(40, 1, 30)),
    "a diamond": lambda: two_valued([hm.Bernoulli, hm.Spin, hm.Bernoulli, hm.Spin], DIAMOND),
}


@pytest.mark.skipif(not choice.COMPILED, reason="needs numba")
@pytest.mark.parametrize("held", [(), (0,), (0, 1)], ids=["free", "one layer held", "two layers held"])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.mostly_nightly(2)
def test_compiled_chains_end_where_eager_ones_do(monkeypatch, name, held, dtype):
    machine = MACHINES[name]().to(dtype)
    start = machine.random_states(100, seed=generator())
    hamiltonian = machine.hamiltonian().tempered(0.7).clamp({l: start[l] for l in held}, 100)
    free = set(range(len(machine.layers))) - set(held)
    serves = choice.search(hamiltonian, free)
    assert serves == (any(l in free and m in free for l, m in machine.edges))
    with torch.no_grad():
        fast, sweeps = search(hamiltonian, start, generator())
        monkeypatch.setattr(choice, "COMPILED", False)
        slow, expected = search(hamiltonian, start, generator())
    assert torch.equal(sweeps, expected)
    # More than what all chains do together, but where a single unit decides.
    assert not serves or int(sweeps.max()) > 3 or name == "one unit between"
    for l in range(len(machine.layers)):
        assert torch.equal(fast.states[l], slow.states[l])
    assert fast.fields.keys() == slow.fields.keys()
    for l, field in fast.fields.items():
        torch.testing.assert_close(field, slow.fields[l], rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not choice.COMPILED, reason="needs numba")
def test_a_compiled_chain_notices_a_cycle():
    """Two units of which one wants to be as the other is, and that one not: couplings no machine has."""
    parts, ways = np.array([(0, 1, 0, 0, 1), (1, 2, 1, 1, 2)]), np.array([(1, 2), (0, 1)])
    J, beta = tuple(np.full((1, 1), value, np.float32) for value in (1, -1)), np.float32(1)
    x, fields = np.ones((3, 2), np.float32), np.array([[-1, 1], [-1, 1], [1, 1]], np.float32)
    bias, low, halves = np.zeros(2, np.float32), np.full(2, -1, np.float32), np.zeros(3, np.int64)
    calls.over("per_row.climb", 3, 2, _PATIENCE, parts, ways, J, beta, bias, low, x, fields, halves)
    # Seen at the first odd half-step from then on, and again a cycle of four later; the last row is at rest.
    assert halves.tolist() == [_PATIENCE + 6, _PATIENCE + 6, 3]


def test_a_cycle_is_noticed(monkeypatch):
    """Modes taken for the opposite, as rounding never would, so that no state is ever left in peace."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(3)])
    with torch.no_grad():
        machine.couplings[0].weight.copy_(torch.eye(3))
        for layer in machine.layers:
            layer.bias.fill_(-0.5)
    monkeypatch.setattr(choice, "search", lambda *_: False)
    right = hm.Bernoulli.mode
    monkeypatch.setattr(
        hm.Bernoulli,
        "mode",
        lambda self, field, theta=None: (
            1 - right(self, field, theta) if self is machine.layers[0] else right(self, field, theta)
        ),
    )
    hamiltonian = machine.hamiltonian()
    with torch.no_grad():
        step, sweeps = search(hamiltonian, machine.random_states(8, seed=generator()), generator())
        assert int(sweeps.max()) > _PATIENCE // 2
        for l in range(2):
            assert torch.equal(step.fields[l], hamiltonian.field(l, step.states))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("kind", [hm.Spin, lambda n: hm.Categorical(n, 3)], ids=["spin", "categorical"])
@pytest.mark.parametrize("seed", [1918, 2452])
def test_the_fields_are_those_of_the_modes(seed, kind):
    """Of states that tie but for rounding too, among which a search may go round in a circle."""
    source = generator(seed)
    machine = hm.BoltzmannMachine([kind(4), kind(4)])
    W = machine.couplings[0].weight
    with torch.no_grad():
        W.copy_(torch.randint(-3, 4, W.shape, generator=source) * 0.1)
        for layer in machine.layers:
            layer.bias.zero_()
        hamiltonian = machine.hamiltonian()
        step, _ = search(hamiltonian, machine.random_states(40, seed=source), generator(1))
        assert step.fields.keys() == {0, 1}
        for l, field in step.fields.items():
            torch.testing.assert_close(field, hamiltonian.field(l, step.states))


def test_real_units_in_both_parities_are_refused():
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Gaussian(2), hm.Bernoulli(2)])
    states = machine.random_states(3, seed=generator())
    with pytest.raises(ValueError, match="one colour"):
        local_search(machine, states, seed=generator())
    modes, _ = local_search(machine, states, states[0], seed=generator())
    assert torch.equal(modes[0], states[0])
