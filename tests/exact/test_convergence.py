"""R̂ and effective sample sizes against arviz-stats and closed forms, and the diagnosis of a machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.chains import autocorrelation_times, convergence, diagnose_chains, overlaps


def autoregressive(memory: float, chains: int, sweeps: int, seed: int = 0) -> np.ndarray:
    """x_t = memory · x_(t-1) + noise, from its stationary distribution."""
    noise = np.random.default_rng(seed).normal(size=(chains, sweeps))
    x = np.empty_like(noise)
    x[:, 0] = noise[:, 0] / math.sqrt(1 - memory**2)
    for t in range(1, sweeps):
        x[:, t] = memory * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.95, 0.995, -0.5])
@pytest.mark.parametrize(("chains", "sweeps"), [(4, 1000), (2, 50), (50, 500), (100, 20), (3, 101)])
def test_the_numbers_are_those_of_arviz(memory: float, chains: int, sweeps: int) -> None:
    reason = "the oracle is arviz-stats, of the extra dev"
    oracle = pytest.importorskip("arviz_stats.base.array", reason=reason).array_stats
    x = autoregressive(memory, chains, sweeps)
    shifted = x + 0.3 * np.arange(chains)[:, None]
    for draws in (x, np.round(x, 1), shifted):  # ties and chains that disagree
        axes = {"chain_axis": 0, "draw_axis": 1}
        expected = (
            oracle.rhat(draws, **axes),
            oracle.ess(draws, method="bulk", **axes),
            oracle.ess(draws, method="tail", prob=(0.05, 0.95), **axes),
            draws.mean(),
            oracle.mcse(draws, method="mean", **axes),
        )
        assert convergence(draws) == pytest.approx([float(each) for each in expected], rel=1e-9, abs=1e-12)


def test_the_numbers_have_their_closed_forms() -> None:
    """An autoregression has N (1 - φ)/(1 + φ) effective draws; of 40,000 draws 15 % is over four standard
    errors of the estimate (failure rate below 1e-3)."""
    for memory in (0.0, 0.5, 0.9):
        found = convergence(autoregressive(memory, 20, 2000))
        assert found.ess_bulk == pytest.approx(40_000 * (1 - memory) / (1 + memory), rel=0.15)
        assert 0.999 < found.r_hat < 1.02
    apart = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
    apart[0] += 5
    assert convergence(apart).r_hat > 1.5 and convergence(apart).ess_bulk < 20


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.9, -0.5])
def test_means_and_their_errors_have_their_closed_forms(memory: float) -> None:
    """A mean of N draws of x_t = φ x_(t-1) + noise has the variance 1 / (N (1 - φ)²) for long chains.

    Of 40,000 draws its error is right to a tenth, and the mean 0 within five errors (failure rate 1e-3).
    """
    x = autoregressive(memory, 20, 2000, seed=1)
    found = convergence(x)
    assert found.mean == pytest.approx(float(x.mean()))
    assert found.standard_error == pytest.approx(1 / (200 * (1 - memory)), rel=0.1)
    assert abs(found.mean) < 5 * found.standard_error


def test_chains_that_never_move_are_not_called_converged() -> None:
    still = convergence(np.full((4, 100), 0.1))
    assert still.mean == pytest.approx(0.1)
    assert all(math.isnan(each) for name, each in still._asdict().items() if name != "mean")
    frozen = np.repeat(np.arange(4.0)[:, None], 100, 1)
    assert convergence(frozen).r_hat > 1e6 and convergence(frozen).ess_bulk < 10


def test_wrong_draws_are_refused() -> None:
    with pytest.raises(ValueError, match=r"draws: expected \(chains, sweeps\) with at least 20 sweeps"):
        convergence(np.ones((4, 19)))
    with pytest.raises(ValueError, match="draws: expected finite values, received nan"):
        convergence(np.full((4, 50), np.nan))
    with pytest.raises(TypeError, match="draws: expected a numpy array or torch tensor"):
        convergence([[1.0] * 50])  # type: ignore[arg-type]


def test_a_machine_that_mixes_passes_and_one_that_does_not_is_told() -> None:
    mixing = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
    found = diagnose_chains(mixing)
    assert found.passed and found.r_hat <= 1.01 and found.ess > 400 and found.draws == 50 * 1000
    names = ["free energy", *(f"edge (0, 1), direction {k}" for k in (1, 2, 3))]
    assert list(found.quantities) == names
    assert all(name in repr(found) for name in names) and "of 50000 draws" in repr(found)
    again = [diagnose_chains(mixing, chains=4, sweeps=40).quantities for _ in range(2)]
    assert again[0] == again[1]  # as often as it is asked

    stuck = hm.BoltzmannMachine([hm.Spin(8), hm.Spin(8)])
    with torch.no_grad():
        stuck.couplings[0].weight.fill_(2.0)
    found = diagnose_chains(stuck, chains=20, sweeps=200)
    assert not found.passed
    assert found.quantities["edge (0, 1), direction 1"].r_hat > 10  # two modes, each with half of the chains
    # All chains in one mode: nothing moves, nothing is known, and that is no pass.
    one = diagnose_chains(stuck, start=torch.ones(20, 8), sweeps=200)
    assert not one.passed and math.isnan(one.r_hat)


def test_graphs_and_kernels_are_diagnosed() -> None:
    deep = hm.BoltzmannMachine([hm.Bernoulli(5), hm.Spin(4), hm.Bernoulli(3)], seed=0)
    found = diagnose_chains(deep, hm.chains.Tempering(2), chains=10, sweeps=60, directions=1)
    assert list(found.quantities) == ["free energy", "edge (0, 1), direction 1", "edge (1, 2), direction 1"]
    assert found.draws == 300
    spins = diagnose_chains(hm.BoltzmannMachine([hm.Spin(3)], edges=[(0, 0)], seed=0), chains=4, sweeps=40)
    assert next(iter(spins.quantities)) == "energy"  # nothing is summed out
    with pytest.raises(ValueError, match="sweeps: expected an int of at least 40, received 39"):
        diagnose_chains(deep, sweeps=39)
    with pytest.raises(TypeError, match="kernel: expected a kernel, received str"):
        diagnose_chains(deep, "gibbs")  # type: ignore[arg-type]


def test_autocorrelation_times_of_autoregressions() -> None:
    """x_t = a x_(t-1) + noise has (1 + a) / (1 - a); 20 chains of 20,000 sweeps, each within a third."""
    for seed, a in enumerate((0.0, 0.5, 0.9, -0.5)):
        times = autocorrelation_times(autoregressive(a, 20, 20_000, seed)).numpy()
        expected = (1 + a) / (1 - a)
        assert times.mean() == pytest.approx(expected, rel=0.06)
        assert np.abs(times / expected - 1).max() < 0.35


def test_autocorrelation_times_of_stuck_and_frozen_chains() -> None:
    x = np.random.default_rng(0).normal(size=(4, 1000)) * 0.01
    x[:2] += 1.0
    x[2:] -= 1.0
    assert bool((autocorrelation_times(x) > 300).all())  # each of them stays where it began
    assert bool(autocorrelation_times(np.full((3, 50), 2.0)).isnan().all())


def test_observables_stand_beside_the_quantities() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Bernoulli(3)], seed=0)
    seen: list[int] = []

    def magnetisation(states: list[torch.Tensor]) -> torch.Tensor:
        seen.append(len(states))
        states[1].zero_()  # chains do not follow
        return states[0].mean(1)

    found = diagnose_chains(machine, observables={"m": magnetisation}, sweeps=200, chains=8)
    assert found.info == {} and "error" in repr(found)
    plain = diagnose_chains(machine, sweeps=200, chains=8)
    assert list(found.quantities) == [*plain.quantities, "m"] and set(seen) == {2} and len(seen) == 100
    assert all(found.quantities[name] == each for name, each in plain.quantities.items())
    assert found.times["m"].shape == (8,) and bool((found.times["m"] > 0.5).all())
    assert list(found.times) == list(found.quantities) and "m " in repr(found) and "time" in repr(found)
    with pytest.raises(ValueError, match=r"observables: expected a tensor of shape \(8,\), .* from 'E'"):
        diagnose_chains(machine, observables={"E": lambda states: states[0]}, sweeps=40, chains=8)
    with pytest.raises(ValueError, match="observables: expected names other than"):
        diagnose_chains(machine, observables={"free energy": magnetisation}, sweeps=40, chains=8)
    with pytest.raises(TypeError, match="observables: expected a dict of functions"):
        diagnose_chains(machine, observables=[magnetisation], sweeps=40)  # type: ignore[arg-type]


def test_an_observable_has_its_mean_and_the_kernel_its_rates() -> None:
    """|m| of six spins by enumeration; 5 standard errors. The swap rate is that of an observer."""
    machine = hm.BoltzmannMachine([hm.Spin(6)], edges=[(0, 0)], seed=None).double()
    machine.couplings[0].fill_(0.2 - 0.2 * torch.eye(6))
    states = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 6)
    exact = float((-machine.energy([states]).detach()).softmax(0) @ states.mean(1).abs())
    kernel, start = hm.chains.Tempering(4), machine.random_states(20, seed=1)
    found = diagnose_chains(
        machine, kernel, start, sweeps=400, observables={"|m|": lambda x: x[0].mean(1).abs()}, seed=2
    )
    seen = found.quantities["|m|"]
    assert abs(seen.mean - exact) < 5 * seen.standard_error < 0.05
    rates: list[float] = []
    hm.chains.run(
        machine,
        kernel,
        start,
        400,
        seed=2,
        observer=lambda _, __, info: rates.append(float(info["swap_rate"])),
    )
    assert found.info == pytest.approx({"swap_rate": sum(rates[200:]) / 200})
    assert f"swap_rate {found.info['swap_rate']:.3g}" in repr(found)


def test_overlaps_are_those_of_a_loop() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(5), hm.Bernoulli(3), hm.Categorical(2, 4)], visible=[0, 1])
    states = machine.random_states(6, seed=0)
    others = machine.random_states(6, seed=1)

    def expected(a: list[np.ndarray], b: list[np.ndarray]) -> float:
        total = float((a[0] * b[0]).sum() + ((2 * a[1] - 1) * (2 * b[1] - 1)).sum())
        for unit in range(2):
            same = bool((a[2][4 * unit : 4 * unit + 4] == b[2][4 * unit : 4 * unit + 4]).all())
            total += (4 * same - 1) / 3
        return total / 10

    rows = [[x[i].numpy() for x in states] for i in range(6)]
    beside = [[x[i].numpy() for x in others] for i in range(6)]
    found = overlaps(machine, states, others)
    assert found.numpy() == pytest.approx([expected(a, b) for a, b in zip(rows, beside, strict=True)])
    every = overlaps(machine, states)
    assert every.numpy() == pytest.approx(
        [expected(rows[i], rows[j]) for i in range(6) for j in range(i + 1, 6)]
    )
    assert overlaps(machine, states, states).numpy() == pytest.approx(np.ones(6))
    visible = machine.hamiltonian().visible_states(states)
    assert overlaps(machine, visible).shape == (15,)
    with pytest.raises(ValueError, match="others: expected 6 chains"):
        overlaps(machine, states, machine.random_states(5, seed=1))
    with pytest.raises(ValueError, match="states: expected at least two chains"):
        overlaps(machine, machine.random_states(1, seed=1))
    with pytest.raises(ValueError, match="machine: expected units with two values or categories"):
        overlaps(hm.BoltzmannMachine([hm.Gaussian(2)], edges=[(0, 0)]), torch.zeros(3, 2))


def test_the_overlaps_of_two_replicas_have_their_distribution() -> None:
    """P(q) of five spins in a field by enumeration of both; 4,000 pairs, 4.5 standard errors for each q."""
    machine = hm.BoltzmannMachine([hm.Spin(5)], edges=[(0, 0)]).double()
    J = torch.full((5, 5), 0.3, dtype=torch.float64) - 0.3 * torch.eye(5, dtype=torch.float64)
    machine.couplings[0].fill_(J)
    states = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 5)
    p = (-machine.energy([states])).softmax(0).detach().numpy()
    q = (states @ states.T / 5).numpy()
    one, two = (
        hm.chains.run(machine, hm.chains.Gibbs(), machine.random_states(4000, seed=s), 100, seed=s + 2)
        for s in (0, 1)
    )
    found = overlaps(machine, one, two).numpy()
    for value in np.unique(q.round(6)):
        share = float((np.outer(p, p) * (np.abs(q - value) < 1e-5)).sum())
        error = (share * (1 - share) / 4000) ** 0.5
        assert abs(float((np.abs(found - value) < 1e-5).mean()) - share) < 4.5 * error
