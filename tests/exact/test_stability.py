"""Plefka's number and the Hessian of mean-field solutions, against finite differences of F in numpy."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.optimize import root

import harmonium as hm

from .machines import array

TIGHT = {"tolerance": 1e-13, "max_sweeps": 3000, "damping": 0.5}


def hessian(function: Callable[[np.ndarray], float], x: np.ndarray, step: float = 1e-4) -> np.ndarray:
    """By second differences, whose errors are 1e-7 of functions that are exact."""
    n, unit = len(x), np.eye(len(x)) * step
    found = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
            values = [p * q * function(x + p * unit[i] + q * unit[j]) for p, q in signs]
            found[i, j] = sum(values) / (4 * step**2)
    return found


def least_eigenvalue(H: np.ndarray, blocks: list[np.ndarray]) -> float:
    """Of H relative to its diagonal blocks, whose indices are given."""
    D = np.zeros_like(H)
    for block in blocks:
        D[np.ix_(block, block)] = H[np.ix_(block, block)]
    root = np.linalg.inv(np.linalg.cholesky(D))
    return float(np.linalg.eigvalsh(root @ H @ root.T)[0])


def entropy(p: np.ndarray) -> float:
    return float(-(p * np.log(p)).sum())


def tap_free_energy(a: np.ndarray, J: np.ndarray, b: np.ndarray, values: np.ndarray, order: int) -> float:
    """F of units of two values (n, 2) at means a, with symmetric J."""
    p = (a - values[:, 0]) / (values[:, 1] - values[:, 0])
    c = (a - values[:, 0]) * (values[:, 1] - a)
    k = c * (values.sum(1) - 2 * a)
    total = entropy(p) + entropy(1 - p) + b @ a + a @ J @ a / 2
    total += c @ J**2 @ c / 4 if order > 1 else 0.0
    return float(-total - (k @ J**3 @ k / 12 if order > 2 else 0.0))


def drawn(layers: list[hm.layers.Layer], scale: float, seed: int, within: bool = False):
    """Returns a machine in float64 and its symmetric couplings and fields."""
    edges = [(0, 0)] if within else None
    machine = hm.BoltzmannMachine(layers, edges=edges).double()
    generator = torch.Generator().manual_seed(seed)
    widths = [layer.width for layer in layers]
    J, offsets = np.zeros((sum(widths), sum(widths))), np.cumsum([0, *widths])
    for (l, m), coupling in zip(machine.graph.edges, machine.couplings, strict=True):
        W = scale * torch.randn(widths[l], widths[m], generator=generator, dtype=torch.float64)
        if l == m:
            W = W.triu(1) + W.triu(1).T
        coupling.fill_(W)
        J[offsets[l] : offsets[l + 1], offsets[m] : offsets[m + 1]] = array(W)
        J[offsets[m] : offsets[m + 1], offsets[l] : offsets[l + 1]] = array(W).T
    return machine, J


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize(
    ("layers", "within"),
    [([hm.Spin(7)], True), ([hm.Bernoulli(5), hm.Spin(4)], False), ([hm.Bernoulli(4)] * 3, False)],
    ids=["glass", "rbm", "deep"],
)
@pytest.mark.mostly_nightly(2)
def test_two_state_units(layers: list[hm.layers.Layer], within: bool, order: int) -> None:
    layers = [type(layer)(layer.n_units) for layer in layers]
    values = np.concatenate([np.tile(layer.two_values, (layer.width, 1)) for layer in layers])
    for seed, scale in enumerate((0.1, 0.3, 0.6)):
        machine, J = drawn(layers, scale, seed, within)
        solution = hm.meanfield.tap(machine, machine.random_states(3, seed=seed)[0], order=order, **TIGHT)
        b = np.zeros(len(J))
        for row in np.flatnonzero(array(solution.converged)):
            a = np.concatenate([array(mean[row]) for mean in solution.means])
            H = hessian(lambda x, J=J, b=b: tap_free_energy(x, J, b, values, order), a)
            assert solution.stability is not None and solution.plefka is not None
            expected = least_eigenvalue(H, [np.array([i]) for i in range(len(a))])
            assert float(solution.stability[row]) == pytest.approx(expected, abs=1e-5)
            c = (a - values[:, 0]) * (values[:, 1] - a)
            plefka = np.linalg.eigvalsh(c[:, None] * J**2 * c)[-1]
            assert float(solution.plefka[row]) == pytest.approx(plefka, rel=1e-9)


def test_categorical_units() -> None:
    """F by the first q - 1 means of every unit; Plefka's number by the matrix of J ⊗ J and C ⊗ C."""
    q, n = 3, 4
    machine, J = drawn([hm.Categorical(n, q)], 0.3, 0, within=True)
    for i in range(n):
        block = slice(i * q, (i + 1) * q)
        J[block, block] = 0.0
    machine.couplings[0].fill_(torch.from_numpy(J))
    generator = torch.Generator().manual_seed(5)
    b = 0.3 * torch.randn(n * q, generator=generator, dtype=torch.float64)
    machine.layers[0].set_finite_(bias=b.view(machine.layers[0].bias.shape))
    solution = hm.meanfield.tap(machine, machine.random_states(1, seed=0)[0], **TIGHT)
    assert bool(solution.converged[0])

    def free_energy(free: np.ndarray) -> float:
        a = np.concatenate([np.append(part, 1 - part.sum()) for part in free.reshape(n, q - 1)])
        C = [np.diag(part) - np.outer(part, part) for part in a.reshape(n, q)]
        total = entropy(a) + b.numpy() @ a + a @ J @ a / 2
        for i in range(n):
            for j in range(n):
                block = J[i * q : (i + 1) * q, j * q : (j + 1) * q]
                total += np.trace(block.T @ C[i] @ block @ C[j]) / 4
        return float(-total)

    a = array(solution.means[0][0])
    H = hessian(free_energy, a.reshape(n, q)[:, :-1].flatten())
    blocks = [np.arange(i * (q - 1), (i + 1) * (q - 1)) for i in range(n)]
    assert float(solution.free_energy[0]) == pytest.approx(
        free_energy(a.reshape(n, q)[:, :-1].flatten()), abs=1e-9
    )
    assert float(solution.stability[0]) == pytest.approx(least_eigenvalue(H, blocks), abs=1e-5)
    joined = np.zeros((n * q * q, n * q * q))
    weights = np.zeros_like(joined)
    for i in range(n):
        C = np.diag(a[i * q : (i + 1) * q]) - np.outer(a[i * q : (i + 1) * q], a[i * q : (i + 1) * q])
        weights[i * q * q : (i + 1) * q * q, i * q * q : (i + 1) * q * q] = np.kron(C, C)
        for j in range(n):
            block = J[i * q : (i + 1) * q, j * q : (j + 1) * q]
            joined[i * q * q : (i + 1) * q * q, j * q * q : (j + 1) * q * q] = np.kron(block, block)
    expected = np.abs(np.linalg.eigvals(joined @ weights)).max()
    assert float(solution.plefka[0]) == pytest.approx(expected, rel=1e-6)


def test_gaussian_units() -> None:
    """F by means and variances of the visible units, means of the hidden ones."""
    machine, J = drawn([hm.Gaussian(3), hm.Spin(3)], 0.5, 2)
    solution = hm.meanfield.tap(machine, machine.random_states(1, seed=0)[0], **TIGHT)
    assert bool(solution.converged[0])
    theta = [array(part) for part in machine.hamiltonian().thetas[0]]
    W = J[:3, 3:]

    def free_energy(x: np.ndarray) -> float:
        a, c, m = x[:3], x[3:6], x[6:]
        p = (1 + m) / 2
        total = 0.5 * np.log(2 * np.pi * np.e * c).sum() + entropy(p) + entropy(1 - p)
        total += theta[0] @ a - theta[1] @ (a**2 + c) / 2 + a @ W @ m + c @ W**2 @ (1 - m**2) / 2
        return float(-total)

    x = np.concatenate(
        [array(part[0]) for part in (solution.means[0], solution.variances[0], solution.means[1])]
    )
    assert float(solution.free_energy[0]) == pytest.approx(free_energy(x), abs=1e-9)
    blocks = [np.array([i, i + 3]) for i in range(3)] + [np.array([i]) for i in range(6, 9)]
    expected = least_eigenvalue(hessian(free_energy, x), blocks)
    assert float(solution.stability[0]) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "visible", [hm.TruncatedGaussian(2, low=-1, high=2), hm.ReLU(2), hm.Binomial(2, 4)], ids=str
)
@pytest.mark.nightly
def test_other_units_with_variances_of_their_own(visible: hm.layers.Layer) -> None:
    """F by means and variances, the entropy of a unit by the field and curvature that give them."""
    layer = type(visible)(2, 4) if isinstance(visible, hm.Binomial) else deepcopy(visible)
    machine, J = drawn([layer, hm.Spin(2)], 0.4, 1)
    solution = hm.meanfield.tap(machine, machine.random_states(1, seed=0)[0], **TIGHT)
    assert bool(solution.converged[0])
    W, theta = torch.from_numpy(J[:2, 2:]), machine.hamiltonian().thetas[0]
    fields = torch.stack([solution.fields[0][0], solution.curvatures[0][0]]).double().numpy()

    def unit_entropy(a: np.ndarray, c: np.ndarray) -> float:
        def miss(fields: np.ndarray) -> np.ndarray:
            B, A = torch.from_numpy(fields).view(2, 2)
            mean, variance = layer.moments(B, A, theta)
            return np.concatenate([array(mean) - a, array(variance) - c])

        found = root(miss, fields.flatten(), tol=1e-13).x
        B, A = torch.from_numpy(found).view(2, 2)
        return float(layer.log_partition(B, A, theta).detach().sum()) + float(
            (-array(B) * a + array(A) * (a**2 + c) / 2).sum()
        )

    def free_energy(x: np.ndarray) -> float:
        a, c, m = x[:2], x[2:4], x[4:]
        p, w = (1 + m) / 2, W.numpy()
        total = unit_entropy(a, c) + entropy(p) + entropy(1 - p)
        return float(-(total + a @ w @ m + c @ w**2 @ (1 - m**2) / 2))

    parts = (solution.means[0], solution.variances[0], solution.means[1])
    x = np.concatenate([array(part[0]) for part in parts])
    assert float(solution.free_energy[0]) == pytest.approx(free_energy(x), abs=1e-7)
    blocks = [np.array([0, 2]), np.array([1, 3]), np.array([4]), np.array([5])]
    expected = least_eigenvalue(hessian(free_energy, x, 1e-3), blocks)
    assert float(solution.stability[0]) == pytest.approx(expected, abs=2e-3)


def test_the_numbers_do_not_depend_on_what_the_two_values_are() -> None:
    """Spins as ±1 and as 0/1 are one machine, whose couplings differ by a factor of 4."""
    spins, J = drawn([hm.Spin(6)], 0.4, 3, within=True)
    bits = hm.BoltzmannMachine([hm.Bernoulli(6)], edges=[(0, 0)]).double()
    bits.couplings[0].fill_(torch.from_numpy(4 * J))
    bits.layers[0].set_finite_(bias=torch.from_numpy(-2 * J.sum(1)))
    one = hm.meanfield.tap(spins, spins.random_states(1, seed=0)[0], **TIGHT)
    other = hm.meanfield.tap(bits, (spins.random_states(1, seed=0)[0] + 1) / 2, **TIGHT)
    assert bool(one.converged[0] & other.converged[0])
    assert float(one.plefka[0]) == pytest.approx(float(other.plefka[0]), rel=1e-8)
    assert float(one.stability[0]) == pytest.approx(float(other.stability[0]), abs=1e-8)


def test_held_units_take_no_part() -> None:
    machine, J = drawn([hm.Spin(6)], 0.4, 4, within=True)
    clamp = torch.tensor([[1.0, -1.0, *[torch.nan] * 4], [torch.nan] * 6])
    solution = hm.meanfield.tap(machine, torch.zeros(2, 6), clamp, **TIGHT)
    c = 1 - array(solution.means[0]) ** 2
    for row in range(2):
        expected = np.linalg.eigvalsh(c[row][:, None] * J**2 * c[row])[-1]
        assert float(solution.plefka[row]) == pytest.approx(expected, rel=1e-9)
    held = hm.meanfield.tap(machine, torch.ones(1, 6), torch.ones(1, 6))
    assert float(held.plefka[0]) == 0.0 and float(held.stability[0]) == 1.0


def glass(side: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Signs of the bonds downwards, (side - 1, side), and to the right, (side, side - 1)."""
    random = np.random.default_rng(seed)
    return random.choice([-1.0, 1.0], (side - 1, side)), random.choice([-1.0, 1.0], (side, side - 1))


def transfer(down: np.ndarray, right: np.ndarray, beta: float) -> float:
    """ln Z of a lattice with open ends, site by site over the states of a row."""
    side = right.shape[0]
    spins, w, scale = np.array([-1.0, 1.0]), np.ones((2,) * side), 0.0
    for r in range(side):
        for c in range(side):
            if r:
                step = np.exp(beta * down[r - 1, c] * np.outer(spins, spins))
                w = np.moveaxis(np.tensordot(w, step, ([c], [0])), -1, c)
            if c:
                shape = [1] * side
                shape[c - 1] = shape[c] = 2
                w = w * np.exp(beta * right[r, c - 1] * np.outer(spins, spins)).reshape(shape)
            scale, w = scale + np.log(w.max()), w / w.max()
    return float(scale + np.log(w.sum()))


def lattice(down: np.ndarray, right: np.ndarray, beta: float) -> hm.BoltzmannMachine:
    side = right.shape[0]
    place, J = np.arange(side**2).reshape(side, side), np.zeros((side**2, side**2))
    J[place[:-1].flatten(), place[1:].flatten()] = down.flatten()
    J[place[:, :-1].flatten(), place[:, 1:].flatten()] = right.flatten()
    J = torch.from_numpy(beta * (J + J.T))
    machine = hm.BoltzmannMachine([hm.Spin(side**2)], edges={(0, 0): hm.Masked(J != 0)})
    machine.couplings[0].fill_(J)
    return machine


def test_the_transfer_matrix_counts() -> None:
    down, right = glass(3, 5)
    exact = hm.likelihood.exact_log_partition(lattice(down, right, 0.7))
    assert transfer(down, right, 0.7) == pytest.approx(float(exact), abs=1e-4)


def test_a_cold_glass_has_no_estimate_by_tap_and_says_so() -> None:
    """12×12 bonds of either sign: right while it is warm, m = 0 with no doubt of its own when it is cold."""
    down, right = glass(12, 0)
    warm = lattice(down, right, 0.2)
    starts = warm.random_states(20, seed=1)[0]
    estimate = hm.likelihood.tap_log_partition(warm, starts)
    assert estimate.doubts == () and estimate.admissible == 1
    assert estimate.value == pytest.approx(transfer(down, right, 0.2), abs=0.05)
    cold, settings = lattice(down, right, 1.2), {"damping": 0.9, "max_sweeps": 5000}
    with pytest.warns(RuntimeWarning, match="Plefka's condition|no solution is admissible"):
        estimate = hm.likelihood.tap_log_partition(cold, starts, **settings)
    assert estimate.converged == 1.0 and estimate.solutions == 1 and estimate.admissible == 0
    assert np.isnan(estimate.value) and len(estimate.doubts) == 2
    found = hm.meanfield.landscape(cold, starts, **settings)
    assert float(-found.free_energies[0]) > transfer(down, right, 1.2) + 40  # what it said before
    assert not bool(found.admissible.any()) and found.doubts == estimate.doubts
    with pytest.raises(ValueError, match="log_partition: expected"):
        hm.likelihood.tap_log_likelihood(cold, starts, estimate)
    below = hm.likelihood.tap_log_partition(cold, starts, order=1)  # bounds, far below
    assert below.admissible > 0 and below.value < transfer(down, right, 1.2) - 5


def test_saddles_are_named_and_left_out() -> None:
    """Two spins that a strong bond joins: m = 0 solves naive mean field too, as a saddle."""
    machine = hm.BoltzmannMachine([hm.Spin(1), hm.Spin(1)]).double()
    machine.couplings[0].fill_(torch.tensor([[1.5]], dtype=torch.float64))
    starts = torch.tensor([[0.0], [0.5], [-0.5]], dtype=torch.float64)
    found = hm.meanfield.landscape(machine, starts, order=1)
    assert found.admissible.tolist() == [float(abs(m)) > 0.1 for m in found.solutions.means[0][:, 0]]
    assert float(found.solutions.stability.min()) == pytest.approx(-0.5)
    with pytest.warns(RuntimeWarning, match="1 of 3 solutions are no minima|Plefka"):
        estimate = hm.likelihood.tap_log_partition(machine, starts, order=1)
    kept = -found.free_energies[found.admissible]
    assert estimate.value == pytest.approx(float(kept.logsumexp(0))) and estimate.admissible == 2


def test_other_solvers_have_no_such_numbers() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
    with pytest.raises(ValueError, match="solution: expected one of meanfield"):
        _ = hm.meanfield.naive(machine, torch.zeros(1, 3)).admissible
