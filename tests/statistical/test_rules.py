"""Every rule against the enumerated gradient: within standard errors, or its bias measured.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.chains import Metropolis
from harmonium.learning import FreeChains, Rule
from harmonium.learning.expectation import ClampedChains

from .support import exact_states, largest_z, machine

CHAINS = 1200
REPLICATES = 16
"""Some chains for the price of others: a sweep of a small machine costs what its calls cost. So many
estimates of so many chains show a bias of 0.03 standard deviations of a statistic."""


def data_for(made: hm.BoltzmannMachine, rows: int = 50) -> torch.Tensor:
    """Rows that the machine itself would hardly draw, so that starting from them shows."""
    generator = torch.Generator().manual_seed(9)
    noise = made.random_states(rows, seed=generator)[0]
    return noise if made.layers[0].bounded else noise + 1.5


def replicates(made: hm.BoltzmannMachine, rule: Rule, v: torch.Tensor) -> torch.Tensor:
    """Independent estimates of the gradient, (REPLICATES, parameters)."""
    rows = []
    for seed in range(REPLICATES):
        estimate = rule.gradient(made, v, seed=torch.Generator().manual_seed(100 + seed))
        assert set(estimate.parameters) == {name for name, _ in made.named_parameters()}
        rows.append(torch.cat([g.flatten() for g in estimate.parameters.values()]))
    return torch.stack(rows)


def exact(made: hm.BoltzmannMachine, v: torch.Tensor) -> torch.Tensor:
    gradient = hm.rules.exact().gradient(made, v, seed=torch.Generator()).parameters
    return torch.cat([g.flatten() for g in gradient.values()])


LONG = {
    "pcd": hm.rules.pcd(5, CHAINS),
    "pcd metropolis": hm.rules.pcd(20, CHAINS, kernel=Metropolis()),
    "tempered_pcd": hm.rules.tempered_pcd(5, CHAINS, replicas=4),
    "noise_cd": hm.rules.noise_cd(10, burn_in=5, chains=CHAINS),
    "cd": hm.rules.cd(5),
}


PAIRED = [(name, rule) for name in ("bernoulli-spin", "gaussian-bernoulli") for rule in LONG]
PAIRED += [
    ("categorical-bernoulli", "tempered_pcd"),
    ("categorical-bernoulli", "cd"),
    ("bernoulli-gaussian", "pcd metropolis"),
    ("bernoulli-gaussian", "noise_cd"),
    ("sparse-bernoulli", "pcd"),
    ("sparse-bernoulli", "cd"),
    ("binomial-relu", "tempered_pcd"),
    ("binomial-relu", "noise_cd"),
]
"""Every rule with a machine of two values and a real one; the others have two rules each, as their units are
tested kernel by kernel in ``test_chains``."""


@pytest.mark.parametrize(("name", "rule"), PAIRED)
@pytest.mark.mostly_nightly(2)
def test_long_chains_give_the_exact_gradient(name, rule):
    """At a coupling scale that mixes within the sweeps, what bias is left is far below the standard error."""
    made = machine(name, scale=0.4)
    v = data_for(made, CHAINS if rule == "cd" else 50)
    z, limit = largest_z(replicates(made, LONG[rule], v), exact(made, v))
    assert z < limit


@pytest.mark.parametrize("name", ["spin-bernoulli-categorical", "gaussian-spin-gaussian"])
def test_long_chains_in_both_phases_of_a_deep_machine(name):
    made = machine(name, scale=0.4)
    v = data_for(made)
    rule = Rule("long", ClampedChains(10), FreeChains(sweeps=10, chains=CHAINS), "asymptotic")
    z, limit = largest_z(replicates(made, rule, v), exact(made, v))
    assert z < limit


@pytest.mark.parametrize("name", ["bernoulli-spin", "categorical-bernoulli", "gaussian-bernoulli"])
def test_one_step_contrastive_divergence_is_caught_as_biased(name):
    made = machine(name, scale=1.0)
    v = data_for(made, CHAINS)
    z, limit = largest_z(replicates(made, hm.rules.cd(1), v), exact(made, v))
    assert z > 2 * limit


def test_the_bias_of_contrastive_divergence_falls_with_its_sweeps():
    """On a machine that mixes slowly; the Monte-Carlo error has norm 0.015, the steps are above 0.05."""
    made = machine("bernoulli-spin", scale=2.0)
    v = data_for(made, CHAINS)
    truth = exact(made, v)
    bias = [float((replicates(made, hm.rules.cd(k), v).mean(0) - truth).norm()) for k in (1, 2, 5, 30)]
    assert bias[0] > bias[1] > bias[2] > bias[3]
    assert bias[0] > 5 * bias[3]


@pytest.mark.parametrize("name", ["bernoulli-spin", "categorical-bernoulli", "gaussian-bernoulli"])
def test_persistent_chains_in_the_machines_distribution_are_unbiased(name):
    """One sweep from exact draws: nothing is left to the length of the chains."""
    made = machine(name, scale=1.0)
    v = data_for(made)
    rows = []
    for seed in range(REPLICATES):
        generator = torch.Generator().manual_seed(seed)
        state = exact_states(made, CHAINS, generator)
        estimate = hm.rules.pcd(1, CHAINS).gradient(made, v, state, seed=generator)
        rows.append(torch.cat([g.flatten() for g in estimate.parameters.values()]))
    z, limit = largest_z(torch.stack(rows), exact(made, v))
    assert z < limit


def test_mean_field_is_exact_for_one_hidden_layer_and_biased_for_two():
    generator = torch.Generator().manual_seed(0)
    for name, scale, is_exact in (("bernoulli-spin", 1.0, True), ("spin-bernoulli-categorical", 1.0, False)):
        made = machine(name, scale=scale)
        v = data_for(made)
        free = hm.learning.Enumeration(clamped=False)
        clamped = hm.learning.MeanField(tolerance=1e-10, max_sweeps=2000)
        estimate = Rule("mean field", clamped, free, "biased").gradient(made, v, seed=generator)
        difference = (torch.cat([g.flatten() for g in estimate.parameters.values()]) - exact(made, v)).norm()
        assert (float(difference) < 1e-8) == is_exact


@pytest.mark.parametrize(
    "layers",
    [
        lambda: [hm.Bernoulli(3), hm.Bernoulli(2), hm.Gaussian(2)],
        lambda: [hm.Bernoulli(3), hm.Gaussian(2), hm.Bernoulli(2)],
        lambda: [hm.Gaussian(2), hm.Spin(3), hm.Gaussian(2)],
    ],
)
def test_mean_field_is_exact_without_couplings(layers):
    """Real units too, whose second moment is not the square of their mean."""
    made = hm.BoltzmannMachine(layers()).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=generator))
        for W in (coupling.weight for coupling in made.couplings):
            W.zero_()
    v = data_for(made, 20)
    free, clamped = hm.learning.Enumeration(clamped=False), hm.learning.MeanField()
    estimate = Rule("mean field", clamped, free, "biased").gradient(made, v, seed=generator)
    difference = (torch.cat([g.flatten() for g in estimate.parameters.values()]) - exact(made, v)).abs().max()
    assert float(difference) < 1e-10


def test_states_of_rules_that_keep_chains_are_handed_on_and_others_keep_none():
    made = machine("bernoulli-spin")
    v = data_for(made)
    generator = torch.Generator().manual_seed(0)
    for name, recipe in hm.rules.RECIPES.items():
        first = recipe().gradient(made, v, seed=generator)
        keeps = "pcd" in name or name == "ptt"
        assert (first.state is not None) == keeps
        second = recipe().gradient(made, v, first.state, seed=generator)
        if keeps:
            kept = "chains" if name == "ptt" else "states"
            pairs = list(zip(*(getattr(each.state, kept) for each in (first, second)), strict=True))
            assert all(a.shape == b.shape for a, b in pairs)
            assert any(not torch.equal(a, b) for a, b in pairs)


NOISE_STARTED = [
    (hm.chains.Gibbs(), 24, torch.float64),
    (hm.chains.Gibbs(), 24, torch.float32),
    (hm.chains.Langevin(0.4), 100, torch.float32),
    (hm.chains.GibbsLangevin(0.3, 4, "metropolis"), 50, torch.float32),
    (hm.chains.GibbsLangevin(0.3, 4), 50, torch.float32),
]


@pytest.mark.mostly_nightly(2)
@pytest.mark.parametrize(("kernel", "sweeps", "dtype"), NOISE_STARTED)
def test_long_noise_started_chains_give_the_exact_gradient(kernel, sweeps, dtype):
    """In single precision by the compiled chains, in double precision by the eager ones."""
    made = machine("gaussian-bernoulli", scale=0.4)
    v = data_for(made)
    truth = exact(made, v)
    rule = hm.rules.noise_cd(sweeps, kernel=kernel, burn_in=sweeps // 2, chains=800)
    rows = replicates(made.to(dtype), rule, v.to(dtype)).double()
    z, limit = largest_z(rows, truth)
    assert z < limit
