"""Langevin kernels keep the distribution of machines with unequal variances; the uncorrected ones are caught.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from math import cos, pi

import pytest
import torch

import harmonium as hm
from harmonium.backends import choice
from harmonium.chains import GibbsLangevin, Kernel, Langevin
from harmonium.chains.langevin import Relaxation
from harmonium.machine import Statistics

from .support import all_states, exact_states, exact_statistics, flat, largest_z, row_statistics, z_limit

ROWS = 8_000
SWEEPS = 8
MACHINES = {
    "visible": lambda: [hm.Gaussian(3), hm.Bernoulli(4)],
    "hidden": lambda: [hm.Spin(4), hm.Gaussian(2)],
    "deep": lambda: [hm.Gaussian(3), hm.Spin(3), hm.Spin(2)],
    "both": lambda: [hm.Gaussian(2), hm.Spin(3), hm.Gaussian(2)],
    "middle": lambda: [hm.Spin(2), hm.Gaussian(2), hm.Spin(2)],
}
CORRECT = [
    hm.chains.Gibbs(),
    Langevin(0.3),
    Langevin(0.5, anneal=True),
    GibbsLangevin(0.2, 5, "metropolis"),
    GibbsLangevin(0.2, 5, "exact"),
    GibbsLangevin(1.7, 1, "exact"),
    Langevin(0.01, variance="mean"),
    GibbsLangevin(0.01, 5, "metropolis", variance="mean"),
]
WRONG = [
    Langevin(0.5, adjust=None),
    Langevin(0.5, adjust=SWEEPS),
    GibbsLangevin(0.5, 2, "none"),
    Langevin(0.3, temperature=2.0),
    GibbsLangevin(0.2, 5, "exact", temperature=2.0),
]


def machine(name: str) -> hm.BoltzmannMachine:
    """Variances from 0.05 to 5; flipping a neighbour moves a mean by about a standard deviation."""
    made = hm.BoltzmannMachine(MACHINES[name]()).double()
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for layer in made.layers:
            normal = torch.randn(layer.width, generator=generator, dtype=torch.float64)
            if isinstance(layer, hm.Gaussian):
                variance = torch.logspace(-1.3, 0.7, layer.width, dtype=torch.float64)
                layer.fit_((0.3 * normal * variance.sqrt(),), variance)
            else:
                layer.bias.copy_(0.3 * normal)
        # J = K/σ with K of order 1, whatever the parametrisation, so that no unit is frozen.
        for W, below, above in zip(
            (coupling.weight for coupling in made.couplings), made.layers, made.layers[1:], strict=False
        ):
            strength = 0.6 * torch.randn(W.shape, generator=generator, dtype=torch.float64)
            for layer, shape in ((below, (-1, 1)), (above, (1, -1))):
                if isinstance(layer, hm.Gaussian):
                    strength = strength * layer.natural()[1].sqrt().view(shape) / _scale(layer).view(shape)
            W.copy_(strength)
    return made


def _scale(layer: hm.layers.Layer) -> torch.Tensor:
    return torch.ones(layer.width, dtype=torch.float64) if layer.scale is None else layer.scale


def drift(
    name: str, kernel: Kernel, batch: int = ROWS, rows: int = ROWS, sweeps: int = SWEEPS
) -> tuple[float, float]:
    """Largest |z| of E[S] after some sweeps from exact draws, in batches of a size."""
    made = machine(name)
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(1)
    start = exact_states(made, rows, generator)
    parts = [
        hm.chains.run(made, kernel, [x[i : i + batch] for x in start], sweeps, seed=generator)
        for i in range(0, rows, batch)
    ]
    states = [torch.cat(layer) for layer in zip(*parts, strict=True)]
    return largest_z(row_statistics(hamiltonian, states).detach(), exact_statistics(hamiltonian))


@pytest.mark.mostly_nightly(16)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kernel", CORRECT, ids=repr)
def test_no_drift(name, kernel):
    z, limit = drift(name, kernel)
    assert z < limit


@pytest.mark.mostly_nightly(12)
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kernel", WRONG, ids=repr)
def test_uncorrected_kernels_are_caught(name, kernel):
    z, limit = drift(name, kernel)
    assert z > limit


@pytest.mark.mostly_nightly(4)
@pytest.mark.parametrize(("batch", "rows", "sweeps"), [(1, 200, 2), (100, 4_000, 8), (512, 10_240, 8)])
@pytest.mark.parametrize("kernel", [CORRECT[0], CORRECT[1], CORRECT[3], CORRECT[4]], ids=repr)
def test_the_distribution_does_not_depend_on_the_batch(kernel, batch, rows, sweeps):
    z, limit = drift("visible", kernel, batch, rows, sweeps)
    assert z < limit


def test_one_inner_step_of_size_one_is_gibbs():
    made = machine("visible")
    states = made.random_states(50, seed=torch.Generator().manual_seed(0))
    drawn = [
        hm.chains.run(made, kernel, states, 3, seed=torch.Generator().manual_seed(1))
        for kernel in (hm.chains.Gibbs(), GibbsLangevin(1.0, 1, "exact"))
    ]
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(*drawn, strict=True))


@pytest.mark.parametrize("inner", [1, 4])
def test_the_closed_form_is_the_loop(inner):
    """Mean and variance of the drawn visible units against as many Langevin steps at fixed hidden units."""
    step, start, sigma, centre = 0.4, 2.0, 0.7, -1.0
    mean, variance = start, 0.0
    for j in range(inner):
        size = step * 0.5 * (1 + cos(pi * j / inner))
        mean, variance = mean - size * (mean - centre), variance * (1 - size) ** 2 + 2 * size * sigma**2
    made = hm.BoltzmannMachine([hm.Gaussian(1), hm.Bernoulli(1)]).double()
    made.layers[0].fit_((torch.tensor([centre]),), torch.tensor([sigma**2]))
    torch.nn.init.zeros_(made.couplings[0].weight)
    states = [torch.full((ROWS, 1), start).double(), torch.zeros(ROWS, 1).double()]
    kernel = GibbsLangevin(step, inner, "none")
    x = hm.chains.run(made, kernel, states, 1, seed=torch.Generator().manual_seed(2))[0]
    limit = z_limit(2)
    assert abs(float(x.mean()) - mean) < limit * (variance / ROWS) ** 0.5
    assert abs(float(x.var()) / variance - 1) < limit * (2 / ROWS) ** 0.5


@pytest.mark.parametrize("compiled", [False, True])
def test_an_unadjusted_step_follows_the_free_energy(compiled):
    """x' = x - α σ² ∂F/∂x + √(2 α) σ ξ (Liao et al. 2022, Eq. 6), with F by enumeration of the hidden layer.

    A Metropolis test would keep the machine's distribution with noise of any other size.
    """
    step, made = 0.4, machine("visible")
    generator = torch.Generator().manual_seed(6)
    start = exact_states(made, ROWS, generator)
    x = start[0].clone().requires_grad_()
    hidden = all_states(made.layers[1])
    pairs = [x.repeat_interleave(len(hidden), 0), hidden.repeat(ROWS, 1)]
    free_energy = -(-made.hamiltonian().energy(pairs)).view(ROWS, -1).logsumexp(1)
    (slope,) = torch.autograd.grad(free_energy.sum(), x)
    variance = 1 / made.layers[0].natural()[1].detach()
    kernel = Langevin(step, adjust=None)
    if compiled:
        hamiltonian = made.float().hamiltonian()
        moved, _ = run_small(
            hamiltonian, kernel, [layer.float() for layer in start], 1, generator,
            into=Statistics(hamiltonian), weight=1.0, burn_in=0,
        )  # fmt: skip
    else:
        moved = hm.chains.run(made, kernel, start, 1, seed=generator)
    noise = (moved[0].double() - start[0] + step * variance * slope) / (2 * step * variance).sqrt()
    moments = torch.cat([noise, noise.square(), noise * slope], 1)
    z, limit = largest_z(moments, torch.tensor([0.0, 1.0, 0.0]).repeat_interleave(3).double())
    assert z < limit


@pytest.mark.parametrize("kernel", [Langevin(0.4), *CORRECT[3:5]], ids=repr)
@pytest.mark.parametrize(
    ("name", "layer", "column"),
    [("visible", 0, 1), ("visible", 1, 0), ("hidden", 0, 2), ("middle", 1, 0), ("deep", 1, 1)],
)
def test_clamped_units_stay_and_the_rest_follows_the_conditional_distribution(kernel, name, layer, column):
    """A unit held in every row at its own exact draw: the joint distribution is still the machine's."""
    made = machine(name)
    hamiltonian = made.hamiltonian()
    generator = torch.Generator().manual_seed(5)
    start = exact_states(made, ROWS, generator)
    held = torch.full_like(start[layer], torch.nan)
    held[:, column] = start[layer][:, column]
    states = hm.chains.run(made, kernel, start, SWEEPS, {layer: held}, seed=generator)
    assert torch.equal(states[layer][:, column], start[layer][:, column])
    z, limit = largest_z(row_statistics(hamiltonian, states).detach(), exact_statistics(hamiltonian))
    assert z < limit


@pytest.mark.parametrize("kernel", [Langevin(0.3), GibbsLangevin(0.2, 5, "metropolis")], ids=repr)
def test_diagnostics_and_a_layer_held_whole(kernel):
    made = machine("visible")
    states = made.random_states(200, seed=torch.Generator().manual_seed(0))
    seen = []
    hm.chains.run(
        made, kernel, states, 5, seed=torch.Generator().manual_seed(1),
        observer=lambda number, state, info: seen.append(info),
    )  # fmt: skip
    assert all(0 < each["acceptance"] <= 1 and each["squared_jump"] > 0 for each in seen)
    moved = hm.chains.run(made, kernel, states, 3, {0: states[0]}, seed=torch.Generator().manual_seed(1))
    assert torch.equal(moved[0], states[0]) and not torch.equal(moved[1], states[1])


def test_the_schedule_of_a_run():
    """An annealed step falls in the course of a run, and begins anew with the next update of a rule."""
    hamiltonian, generator = machine("visible").hamiltonian(), torch.Generator().manual_seed(0)
    states = machine("visible").random_states(2, seed=generator)

    def moves(kernel: Langevin | GibbsLangevin, sweeps: int) -> list[Relaxation]:
        begun = kernel.init(hamiltonian, states, generator, planned=4)
        return [kernel.relaxation(begun._replace(sweeps=sweep)) for sweep in range(sweeps)]

    annealed = [1 - move.keep for move in moves(Langevin(0.5, None, True), 8)]
    assert annealed == pytest.approx([0.5 * c for c in (1, 0.853553, 0.5, 0.146447)] * 2, rel=1e-5)
    assert not any(move.adjusted for move in moves(Langevin(0.5, None, True), 8))
    assert [move.adjusted for move in moves(Langevin(0.5, adjust=2), 4)] == [False, False, True, True]
    tested = moves(GibbsLangevin(0.5, 3, "metropolis", adjust=1), 3)
    assert [move.adjusted for move in tested] == [False, True, True]
    with pytest.raises(TypeError, match="planned: expected an int"):
        Langevin(0.5, anneal=True).init(hamiltonian, states, generator)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("step: expected a finite number", lambda: Langevin(0.0)),
        ("adjust: expected an int of at least 0", lambda: Langevin(0.1, adjust=-1)),
        ("step: expected one with", lambda: GibbsLangevin(2.0, 1, "exact")),
        ("correction: expected one of", lambda: GibbsLangevin(0.1, 1, "maybe")),
        ("inner: expected an int", lambda: GibbsLangevin(0.1, 0)),
        ("temperature: expected a finite number", lambda: Langevin(temperature=0.0)),
        ("temperature: expected a finite number", lambda: GibbsLangevin(temperature=float("nan"))),
        (
            'proposal_temperature: expected with correction "metropolis"',
            lambda: GibbsLangevin(proposal_temperature=2.0),
        ),
        ("variance: expected one of", lambda: Langevin(variance="median")),
        ('variance: expected "own" with correction "exact"', lambda: GibbsLangevin(variance="mean")),
        (
            "machine: expected a Gaussian layer",
            lambda: hm.chains.run(
                hm.BoltzmannMachine([hm.Bernoulli(2), hm.Spin(2)]), Langevin(), torch.zeros(1, 2), 1,
                seed=torch.Generator(),
            ),
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()


AXIS = torch.linspace(-14, 14, 561, dtype=torch.float64)
GRID = torch.cartesian_prod(AXIS, AXIS)
MEAN, VARIANCE = torch.tensor([0.4, -0.3]).double(), torch.tensor([0.5, 2.0]).double()
BIAS, W = torch.tensor([0.3, -0.2, 0.1]).double(), torch.tensor([[0.7, -0.6, 0.5], [0.9, 1.1, -0.8]]).double()


def plane_machine() -> hm.BoltzmannMachine:
    """Two Gaussian units over three of 0 and 1."""
    made = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(3)])
    with torch.no_grad():
        made.layers[0].fit_((MEAN.float(),), VARIANCE.float())
        made.layers[1].bias.copy_(BIAS)
        made.couplings[0].weight.copy_(W)
    return made


def hot_marginal(temperature: float) -> torch.Tensor:
    """exp(-F(v)/T) on the grid, from a formula of its own."""
    odds = BIAS + (GRID / VARIANCE) @ W
    negative = -((GRID - MEAN) ** 2 / (2 * VARIANCE)).sum(1) + torch.log1p(odds.exp()).sum(1)
    return (negative / temperature).softmax(0)


def hot_conditionals(temperature: float) -> torch.Tensor:
    """The marginal of v where v follows p(v | h)^(1/T) and h follows p(h | v), in turns, on the grid."""
    h = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 3)
    distance = (GRID.unsqueeze(1) - (MEAN + h @ W.t())) ** 2 / (2 * temperature * VARIANCE)
    v_given_h = (-distance.sum(-1)).softmax(0)
    odds = BIAS + (GRID / VARIANCE) @ W
    h_given_v = (odds.unsqueeze(1) * h - torch.log1p(odds.exp()).unsqueeze(1)).sum(-1).exp()
    of_h = torch.linalg.matrix_power(v_given_h.t() @ h_given_v, 200)[0]
    return v_given_h @ of_h


HOT = [
    (Langevin(0.3, temperature=3.0), hot_marginal),
    (Langevin(0.3, temperature=0.5), hot_marginal),
    (Langevin(0.1, temperature=3.0, variance="mean"), hot_marginal),
    (GibbsLangevin(0.2, 5, "metropolis", temperature=3.0), hot_marginal),
    (GibbsLangevin(0.2, 5, "metropolis", temperature=0.5), hot_marginal),
    (GibbsLangevin(0.2, 5, "metropolis", proposal_temperature=4.0), hot_marginal),
    (GibbsLangevin(0.1, 5, "metropolis", proposal_temperature=4.0, variance="mean"), hot_marginal),
    (GibbsLangevin(1.0, 1, "exact", temperature=3.0), hot_conditionals),
]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("kernel", "densities"), HOT, ids=lambda x: getattr(x, "__name__", str(x)))
@pytest.mark.mostly_nightly(2)
def test_hot_chains_follow_the_distribution_of_energies_over_the_temperature(kernel, densities, compiled):
    made, generator = plane_machine(), torch.Generator().manual_seed(4)
    grid = densities(kernel.temperature)
    places = torch.multinomial(grid, 20_000, replacement=True, generator=generator)
    within = torch.rand(len(places), 2, generator=generator).double() - 0.5
    v = (GRID[places] + within * (AXIS[1] - AXIS[0])).float()
    hidden = torch.rand(len(v), 3, generator=generator) < torch.sigmoid(BIAS + (v / VARIANCE) @ W)
    start = [v, hidden.float()]
    if compiled:
        hamiltonian = made.hamiltonian()
        states, _ = run_small(
            hamiltonian, kernel, start, 40, generator,
            into=Statistics(hamiltonian), weight=1.0, burn_in=0,
        )  # fmt: skip
    else:
        states = hm.chains.run(made, kernel, start, 40, seed=generator)

    def functions(v: torch.Tensor) -> torch.Tensor:
        odds = BIAS + (v / VARIANCE) @ W
        return torch.cat([v, v**2, v[:, :1] * v[:, 1:], torch.sigmoid(odds)], 1)

    z, limit = largest_z(functions(states[0].double()), grid @ functions(GRID))
    assert z < limit
    shares = torch.cat([states[1].double(), states[0].double() * states[1].double()[:, :2]], 1)
    means = torch.sigmoid(BIAS + (GRID / VARIANCE) @ W)
    z, limit = largest_z(shares, grid @ torch.cat([means, GRID * means[:, :2]], 1))
    assert z < limit


@pytest.mark.parametrize("chains", [1, 100])
def test_steps_of_the_mean_variance_are_those_of_the_published_program(chains):
    """Its inner steps, of the energy over the number of chains and noise that is not divided, one by one."""
    size, inner = 3.0, 4
    kernel = GibbsLangevin(size / chains, inner, "none", temperature=float(chains), variance="mean")
    state = kernel.init(plane_machine().hamiltonian(), [], torch.Generator(), None)
    keep, spread = kernel.relaxation(state).of_units(1 / VARIANCE)
    published_keep, published_variance = torch.ones(2).double(), torch.zeros(2).double()
    for step in range(inner):
        eta = size * float(VARIANCE.mean()) * 0.5 * (1 + cos(pi * step / inner))
        left = 1 - eta / (chains * VARIANCE)
        published_keep = published_keep * left
        published_variance = published_variance * left**2 + 2 * eta
    torch.testing.assert_close(keep, published_keep)
    torch.testing.assert_close(spread**2 * VARIANCE, published_variance)


def run_small(hamiltonian, kernel, states, sweeps, generator, **options):
    """Runs compiled chains from their first sweep on; their states, and diagnostics."""
    pytest.importorskip("numba")
    state = kernel.init(hamiltonian, states, generator, sweeps)
    state, info = hm.chains.relax_alone(hamiltonian, kernel, state, sweeps, generator, **options)
    assert state.sweeps == sweeps
    return state.states, info


def small_drift(kernel: Kernel, name: str) -> tuple[float, float]:
    """As ``drift``, by the compiled chains."""
    made = machine(name).float()
    hamiltonian = made.hamiltonian()
    assert choice.small_chains(hamiltonian)
    generator = torch.Generator().manual_seed(3)
    start = [x.float() for x in exact_states(machine(name), ROWS, generator)]
    states, diagnostics = run_small(
        hamiltonian, kernel, start, SWEEPS, generator,
        into=Statistics(hamiltonian), weight=1.0, burn_in=0,
    )  # fmt: skip
    if not isinstance(kernel, hm.chains.Gibbs):
        assert 0 < diagnostics["acceptance"] <= 1 and diagnostics["squared_jump"] > 0
    exact = exact_statistics(machine(name).hamiltonian())
    rows = row_statistics(hamiltonian, states).detach().double()
    return largest_z(rows, exact)


@pytest.mark.parametrize("kernel", CORRECT, ids=repr)
def test_compiled_chains_do_not_drift(kernel):
    z, limit = small_drift(kernel, "visible")
    assert z < limit


@pytest.mark.parametrize("kernel", WRONG, ids=repr)
def test_compiled_uncorrected_chains_are_caught(kernel):
    z, limit = small_drift(kernel, "visible")
    assert z > limit


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("kernel", [CORRECT[0], CORRECT[1], CORRECT[3]], ids=repr)
def test_compiled_statistics_are_those_of_the_states(kernel, drawn):
    """Of the last sweep alone, so that the states it returns are those that were counted."""
    if drawn and isinstance(kernel, Langevin):  # it draws no hidden units before its last sweep
        made, sums = machine("visible").float().hamiltonian(), {"weight": 1.0, "burn_in": 0}
        state = kernel.init(made, machine("visible").random_states(2, seed=0), torch.Generator(), 1)
        into = Statistics(made).in_readings([()])
        assert hm.chains.relax_alone(made, kernel, state, 1, torch.Generator(), into=into, **sums) is None
        return
    made = machine("visible").float()
    hamiltonian = made.hamiltonian()
    start = made.random_states(37, seed=torch.Generator().manual_seed(0))
    summed, expected = Statistics(hamiltonian), Statistics(hamiltonian)
    states, _ = run_small(
        hamiltonian, kernel, start, 3, torch.Generator().manual_seed(1),
        into=summed.in_readings([()]) if drawn else summed, weight=-0.25, burn_in=2,
    )  # fmt: skip
    with torch.no_grad():
        expected.add(hamiltonian, states, -0.25, summed=() if drawn else (1,))
    torch.testing.assert_close(flat(summed), flat(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_schedule_of_adjustments_is_kept_by_compiled_chains(first):
    """Unadjusted first sweeps take every proposal, later ones do not: the rate says how many there were."""
    made = machine("visible").float()
    start = made.random_states(500, seed=torch.Generator().manual_seed(0))
    hamiltonian = made.hamiltonian()
    kernel = Langevin(50.0, adjust=first)  # a step this wild is always refused
    _, diagnostics = run_small(
        hamiltonian, kernel, start, 4, torch.Generator().manual_seed(1),
        into=Statistics(hamiltonian), weight=1.0, burn_in=0,
    )  # fmt: skip
    assert first / 4 <= diagnostics["acceptance"] < first / 4 + 0.02


@pytest.mark.parametrize(
    "kernel", [Langevin(1.5, adjust=1), GibbsLangevin(1.7, 10, "metropolis", adjust=1)], ids=repr
)
def test_the_first_adjusted_sweep_of_compiled_chains_is_the_eager_one(kernel):
    """It compares with a state that no test has looked at."""
    made = machine("visible").float()
    hamiltonian, rows = made.hamiltonian(), 4000
    start = made.random_states(rows, seed=torch.Generator().manual_seed(0))
    _, compiled = run_small(
        hamiltonian, kernel, start, 2, torch.Generator().manual_seed(1),
        into=Statistics(hamiltonian), weight=1.0, burn_in=0,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        state = kernel.init(hamiltonian, start, generator, 2)
        for _ in range(2):
            state, info = kernel.step(hamiltonian, state, generator)
    # The mean over both sweeps, the first of which takes all; its standard error is at most 0.25/√rows.
    expected = (1 + info["acceptance"]) / 2
    assert 0.5 < expected < 0.95
    assert abs(compiled["acceptance"] - expected) < 3.3 * 0.25 * (2 / rows) ** 0.5
