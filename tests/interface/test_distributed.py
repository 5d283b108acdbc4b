"""Several processes that train one machine: equal in all, one writer, errors that say what to do."""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.distributed import TCPStore

import harmonium as hm
from harmonium import backends
from harmonium.distributed import memory
from harmonium.training.callbacks import STOP
from tests.campaigns._runs import ended, forked

pytestmark = pytest.mark.nightly

if not dist.is_available() or sys.platform == "win32":
    pytest.skip("this torch has no torch.distributed over gloo", allow_module_level=True)

X = torch.from_numpy(hm.data.bars_and_stripes(4)).float()
REAL = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
PROBLEMS = {
    "pcd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.pcd(1, 32)),
    "centred": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.centred(hm.rules.pcd(1, 32))),
    "ucd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.ucd(chains=16, start="persistent")),
    "noise_cd": ([(hm.Gaussian, 6), (hm.Bernoulli, 8)], REAL, hm.rules.noise_cd(4)),
    "mean_field": ([(hm.Bernoulli, 16), (hm.Bernoulli, 8), (hm.Spin, 8)], X, hm.rules.mean_field_pcd(1, 32)),
    "tap": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.tap()),
    "ucd_lmi": ([(hm.Spin, 16), (hm.Spin, 8), (hm.Spin, 8)], 2 * X - 1, hm.rules.ucd_lmi()),
}  # fmt: skip


def digest(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(x.detach().numpy().tobytes() for x in tensors)).hexdigest()


def trained(name: str, data=None, **settings) -> hm.training.TrainingRun:
    layers, rows, rule = PROBLEMS[name]
    data = rows if data is None else data
    machine = hm.BoltzmannMachine([kind(units) for kind, units in layers], seed=1)
    hm.machine.normal_(machine, 0.1, torch.Generator().manual_seed(2))
    updates = 4 if name == "ucd_lmi" else 12  # half a second, where others take a tenth
    settings = {"updates": updates, "batch_size": 28, "clip_norm": 1.0, "distributed": "auto", **settings}
    return hm.train(machine, data, rule=rule, seed=3, progress=False, **settings)


def digests(folder: Path, distributed: str | None = "auto") -> dict[str, str | float]:
    """What comes of everything that processes can share, in digests."""
    shared = {"distributed": distributed}
    found = {name: digest(*trained(name, **shared).machine.parameters()) for name in PROBLEMS}
    mapped = np.load(folder / "rows.npy", mmap_mode="r")
    found["file"] = digest(*trained("pcd", mapped, **shared).machine.parameters())
    found["weights"] = digest(*trained("centred", weights=1 + X[:, 0], **shared).machine.parameters())
    drawn = hm.data.bernoulli_binarise
    found["drawn"] = digest(*trained("pcd", 0.5 * X, transform=drawn, **shared).machine.parameters())
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)], seed=1)
    hm.machine.normal_(machine, 0.5, torch.Generator().manual_seed(2))
    found["ais"] = hm.likelihood.ais(machine, 16, 20, seed=1, **shared).value
    clamp = torch.where(torch.arange(16) < 3, X, torch.nan)
    kernel = hm.chains.Tempering(4)
    found["run"] = digest(*hm.chains.run(machine, kernel, X, 5, clamp, seed=1, **shared))
    met = hm.coupled.meet(machine, hm.coupled.Gibbs(), X[:13], seed=1, **shared)
    found["meet"] = digest(met.times, met.tries, met.cost, *met.states) + f" {met.flip_rate}"
    there = hm.meanfield.landscape(machine, X, **shared)
    found["landscape"] = digest(there.free_energies, there.basin, *there.solutions.means)
    return found


def messages_of_updates() -> list[str]:
    """The collective operations of twelve updates of a rule with diagnostics; the last is recorded."""
    sent: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("all_reduce", "all_gather_object", "broadcast_object_list"):
            send = getattr(dist, name)
            patch.setattr(dist, name, lambda *a, s=send, n=name, **k: sent.append(n) or s(*a, **k))
        trained("ucd", record_every=12)
    return sent


def digests_in_common_memory() -> dict[str, str]:
    """What comes of some rules where processes read each other's terms, as of larger machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LEAST", 0)
        return {name: digest(*trained(name).machine.parameters()) for name in ("pcd", "centred", "ucd")}


def stopped(**settings) -> list:
    """How a run ends that a callback of the first process stops at its fifth update."""
    run = trained("pcd", callbacks=[lambda update: STOP if update.step == 5 else None], **settings)
    return [run.status, run.updates, run.history[-1]["step"], digest(*run.machine.parameters())]


def work_of_three(folder: Path) -> None:
    """What each of three processes does, and writes what came of it."""
    answer = {"digests": digests(folder), "sent": messages_of_updates(), "stopped": stopped()}
    answer["common"] = digests_in_common_memory()
    warned = pytest.warns(RuntimeWarning, match="processes: the run to resume was on 2 and goes on, on 3")
    with nullcontext() if dist.get_rank() else warned:  # the first process reads the checkpoint
        resumed = trained("pcd", run_dir=folder / "two", updates=20, resume=True)
    answer["resumed"] = digest(*resumed.machine.parameters())
    answer["chains"] = len(resumed.rule_state.states[0])
    (folder / f"rank{dist.get_rank()} of 3.json").write_text(json.dumps(answer))


def work(folder: Path) -> None:
    """What every process does, and writes what came of it."""
    found = digests(folder)
    sent = messages_of_updates()
    trained("pcd", run_dir=folder / "run")
    trained("pcd", run_dir=folder / "two")
    trained("pcd", run_dir=folder / "on", updates=7)
    resumed = trained("pcd", run_dir=folder / "on", resume=True)
    refusals, rows = [], PROBLEMS["pcd"][1].clone()
    if dist.get_rank():  # but for the first, the middle and the last row, which tell data apart
        rows[1:16] = rows[1:16].flip(0)
    for settings in (
        {"learning_rate": 0.1 + dist.get_rank()},
        {"run_dir": folder / "run"},
        {"data": rows},
    ):
        try:
            trained("pcd", **settings)
        except ValueError as error:
            refusals.append(str(error))

    others: list = [None, None]
    dist.all_gather_object(others, os.getpid())

    def send(update: hm.training.callbacks.Update) -> None:
        if update.step == 3:  # a second one would act at once
            os.kill(others[1], signal.SIGTERM)

    last = trained("pcd", updates=100_000, callbacks=[send])
    ends = [last.status, last.updates, last.signal]
    answer = {"digests": found, "refusals": refusals, "ended": ends, "sent": sent, "stopped": stopped()}
    answer["common"] = digests_in_common_memory()
    answer["resumed"] = digest(*resumed.machine.parameters())
    (folder / f"rank{dist.get_rank()}.json").write_text(json.dumps(answer))


def joined(folder: Path, rank: int, seconds: float, task, size: int = 2) -> int:
    """What a process does that was forked from this one."""
    warnings.simplefilter("ignore")
    signal.alarm(240)
    os.environ["WORLD_SIZE"] = str(size)
    torch.set_num_threads(1)
    backends.set_backend("torch")
    store = f"file://{folder}/store of {size}"
    patience = timedelta(seconds=seconds)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=patience)
    task(folder)
    dist.destroy_process_group()
    return 0


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """One process as those that it is compared with: a folder for them."""
    before = torch.get_num_threads(), backends.backend_name()
    torch.set_num_threads(1)
    backends.set_backend("torch")
    folder = tmp_path_factory.mktemp("two")
    np.save(folder / "rows.npy", X.byte().numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield folder
    torch.set_num_threads(before[0])
    backends.set_backend(before[1])


@pytest.fixture(scope="module")
def answers(alone) -> tuple[Path, list]:
    """Two processes that work together, forked from one that has loaded all that they need."""
    processes = [forked(lambda rank=rank: joined(alone, rank, 120, work)) for rank in range(2)]
    assert [ended(process) for process in processes] == [0, 0]
    return alone, [json.loads((alone / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_one_process_has_the_bits_of_no_distribution(alone) -> None:
    assert digests(alone) == digests(alone, None)


def test_processes_end_with_the_same_bits(answers) -> None:
    folder, (first, second) = answers
    assert first["digests"] == second["digests"]
    assert first["digests"]["file"] == first["digests"]["pcd"]
    for answer in (first, second):
        assert_messages(answer["sent"])
        assert answer["resumed"] == answer["digests"]["pcd"]  # a run that went on in as many processes
    records = (folder / "run" / "history.jsonl").read_text().splitlines()  # which one process writes
    assert [json.loads(record)["step"] for record in records] == list(range(1, 13))


def test_three_processes_go_on_from_two(answers) -> None:
    folder, (two, _) = answers
    processes = [forked(lambda rank=rank: joined(folder, rank, 120, work_of_three, 3)) for rank in range(3)]
    assert [ended(process) for process in processes] == [0] * 3
    three = [json.loads((folder / f"rank{rank} of 3.json").read_text()) for rank in range(3)]
    for answer in three:
        for name in ("digests", "common", "resumed", "stopped"):
            assert answer[name] == three[0][name]
        assert_messages(answer["sent"])
        assert answer["chains"] == 32
        assert answer["stopped"][:3] == two["stopped"][:3]
        assert answer["digests"]["pcd"] != two["digests"]["pcd"]
    assert digest(*hm.load(folder / "two").parameters()) == three[0]["resumed"]


def assert_messages(sent: list[str]) -> None:
    """Asserts that each of twelve updates sends one message, between the decisions at both ends of a run."""
    reduced = [place for place, name in enumerate(sent) if name == "all_reduce"]
    first, last = reduced[1], reduced[-2]
    assert len(reduced) == 12 + 2
    # The limit of the monitor of divergence, and the looks after updates 1, 2, 4 and 8: one object each.
    assert sorted({*sent[first:last]}) == ["all_reduce", "broadcast_object_list"]
    assert sent[first:last].count("broadcast_object_list") == 4


@pytest.mark.skipif(sys.platform != "linux", reason="memory in common is Linux's")
def test_terms_in_common_memory_have_the_bits_of_messages(answers) -> None:
    for answer in answers[1]:
        assert answer["common"].items() <= answer["digests"].items()


def test_memory_is_not_common_where_processes_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several computers, in several containers, without rights, or of more than a gibibyte."""
    asked: list = []

    def told(other):
        return lambda value: asked.append(value) or [value, other(value)]

    def shared(other, size: int = 1 << 16) -> torch.Tensor | None:
        return memory.common_memory((size,), torch.float32, told(other), 0)

    assert shared(lambda value: ("another", "computer") if isinstance(value, tuple) else value) is None
    assert len(asked) == 1
    assert shared(lambda value: False if value is True else value) is None
    assert shared(lambda value: value, memory.MOST) is None
    found = shared(lambda value: value)
    assert found is not None and found.shape == (1 << 16,) and not found.any()
    monkeypatch.setattr(os, "memfd_create", None)
    monkeypatch.delattr(os, "memfd_create")
    assert shared(lambda value: value) is None


def in_step(processes: int, work) -> list:
    """What threads that stand for processes return, each with its rank and a call that gathers values."""
    values, met = [None] * processes, threading.Barrier(processes)

    def run(rank: int):
        def all_gather(value) -> list:
            values[rank] = value
            met.wait(30)
            told = [*values]
            met.wait(30)
            return told

        return work(rank, all_gather)

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(run, range(processes)))


@pytest.mark.skipif(sys.platform != "linux", reason="memory in common is Linux's")
def test_a_barrier_ends_when_the_last_has_come_and_fails_without_it() -> None:
    came: list[int] = []

    def work(rank: int, all_gather) -> str:
        barrier = memory.local_barrier(all_gather, rank, 0.5)
        for late in range(3):
            time.sleep(0.1 * (rank == late))
            came.append(rank)
            barrier()
            assert len(came) >= 3 * (late + 1)
        all_gather(None)  # rank 1 comes to no fourth one
        if rank == 1:
            time.sleep(1)
            return ""
        with pytest.raises(
            RuntimeError, match="distributed: a process has ended, or does not answer"
        ) as found:
            barrier()
        return str(found.value)

    assert [bool(said) for said in in_step(3, work)] == [True, False, True]


@pytest.mark.skipif(sys.platform != "linux", reason="memory in common is Linux's")
def test_there_is_no_barrier_where_one_process_cannot_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "TemporaryDirectory", lambda: nullcontext("/nowhere"))
    assert in_step(2, lambda rank, gather: memory.local_barrier(gather, rank, 0.5)) == [None, None]


def test_a_callback_ends_the_run_in_all_processes_after_the_next_update(answers) -> None:
    first, second = (answer["stopped"] for answer in answers[1])
    assert first == second and first[:3] == ["stopped", 6, 6]
    assert stopped()[:3] == ["stopped", 5, 5]  # one process has nobody to tell


def test_a_run_goes_on_in_one_process_with_all_chains(answers) -> None:
    with pytest.warns(RuntimeWarning, match="processes: the run to resume was on 2 and goes on, on 1"):
        run = trained("pcd", updates=20, run_dir=answers[0] / "run", resume=True)
    assert run.updates == 20 and len(run.rule_state.states[0]) == 32


def test_what_one_process_refuses_all_refuse(answers) -> None:
    for each in answers[1]:
        other, existing, rows = each["refusals"]
        assert other == (
            "distributed: expected the same learning_rate in all processes, received 0.1 in rank 0 "
            "and 1.1 in rank 1"
        )
        assert "already holds a run" in existing
        assert "distributed: expected the same first batch in all processes" in rows


def test_a_signal_to_one_process_ends_the_run_in_all(answers) -> None:
    first, second = (each["ended"] for each in answers[1])
    assert first == second
    assert first[0] == "interrupted" and first[1] < 100_000 and first[2] == signal.SIGTERM


@pytest.mark.parametrize(
    ("distributed", "message"),
    [
        (None, r'distributed: expected "auto" in one of 2 processes \(WORLD_SIZE\), received None'),
        ("auto", r"distributed: expected a process group in one of 2 processes .*init_process_group"),
    ],
)
def test_started_together_but_not_asked_to_work_together(monkeypatch, distributed, message: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)])
    with pytest.raises(ValueError, match=message):
        hm.train(machine, X, rule="pcd", updates=1, distributed=distributed)
    if distributed is None:  # metrics and callbacks work by themselves
        hm.likelihood.ais(machine, 8, 5)


def attempt(folder: Path, rank: int, number: int, port: int) -> int:
    """What a process does that torchrun has started, or started again; it leaves without a word."""
    signal.alarm(60)
    os.environ |= {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(number)}
    with hm.distributed.init_process_group("cpu", timeout=20):
        others = [None, None]
        dist.all_gather_object(others, f"{number}-{rank}")
        (folder / f"{number}-{rank}").write_text(str(others))
        os._exit(0)


def test_processes_that_are_started_again_find_each_other(tmp_path) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for number in range(2):
        ranks = range(2)
        tasks = [lambda r=r, n=number: attempt(tmp_path, r, n, store.port) for r in ranks]
        assert [ended(process) for process in [forked(task) for task in tasks]] == [0, 0]
        for rank in ranks:
            assert (tmp_path / f"{number}-{rank}").read_text() == f"['{number}-0', '{number}-1']"


def test_a_process_by_itself_has_nobody_to_join(monkeypatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with hm.distributed.init_process_group("cpu"):
        assert not dist.is_initialized()


def die(folder: Path) -> None:
    """The second process is killed in the middle of a run."""

    def kill(update: hm.training.Update) -> None:
        if update.step == 3:
            os.kill(others[1], signal.SIGKILL)
            killed.append(time.monotonic())

    others, killed = [None, None], []
    dist.all_gather_object(others, os.getpid())
    try:
        trained("pcd", updates=100_000, callbacks=[kill])
    except RuntimeError:
        (folder / "waited").write_text(str(time.monotonic() - killed[0]))


def test_a_process_that_dies_is_not_waited_for(tmp_path) -> None:
    processes = [forked(lambda rank=rank: joined(tmp_path, rank, 120, die)) for rank in range(2)]
    assert ended(processes[1]) == -signal.SIGKILL
    ended(processes[0])
    assert float((tmp_path / "waited").read_text()) < 10


def test_what_all_chains_are_needed_for_is_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)])
    kernel, shared = hm.chains.Gibbs(), {"seed": 0, "distributed": "auto"}
    with pytest.raises(
        ValueError, match="observer, start: expected no observer and no KernelState with distributed"
    ):
        hm.chains.run(machine, kernel, X, 1, observer=lambda *_: None, **shared)


def refused() -> None:
    """Asserts that what two processes cannot share is refused."""
    machine, shared = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)]), {"distributed": "auto"}
    calls = {
        "start": lambda: hm.chains.run(machine, hm.chains.Gibbs(), X[:1], 1, seed=0, **shared),
        "start ": lambda: hm.coupled.meet(machine, hm.coupled.Gibbs(), X[:1], seed=0, **shared),
        "X": lambda: hm.meanfield.landscape(machine, X[:1], **shared),
        "batch_size": lambda: trained("pcd", batch_size=1),
        "chains": lambda: hm.train(machine, X, rule=hm.rules.pcd(1, 1), updates=1, **shared),
    }
    for name, call in calls.items():
        expected = f"{name.strip()}: expected at least one for each of 2 processes, received 1"
        with pytest.raises(ValueError, match=expected):
            call()
    with pytest.raises(ValueError, match="rule: expected another one with several processes, received ptt"):
        hm.train(machine, X, rule="ptt", updates=1, **shared)


class Doubtful(hm.chains.Kernel):
    """Gibbs sampling with a number about each sweep that is none in the second process."""

    invariant = True

    def step(self, hamiltonian, state, generator):
        after, _ = hm.chains.Gibbs().step(hamiltonian, state, generator)
        return after, {"doubt": math.nan if dist.get_rank() == 1 and after.sweeps == 5 else 1.0}


def doomed(folder: Path) -> None:
    """Runs that are refused, begin again, or end, in both processes at the same update."""
    refused()
    machine = hm.BoltzmannMachine([hm.Gaussian(6), hm.Bernoulli(8)], seed=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        settings = {"updates": 40, "batch_size": 32, "learning_rate": 30.0, "progress": False}
        settings |= {"on_divergence": "slower", "run_dir": folder / "slower", "distributed": "auto"}
        hm.train(machine, REAL, rule=hm.rules.cd(1), **settings)
    again = sum("begins again" in str(warning.message) for warning in seen)
    with pytest.raises(hm.training.TrainingDiverged) as ended:
        hm.train(machine, REAL, rule=hm.rules.pcd(1, 8, kernel=Doubtful()), **settings | {
            "on_divergence": "raise", "learning_rate": 0.001, "run_dir": None
        })  # fmt: skip
    with pytest.raises(ZeroDivisionError):  # which rank 0 alone meets
        failing = {"metrics": {"m": lambda machine, rows: 1 / 0}, "validation": REAL, "evaluate_every": 2}
        hm.train(machine, REAL, rule="cd", updates=4, progress=False, distributed="auto", **failing)
    answer = [again, digest(*machine.parameters()), ended.value.step, ended.value.cause]
    (folder / f"diverged {dist.get_rank()}.json").write_text(json.dumps(answer))


def test_a_run_that_is_refused_or_diverges_does_so_in_all_processes(tmp_path: Path) -> None:
    processes = [forked(lambda rank=rank: joined(tmp_path, rank, 60, doomed)) for rank in (0, 1)]
    assert [ended(process) for process in processes] == [0, 0]
    first, second = (json.loads((tmp_path / f"diverged {rank}.json").read_text()) for rank in range(2))
    assert first == second and first[0] >= 1 and first[2] == 4


def test_a_group_of_processes_is_taken(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        run = trained("pcd", updates=2, distributed=dist.group.WORLD)
        assert run.status == "completed"

    assert ended(forked(lambda: joined(tmp_path, 0, 30, work, size=1))) == 0


def test_a_word_that_is_no_group_is_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)])
    with pytest.raises(TypeError, match='distributed: expected None, "auto" or a'):
        hm.train(machine, X, rule="pcd", updates=1, distributed="all")
