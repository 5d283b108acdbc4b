"""Coupled chains: each marginal is that of a single chain, equal chains stay equal, estimates are unbiased.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.coupled import (
    Block,
    CommonNoise,
    Gibbs,
    Independent,
    Maximal,
    Metropolis,
    Reflection,
    block,
    meet,
    meeting,
    mixing_bound,
    run_pairs,
)
from harmonium.coupled.kernels import ChainState
from harmonium.coupled.meeting import Horizon
from harmonium.machine import Graph, Hamiltonian, Part, Statistics
from harmonium.machine.coupling_matrices import CouplingMatrices

from .lots import in_lots
from .support import (
    DISCRETE,
    FAILURE_RATE,
    MACHINES,
    all_states,
    exact_states,
    exact_statistics,
    flat,
    largest_z,
    machine,
    row_statistics,
    z_limit,
)

ROWS = 5_000
KINDS = {
    "bernoulli": lambda: hm.Bernoulli(4),
    "spin": lambda: hm.Spin(4),
    "categorical": lambda: hm.Categorical(2, 3),
}
COUPLINGS = [CommonNoise(), Independent(), Maximal(), Maximal(common_noise=True)]
PUBLISHED = {
    "algorithm 1": Gibbs(Maximal(), Independent()),
    "algorithm 3": Gibbs(Maximal(common_noise=True), CommonNoise()),
    "default": Gibbs(),
}


def blocks(layer, gap: float, rows: int = ROWS) -> tuple[Block, Block]:
    """The same layer at two fields."""
    generator = torch.Generator().manual_seed(0)
    layer = layer.double()
    hamiltonian = Hamiltonian((layer,), Graph((layer,), (), (0,), {}), (layer.natural(),), CouplingMatrices())
    first = torch.randn(layer.width, generator=generator, dtype=torch.float64)
    second = first + gap * torch.randn(layer.width, generator=generator, dtype=torch.float64)
    return tuple(Block(hamiltonian, (Part(0),), (field.expand(rows, -1),)) for field in (first, second))


def probabilities(block: Block, states: torch.Tensor) -> torch.Tensor:
    layer = block.hamiltonian.layers[0]
    return layer.log_conditional(states, block.fields[0][:1]).sum(-1).exp().detach()


def p_value(x: torch.Tensor, states: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the χ² test of drawn states against their distribution, rare states taken together."""
    counts = (x.unsqueeze(1) == states).all(-1).double().sum(0)
    assert int(counts.sum()) == len(x)
    expected = expected * len(x)
    often = expected >= 10
    observed = torch.cat([counts[often], counts[~often].sum().unsqueeze(0)])
    wanted = torch.cat([expected[often], expected[~often].sum().unsqueeze(0)])
    present = wanted > 1e-6
    return float(stats.chisquare(observed[present].numpy(), wanted[present].numpy()).pvalue)


@pytest.mark.parametrize("coupling", COUPLINGS, ids=repr)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gap", [0.1, 1.5])
def test_both_marginals_are_exact(kind, coupling, gap):
    p, q = blocks(KINDS[kind](), gap)
    states = all_states(p.hamiltonian.layers[0])
    drawn = coupling.draw(p, q, torch.Generator().manual_seed(1))
    for value, side in ((drawn.x[0], p), (drawn.y[0], q)):
        assert p_value(value, states, probabilities(side, states)) > FAILURE_RATE / 2


@pytest.mark.parametrize("coupling", [Maximal(), Maximal(common_noise=True)], ids=repr)
@pytest.mark.parametrize("kind", KINDS)
def test_maximal_couplings_meet_as_often_as_the_distributions_overlap(kind, coupling):
    p, q = blocks(KINDS[kind](), 1.0)
    states = all_states(p.hamiltonian.layers[0])
    overlap = torch.minimum(probabilities(p, states), probabilities(q, states)).sum()
    drawn = coupling.draw(p, q, torch.Generator().manual_seed(2))
    equal = (drawn.x[0] == drawn.y[0]).all(-1).double().unsqueeze(-1)
    z, limit = largest_z(equal, overlap.unsqueeze(0))
    assert z < limit
    assert bool((drawn.tries[equal.squeeze(-1) == 0] > 0).all())


@pytest.mark.parametrize("coupling", [Reflection(), Maximal(), Maximal(common_noise=True)], ids=repr)
def test_gaussian_couplings(coupling):
    layer = hm.Gaussian(3)
    with torch.no_grad():
        layer.log_variance.copy_(torch.tensor([-2.0, 0.0, 1.0]))
    p, q = blocks(layer, 0.7)
    drawn = coupling.draw(p, q, torch.Generator().manual_seed(3))
    for value, side in ((drawn.x[0], p), (drawn.y[0], q)):
        mean, variance = side.hamiltonian.layers[0].moments(side.fields[0][0])
        standard = ((value - mean) / variance.sqrt()).detach()
        moments = torch.cat([standard, standard.square(), standard[:, :1] * standard[:, 1:]], 1)
        z, limit = largest_z(moments, torch.tensor([0.0] * 3 + [1.0] * 3 + [0.0] * 2).double())
        assert z < limit
    gap = (p.fields[0][0] - q.fields[0][0]) * layer.log_variance.exp().sqrt()
    overlap = 2 * stats.norm.cdf(-float(gap.detach().norm()) / 2)
    equal = torch.isclose(drawn.x[0], drawn.y[0]).all(-1).double().unsqueeze(-1)
    z, limit = largest_z(equal, torch.tensor([overlap]).double())
    assert z < limit


REAL = {
    "gaussian": lambda: hm.Gaussian(3),
    "truncated_gaussian": lambda: hm.TruncatedGaussian(3, -1.0, 2.0),
    "truncated_gauss_bernoulli": lambda: hm.TruncatedGaussBernoulli(3, 0.0, 1.0),
}


@pytest.mark.parametrize("kind", [*KINDS, *REAL])
def test_equal_distributions_always_meet(kind):
    layer = {**KINDS, **REAL}[kind]()
    p, _ = blocks(layer, 1.0, rows=2000)
    for coupling in [*COUPLINGS, *([Reflection()] if kind == "gaussian" else [])]:
        drawn = coupling.draw(p, p, torch.Generator().manual_seed(4))
        assert torch.equal(drawn.x[0], drawn.y[0])
        assert int(drawn.tries.sum()) == 0


def kernels_for(name: str):
    return [*PUBLISHED.values(), *([Metropolis()] if name in DISCRETE else [])]


@pytest.mark.mostly_nightly(3)
@pytest.mark.parametrize("name", MACHINES)
def test_each_chain_of_a_pair_alone_stays_in_the_machines_distribution(name):
    """Both chains start exactly, apart from each other, and must not drift in four coupled sweeps."""
    made = machine(name)
    hamiltonian = made.hamiltonian()
    truth = exact_statistics(hamiltonian)
    rows, kernels = 2 * ROWS, kernels_for(name)
    generator = torch.Generator().manual_seed(5)
    start = exact_states(made, 2 * rows, generator)
    for kernel in kernels:
        place = ChainState(start, {})
        with torch.no_grad():
            for _ in range(4):
                place, _ = kernel.coupled(hamiltonian, place, generator)
        for chain in (slice(0, rows), slice(rows, None)):
            z, _ = largest_z(row_statistics(hamiltonian, [s[chain] for s in place.states]), truth)
            assert z < z_limit(2 * len(kernels) * len(truth)), kernel


@pytest.mark.parametrize("name", MACHINES)
def test_pairs_that_met_stay_together(name):
    made = machine(name)
    hamiltonian = made.hamiltonian()
    for kernel in kernels_for(name):
        generator = torch.Generator().manual_seed(6)
        x = exact_states(made, 500, generator)
        place = ChainState([torch.cat((s, s)) for s in x], {})
        with torch.no_grad():
            for _ in range(20):
                place, _ = kernel.coupled(hamiltonian, place, generator)
                for l in kernel.chain_layers(hamiltonian):
                    assert torch.equal(place.states[l][:500], place.states[l][500:])


def estimates(made, kernel, k, m, lag, lots=40, pairs=270, compiled=False) -> torch.Tensor:
    """Independent estimates of E[S], each from so many pairs, (lots, statistics)."""
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(7)

    def run(into: Statistics, pairs: int) -> None:
        start = made.random_states(pairs, seed=generator)
        with torch.no_grad():
            run_pairs(
                hamiltonian, kernel, start, k=k, m=m, lag=lag,
                max_sweeps=None, generator=generator, into=into, weight=1 / pairs,
            )  # fmt: skip

    if compiled:
        sums = [Statistics(hamiltonian) for _ in range(lots)]
        for each in sums:
            run(each, pairs)
    else:
        whole = Statistics(hamiltonian)
        sums = in_lots(hamiltonian, whole, lots, lambda: run(whole, lots * pairs))
    return torch.stack([flat(each) for each in sums])


HORIZONS = [(1, 1, 1), (3, 10, 1), (2, 8, 3), (0, 0, 1), (0, 4, 2)]


@pytest.mark.parametrize("lag", [1, 2, 3])
@pytest.mark.parametrize(("k", "m"), [(0, 0), (0, 4), (1, 1), (2, 8), (3, 10)])
def test_the_weight_of_a_correction_counts_the_terms_that_it_corrects(k, m, lag):
    """H_{k:m} is the mean of H_k, ..., H_m, of which H_s takes the corrections s + lag, s + 2 lag, ..."""
    for t in range(1, 40):
        terms = sum(t > s and (t - s) % lag == 0 for s in range(k, m + 1))
        assert Horizon(k, m, lag, 1.0).correction(t) == pytest.approx(terms / (m - k + 1), abs=1e-12)


IN_TURN = [(name, HORIZONS[i % 5]) for i, name in enumerate(MACHINES)]
IN_TURN += [(name, HORIZONS[(i + 2) % 5]) for i, name in enumerate(MACHINES) if i < 4]
"""Every machine has a horizon, and every horizon two machines or more: its weights know no machine."""


@pytest.mark.mostly_nightly(4)
@pytest.mark.parametrize(("name", "horizon"), IN_TURN, ids=str)
def test_the_mean_of_the_estimate_is_the_enumerated_expectation(name, horizon):
    made = machine(name)
    z, limit = largest_z(estimates(made, Gibbs(), *horizon), exact_statistics(made.hamiltonian()))
    assert z < limit


@pytest.fixture
def async_device(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The CPU is a device that records, whose first round of proposals is often not enough."""
    monkeypatch.setattr("harmonium._device.is_async", lambda device: True)
    monkeypatch.setattr("harmonium.backends.choice.RECORDS", frozenset(("cpu",)))
    monkeypatch.setattr("harmonium.backends.choice.COMPILED", False)
    monkeypatch.setattr(block, "_PROPOSALS", 1)
    monkeypatch.setattr(block, "_SLOTS", 1)
    return monkeypatch


LOOKS = [(*case, (1, 3, 8)[i % 3]) for i, case in enumerate([*IN_TURN, *IN_TURN[:4]])]
"""Every machine has two numbers of sweeps between looks, and every number all horizons but one."""


@pytest.mark.parametrize(("name", "horizon", "sweeps"), LOOKS, ids=str)
@pytest.mark.mostly_nightly(2)
def test_looks_between_sweeps_leave_the_estimate_unbiased(async_device, name, horizon, sweeps):
    async_device.setattr(meeting, "SWEEPS", sweeps)
    made = machine(name)
    z, limit = largest_z(estimates(made, Gibbs(), *horizon), exact_statistics(made.hamiltonian()))
    assert z < limit


@pytest.mark.parametrize("kernel", [Gibbs(), Metropolis()], ids=repr)
@pytest.mark.parametrize("max_sweeps", [None, 6])
def test_meetings_have_the_distribution_that_they_have_with_a_look_at_every_sweep(
    async_device, kernel, max_sweeps
):
    """Meeting times by χ² on two samples; sweeps, proposals and changed units by their means."""
    made = machine("bernoulli-spin", scale=0.4)
    met = []
    for sweeps in (1, 8):
        async_device.setattr(meeting, "SWEEPS", sweeps)
        met.append(meet(made, kernel, made.random_states(4000, seed=sweeps), 2, max_sweeps, seed=sweeps))
    last = 6 if max_sweeps else 20
    table = torch.stack([torch.bincount(each.times.clamp(max=last), minlength=last + 1) for each in met])
    assert stats.chi2_contingency(table[:, table.sum(0) > 20].numpy()).pvalue > FAILURE_RATE / 4
    for each in met:
        assert set(each.times[each.capped].tolist()) <= {max_sweeps} and int(each.times.min()) >= 2
        assert torch.equal(each.cost, 2 + 2 * (each.times - 2))
    rejected = [each.tries.double() for each in met]
    error = sum(x.var() / len(x) for x in rejected) ** 0.5
    assert abs(rejected[0].mean() - rejected[1].mean()) <= stats.norm.isf(FAILURE_RATE / 8) * error
    assert met[0].flip_rate == pytest.approx(met[1].flip_rate, abs=0.02)


@pytest.mark.parametrize(
    ("name", "k", "m", "lag"),
    [("bernoulli-spin", 2, 9, 1), ("categorical-bernoulli", 3, 7, 3), ("bernoulli-spin", 50, 60, 2)],
)
def test_pairs_that_meet_before_the_horizon_go_on_to_it(async_device, name, k, m, lag):
    """A pair that met costs one chain until m; X_m is distributed as with a look at every sweep.

    The means of all units of 3,000 pairs are compared by z-scores, shared among three cases.
    """
    made = machine(name, scale=0.6)
    hamiltonian, start = made.hamiltonian(), made.random_states(3000, seed=1)
    start = [x * 0 + x[:1] for x in start]  # all alike, so that they remember it
    means = []
    for seed, records in enumerate([frozenset[str](), frozenset(("cpu",))]):
        async_device.setattr("harmonium.backends.choice.RECORDS", records)
        generator = torch.Generator().manual_seed(seed)
        met = run_pairs(hamiltonian, Gibbs(), start, k=k, m=m, lag=lag, max_sweeps=None, generator=generator)
        assert torch.equal(met.cost, lag + 2 * (met.times - lag) + (m - met.times).clamp(min=0))
        assert bool((met.times < m).any()) and bool((met.times > lag).any())
        states = torch.cat(met.states, 1).double()
        means.append((states.mean(0), states.var(0) / len(states)))
    (x, x_error), (y, y_error) = means
    z = (x - y).abs() / (x_error + y_error).sqrt().clamp(min=1e-12)
    assert float(z.max()) < stats.norm.isf(FAILURE_RATE / (2 * 3 * len(z)))


def test_metropolis_pairs_are_unbiased_too():
    made = machine("bernoulli-spin", scale=0.4)
    z, limit = largest_z(estimates(made, Metropolis(), 2, 5, 1), exact_statistics(made.hamiltonian()))
    assert z < limit


def test_without_its_correction_the_estimate_is_caught():
    """Capped at the horizon, the estimate is the plain average of short chains from noise."""
    made = machine("bernoulli-spin", scale=1.0)
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(8)
    rows = []
    for _ in range(60):
        total = Statistics(hamiltonian)
        with torch.no_grad():
            meetings = run_pairs(
                hamiltonian, Gibbs(), made.random_states(400, seed=generator), k=1, m=1, lag=1,
                max_sweeps=1, generator=generator, into=total,
                weight=1 / 400,
            )  # fmt: skip
        rows.append(flat(total))
    assert bool(meetings.capped.any())
    z, limit = largest_z(torch.stack(rows), exact_statistics(hamiltonian))
    assert z > 2 * limit


@pytest.mark.parametrize("pairs", [Gibbs(), Gibbs(Maximal(common_noise=True), CommonNoise())], ids=repr)
def test_the_compiled_kernel_has_the_distribution_of_the_eager_one(monkeypatch, pairs):
    """Meeting times compared by χ² on binned counts, means of the statistics by z."""
    pytest.importorskip("numba")
    made = hm.BoltzmannMachine([hm.Bernoulli(12), hm.Spin(9)])
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.8 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    hamiltonian = made.hamiltonian()
    start = made.random_states(20_000, seed=torch.Generator().manual_seed(1))

    def run(fast: bool):
        monkeypatch.setattr("harmonium.backends.choice.small_pairs", lambda *_: fast)
        total = Statistics(hamiltonian)
        with torch.no_grad():
            meetings = run_pairs(
                hamiltonian, pairs, start, k=2, m=4, lag=2, max_sweeps=None,
                generator=torch.Generator().manual_seed(2),
                into=total, weight=1 / 20_000,
            )  # fmt: skip
        return meetings, flat(total)

    eager, compiled = run(False), run(True)
    edges = [0, 2, 3, 4, 5, 6, 8, 10, 14, 20, 10**9]
    counts = [
        torch.histogram(r[0].times.double(), torch.tensor(edges).double()).hist for r in (eager, compiled)
    ]
    table = torch.stack(counts)
    table = table[:, table.sum(0) > 10]
    assert stats.chi2_contingency(table.numpy()).pvalue > FAILURE_RATE
    assert abs(eager[0].flip_rate - compiled[0].flip_rate) < 0.01
    tries = [r[0].tries.double() for r in (eager, compiled)]
    error = sum(x.var() / len(x) for x in tries).sqrt()
    assert abs(tries[0].mean() - tries[1].mean()) < stats.norm.isf(FAILURE_RATE / 2) * error
    assert abs(eager[0].cost.double().mean() / compiled[0].cost.double().mean() - 1) < 0.05
    assert float((eager[1] - compiled[1]).abs().max()) < 0.1


def visible_kernel(made: hm.BoltzmannMachine) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The visible states, their distribution, and the transition matrix of a Gibbs sweep, by enumeration."""
    hamiltonian = made.hamiltonian()
    v, h = (all_states(layer) for layer in made.layers)
    empty = torch.empty(0)
    distribution = (-hamiltonian.free_energy([v, empty], (1,))).softmax(0)
    up = (v @ hamiltonian.J[0] @ h.T + hamiltonian.log_weight(1, h)).softmax(-1)
    down = (h @ hamiltonian.J[0].T @ v.T + hamiltonian.log_weight(0, v)).softmax(-1)
    return v, distribution.detach(), (up @ down).detach()


@pytest.mark.parametrize("scale", [0.3, 0.7, 1.0, 1.5, 2.0])
def test_the_mixing_bound_is_above_the_true_distance_and_not_far(scale):
    made = hm.BoltzmannMachine([hm.Bernoulli(5), hm.Spin(4)]).double()
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=torch.Generator().manual_seed(3)))
    v, distribution, P = visible_kernel(made)
    pairs = 4000
    meetings = meet(
        made,
        Gibbs(),
        v[:1].expand(pairs, -1).contiguous(),
        lag=20,
        seed=torch.Generator().manual_seed(4),
    )
    steps = range(0, 31)
    bounds = mixing_bound(meetings, steps)
    row = torch.zeros(len(v), dtype=torch.float64)
    row[0] = 1
    distances = []
    for _ in steps:
        distances.append(0.5 * (row - distribution).abs().sum())
        row = row @ P
    true = torch.stack(distances)
    # The bound is a mean of 0/1 variables here (lag beyond the meeting times): its standard error is known.
    error = z_limit(len(true)) * (bounds * (1 - bounds).clamp(min=0) / pairs).sqrt() + 2 / pairs
    assert bool((bounds + error >= true).all())
    # All five machines mix within some ten sweeps, and there the bound is worth something: at most 1.3 times
    # the distance as measured, where chance leaves anything of it to see.
    clear = true > 0.02
    assert bool((bounds[clear] <= 3 * true[clear]).all())


def test_capped_pairs_are_told_and_bound_nothing():
    made = machine("bernoulli-spin", scale=3.0)
    v = made.random_states(300, seed=torch.Generator().manual_seed(0))[0]
    meetings = meet(made, Gibbs(), v, max_sweeps=2, seed=torch.Generator().manual_seed(1))
    assert bool(meetings.capped.any()) and not bool(meetings.capped.all())
    assert bool((meetings.times[meetings.capped] == 2).all())
    with pytest.raises(ValueError, match="meetings: expected pairs that all met"):
        mixing_bound(meetings, range(3))
    rule = hm.rules.ucd(chains=300, max_sweeps=2)
    assert rule.bias == "biased"
    with pytest.warns(RuntimeWarning, match="given up after 2 sweeps"):
        estimate = rule.gradient(made, v, seed=torch.Generator().manual_seed(2))
    assert estimate.diagnostics["capped"] > 0.05


def test_figure_5_meeting_times():
    """Published model (500 x 100, parameters N(0, 0.1²)); another draw of it moves the figures by 0.05."""
    made = hm.BoltzmannMachine([hm.Bernoulli(500), hm.Bernoulli(100)])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(0.1 * torch.randn(p.shape, generator=generator))
    v = (torch.rand(1000, 500, generator=generator) < 0.5).float()
    met = {}
    for name, kernel in PUBLISHED.items():
        times = meet(made, kernel, v, max_sweeps=11, seed=generator)
        met[name] = float(((times.times <= 10) & ~times.capped).double().mean())
    assert met["default"] >= 0.78
    assert met["algorithm 1"] < 0.05 < 0.55 < met["algorithm 3"] < met["default"]
