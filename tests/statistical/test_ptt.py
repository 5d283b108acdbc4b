"""Training in equilibrium: what follows the machine's distribution stays there, what leaves it is taken back.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium.ladder import Ladder
from harmonium.ladder.equilibrium import Exchange, Population, equilibrate
from harmonium.ladder.rungs import as_rung, hamiltonian_of

from .support import FAILURE_RATE, machine
from .test_ladder import SIX, draw, largest_z, limit, spins_in_two_modes
from .test_ladder_partition import exact

BARS = torch.from_numpy(hm.data.bars_and_stripes(3))
RULE = hm.rules.ptt(1, 200, freeze=0.5)


def small() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(9), hm.Bernoulli(8)], seed=0)


def train(made: hm.BoltzmannMachine, rule: Any = RULE, **changes: Any) -> Any:
    settings = {"updates": 300, "learning_rate": 0.3, "batch_size": 16, "progress": False, **changes}
    return hm.train(made, BARS, rule=rule, **settings)


@pytest.mark.parametrize("name", SIX)
@pytest.mark.mostly_nightly(2)
def test_nothing_drifts_from_the_distribution_at_rate_0(name: str) -> None:
    """Chains, reservoir and samples after the machine has frozen and 30 updates without a step."""
    made = SIX[name]()
    hamiltonian, generator = made.hamiltonian(), torch.Generator().manual_seed(0)
    rule, state = hm.rules.ptt(1, 2000, freeze=0.3, samples=4), None
    v = draw(hamiltonian, 50, generator)[0].detach()
    with torch.no_grad():
        for _ in range(30):
            state = rule.gradient(made, v, state, seed=generator).state
            rule.check_state(made, state)
        rung = hamiltonian_of(hamiltonian, state.rungs[-1])
        chains = [state.chains]
        chains += [population.whole(rung, generator) for population in (state.samples, state.reservoir)]
    assert state.rejections == 0 and len(state.rungs) >= 2
    # Samples are taken every two autocorrelation times, and so are nearly independent.
    assert max(largest_z(hamiltonian, each) for each in chains) < 1.15 * limit(hamiltonian, 3)


@torch.no_grad()
def exchanged(name: str, seed: int = 5) -> tuple[float, float]:
    """The largest |z| of chains and reservoir after one exchange between exact draws, and its limit.

    At rate 0 the distribution is that of the last rung, where any exchange is right. Here the rung has half
    the couplings.
    """
    made, generator = SIX[name](), torch.Generator().manual_seed(seed)
    hamiltonian = made.hamiltonian()
    rung = hamiltonian_of(hamiltonian, [x * (0.5 if x.dim() == 2 else 1) for x in as_rung(hamiltonian)])
    chains = draw(hamiltonian, 20_000, generator)
    reservoir = Population.of(rung, draw(rung, 20_000, generator))
    offered = Exchange.offer(hamiltonian, rung, chains, reservoir, generator)
    assert 0.2 < float(offered.gain.clamp(max=0).exp().mean()) < 0.99
    moved, left = offered.accept(hamiltonian, reservoir, generator)
    z = max(largest_z(hamiltonian, moved), largest_z(rung, left.whole(rung, generator)))
    energies = rung.free_energy(left.states, hamiltonian.graph.summed)
    torch.testing.assert_close(left.energies, energies)
    return z, limit(hamiltonian, 2)


@pytest.mark.parametrize("name", SIX)
def test_an_exchange_keeps_both_distributions(name: str) -> None:
    z, most = exchanged(name)
    assert z < most


@pytest.mark.parametrize("wrong", ["sign", "one distribution alone"])
@pytest.mark.parametrize("name", SIX)
def test_a_wrong_exchange_is_caught(name: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Exchange.offer.__func__  # type: ignore[attr-defined]

    def made_wrong(cls: Any, *arguments: Any) -> Exchange:
        made = offer(cls, *arguments)
        gain = -made.gain if wrong == "sign" else made.energies[0] - made.energies[1]
        return made._replace(gain=gain)

    monkeypatch.setattr(Exchange, "offer", classmethod(made_wrong))
    z, most = exchanged(name)
    assert z > most


@pytest.mark.nightly
def test_the_gradient_is_right_on_average() -> None:
    """24 estimates of one machine, far from independent units, against enumeration."""
    made, generator = machine("bernoulli-spin"), torch.Generator().manual_seed(1)
    v = draw(made.hamiltonian(), 20, generator)[0].detach()
    truth = hm.rules.exact().gradient(made, v, seed=0).parameters
    found: dict[str, list[Tensor]] = {name: [] for name in truth}
    for seed in range(24):
        rule = hm.rules.ptt(3, 100, samples=3)
        state = rule.gradient(made, v, seed=seed).state
        for name, value in rule.gradient(made, v, state, seed=1000 + seed).parameters.items():
            found[name].append(value)
    z = []
    for name, values in found.items():
        each = torch.stack(values).flatten(1)
        z.append((each.mean(0) - truth[name].flatten()).abs() / (each.std(0) / len(each) ** 0.5))
    assert float(torch.cat(z).max()) < stats.t.isf(FAILURE_RATE / (2 * len(torch.cat(z))), 23)


def test_equilibrium_is_reached_from_one_mode() -> None:
    """Chains that all start up, beside samples of a machine with somewhat weaker couplings."""
    made, generator = spins_in_two_modes().double(), torch.Generator().manual_seed(2)
    hamiltonian = made.hamiltonian()
    rung = hamiltonian_of(hamiltonian, [x * (0.9 if x.dim() == 2 else 1) for x in as_rung(hamiltonian)])
    with torch.no_grad():
        samples = Population.of(rung, draw(rung, 4000, generator))
        up = [torch.ones(400, 10, dtype=torch.float64)] * 2
        found = equilibrate(hamiltonian, as_rung(rung), up, samples, 1, generator)
    assert found.cause == "" and found.rounds < 2000
    up = (found.samples.states[0] if found.samples.states[0].numel() else found.samples.states[1]).sum(1)
    share = float((up > 0).double().mean() + (up == 0).double().mean() / 2)
    assert abs(share - 0.6457) < 5 * (0.6457 * 0.3543 / 4000) ** 0.5  # samples of both machines err


def test_a_machine_out_of_reach_is_refused() -> None:
    made, generator = spins_in_two_modes(), torch.Generator().manual_seed(3)
    hamiltonian = made.hamiltonian()
    rung = hamiltonian_of(hamiltonian, [x * 0 for x in as_rung(hamiltonian)])
    with torch.no_grad():
        samples = Population.of(rung, made.random_states(400, seed=generator))
        found = equilibrate(
            hamiltonian, as_rung(rung), made.random_states(40, seed=generator), samples, 1, generator
        )
    assert found.cause.startswith("acceptance ")


@pytest.fixture(scope="module")
def frozen() -> tuple[hm.BoltzmannMachine, Any]:
    made = small()
    return made, train(made, updates=800, record_every=20)


@pytest.mark.nightly
def test_a_run_freezes_machines_and_knows_their_ln_z(frozen: tuple[hm.BoltzmannMachine, Any]) -> None:
    made, run = frozen
    state, hamiltonian = run.rule_state, made.hamiltonian()
    with torch.no_grad():
        truth = torch.tensor(
            [exact(hamiltonian_of(hamiltonian, rung)) for rung in state.rungs], dtype=torch.float64
        )
    assert len(truth) >= 3
    # Samples of a rung come from those below, with their errors: twice those of independent ones.
    assert float((state.log_partitions - truth).abs().max()) < 0.2
    z = (state.log_partitions - truth)[1:].abs() / state.variances.sqrt()[1:]
    assert float(z.max()) < 8
    notes = run.history[-1]
    assert notes["rungs"] == len(truth) and 0.5 < notes["acceptance"] <= 1
    assert notes["log_partition"] == pytest.approx(float(state.log_partitions[-1]))
    assert sum(note["frozen"] for note in run.history) > 0
    before = hm.likelihood.exact_log_likelihood(small(), BARS).mean()
    assert hm.likelihood.exact_log_likelihood(made, BARS).mean() > before + 1


def test_the_ladder_of_a_run_has_ln_z_and_samples(frozen: tuple[hm.BoltzmannMachine, Any]) -> None:
    made, run = frozen
    state = hm.ladder.ladder_of(made, run.rule_state)
    found = hm.ladder.log_partitions(made, state=state, rounds=80, seed=0)
    truth = float(hm.likelihood.exact_log_partition(made))
    assert abs(found.value - truth) < 4 * found.standard_error < 0.2
    assert (
        hm.likelihood.WITHOUT_DATA not in found.doubts and len(found.values) == len(run.rule_state.rungs) + 1
    )
    later = hm.chains.run(made, Ladder(), state, 20, seed=1)
    assert later.states[0].shape == (200, 9)
    with pytest.raises(ValueError, match="expected the rule_state of a training by ptt"):
        hm.ladder.ladder_of(made, train(small(), hm.rules.pcd(1), updates=2).rule_state)


def test_a_step_too_long_is_taken_back() -> None:
    """Rates of 50 lead out of reach at once: half of the updates go back, until rates serve."""
    made, seen = small(), []

    def watch(update: Any) -> None:
        values = {name: p.detach().clone() for name, p in update.machine.named_parameters()}
        seen.append((dict(update.diagnostics), values))

    run = train(made, learning_rate=50.0, updates=60, momentum=0.5, callbacks=[watch])
    back = [number for number, (notes, _) in enumerate(seen) if notes["rejected"]]
    assert len(back) >= 3 and run.status == "completed"
    factors = [notes["rate_factor"] for notes, _ in seen]
    assert factors == sorted(factors, reverse=True) and factors[-1] == 0.5 ** len(back)
    first, start = back[0], dict(small().named_parameters())
    for name, value in seen[first][1].items():
        assert torch.equal(value, start[name])
    assert seen[first][0]["acceptance"] < 0.3
    assert bool(torch.isfinite(torch.cat([p.flatten() for p in made.parameters()])).all())


def test_rejections_in_a_row_stop_the_run_with_a_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that is left is the last frozen one."""
    made = small()
    monkeypatch.setattr("harmonium.ladder.equilibrium._PATIENCE", 2)
    with pytest.warns(RuntimeWarning, match=r"rule: stopped after \d+ updates: 2 steps in a row .* accept"):
        run = train(made, learning_rate=50.0, updates=500)
    assert run.status == "stopped" and run.updates < 50 and run.history[-1]["step"] == run.updates
    for name, value in run.rule_state.parameters.items():
        assert torch.equal(made.get_parameter(name), value)


def test_too_many_rungs_stop_the_run() -> None:
    rule = hm.rules.ptt(1, 50, freeze=0.9, max_rungs=3)
    with pytest.warns(RuntimeWarning, match="3 machines are frozen, which is max_rungs"):
        run = train(small(), rule, updates=2000)
    assert run.status == "stopped" and len(run.rule_state.rungs) == 3


@pytest.mark.parametrize(
    ("rule", "cuts"), [(RULE, (7, 60)), (hm.rules.centred(RULE), (23,))], ids=["plain", "centred"]
)
@pytest.mark.nightly
def test_a_run_that_was_cut_goes_on_bit_by_bit(rule: Any, cuts: tuple[int, ...], tmp_path: Path) -> None:
    """The cuts lie before and after freezes and rejections."""
    settings = {"learning_rate": 20.0, "momentum": 0.5, "updates": 90}
    whole = small()
    run = train(whole, rule, **settings)
    assert run.rule_state.rate < 1 and len(run.rule_state.rungs) > 2

    for cut in cuts:
        parts = small()
        folder = tmp_path / str(cut)

        class Cut:
            at = cut

            def __call__(self, update: Any) -> None:
                if update.step == self.at:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(parts, rule, run_dir=folder, checkpoint_every=cut // 2, callbacks=[Cut()], **settings)
        again = train(parts, rule, run_dir=folder, checkpoint_every=cut // 2, resume=True, **settings)
        assert all(map(torch.equal, whole.parameters(), parts.parameters()))
        assert torch.equal(again.rule_state.log_partitions, run.rule_state.log_partitions)


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(ValueError, match=r"freeze: expected a finite number in \[0.1, 1\]"):
        hm.rules.ptt(freeze=0.05)
    with pytest.raises(ValueError, match="state: expected a PttState"):
        RULE.gradient(small(), BARS, small().random_states(5, seed=0), seed=0)
    state = RULE.gradient(small(), BARS, seed=0).state
    state = replace(state, samples=state.samples._replace(energies=state.samples.energies[:7]))
    with pytest.raises(ValueError, match=r"state.samples.energies: expected"):
        RULE.gradient(small(), BARS, state, seed=0)


def test_names_and_options() -> None:
    rule = hm.rules.from_options("ptt", sweeps=2, chains=50, freeze=0.4)
    assert rule.name == "ptt(2, chains=50, freeze=0.4)"
    assert rule.bias == "asymptotic" and np.isfinite(
        train(small(), rule, updates=5).history[-1]["acceptance"]
    )
