"""Recorded work is the work that it stands for: the same numbers, kept across a resume, with no wait between.

Nobody needs a GPU for it: where a device is said to record, ``Recording`` runs its step from tensors that
stay, as a graph does. ``experiments/gpu.py`` asks a GPU for the rest.
"""

from __future__ import annotations

import gc
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
import torch

if os.environ.get("HARMONIUM_TEST_DEVICE") not in (None, "pretend"):
    pytest.skip("a process that uses a real device has no pretend one", allow_module_level=True)
from pretend_device import DEVICE, pretend_device
from pretend_graphs import pretend_graphs
from scipy.sparse import csr_matrix

import harmonium as hm
from harmonium import _device
from harmonium._states import leaves
from harmonium.backends import Recording, choice, recording as recording_module
from harmonium.chains import local_modes
from harmonium.training.batch_source import RowBatches
from harmonium.training.recorded_updates import RecordedUpdates
from harmonium.training.run_directory import RunDirectory

GENERATOR = torch.Generator().manual_seed(1)
BITS = (torch.rand(300, 12, generator=GENERATOR) < 0.3).float()
REAL = torch.randn(300, 12, generator=GENERATOR)
WEIGHTS = torch.rand(300, generator=GENERATOR)
CENTRED, Langevin = hm.rules.centred, hm.chains.GibbsLangevin

RUNS: dict[str, dict[str, Any]] = {
    "pcd": {},
    "cd": {"rule": hm.rules.cd(3)},
    "centred": {"rule": CENTRED(hm.rules.pcd(1))},
    "centred by the batch before": {"rule": CENTRED(hm.rules.noise_cd(4, burn_in=1))},
    "average": {"averaging": 0.9},
    "clip": {"clip_norm": 0.1},
    "ball": {"radius": 0.5},
    "ball and momentum": {"radius": 0.5, "momentum": 0.5},
    "decay": {"weight_decay": 0.01, "l1": 0.01},
    "momentum": {"momentum": 0.5, "schedule": "inverse_sqrt"},
    "adam": {"optimizer": "adam", "schedule": "inverse_sqrt", "learning_rate": 0.01},
    "weights": {"weights": WEIGHTS},
    "all rows": {"batch_size": 300},
    "metropolis": {"rule": hm.rules.pcd(2, kernel=hm.chains.Metropolis())},
    "deep": {"hidden": [hm.Bernoulli(5), hm.Bernoulli(3)], "rule": hm.rules.pcd(2)},
    "gaussian": {"visible": hm.Gaussian(12), "rule": hm.rules.noise_cd(4, kernel=Langevin(0.1))},
    "bytes": {"rows": BITS.byte()},
    "tempered": {"rule": hm.rules.tempered_pcd(2, replicas=3)},
    "tap": {"rule": hm.rules.tap()},
    "persistent tap of a deep machine": {
        "hidden": [hm.Bernoulli(5), hm.Bernoulli(3)],
        "rule": hm.rules.tap(order=3, start="persistent", solutions=20),
    },
    "mean field of a deep machine": {
        "hidden": [hm.Bernoulli(5), hm.Bernoulli(3)],
        "rule": hm.rules.mean_field_pcd(2),
    },
    "grey": {"rows": BITS * 0.7, "transform": hm.data.bernoulli_binarise},
}


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The CPU is a device that records, and has no code of its own."""
    monkeypatch.setattr(_device, "is_async", lambda device: True)
    monkeypatch.setattr(choice, "COMPILED", False)
    monkeypatch.setattr(choice, "RECORDS", frozenset(("cpu",)))
    monkeypatch.setattr(choice, "LEAST_UPDATES", 20)
    yield monkeypatch


def train(device: Any = None, **given: Any) -> hm.training.TrainingRun:
    real = "visible" in given
    visible, hidden = given.pop("visible", hm.Bernoulli(12)), given.pop("hidden", [hm.Bernoulli(5)])
    machine = hm.BoltzmannMachine([visible, *hidden], seed=2)
    given.pop("machine_out", []).append(machine)
    settings = {"rule": "pcd", "batch_size": 30, "updates": 40, "learning_rate": 0.02, "seed": 3} | given
    rows = settings.pop("rows", REAL if real else BITS)
    return hm.train(machine, rows, progress=False, device=device, **settings)


def numbers(run: hm.training.TrainingRun) -> list[torch.Tensor]:
    machines = [run.machine, *([run.averaged_machine] if run.averaged_machine else [])]
    return [p.detach() for machine in machines for p in machine.parameters()]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.mostly_nightly(2)
def test_recorded_updates_are_those_made_one_by_one(name: str, recording: pytest.MonkeyPatch) -> None:
    # Layers belong to one machine: each run has its own.
    made = [train(**fresh(RUNS[name]))]
    recording.setattr(choice, "RECORDS", frozenset())
    made.append(train(**fresh(RUNS[name])))
    assert [run.engine for run in made] == ["recorded", "torch"]
    if name == "grey":  # the noise of draws from grey levels is the device's
        return
    for recorded, plain in zip(*map(numbers, made), strict=True):
        assert torch.allclose(recorded, plain, rtol=0, atol=1e-5)
    for recorded, plain in zip(made[0].history, made[1].history, strict=True):
        assert recorded.keys() == plain.keys()
        for column in recorded.keys() - {"seconds"}:
            assert recorded[column] == pytest.approx(plain[column], rel=1e-4, abs=1e-6)
    assert getattr(made[0].rule_state, "sweeps", 0) == getattr(made[1].rule_state, "sweeps", 0)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.mostly_nightly(2)
def test_replayed_updates_are_those_made_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph reads what lies in its own tensors and runs no Python: what an update needs has to be there."""
    with pretend_graphs(monkeypatch, least=20) as counts:
        made = [train(**fresh(RUNS[name]))]
        assert (counts.recorded, counts.failed, counts.replays) == (1, 0, 38)
        with monkeypatch.context() as plainly:
            plainly.setattr(choice, "RECORDS", frozenset())
            made.append(train(**fresh(RUNS[name])))
    if name == "grey":  # the noise of draws from grey levels is the device's
        return
    for recorded, plain in zip(*map(numbers, made), strict=True):
        assert torch.allclose(recorded, plain, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.usefixtures("recording")
@pytest.mark.mostly_nightly(2)
def test_a_recorded_run_goes_on_with_its_bits(name: str, tmp_path: Path) -> None:
    whole = train(**fresh(RUNS[name]))
    train(**fresh(RUNS[name]), run_dir=tmp_path, updates=27)
    resumed = train(**fresh(RUNS[name]), run_dir=tmp_path, resume=True)
    assert resumed.updates == 40
    assert all(torch.equal(x, y) for x, y in zip(numbers(whole), numbers(resumed), strict=True))


SENT = {name: RUNS[name] for name in ("pcd", "weights", "bytes", "grey", "all rows", "average")}
SENT["sparse"] = {"rows": csr_matrix(BITS.numpy())}
SENT["bytes to some of the rows"] = {"rows": BITS.byte(), "weights": (WEIGHTS > 0.4).float()}
SENT["doubles"] = {"rows": BITS.double() * 0.7, "transform": hm.data.bernoulli_binarise}


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("name", SENT)
@pytest.mark.mostly_nightly(2)
def test_rows_that_do_not_fit_are_sent_in_their_order(
    name: str, graphs: bool, recording: pytest.MonkeyPatch
) -> None:
    """Updates have the bits that they have with all rows on the device."""
    made = []
    for share in (0.25, 0.0):
        recording.setattr("harmonium.training.recorded_updates._SHARE", share)
        with pretend_graphs(recording, least=20) if graphs else nullcontext():
            made.append(train(**SENT[name]))
    assert [run.engine for run in made] == ["recorded"] * 2
    assert all(torch.equal(x, y) for x, y in zip(*map(numbers, made), strict=True))
    recording.setattr(choice, "RECORDS", frozenset())
    for x, y in zip(numbers(made[0]), numbers(train(**SENT[name])), strict=True):
        assert torch.allclose(x, y, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("recording")
def test_grey_levels_that_are_sent_are_looked_at_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmonium.training.recorded_updates._SHARE", 0.0)
    rows = BITS * 0.7
    rows[299, 3] = 1.5
    with pytest.raises(ValueError, match=r"X: expected intensities in .* at row 299, column 3"):
        train(rows=rows, transform=hm.data.bernoulli_binarise)


@pytest.mark.usefixtures("recording")
def test_a_recorded_run_that_diverges_goes_back_to_sound_parameters() -> None:
    machine = hm.BoltzmannMachine([hm.Gaussian(12), hm.Bernoulli(5)], seed=2)
    with pytest.raises(hm.training.TrainingDiverged) as raised:
        hm.train(machine, REAL, rule="pcd", updates=200, learning_rate=1e6, seed=3, progress=False)
    assert all(bool(p.isfinite().all()) for p in machine.parameters())
    assert raised.value.step <= 128


OBSTACLES: dict[str, tuple[dict[str, Any], str]] = {
    "a short run": ({"updates": 10}, "a run of 10 updates"),
    "a rule that looks": ({"rule": hm.rules.ucd(2), "updates": 20}, "ucd"),
    "rows that lack entries": ({"rows": torch.where(BITS.cumsum(0) == 1, torch.nan, BITS)}, "lack entries"),
    "a transform of one's own": ({"transform": lambda v, generator: v}, "transform"),
    "an optimiser that waits": ({"optimizer": lambda p: torch.optim.SGD(p, 0.01)}, "optimiser"),
}


@pytest.mark.parametrize("name", OBSTACLES)
@pytest.mark.usefixtures("recording")
def test_a_run_says_why_it_was_not_recorded(name: str) -> None:
    settings, reason = OBSTACLES[name]
    engine = train(**settings).engine
    assert engine.startswith("torch: ") and reason in engine


@pytest.mark.parametrize(
    ("name", "share"),
    [("pcd", 0.25), ("tap", 0.25), ("mean field of a deep machine", 0.25), ("grey", 0.0), ("bytes", 0.0)],
)
@pytest.mark.mostly_nightly(2)
def test_a_recorded_update_never_waits(name: str, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two looks, here of callbacks, the host asks the device for nothing; it may send rows."""
    monkeypatch.setattr("harmonium.training.recorded_updates._SHARE", share)
    monkeypatch.setattr(choice, "RECORDS", frozenset((DEVICE.type,)))
    monkeypatch.setattr(choice, "LEAST_UPDATES", 20)
    seen: dict[int, tuple[int, int]] = {}

    class Every16:
        def __call__(self, update: Any) -> None:
            seen[update.step] = counts.waits.total(), counts.sent

        def needs_update(self, step: int, total: int) -> bool:
            return step % 16 == 0

    with pretend_device() as counts, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        run = train(**fresh(RUNS[name]), device=DEVICE, updates=50, record_every=50, callbacks=[Every16()])
    assert run.engine == "recorded"
    waits, copies = (after - before for after, before in zip(seen[48], seen[32], strict=True))
    assert waits == 1  # of the 16 updates between, for their numbers
    assert copies == (1 if share else 16)  # the places of their rows, or rows


def test_a_look_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For norms, diagnostics, a record and a check of the machine together."""
    monkeypatch.setattr(choice, "RECORDS", frozenset((DEVICE.type,)))
    monkeypatch.setattr(choice, "LEAST_UPDATES", 20)
    waits = []
    for updates in (100, 200):
        with pretend_device() as counts, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            train(device=DEVICE, updates=updates, record_every=10)
            waits.append(counts.waits.total())
    assert waits[1] - waits[0] == 11  # every tenth update, and the 128th


@pytest.fixture
def order(recording: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """In their order, places that are sent, updates that are started, and numbers that are read."""
    made: list[tuple[str, int]] = []
    indices, launch, take_in = RowBatches.indices, RecordedUpdates._launch, _device.Reading.read

    def noted_indices(source: RowBatches, step: int, count: int = 1) -> torch.Tensor:
        made.append(("places", step))
        return indices(source, step, count)

    def noted_launch(updates: RecordedUpdates, due: Any) -> Any:
        lot = launch(updates, due)
        made.append(("start", lot.stop))
        return lot

    def noted_read(*given: Any) -> Any:
        made.append(("read", 0))
        return take_in(*given)

    recording.setattr(RowBatches, "indices", noted_indices)
    recording.setattr(RecordedUpdates, "_launch", noted_launch)
    recording.setattr(_device.Reading, "read", noted_read)
    return made


def test_the_next_updates_are_started_before_the_last_are_read(order: list[tuple[str, int]]) -> None:
    train(updates=90, record_every=1000)
    looks = [1, 2, 4, 8, 16, 32, 64, 90]
    started = [entry for entry in order if entry[0] != "places"]
    assert started == [
        ("start", 1),
        *(x for stop in looks[1:] for x in (("start", stop), ("read", 0))),
        ("read", 0),
    ]
    assert [step for name, step in order if name == "places"] == [0, 0, *looks[:-1]]  # the first: a buffer


class Every16:
    """Wants every sixteenth update, and from the 64th on every third."""

    def __init__(self) -> None:
        self.seen = dict[int, list[torch.Tensor]]()

    def __call__(self, update: hm.training.Update) -> None:
        self.seen[update.step] = [p.detach().clone() for p in update.machine.parameters()]

    def needs_update(self, step: int, total: int) -> bool:
        return step % (3 if any(seen >= 64 for seen in self.seen) else 16) == 0


def test_a_callback_sees_the_machine_after_its_updates(order: list[tuple[str, int]]) -> None:
    """Nothing is started before the callback was called."""
    callback = Every16()
    run = train(updates=90, record_every=5, callbacks=[callback])
    assert {16, 32, 48, 64, 66, 69} <= {*callback.seen}
    for step in (16, 64, 69):
        seen, plain = callback.seen[step], train(updates=step, record_every=1000)
        assert all(torch.equal(x, y) for x, y in zip(seen, plain.machine.parameters(), strict=True))
    assert all(map(torch.equal, numbers(run), numbers(train(updates=90))))
    at = order.index(("start", 16))
    assert [name for name, _ in order[at : at + 5]] == ["start", "read", "read", "places", "start"]


def test_a_checkpoint_has_the_machine_after_its_updates(
    recording: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is due by the clock waits until no updates are on their way."""
    recording.setattr("harmonium.training.trainer._CHECKPOINT_SECONDS", 0.0)
    saved: dict[int, list[torch.Tensor]] = {}
    save = RunDirectory.save

    def noted_save(directory: RunDirectory, content: Any) -> None:
        saved[content["step"]] = [x.clone() for x in content["machine"].values()]
        save(directory, content)

    recording.setattr(RunDirectory, "save", noted_save)
    train(updates=60, record_every=7, run_dir=tmp_path)
    assert len(saved) > 3
    for step in {min(saved), max(saved)}:
        parameters, plain = saved[step], train(updates=step, record_every=1000)
        assert all(torch.equal(x, y) for x, y in zip(parameters, plain.machine.parameters(), strict=True))


def test_an_interrupted_run_goes_on_with_its_bits(recording: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupting(step: int, total: int) -> float:
        if step == 20 and not (tmp_path / "interrupted").exists():
            (tmp_path / "interrupted").touch()
            signal.raise_signal(signal.SIGINT)
        return 1.0

    settings: dict[str, Any] = {"updates": 90, "record_every": 7, "schedule": interrupting}
    cut = train(**settings, run_dir=tmp_path / "run")
    assert cut.status == "interrupted" and 20 < cut.updates < 60
    assert [record["step"] for record in cut.history] == [*range(7, cut.updates + 1, 7)]
    resumed = train(**settings, run_dir=tmp_path / "run", resume=True)
    whole = train(**settings)
    assert all(map(torch.equal, numbers(resumed), numbers(whole)))
    for x, y in zip(resumed.history, whole.history, strict=True):
        assert {**x, "seconds": 0} == {**y, "seconds": 0}


def test_a_run_goes_back_to_the_last_check_that_was_sound(recording: pytest.MonkeyPatch) -> None:
    """To the parameters of that check, though the device had gone on; the error names the look."""
    fault = 45
    estimate = hm.learning.Rule.estimate
    made = [0]

    def failing(rule: Any, *given: Any, **more: Any) -> Any:
        made[0] += 1
        found = estimate(rule, *given, **more)
        if made[0] > fault:
            found = found._replace(parameters={name: x * torch.nan for name, x in found.parameters.items()})
        return found

    sound = train(updates=32, record_every=1000)
    recording.setattr(hm.learning.Rule, "estimate", failing)
    with pytest.raises(hm.training.TrainingDiverged, match="put back to those after 32 updates") as raised:
        train(updates=200, record_every=10, learning_rate=0.02, rule="pcd", machine_out=(kept := []))
    assert raised.value.step == 50
    assert made[0] == 60  # one lot was on its way
    assert all(map(torch.equal, kept[0].parameters(), sound.machine.parameters()))


@pytest.mark.parametrize("hidden", [[hm.Bernoulli(5)], [hm.Bernoulli(5), hm.Spin(3)]])
def test_recorded_chains_and_annealing_are_those_made_one_by_one(
    hidden: list[hm.layers.Layer], recording: pytest.MonkeyPatch
) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(12), *hidden], seed=2)
    hm.machine.normal_(machine, 0.3, seed=1)
    start = machine.random_states(30, seed=1)
    made = []
    for devices in (frozenset(("cpu",)), frozenset[str]()):
        recording.setattr(choice, "RECORDS", devices)
        states = hm.chains.run(machine, hm.chains.Gibbs(), start, 50, seed=4)
        state = hm.chains.Gibbs().init(machine.hamiltonian(), start, torch.Generator())
        chains = hm.chains.run(machine, hm.chains.Gibbs(), state, 50, seed=4)
        states += hm.chains.run(machine, hm.chains.Tempering(4), start, 50, seed=4)
        bounds = hm.likelihood.ais(machine, chains=30, temperatures=50, data=BITS, seed=5)
        made.append((states, chains, bounds))
    (states, chains, bounds), (plain, counted, exact) = made
    assert all(torch.equal(x, y) for x, y in zip(states, plain, strict=True))
    assert chains.sweeps == counted.sweeps == 50
    assert bounds.value == pytest.approx(exact.value, abs=1e-6)


HIDDEN: dict[str, Callable[[], list[hm.layers.Layer]]] = {
    "Bernoulli": lambda: [hm.Bernoulli(5)],
    "Spin": lambda: [hm.Spin(5)],
    "Categorical": lambda: [hm.Categorical(3, 4)],
    "Binomial": lambda: [hm.Binomial(3, 4)],
    "Gaussian": lambda: [hm.Gaussian(5)],
    "ReLU": lambda: [hm.ReLU(5)],
    "DoubleReLU": lambda: [hm.DoubleReLU(5)],
    "TruncatedGaussian": lambda: [hm.TruncatedGaussian(5, -1.0, 2.0)],
    "TruncatedGaussBernoulli": lambda: [hm.TruncatedGaussBernoulli(5, -1.0, 2.0)],
    "deep": lambda: [hm.Bernoulli(5), hm.Spin(4), hm.Categorical(2, 3)],
}


@pytest.mark.parametrize("temperatures", [50, 48])
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.mostly_nightly(2)
def test_recorded_temperatures_are_those_made_one_by_one(
    name: str, temperatures: int, recording: pytest.MonkeyPatch
) -> None:
    """Both ways, of all units that are summed out, also where blocks do not divide the temperatures."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(12), *HIDDEN[name]()], seed=2)
    with torch.no_grad():
        for coupling in machine.couplings:
            coupling.weight.mul_(3)
    made = []
    for devices in (frozenset(("cpu",)), frozenset[str]()):
        recording.setattr(choice, "RECORDS", devices)
        bounds = hm.likelihood.ais(machine, chains=30, temperatures=temperatures, data=BITS, seed=5)
        made.append([bounds.value, bounds.standard_error, bounds.upper])
    assert made[0] == pytest.approx(made[1], abs=2e-5)


def test_replayed_chains_and_annealing_are_those_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(12), hm.Bernoulli(5)], seed=2)
    hm.machine.normal_(machine, 0.3, seed=1)
    start = machine.random_states(30, seed=1)

    def run() -> list[torch.Tensor]:
        kernels = [hm.chains.Gibbs(), hm.chains.Tempering(4), hm.chains.Metropolis()]
        states = [x for kernel in kernels for x in hm.chains.run(machine, kernel, start, 50, seed=4)]
        bounds = hm.likelihood.ais(machine, chains=30, temperatures=50, data=BITS, seed=5)
        return [*states, torch.tensor(bounds.value)]

    with pretend_graphs(monkeypatch, least=20) as counts:
        replayed = run()
        assert counts.recorded >= 4 and counts.failed == 0 and counts.replays >= 4 * 48
        with monkeypatch.context() as plainly:
            plainly.setattr(choice, "RECORDS", frozenset())
            plain = run()
    assert all(torch.allclose(x, y, rtol=0, atol=1e-6) for x, y in zip(replayed, plain, strict=True))


@pytest.mark.parametrize("rounds", [50, 51])
@pytest.mark.nightly
def test_replayed_rounds_of_a_ladder_are_those_made_one_by_one(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even and odd exchanges are one recording; births count the rounds where no Python runs."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(12), hm.Spin(5)], seed=2)
    hm.machine.normal_(machine, 0.8, seed=1)
    kernel, start = hm.ladder.Ladder(sweeps=4, acceptance=0.8), machine.random_states(30, seed=1)

    def run() -> list[Any]:
        generator = torch.Generator().manual_seed(4)
        begun = kernel.init(machine.hamiltonian(), start, generator)
        chains = [hm.chains.run(machine, kernel, begun, 1, seed=generator)]  # exchanges begin with odd pairs
        chains.append(hm.chains.run(machine, kernel, chains[0], rounds, seed=generator))
        found = hm.ladder.log_partitions(
            machine, kernel, rounds=rounds, warm_up=201, chains=20, seed=generator
        )
        states = [state.without_caches() for state in (*chains, found.state)]
        return [x for _, x in leaves([states, found.values, list(found.traffic), generator.get_state()])]

    with torch.no_grad(), pretend_graphs(monkeypatch, least=4) as counts:
        replayed = run()
        recorded = counts.recorded
        assert recorded >= 3 and counts.failed == 0 and counts.replays > 3 * 20
        with monkeypatch.context() as plainly:
            plainly.setattr("harmonium.backends.recording.side_stream", lambda device, purpose: None)
            plain = run()
        assert counts.recorded == recorded
    for x, y in zip(replayed, plain, strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


@pytest.mark.parametrize("hidden", [[hm.Bernoulli(20)], [hm.Gaussian(20)], [hm.Bernoulli(20), hm.Spin(8)]])
def test_replayed_searches_are_those_made_one_by_one(
    hidden: list[hm.layers.Layer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where parameters have changed: a later search of the same owner finds its recording."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(30), *hidden], seed=2)

    def run(owner: object) -> list[torch.Tensor]:
        made = list[torch.Tensor]()
        for seed in range(4):
            hm.machine.normal_(machine, 0.3 + 0.1 * seed, seed=seed)
            generator, hamiltonian = torch.Generator().manual_seed(seed), machine.hamiltonian()
            noise = [hamiltonian.pure_noise(l, 60, generator) for l in range(len(hamiltonian.layers))]
            found, sweeps = hm.chains.search(hamiltonian, noise, generator, owner)
            made += [*found.states, *found.fields.values(), sweeps]
        return made

    with torch.no_grad(), pretend_graphs(monkeypatch) as counts:
        replayed = run(owner := hm.rules.ucd_lmi().free)
        assert (counts.recorded, counts.failed) == (1, 0) and counts.replays >= 3
        assert len(recording_module._RECORDED[owner]) == 1
        plain = run(None)
        assert counts.recorded == 1
    # Where a factor stands in memory changes how products of real states are rounded, with AVX-512.
    rounding = 1e-5 if machine.layers[1].gaussian else 0.0
    torch.testing.assert_close(replayed, plain, rtol=0.0, atol=rounding)


def test_replayed_training_in_equilibrium_is_that_made_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With machines that are frozen and a step that is taken back; two runs of one rule keep their chains."""
    rule = hm.rules.ptt(chains=20, offers=12, samples=3)

    def run(rule: Any) -> list[Any]:
        machine = hm.BoltzmannMachine([hm.Bernoulli(12), hm.Bernoulli(5)], seed=2)
        done = hm.train(
            machine, BITS, rule=rule, updates=30, batch_size=20, learning_rate=6.0, seed=3, progress=False,
            record_every=1,
        )  # fmt: skip
        seen = [[entry[name] for entry in done.history] for name in ("frozen", "rejected", "acceptance")]
        assert sum(seen[0]) > 1 and sum(seen[1])
        return [x for _, x in leaves([seen, machine.state_dict(), done.rule_state])]

    with pretend_graphs(monkeypatch) as counts:
        replayed, kept = run(rule), [x.clone() if isinstance(x, torch.Tensor) else x for x in run(rule)]
        assert counts.failed == 0 and counts.recorded >= 3 and counts.replays > 100
        recorded = counts.recorded
        with monkeypatch.context() as plainly:  # else what the pretence set would be put back at the end
            plainly.setattr(choice, "RECORDS", frozenset())
            plain = run(hm.rules.ptt(chains=20, offers=12, samples=3))
        assert counts.recorded == recorded
    for x, y, z in zip(replayed, kept, plain, strict=True):
        assert torch.equal(x, z) and torch.equal(y, z) if isinstance(x, torch.Tensor) else x == y == z


def test_replayed_searches_go_on_one_by_one_after_their_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_modes, "_PATIENCE", 11)
    machine = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(40)], seed=0)

    def run(owner: object) -> list[torch.Tensor]:
        made = list[torch.Tensor]()
        for seed in range(9):
            hm.machine.normal_(machine, 0.5, seed=seed)
            generator, hamiltonian = torch.Generator().manual_seed(seed), machine.hamiltonian()
            noise = [hamiltonian.pure_noise(l, 60, generator) for l in range(2)]
            found, sweeps = hm.chains.search(hamiltonian, noise, generator, owner)
            made += [*found.states, sweeps]
        return made

    with torch.no_grad(), pretend_graphs(monkeypatch) as counts:
        replayed = run(hm.rules.ucd_lmi().free)
        assert counts.replays >= 3
        plain = run(None)
    assert max(sweeps.max() for sweeps in plain[2::3]) > 5  # half-steps beyond the windows were made
    assert all(torch.equal(x, y) for x, y in zip(replayed, plain, strict=True))


@pytest.mark.usefixtures("recording")
def test_a_recording_leaves_alone_what_it_was_given() -> None:
    start = {"x": torch.zeros(3), "count": 0}

    def step(state: Any) -> Any:
        return {"x": state["x"] + 1, "count": state["count"] + 2}

    made = Recording(step, start, torch.device("cpu"))
    for _ in range(5):
        made.advance()
    assert start["x"].tolist() == [0, 0, 0] and made.state["x"].tolist() == [5, 5, 5]
    assert made.state["count"] == 10


@pytest.mark.parametrize(("name", "m"), [("Gibbs", 3), ("Gibbs", 90), ("deep", 3), ("Metropolis", 9)])
def test_replayed_pairs_are_those_of_steps_made_one_by_one(
    name: str, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where parameters have changed: a later run of the same pair kernel finds its recordings."""
    monkeypatch.setattr("harmonium.coupled.meeting.SWEEPS", 2)
    monkeypatch.setattr("harmonium.coupled.meeting._LEAST", 8)
    hidden = [hm.Bernoulli(20), hm.Spin(8)] if name == "deep" else [hm.Bernoulli(20)]
    visible = 6 if name == "Metropolis" else 30
    machine = hm.BoltzmannMachine([hm.Bernoulli(visible), *hidden], seed=2)

    def run() -> list[Any]:
        kernel = hm.coupled.Metropolis() if name == "Metropolis" else hm.coupled.Gibbs()
        made, generator = list[Any](), torch.Generator().manual_seed(1)
        for seed in range(3):
            hm.machine.normal_(machine, 0.3 + 0.1 * seed, seed=seed)
            into = hm.machine.Statistics(machine.hamiltonian())
            meetings = hm.coupled.run_pairs(
                machine.hamiltonian(), kernel, machine.random_states(60, seed=seed), k=2, m=m, lag=2,
                max_sweeps=200, generator=generator, into=into,
            )  # fmt: skip
            made += [meetings.times, meetings.tries, meetings.cost, meetings.flip_rate, *into.products]
            made += meetings.states
        return made

    with torch.no_grad(), pretend_graphs(monkeypatch) as counts:
        replayed = run()
        assert counts.recorded >= (2 if m == 90 else 1)  # of pairs, and of chains alone up to m
        assert counts.failed == 0 and counts.replays > counts.recorded
        with monkeypatch.context() as plainly:
            plainly.setattr("harmonium.backends.recording.side_stream", lambda device, purpose: None)
            plain = run()
    assert all(
        torch.equal(torch.as_tensor(x), torch.as_tensor(y)) for x, y in zip(replayed, plain, strict=True)
    )


def test_recordings_of_pairs_are_few_and_end_with_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the memory of all its sweeps; one for another source of noise takes the place of the last."""
    monkeypatch.setattr("harmonium.coupled.meeting.SWEEPS", 1)
    machine = hm.BoltzmannMachine([hm.Bernoulli(12), hm.Bernoulli(5)], seed=2)
    with pretend_graphs(monkeypatch):
        rule = hm.rules.ucd(chains=30)
        for seed in range(6):
            rule.gradient(machine, BITS, seed=seed)
        kernel = ref(rule.free.pair_kernel)
        assert len(recording_module._RECORDED[rule.free.pair_kernel]) == 1
        deepcopy(rule)
        del rule
        gc.collect()
        assert kernel() is None and all(key is not None for key in recording_module._RECORDED)


def test_a_failed_recording_leaves_states_and_generators_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps that ask for a value are made one by one: with the numbers and the noise of plain ones."""

    def walk(steps: int) -> tuple[list[float], int, list[float]]:
        generator, kept = torch.Generator().manual_seed(1), torch.zeros(3)

        def step(state: Any) -> Any:
            moved = state["x"] + torch.rand(3, generator=generator)
            kept.add_(1)  # what else a step writes over
            return {"x": moved * bool(moved.sum() > 0), "count": state["count"] + 1}

        made = Recording(step, {"x": torch.zeros(3), "count": 0}, torch.device("cpu"), [generator])
        for _ in range(steps):
            made.advance()
        return made.state["x"].tolist() + kept.tolist(), made.state["count"], generator.get_state().tolist()

    plain = walk(6)
    with pretend_graphs(monkeypatch) as counts, pytest.warns(RuntimeWarning, match="goes on one by one"):
        assert walk(6) == plain
    assert (counts.recorded, counts.failed, counts.replays) == (0, 1, 0) and not counts.broken


def fresh(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings with layers that no other machine has."""

    def copied(value: Any) -> Any:
        if isinstance(value, hm.layers.Layer):
            return type(value)(value.n_units)
        return [copied(x) for x in value] if isinstance(value, list) else value

    return {name: copied(value) for name, value in settings.items()}
