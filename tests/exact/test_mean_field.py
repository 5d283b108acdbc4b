"""Naive mean field: fixed points, bounds on ln Z and on log p(v), monotone descent, rows apart, status."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

import harmonium as hm

from . import oracle
from .machines import array, build, describe, tensors
from .oracle import Array, Description
from .specifications import ADJACENT, SPECIFICATIONS, Specification, random_states

naive = hm.meanfield.naive
EVERY = (*SPECIFICATIONS, ADJACENT)
# Weak couplings have one solution, which every start and every damping must reach.
WEAK = [replace(s, coupling=0.15) for s in EVERY if s.name != "strong"]

every = pytest.mark.parametrize("specification", EVERY, ids=lambda s: s.name)
weak = pytest.mark.parametrize("specification", WEAK, ids=lambda s: s.name)
shallow = pytest.mark.parametrize(
    "specification", [s for s in EVERY if s.hidden_layers == 1], ids=lambda s: s.name
)


def in_turn(specifications: Sequence[Specification], settings: Sequence[float]) -> list[object]:
    """Every machine with one of the settings, which the loop uses and no machine knows."""
    return [
        pytest.param(s, settings[i % len(settings)], id=f"{s.name}-{settings[i % len(settings)]}")
        for i, s in enumerate(specifications)
    ]


budgets = pytest.mark.parametrize("max_sweeps", [1, 2, 1000])


def start(specification: Specification, rows: int = 4) -> torch.Tensor:
    return tensors(random_states(specification, rows, layer=0))[0]


def unit_moments(description: Description, layer: int, states: list[Array]) -> tuple[Array, Array]:
    """Mean and variance of every column given the neighbours' values, unit by unit, from the oracle."""
    kind = description.layers[layer]
    field = np.zeros((len(states[layer]), kind.width))
    if layer > 0:
        field = field + states[layer - 1] @ description.couplings[layer - 1]
    if layer < len(description.couplings):
        field = field + states[layer + 1] @ description.couplings[layer].T
    columns = kind.width // kind.n_units
    truths = []
    for unit in range(kind.n_units):
        own = field[:, unit * columns : (unit + 1) * columns]
        truths.append(oracle.unit_truth(kind, unit, own, np.zeros_like(own)))
    return np.hstack([t.mean for t in truths]), np.hstack([t.variance for t in truths])


@every
@pytest.mark.parametrize("clamped", [False, True], ids=["free", "clamped"])
def test_the_means_are_a_fixed_point(specification: Specification, clamped: bool) -> None:
    machine = build(specification)
    description = oracle.natural(describe(machine))
    v = start(specification)
    solution = naive(machine, v, v if clamped else None, tolerance=1e-12, max_sweeps=20_000)
    assert bool(solution.converged.all())
    means = [array(a) for a in solution.means]
    for l in range(len(means)):
        if clamped and l == 0:
            np.testing.assert_array_equal(means[0], array(v))
            assert not bool(solution.variances[0].any())
            continue
        mean, variance = unit_moments(description, l, means)
        np.testing.assert_allclose(means[l], mean, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(array(solution.variances[l]), variance, rtol=1e-8, atol=1e-8)


@every
def test_independent_units_are_solved_exactly(specification: Specification) -> None:
    """Without couplings mean field is the distribution itself: -F = ln Z, exact moments, at once."""
    machine = build(specification)
    with torch.no_grad():
        for coupling in machine.couplings:
            coupling.weight.zero_()
    solution = naive(machine, start(specification))
    description = oracle.natural(describe(machine))
    truth = [
        oracle.expectations(Description((layer,), ())) if layer.kind != "gaussian" else None
        for layer in description.layers
    ]
    for l, expected in enumerate(truth):
        layer = description.layers[l]
        exact = layer.natural[0] / layer.natural[1] if expected is None else expected.statistics[0][0]
        np.testing.assert_allclose(
            array(solution.means[l]), np.tile(exact.ravel(), (4, 1)), rtol=1e-10, atol=1e-12
        )
    np.testing.assert_allclose(
        array(-solution.free_energy),
        hm.likelihood.exact_log_partition(machine)
        if specification is not ADJACENT
        else oracle.log_partition(description),
        rtol=1e-10,
    )
    assert bool(solution.converged.all())
    assert int(solution.sweeps.max()) <= 2


@shallow
def test_the_clamped_phase_of_one_hidden_layer_is_exact(specification: Specification) -> None:
    machine = build(specification)
    description = oracle.natural(describe(machine))
    v = start(specification, 5)
    solution = naive(machine, v, v)
    phases = [oracle.expectations(description, {0: row}) for row in array(v)]
    np.testing.assert_allclose(array(-solution.free_energy), [p.log_partition for p in phases], rtol=1e-10)
    expected = [p.statistics[1][0].ravel() for p in phases]
    np.testing.assert_allclose(array(solution.means[1]), expected, rtol=1e-10, atol=1e-12)
    assert bool(solution.converged.all())
    assert int(solution.sweeps.max()) == 1


@pytest.mark.mostly_nightly(30)
@every
@pytest.mark.parametrize(("max_sweeps", "damping"), [(1, 0.0), (2, 0.7), (5, 0.0), (1000, 0.7)])
def test_a_lower_bound_on_the_log_partition_at_every_sweep(
    specification: Specification, max_sweeps: int, damping: float
) -> None:
    machine = build(specification)
    exact = oracle.log_partition(oracle.natural(describe(machine)))
    solution = naive(machine, start(specification), max_sweeps=max_sweeps, damping=damping)
    assert solution.free_energy.dtype == torch.float64
    assert bool((-solution.free_energy <= exact + 1e-9 * abs(exact)).all())


@every
@budgets
def test_a_lower_bound_on_the_log_likelihood_at_every_sweep(
    specification: Specification, max_sweeps: int
) -> None:
    machine = build(specification)
    description = oracle.natural(describe(machine))
    v = start(specification)
    exact = oracle.log_probability(description, array(v))
    solution = naive(machine, v, v, max_sweeps=max_sweeps)
    bound = array(-solution.free_energy) - oracle.log_partition(description)
    assert (bound <= exact + 1e-9 * np.abs(exact)).all()


@every
@pytest.mark.parametrize("clamped", [False, True], ids=["free", "clamped"])
def test_the_free_energy_never_rises(specification: Specification, clamped: bool) -> None:
    """Undamped: every sweep minimises over one parity, then over the other."""
    machine = build(specification)
    v = start(specification)
    sweeps = [
        array(naive(machine, v, v if clamped else None, tolerance=1e-300, max_sweeps=n).free_energy)
        for n in (1, 2, 3, 10)
    ]
    steps = np.diff(np.array(sweeps), axis=0)
    assert (steps <= 1e-10 * (1 + np.abs(sweeps[0]))).all()


@pytest.mark.parametrize(("specification", "damping"), in_turn(WEAK, (0.3, 0.7)))
def test_damping_reaches_the_same_solution(specification: Specification, damping: float) -> None:
    machine = build(specification)
    v = start(specification)
    settings = {"tolerance": 1e-11, "max_sweeps": 20_000}
    plain, damped = naive(machine, v, **settings), naive(machine, v, damping=damping, **settings)
    assert bool(plain.converged.all() and damped.converged.all())
    for left, right in zip(plain.means, damped.means, strict=True):
        np.testing.assert_allclose(array(left), array(right), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(array(plain.free_energy), array(damped.free_energy), rtol=1e-9)
    assert bool((damped.sweeps >= plain.sweeps).all())


@pytest.mark.parametrize(("specification", "damping"), in_turn(EVERY, (0.0, 0.5)))
def test_rows_are_solved_apart(specification: Specification, damping: float) -> None:
    """A batch gives what its rows give one by one, although they stop at different sweeps."""
    machine = build(specification)
    v = start(specification, 3)
    together = naive(machine, v, damping=damping, max_sweeps=60)
    for i in range(len(v)):
        alone = naive(machine, v[i : i + 1], damping=damping, max_sweeps=60)
        assert bool(alone.converged[0]) == bool(together.converged[i])
        assert int(alone.sweeps[0]) == int(together.sweeps[i])
        for left, right in zip(alone.means, together.means, strict=True):
            np.testing.assert_allclose(array(left[0]), array(right[i]), rtol=1e-9, atol=1e-10)
        assert float(alone.free_energy[0]) == pytest.approx(float(together.free_energy[i]), rel=1e-10)


def test_the_status_tells_what_has_not_converged() -> None:
    """A ferromagnet near its critical coupling: slow from a balanced start, at once from far outside."""
    machine = hm.BoltzmannMachine([hm.Spin(4), hm.Spin(4)]).double()
    with torch.no_grad():
        machine.couplings[0].weight.fill_(0.2501)
    balanced = torch.tensor([[0.5, 0.5, 0.5, 0.5]], dtype=torch.float64)
    zero = torch.zeros(1, 4, dtype=torch.float64)
    solution = naive(machine, torch.cat([balanced, zero]), max_sweeps=20)
    assert solution.converged.tolist() == [False, True]
    assert solution.sweeps.tolist() == [20, 1]
    assert bool(torch.isfinite(solution.free_energy).all())
    longer = naive(machine, balanced, max_sweeps=100_000)
    assert bool(longer.converged[0])
    assert 20 < int(longer.sweeps[0]) < 100_000


@weak
def test_a_tighter_tolerance_comes_closer(specification: Specification) -> None:
    """The last change is at most the tolerance; at weak coupling the solution is then about as near."""
    machine = build(specification)
    v = start(specification)
    reference = naive(machine, v, tolerance=1e-13, max_sweeps=20_000)
    for tolerance in (1e-3, 1e-6, 1e-9):
        solution = naive(machine, v, tolerance=tolerance)
        assert bool(solution.converged.all())
        units = sum(a.shape[1] for a in solution.means)
        error = sum((a - b).square().sum(1) for a, b in zip(solution.means, reference.means, strict=True))
        assert float(error.max()) <= units * (3 * tolerance) ** 2


def test_a_single_precision_machine_is_solved_in_single_precision() -> None:
    for specification in WEAK:
        single, double = build(specification, torch.float32), build(specification)
        v = start(specification)
        left, right = naive(single, v), naive(double, v)
        assert {a.dtype for a in (*left.means, *left.variances)} == {torch.float32}
        assert left.free_energy.dtype == torch.float64
        np.testing.assert_allclose(array(left.free_energy), array(right.free_energy), rtol=2e-5, atol=2e-5)


def test_the_machine_and_the_arguments_stay_as_they_were() -> None:
    specification = SPECIFICATIONS[2]
    machine = build(specification)
    before = oracle.parameters(describe(machine))
    v = start(specification)
    kept = v.clone()
    solution = naive(machine, v, v)
    solution.means[0].add_(1)
    assert torch.equal(v, kept)
    for name, value in oracle.parameters(describe(machine)).items():
        np.testing.assert_array_equal(value, before[name])
