"""Ladders: exchanges keep the distribution of every rung, carry states between modes, and count what they do.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons, unless it says another.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium.chains import KernelState, Metropolis
from harmonium.ladder import Ladder, lead_to, traffic
from harmonium.ladder.rungs import as_rung, hamiltonian_of, mix
from harmonium.machine import Hamiltonian

from .support import FAILURE_RATE, all_states, exact_states, exact_statistics, flat, machine

ROWS, ROUNDS = 8_000, 5


def spins_in_two_modes() -> hm.BoltzmannMachine:
    """A ferromagnet in a weak field: 0.6457 of its distribution points up."""
    made = hm.BoltzmannMachine([hm.Spin(10), hm.Spin(10)])
    with torch.no_grad():
        made.couplings[0].weight.fill_(0.6)
        for layer in made.layers:
            layer.bias.fill_(0.015)
    return made


def share_up(states: list[Tensor]) -> Tensor:
    sums = states[0].sum(1)
    return ((sums > 0).double() + (sums == 0).double() / 2).mean()


def graph_machine() -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3), hm.Spin(2)], edges=[(0, 0), (0, 1), (1, 2)])
    hm.machine.normal_(made, 0.7, seed=3)
    return made.double()


SIX = {
    "binary": lambda: machine("bernoulli-spin"),
    "spins": lambda: machine("spin-bernoulli-categorical", seed=1),
    "potts": lambda: machine("categorical-bernoulli"),
    "gaussian": lambda: machine("gaussian-bernoulli"),
    "deep": lambda: machine("gaussian-spin-gaussian"),
    "graph": graph_machine,
}


def made_of(known: Hamiltonian) -> hm.BoltzmannMachine:
    """Something with the distribution that ``exact_states`` asks for."""

    class Made:
        layers = known.layers

        def hamiltonian(self) -> Hamiltonian:
            return known

    return Made()  # type: ignore[return-value]


def draw(hamiltonian: Hamiltonian, rows: int, generator: torch.Generator) -> list[Tensor]:
    """Independent draws from a distribution, by enumeration."""
    if not hamiltonian.graph.inner:
        return exact_states(made_of(hamiltonian), rows, generator)
    grids = [all_states(layer) for layer in hamiltonian.layers]
    index = torch.tensor(list(product(*(range(len(grid)) for grid in grids))))
    states = [grid[column] for grid, column in zip(grids, index.T, strict=True)]
    drawn = torch.multinomial(
        (-hamiltonian.energy(states)).softmax(0), rows, replacement=True, generator=generator
    )
    return [x[drawn] for x in states]


def statistics_of(hamiltonian: Hamiltonian, states: list[Tensor]) -> Tensor:
    """S(x) of every row, in the order of ``flat``."""
    parts = [t for layer, x in zip(hamiltonian.layers, states, strict=True) for t in layer.statistics(x)]
    for l, m in hamiltonian.graph.edges:
        pair = (states[l].unsqueeze(-1) * states[m].unsqueeze(-2)).flatten(1)
        parts.append(pair / 2 if l == m else pair)
    return torch.cat(parts, 1)


def largest_z(hamiltonian: Hamiltonian, states: list[Tensor]) -> float:
    """The largest |z| of mean statistics against enumeration."""
    samples, expected = statistics_of(hamiltonian, states), exact_statistics(hamiltonian)
    error = samples.std(0) / len(samples) ** 0.5
    moving = error > 1e-12
    if hamiltonian.graph.inner:  # units beside themselves count for nothing
        moving &= expected != 0
    return float(((samples.mean(0) - expected).abs()[moving] / error[moving]).max())


def limit(hamiltonian: Hamiltonian, hamiltonians: int) -> float:
    comparisons = hamiltonians * len(exact_statistics(hamiltonian))
    return float(stats.norm.isf(FAILURE_RATE / (2 * comparisons)))


@torch.no_grad()
def drift(made: hm.BoltzmannMachine, kernel: Ladder, seed: int = 1) -> tuple[float, float]:
    """The largest |z| of any rung after rounds from exact draws at all of them, and its limit."""
    generator = torch.Generator().manual_seed(seed)
    hamiltonian, top = made.hamiltonian(), as_rung(made)
    foot = [x * (x.dim() == 1) for x in top]
    rungs = [mix(foot, top, t) for t in (0.0, 0.4, 0.75)]
    hamiltonians = [hamiltonian_of(hamiltonian, rung) for rung in rungs]
    below = [draw(each, ROWS, generator) for each in hamiltonians]
    state = kernel.init(hamiltonian, draw(hamiltonian, ROWS, generator), generator, rungs=rungs, below=below)
    start = max(
        largest_z(each, x)
        for each, x in zip([*hamiltonians, hamiltonian], [*below, state.states], strict=True)
    )
    assert start < limit(hamiltonian, 4)
    for _ in range(ROUNDS):
        state, _ = kernel.step(hamiltonian, state, generator)
    kernel.check(hamiltonian, state)
    ends = [*zip(*(x.view(3, ROWS, -1) for x in state.memory.states), strict=True), state.states]
    assert bool((traffic(state).acceptance > 0.05).all())
    return max(largest_z(each, x) for each, x in zip([*hamiltonians, hamiltonian], ends, strict=True)), limit(
        hamiltonian, 4
    )


@pytest.mark.parametrize("name", SIX)
def test_every_rung_keeps_its_distribution(name: str) -> None:
    z, most = drift(SIX[name](), Ladder())
    assert z < most


def test_with_another_kernel_and_more_sweeps() -> None:
    z, most = drift(SIX["deep"](), Ladder(kernel=Metropolis(), sweeps=2))
    assert z < most


@pytest.mark.parametrize("name", ["binary", "potts", "gaussian", "graph"])
def test_a_wrong_exchange_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with the sign of the other direction."""
    accept = hm._random.accept
    monkeypatch.setattr("harmonium.ladder.kernel._random.accept", lambda gain, noise: accept(-gain, noise))
    z, most = drift(SIX[name](), Ladder())
    assert z > most


@pytest.mark.parametrize("name", ["binary", "potts", "gaussian"])
def test_layers_that_keep_the_states_of_another_rung_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "harmonium.ladder.kernel.complete", lambda hamiltonian, states, fields, generator: list(states)
    )
    z, most = drift(SIX[name](), Ladder())
    assert z > most


def test_chains_cross_between_two_modes() -> None:
    """All states of all rungs start up. |z| < 4 fails with probability 6e-5."""
    made, chains = spins_in_two_modes(), 500
    hamiltonian, generator = made.hamiltonian(), torch.Generator().manual_seed(0)
    grid = all_states(made.layers[0]).float()
    with torch.no_grad():
        probability = (-hamiltonian.free_energy([grid, grid], hamiltonian.graph.summed)).softmax(0)
        truth = float((probability * ((grid.sum(1) > 0).double() + (grid.sum(1) == 0).double() / 2)).sum())
        up = [torch.ones(chains, 10)] * 2
        kernel = Ladder()
        state = kernel.init(hamiltonian, up, generator)
        everywhere = [torch.ones_like(x) for x in state.memory.states]
        state = state._replace(memory=replace(state.memory, states=everywhere))
        state = hm.chains.run(made, kernel, state, 100, seed=generator)
    assert truth == pytest.approx(0.6457, abs=1e-4)
    error = (truth * (1 - truth) / chains) ** 0.5
    assert abs(float(share_up(state.states)) - truth) < 4 * error
    stuck = hm.chains.run(made, hm.chains.Gibbs(), up, 100, seed=generator)
    assert float(share_up(stuck)) > 0.98
    seen = traffic(state)
    assert seen.renewed > 0.9 and 0.2 < seen.round_trips / seen.expected < 1.5


def test_held_units_stay_and_the_rest_follows_the_conditional_distribution() -> None:
    made = machine("bernoulli-spin")
    hamiltonian, generator = made.hamiltonian(), torch.Generator().manual_seed(4)
    with torch.no_grad():
        exact = exact_states(made, 8 * ROWS, generator)
        kept = (exact[0][:, 0] == 1) & (exact[0][:, 1] == 0)
        reference = statistics_of(hamiltonian, [x[kept] for x in exact])
        clamp = torch.full((ROWS, 4), torch.nan, dtype=torch.float64)
        clamp[:, 0], clamp[:, 1] = 1, 0
        states = hm.chains.run(
            made, Ladder(), made.random_states(ROWS, seed=generator), 30, clamp, seed=generator
        )
    assert bool((states[0][:, 0] == 1).all() and (states[0][:, 1] == 0).all())
    drawn = statistics_of(hamiltonian, states)
    error = (drawn.var(0) / len(drawn) + reference.var(0) / len(reference)).sqrt()
    moving = error > 1e-12
    z = (drawn.mean(0) - reference.mean(0)).abs()[moving] / error[moving]
    assert float(z.max()) < stats.norm.isf(FAILURE_RATE / (2 * len(z)))


def test_runs_of_any_lengths_are_one_run() -> None:
    made, kernel = spins_in_two_modes(), Ladder(acceptance=0.4)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        state = kernel.init(made.hamiltonian(), made.random_states(7, seed=0), generator)
        noise = generator.get_state()
        whole = hm.chains.run(made, kernel, state, 5, seed=generator)
        generator.set_state(noise)
        parts = hm.chains.run(made, kernel, state, 2, seed=generator)
        parts = hm.chains.run(made, kernel, parts, 3, seed=generator)
    assert all(map(torch.equal, whole.states, parts.states))
    assert torch.equal(whole.memory.births, parts.memory.births)
    assert traffic(whole).round_trips == traffic(parts).round_trips


def test_ages_count_rounds_since_rung_0() -> None:
    made, kernel = spins_in_two_modes(), Ladder()
    with torch.no_grad():
        hamiltonian, generator = made.hamiltonian(), torch.Generator().manual_seed(1)
        state = kernel.init(hamiltonian, made.random_states(50, seed=0), generator)
        assert traffic(state).renewed == 0
        for number in range(1, 40):
            state, info = kernel.step(hamiltonian, state, generator)
            ages = traffic(state).ages
            assert int(ages.min()) >= 0 and int(ages.max()) <= number
    assert traffic(state).renewed == pytest.approx(float(info["renewed"]))
    assert traffic(state).renewed > 0.5 and int(ages[0].min()) == 0
    shown = repr(traffic(state))
    assert shown == f"Traffic({traffic(state)})" and "tensor" not in shown and len(shown) < 200
    assert f"{float(traffic(state).acceptance.min()):.2f} to" in shown


@pytest.mark.parametrize(
    ("rungs", "message"),
    [
        ([], r"rungs: expected at least one"),
        ([spins_in_two_modes()], r"rungs\[0\]: expected a machine whose couplings are all 0"),
        (
            [hm.BoltzmannMachine([hm.Spin(3), hm.Spin(2)], seed=None), graph_machine()],
            r"rungs\[1\]: expected",
        ),
        ("no", r"rungs\[0\]: expected a BoltzmannMachine"),
    ],
    ids=["none", "coupled", "graphs", "text"],
)
def test_rungs_that_make_no_ladder_are_refused(rungs: object, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Ladder(rungs)  # type: ignore[arg-type]


def test_a_state_that_a_ladder_did_not_return_is_refused() -> None:
    made, kernel = spins_in_two_modes(), Ladder()
    with torch.no_grad():
        state = kernel.init(made.hamiltonian(), made.random_states(5, seed=0), torch.Generator())
    for change, message in [
        (None, "expected a LadderState"),
        ({"births": state.memory.births[:1]}, r"memory.births: expected torch.int64 of shape"),
        ({"states": [x * 0.5 for x in state.memory.states]}, r"expected values in"),
        ({"rungs": [as_rung(made)]}, r"couplings are all 0"),
    ]:
        memory = None if change is None else replace(state.memory, **change)
        with pytest.raises(ValueError, match=message):
            hm.chains.run(made, kernel, KernelState(state.states, 0, memory), 1, seed=0)


def test_too_many_rungs_are_refused() -> None:
    made = spins_in_two_modes()
    with pytest.raises(ValueError, match=r"max_rungs: 0 more rungs lead .* of the way"):
        hm.chains.run(made, Ladder(max_rungs=1), made.random_states(5, seed=0), 1, seed=0)


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("given", [(), (0.9,)], ids=["foot", "foot and one rung"])
def test_gaps_that_are_too_wide_are_filled(given: tuple[float, ...]) -> None:
    """From a foot, or one and a rung near the machine, to rungs that carry states to the top."""
    made = spins_in_two_modes()
    foot = [x * (x.dim() == 1) for x in as_rung(made)]
    rungs = [foot, *(mix(foot, as_rung(made), t) for t in given)]
    ladder = lead_to(Ladder(rungs, ages=range(len(rungs))), made, seed=0)
    assert len(rungs) < len(ladder.rungs) < 12 and len(ladder.ages) == len(ladder.rungs)
    assert list(ladder.ages) == sorted(ladder.ages) and ladder.ages[-1] == len(rungs) - 1
    found = hm.ladder.log_partitions(made, ladder, chains=50, rounds=60, seed=1)
    assert float(found.traffic.acceptance.min()) >= 0.25
    assert abs(found.value - float(hm.likelihood.exact_log_partition(made))) < 4 * found.standard_error
    with pytest.raises(ValueError, match=r"max_rungs: .* more rungs lead"):
        lead_to(Ladder(rungs, max_rungs=2), made, seed=0)


def test_flat_order_is_that_of_the_statistics() -> None:
    made = graph_machine()
    hamiltonian, states = made.hamiltonian(), made.random_states(9, seed=0)
    total = hm.machine.Statistics(hamiltonian)
    total.add(hamiltonian, states, 1.0)
    torch.testing.assert_close(flat(total), statistics_of(hamiltonian, states).sum(0).detach())


def test_a_round_goes_on_from_the_chains_at_the_top_and_from_rungs_of_its_own() -> None:
    machines = [hm.BoltzmannMachine([hm.Spin(6), hm.Spin(6)]) for _ in range(2)]
    for parameter in (p for made in machines for p in made.parameters()):
        parameter.detach().zero_()
    machines[1].couplings[0].weight.detach().fill_(3.0)  # all up or all down, for good
    hamiltonian, ladder = machines[1].hamiltonian(), hm.ladder.Ladder([machines[0]])
    generator = torch.Generator().manual_seed(0)
    up = torch.ones(4, 6)
    state = ladder.init(hamiltonian, [up, up], generator)._replace(states=[-up, -up])
    after, _ = ladder.step(hamiltonian, state, generator)
    assert torch.equal(after.states[0], -up)
    crafted = after._replace(memory=replace(after.memory, factors=[[2.0]]))
    with pytest.raises(ValueError, match=r"factors: expected \[\[1.0\]\], as its rungs have them"):
        ladder.check(hamiltonian, crafted)
