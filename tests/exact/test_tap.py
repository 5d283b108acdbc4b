"""TAP: its fixed points, the order of its error against enumeration, its gradient, clamps, rows, status."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.machine import Hamiltonian
from harmonium.meanfield import Plefka, Point, Status, iterate, solve

from . import oracle
from .graphs import with_drawn_parameters
from .machines import array, build, describe, tensors
from .mean_field import MACHINES, SEEDS, TIGHT, exact_log_partition, noise, random_machine, tight
from .specifications import SPECIFICATIONS, Specification, random_states

pytestmark = pytest.mark.slow


@cache
def error(name: str, order: int, scale: float) -> float:
    """Root mean square over machines of F - F_enumerated."""
    errors = []
    for seed in SEEDS:
        machine = random_machine(name, seed, scale)
        solution = hm.meanfield.tap(machine, noise(machine), order=order, **tight(scale))
        assert bool(solution.converged.all())
        errors.append(abs(float(-solution.free_energy[0]) - exact_log_partition(name, seed, scale)))
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.mostly_nightly(2)
def test_the_error_falls_like_the_cube_and_beats_the_first_order_tenfold(name: str) -> None:
    assert np.log2(error(name, 2, 0.05) / error(name, 2, 0.025)) > 2.85
    first_weak, first_strong = error(name, 1, 0.1), error(name, 1, 0.2)
    assert 1.8 < np.log2(first_strong / first_weak) < 2.3
    assert error(name, 1, 1.0) > 10 * error(name, 2, 1.0)


def test_a_pair_within_a_layer_counts_once() -> None:
    """Counted twice, the second order would leave an error of the square of the couplings."""
    errors = []
    for scale in (0.1, 0.05):
        machine = with_drawn_parameters(hm.BoltzmannMachine([hm.Spin(5)], edges=[(0, 0)]).double(), scale)
        solution = hm.meanfield.tap(machine, machine.random_states(1, seed=0)[0], **TIGHT)
        truth = float(hm.likelihood.exact_log_partition(machine))
        errors.append(abs(float(-solution.free_energy[0]) - truth))
    assert np.log2(errors[0] / errors[1]) > 2.7


@pytest.mark.parametrize("name", ["bernoulli", "spin", "spin-bernoulli-spin"])
def test_the_error_of_the_third_order_falls_like_the_fourth_power(name: str) -> None:
    weak, strong = error(name, 3, 0.05), error(name, 3, 0.1)
    assert np.log2(strong / weak) > 3.8
    assert weak < error(name, 2, 0.05)


@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda s: s.name)
@pytest.mark.parametrize("clamped", [False, True], ids=["free", "clamped"])
def test_the_solution_satisfies_the_equations(specification: Specification, clamped: bool) -> None:
    """A and B from the neighbours' moments by loops over units, moments from the oracle at these."""
    machine = build(replace(specification, coupling=min(specification.coupling, 0.25)))
    description = oracle.natural(describe(machine))
    v = tensors(random_states(specification, 1, layer=0))[0]
    solution = hm.meanfield.tap(machine, v, v if clamped else None, **TIGHT)
    assert bool(solution.converged.all())
    for row in range(len(v)):
        a = [array(x[row]) for x in solution.means]
        for l, kind in enumerate(description.layers):
            if clamped and l == 0:
                assert not bool(solution.variances[0].any())
                continue
            q = kind.width // kind.n_units
            for unit in range(kind.n_units):
                own = slice(unit * q, unit * q + q)
                field, reaction = np.zeros(q), np.zeros((q, q))
                for k in (l - 1, l + 1):
                    if not 0 <= k < len(a):
                        continue
                    J = description.couplings[l].T if k > l else description.couplings[k]
                    other = description.layers[k]
                    p = other.width // other.n_units
                    field += a[k] @ J[:, own]
                    for unit_k in range(other.n_units):
                        theirs = slice(unit_k * p, unit_k * p + p)
                        covariance = np.diag(array(solution.variances[k][row])[theirs])
                        if p > 1 and not (clamped and k == 0):
                            covariance = np.diag(a[k][theirs]) - np.outer(a[k][theirs], a[k][theirs])
                        reaction -= J[theirs, own].T @ covariance @ J[theirs, own]
                field += reaction @ a[l][own]
                truth = oracle.unit_truth(kind, unit, field[None], np.diag(reaction)[None])
                np.testing.assert_allclose(a[l][own], truth.mean[0], rtol=1e-8, atol=1e-9)
                np.testing.assert_allclose(
                    array(solution.variances[l][row])[own], truth.variance[0], rtol=1e-8, atol=1e-9
                )


@pytest.mark.mostly_nightly(12)
@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("name", MACHINES)
def test_the_statistics_are_the_derivative_of_the_free_energy(name: str, order: int) -> None:
    """Central differences of F, solved anew, in every natural parameter that a random direction mixes."""
    machine = random_machine(name, 0, 0.8)
    if order == 3 and any(layer.n_states != 2 for layer in machine.layers):
        with pytest.raises(ValueError, match="order"):
            hm.meanfield.tap(machine, noise(machine), order=3)
        return
    hamiltonian = machine.hamiltonian()
    start = noise(machine)
    generator = torch.Generator().manual_seed(5)

    def scheme(h: Hamiltonian) -> Plefka:
        return Plefka(h, order)

    point, status, _ = iterate(scheme(hamiltonian), start, **TIGHT)
    assert int(status[0]) == Status.CONVERGED
    one = torch.ones(1, dtype=torch.float64)
    for _ in range(3):
        along = replace(
            hamiltonian,
            thetas=tuple(
                tuple(torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in theta)
                for theta in hamiltonian.thetas
            ),
            J=tuple(torch.randn(J.shape, generator=generator, dtype=J.dtype) for J in hamiltonian.J),
        )
        slope = sum(
            float((t[0] * d).sum().detach())
            for l, theta in enumerate(along.thetas)
            for t, d in zip(scheme(hamiltonian).statistics(l, point), theta, strict=True)
        )
        for l, (below, above, _) in enumerate(hamiltonian.edges):
            products = point.means[below].t() @ point.means[above]
            covariances = scheme(hamiltonian).covariances(l, point, one)
            products = products if covariances is None else products + covariances
            slope += float((products * along.J[l]).sum().detach())
        step, values = 1e-5, []
        for sign in (1, -1):
            moved = replace(
                hamiltonian,
                thetas=tuple(
                    tuple((p + sign * step * d).detach() for p, d in zip(theta, ds, strict=True))
                    for theta, ds in zip(hamiltonian.thetas, along.thetas, strict=True)
                ),
                J=tuple((J + sign * step * d).detach() for J, d in zip(hamiltonian.J, along.J, strict=True)),
            )
            values.append(float(solve(scheme(moved), point, **TIGHT).free_energy[0]))
        assert (values[1] - values[0]) / (2 * step) == pytest.approx(slope, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("specification", SPECIFICATIONS, ids=lambda s: s.name)
def test_independent_units_are_solved_exactly(specification: Specification, order: int) -> None:
    machine = build(specification)
    with torch.no_grad():
        for W in (coupling.weight for coupling in machine.couplings):
            W.zero_()
    solution = hm.meanfield.tap(machine, noise(machine, 3), order=order)
    expected = hm.likelihood.exact_log_partition(machine)
    np.testing.assert_allclose(array(-solution.free_energy), expected, rtol=1e-10)
    assert bool(solution.converged.all())


@pytest.mark.parametrize(
    "specification", [s for s in SPECIFICATIONS if s.hidden_layers == 1], ids=lambda s: s.name
)
def test_the_clamped_phase_of_one_hidden_layer_is_exact(specification: Specification) -> None:
    machine = build(specification)
    v = tensors(random_states(specification, 4, layer=0))[0]
    solution = hm.meanfield.tap(machine, v, v)
    expected = -machine.free_energy(v)
    np.testing.assert_allclose(array(-solution.free_energy), array(expected), rtol=1e-10)


@pytest.mark.parametrize(
    "name", ["bernoulli", "gaussian-bernoulli", "categorical-bernoulli", "bernoulli deep"]
)
def test_held_units_are_as_good_as_gone(name: str) -> None:
    """Some visible units held: the same as a machine without them and with their field in the biases."""
    machine = random_machine(name, 0, 1.0)
    layer = machine.layers[0]
    q, keep = layer.width // layer.n_units, layer.n_units // 2
    start = noise(machine, 3)
    clamp = start.clone()
    clamp[:, : keep * q] = torch.nan
    held = start[:, keep * q :]
    solution = hm.meanfield.tap(machine, start, clamp, **TIGHT)
    assert torch.equal(solution.means[0][:, keep * q :], held)
    for row in range(3):
        config = layer.config() | {"n_units": keep}
        rest = hm.BoltzmannMachine([type(layer)(**config), *MACHINES[name]()[1:]]).double()
        with torch.no_grad():
            for mine, theirs in zip(rest.parameters(), machine.parameters(), strict=True):
                mine.copy_(theirs[tuple(slice(n) for n in mine.shape)])
            J = machine.hamiltonian().J[0]
            rest.layers[1].bias += (held[row] @ J[keep * q :]).view_as(rest.layers[1].bias)
        alone = hm.meanfield.tap(rest, start[row : row + 1, : keep * q], **TIGHT)
        for l, mean in enumerate(alone.means):
            np.testing.assert_allclose(
                array(solution.means[l][row])[: mean.shape[1]], array(mean[0]), atol=1e-9
            )
        theta = [p.detach()[keep * q :] for p in machine.hamiltonian().thetas[0]]
        terms = zip(layer.statistics(held[row]), theta, strict=True)
        energy = float(sum((t * p).sum() for t, p in terms))
        assert float(solution.free_energy[row]) == pytest.approx(
            float(alone.free_energy[0]) - energy, abs=1e-9
        )


def test_hidden_units_can_be_held() -> None:
    machine = random_machine("bernoulli deep", 0, 1.0)
    h = torch.full((1, 11), torch.nan, dtype=torch.float64)
    h[0, :4] = 1.0
    solution = hm.meanfield.tap(machine, noise(machine), {1: h}, **TIGHT)
    assert bool(solution.converged.all())
    assert torch.equal(solution.means[1][0, :4], torch.ones(4, dtype=torch.float64))
    assert not bool(solution.variances[1][0, :4].any())


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("damping", [0.0, 0.5, "adaptive"])
def test_rows_are_solved_apart(order: int, damping: float) -> None:
    machine = random_machine("bernoulli", 0, 3.0)
    start = noise(machine, 30)
    settings = {"order": order, "damping": damping, "max_sweeps": 60}
    together = hm.meanfield.tap(machine, start, **settings)
    assert len(set(together.sweeps.tolist())) > 1  # they stop at different sweeps
    for i in (0, 17):
        alone = hm.meanfield.tap(machine, start[i : i + 1], **settings)
        assert int(alone.status[0]) == int(together.status[i])
        assert int(alone.sweeps[0]) == int(together.sweeps[i])
        assert float(alone.free_energy[0]) == pytest.approx(float(together.free_energy[i]), rel=1e-9)
        for left, right in zip(alone.means, together.means, strict=True):
            np.testing.assert_allclose(array(left[0]), array(right[i]), rtol=1e-8, atol=1e-9)


def test_rows_with_parameters_and_temperatures_of_their_own() -> None:
    machine = random_machine("bernoulli deep", 0, 2.0)
    start = noise(machine, 6)
    generator = torch.Generator().manual_seed(3)
    shift = torch.randn(start.shape, generator=generator, dtype=torch.float64)
    beta = torch.linspace(0, 1, 6, dtype=torch.float64).unsqueeze(-1)
    plain = machine.hamiltonian()
    bias = plain.thetas[0][0].detach()
    rows = replace(plain, thetas=((bias + shift,), *plain.thetas[1:]), beta=beta)
    for order in (1, 2, 3):
        together = solve(Plefka(rows, order), start, **TIGHT)
        assert bool(together.converged.all())
        for i in range(6):
            h = replace(plain, thetas=((bias + shift[i],), *plain.thetas[1:]), beta=float(beta[i]))
            alone = solve(Plefka(h, order), start[i : i + 1], **TIGHT)
            assert float(alone.free_energy[0]) == pytest.approx(float(together.free_energy[i]), rel=1e-9)


def test_real_units_without_a_normaliser_say_so_and_nothing_is_ever_nan() -> None:
    """Balanced spins leave the Gaussian units no precision; aligned ones, without variance, do."""
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Gaussian(4)]).double()
    with torch.no_grad():
        machine.couplings[0].weight.fill_(0.7)
    start = torch.cat([torch.ones(1, 6), torch.zeros(1, 6)]).double()
    for damping in (0.0, 0.5, "adaptive"):
        solution = hm.meanfield.tap(machine, start, damping=damping, max_sweeps=50)
        assert solution.status.tolist() == [Status.CONVERGED, Status.UNBOUNDED]
        for part in (*solution.means, *solution.variances, solution.free_energy, *solution.fields):
            assert bool(torch.isfinite(part).all())
    assert all(status.message for status in Status)


def test_a_solve_goes_on_from_a_point() -> None:
    machine = random_machine("bernoulli", 0, 2.0)
    hamiltonian = machine.hamiltonian()
    scheme = Plefka(hamiltonian)
    start = noise(machine, 4)
    settings = {"tolerance": 1e-300, "damping": 0.2}
    half, _, _ = iterate(scheme, start, max_sweeps=7, **settings)
    kept = half.copy()
    rest, _, _ = iterate(scheme, half, max_sweeps=8, **settings)
    whole, _, _ = iterate(scheme, start, max_sweeps=15, **settings)
    for a, b in zip(rest.means, whole.means, strict=True):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-13)
    assert all(torch.equal(a, b) for a, b in zip(half.means, kept.means, strict=True))
    assert isinstance(half, Point)
