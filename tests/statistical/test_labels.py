"""The ``bias`` of a rule is what its estimates do, against enumeration.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch
from machines import request_of

import harmonium as hm
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, Metropolis, Tempering
from harmonium.learning import CoupledChains, Enumeration, FreeChains, Rule

from .support import exact_states, exact_statistics, flat, largest_z, machine, row_statistics

CHAINS, UPDATES = 4000, 12
STEP = 0.8
KEEP = [
    Gibbs(),
    Metropolis(),
    Langevin(STEP, adjust=3),
    Langevin(STEP, adjust=3, anneal=True),
    GibbsLangevin(STEP, 3),
    GibbsLangevin(0.4, 3, "metropolis", adjust=3),
    Tempering(3),
    Tempering(3, kernel=Langevin(STEP, adjust=3)),
]
DO_NOT_KEEP = [
    Langevin(STEP, adjust=None),
    Langevin(STEP, adjust=None, anneal=True),
    GibbsLangevin(STEP, 3, "none"),
    Tempering(3, kernel=Langevin(STEP, adjust=None)),
]


def gradient(made: hm.BoltzmannMachine, rule: Rule, v: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    found = rule.gradient(made, v, seed=torch.Generator().manual_seed(0), weights=weights).parameters
    return torch.cat([g.flatten() for g in found.values()])


# Quadrature ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3])
def test_quadrature_integrates_what_rows_do_not_observe(n: int) -> None:
    """512 hidden states, more than are enumerated for a row: the enumerated gradient, without noise."""
    generator = torch.Generator().manual_seed(n)
    made = hm.BoltzmannMachine([hm.Gaussian(n), hm.Bernoulli(9)]).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    v = torch.randn(8, n, generator=generator).double()
    v[torch.rand(v.shape, generator=generator) < 0.4] = torch.nan
    v[0], v[1] = torch.nan, 0.5
    weights = torch.rand(8, generator=generator)
    exact = gradient(made, hm.rules.exact(), v, weights)
    torch.testing.assert_close(gradient(made, hm.rules.quadrature(), v, weights), exact, atol=1e-6, rtol=0)
    single = gradient(made.float(), hm.rules.quadrature(), v.float(), weights)
    torch.testing.assert_close(single.double(), exact, atol=1e-5, rtol=0)


# Kernels ---------------------------------------------------------------------------------------------------


def of_persistent_chains(kernel: Kernel, dtype: torch.dtype) -> tuple[float, float]:
    """Largest |z| of E[S] over persistent chains, begun at equilibrium, after updates of one sweep."""
    made = machine("gaussian-bernoulli")
    hamiltonian, exact = made.hamiltonian(), exact_statistics(made.hamiltonian())
    generator = torch.Generator().manual_seed(1)
    state = [x.to(dtype) for x in exact_states(made, CHAINS, generator)]
    rule = hm.rules.pcd(1, CHAINS, kernel=kernel)
    updated, v = made.to(dtype), torch.zeros(1, 3, dtype=dtype)
    for _ in range(2 * UPDATES):  # first sweeps need as many again to be forgotten
        state = rule.gradient(updated, v, state, seed=generator).state
    states = [x.double() for x in state.states]
    return largest_z(row_statistics(hamiltonian, states).detach(), exact)


@pytest.mark.mostly_nightly(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", KEEP, ids=repr)
def test_persistent_chains_of_kernels_that_keep_the_distribution_are_asymptotic(
    kernel: Kernel, dtype: torch.dtype
):
    """In single precision by the compiled chains. An ``adjust`` beyond the sweeps of an update ends too."""
    assert kernel.invariant and hm.rules.pcd(1, kernel=kernel).bias == "asymptotic"
    z, limit = of_persistent_chains(kernel, dtype)
    assert z < limit


@pytest.mark.parametrize("kernel", DO_NOT_KEEP, ids=repr)
def test_persistent_chains_of_other_kernels_are_biased(kernel: Kernel) -> None:
    assert not kernel.invariant and hm.rules.pcd(1, kernel=kernel).bias == "biased"
    z, limit = of_persistent_chains(kernel, torch.float64)
    assert z > limit


def test_a_kernel_has_to_declare_whether_it_keeps_the_distribution() -> None:
    class Silent(Kernel):
        def step(self, hamiltonian, state, generator):
            return Gibbs().step(hamiltonian, state, generator)

    with pytest.raises(TypeError, match="invariant"):
        Silent()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [Langevin(50.0, adjust=5), GibbsLangevin(50.0, 1, "metropolis", adjust=5)])
def test_first_sweeps_are_those_of_persistent_chains(kernel: Kernel, dtype: torch.dtype) -> None:
    """A step this wild is taken where nothing is tested, in the first 5 sweeps, and then never."""
    made = machine("gaussian-bernoulli").to(dtype)
    rule, state, rates = hm.rules.pcd(2, 200, kernel=kernel), None, []
    for _ in range(4):
        estimate = rule.gradient(made, torch.zeros(1, 3, dtype=dtype), state, seed=len(rates))
        state = estimate.state
        rates.append(estimate.diagnostics["acceptance"])
    assert state.sweeps == 8
    assert rates[:2] == [1.0, 1.0] and 0.5 <= rates[2] < 0.55 and rates[3] < 0.05
    again = rule.gradient(made, torch.zeros(1, 3, dtype=dtype), state.states, seed=0)
    assert again.diagnostics["acceptance"] == 1.0 and again.state.sweeps == 2  # chains alone begin


def test_replicas_follow_the_schedule_of_their_kernel() -> None:
    """Its first sweeps, its annealing and its decay; swaps are counted apart."""
    seen = []

    class Noting(Kernel):
        invariant = True
        inner = Langevin(0.4, adjust=2, anneal=True)

        def init(self, hamiltonian, states, generator, planned=None):
            return self.inner.init(hamiltonian, states, generator, planned)

        def step(self, hamiltonian, state, generator):
            seen.append(self.inner.relaxation(state))
            return self.inner.step(hamiltonian, state, generator)

    made = machine("gaussian-bernoulli")
    hm.chains.run(made, Tempering(3, kernel=Noting()), made.random_states(5, seed=0), 4, seed=0)
    assert [move.adjusted for move in seen] == [False, False, True, True]
    sizes = [1 - move.keep for move in seen]
    assert sizes == pytest.approx([0.4 * c for c in (1, 0.853553, 0.5, 0.146447)], rel=1e-5)


@pytest.mark.parametrize(
    "state",
    [{"sweeps": -1}, {"sweeps": 1.5}, {"sweeps": True}, {"sweeps": None}, {"states": None}, {"states": []}],
    ids=str,
)
def test_a_count_that_no_rule_returned_is_refused(state: dict) -> None:
    made = machine("gaussian-bernoulli")
    rule, v = hm.rules.pcd(1, 5, kernel=Langevin(adjust=3)), torch.zeros(1, 3).double()
    kept = rule.gradient(made, v, seed=0).state
    rule.check_state(made, kept)
    rule.check_state(made, kept.states)
    for use in (rule.check_state, lambda made, state: rule.gradient(made, v, state, seed=0)):
        with pytest.raises((TypeError, ValueError), match=r"^state"):
            use(made, kept._replace(**state))


# What conditional rules make of a label ---------------------------------------------------------------------


@pytest.mark.parametrize(("joint", "label"), [(0.0, "exact"), (0.5, "asymptotic")])
def test_an_enumerated_clamped_side_is_exact_where_nothing_else_is_used(joint: float, label: str) -> None:
    mixed = Rule("mixed", Enumeration(clamped=True), FreeChains(), "asymptotic")
    assert hm.rules.hybrid(mixed, [0], joint).bias == label
    pairs = Rule("pairs", Enumeration(clamped=True), CoupledChains(), "unbiased")
    assert hm.rules.conditional(pairs, [0]).bias == "exact"


def test_what_is_left_to_sample_given_data_makes_asymptotic_rules_biased() -> None:
    """As ``Rule`` has it: one sweep of clamped chains of a deep machine, the free side enumerated."""
    made = machine("spin-bernoulli-categorical", scale=1.5)
    v = exact_states(made, 4000, torch.Generator().manual_seed(0))[0]
    pcd = hm.rules.pcd(1)
    half = Rule("half", pcd.clamped, Enumeration(clamped=False), pcd.bias)
    rows = []
    for seed in range(16):
        task = request_of(made, v, seed)
        half.add(task, None)
        rows.append(flat(task.into))
    task = request_of(made, v, 0)
    hm.rules.exact().add(task, None)
    z, limit = largest_z(torch.stack(rows), flat(task.into))
    assert z > limit
