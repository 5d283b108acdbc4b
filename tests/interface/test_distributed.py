"""Several processes that train one machine: the same bits as one, one writer, errors that say what to do."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import warnings
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
from harmonium.distributed.group import _SumBuffer
from harmonium.training.callbacks import STOP
from tests.campaigns._runs import ended, forked

pytestmark = pytest.mark.nightly

if not dist.is_available() or sys.platform == "win32":
    pytest.skip("this torch has no torch.distributed over gloo", allow_module_level=True)

SHARDS = 4
GATHER = "all_gather_single" if hasattr(dist, "all_gather_single") else "all_gather_into_tensor"
X = torch.from_numpy(hm.data.bars_and_stripes(4)).float()
REAL = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
PROBLEMS = {
    "pcd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.pcd(1, 32)),
    "centred": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.centred(hm.rules.pcd(1, 32))),
    "ucd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.ucd(chains=16, quantile=0.5)),
    "centred ucd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.centred(hm.rules.ucd(chains=16))),
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
    return hm.train(machine, data, rule=rule, seed=3, progress=False, shards=SHARDS, **settings)


def digests(folder: Path) -> dict[str, str | float]:
    """What comes of everything that processes can share, in digests."""
    found = {name: digest(*trained(name).machine.parameters()) for name in PROBLEMS}
    mapped = np.load(folder / "rows.npy", mmap_mode="r")
    found["file"] = digest(*trained("pcd", mapped).machine.parameters())
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)], seed=1)
    hm.machine.normal_(machine, 0.5, torch.Generator().manual_seed(2))
    shared = {"distributed": "auto", "shards": SHARDS}
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
        for name in ("all_reduce", "all_to_all_single", "all_gather_object", "broadcast_object_list", GATHER):
            send = getattr(dist, name)
            patch.setattr(dist, name, lambda *a, s=send, n=name, **k: sent.append(n) or s(*a, **k))
        trained("ucd", record_every=12)
    return sent


def digests_in_common_memory() -> dict[str, str]:
    """What comes of some rules where processes read each other's terms, as of larger machines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "LEAST", 0)
        if sys.platform == "linux":
            patch.setattr(_SumBuffer, "_send", None)  # is not called
        return {name: digest(*trained(name).machine.parameters()) for name in ("pcd", "centred", "ucd")}


def stopped(**settings) -> list:
    """How a run ends that a callback of the first process stops at its fifth update."""
    run = trained("pcd", callbacks=[lambda update: STOP if update.step == 5 else None], **settings)
    return [run.status, run.updates, run.history[-1]["step"], digest(*run.machine.parameters())]


def work_of_four(folder: Path) -> None:
    """What each of four processes does, and writes what came of it."""
    found = {name: digest(*trained(name).machine.parameters()) for name in ("pcd", "centred", "ucd")}
    answer = {"digests": found, "sent": messages_of_updates(), "stopped": stopped()}
    answer["common"] = digests_in_common_memory()
    trained("pcd", run_dir=folder / "two", updates=20, resume=True)
    (folder / f"rank{dist.get_rank()} of 4.json").write_text(json.dumps(answer))


def work(folder: Path) -> None:
    """What every process does, and writes what came of it."""
    found = digests(folder)
    sent = messages_of_updates()
    trained("pcd", run_dir=folder / "run")
    trained("pcd", run_dir=folder / "two")
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
    """One process that does all shards, as those that it is compared with: a folder, and what came of it."""
    before = torch.get_num_threads(), backends.backend_name()
    torch.set_num_threads(1)
    backends.set_backend("torch")
    folder = tmp_path_factory.mktemp("two")
    np.save(folder / "rows.npy", X.byte().numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield folder, digests(folder)
    torch.set_num_threads(before[0])
    backends.set_backend(before[1])


@pytest.fixture(scope="module")
def answers(alone) -> tuple[Path, list]:
    """Two processes that work together, forked from one that has loaded all that they need."""
    folder, _ = alone
    processes = [forked(lambda rank=rank: joined(folder, rank, 120, work)) for rank in range(2)]
    assert [ended(process) for process in processes] == [0, 0]
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_get_the_bits_of_one(answers, alone) -> None:
    first, second = answers[1]
    assert first["digests"] == second["digests"] == alone[1]


def test_four_processes_get_the_bits_of_one_and_go_on_from_two(answers, alone) -> None:
    folder, (two, _) = answers
    processes = [forked(lambda rank=rank: joined(folder, rank, 120, work_of_four, 4)) for rank in range(4)]
    assert [ended(process) for process in processes] == [0] * 4
    four = [json.loads((folder / f"rank{rank} of 4.json").read_text()) for rank in range(4)]
    for answer in four:
        assert answer["digests"].items() <= alone[1].items()
        assert answer["common"] == answer["digests"]
        assert_messages(answer["sent"], ["all_to_all_single", GATHER])
        assert answer["stopped"] == two["stopped"]
    resumed = hm.load(folder / "two")
    assert digest(*resumed.parameters()) == digest(*trained("pcd", updates=20).machine.parameters())


def assert_messages(sent: list[str], update: list[str]) -> None:
    """Asserts that updates send no objects, but for names of diagnostics where they are new."""
    last = len(sent) - sent[::-1].index(update[-1])
    assert sent[sent.index(update[0]) : last] == [*update, "all_gather_object", *12 * update]


@pytest.mark.skipif(sys.platform != "linux", reason="memory in common is Linux's")
def test_terms_in_common_memory_have_the_bits_of_messages(answers, alone) -> None:
    for answer in answers[1]:
        assert answer["common"].items() <= alone[1].items()


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


def test_an_update_is_one_message_of_two_processes(answers) -> None:
    for answer in answers[1]:
        reduced = [place for place, name in enumerate(answer["sent"]) if name == "all_reduce"]
        # The first and the last are decisions at the two ends of the run.
        assert_messages(answer["sent"][reduced[0] + 1 : reduced[-1]], ["all_reduce"])


def test_a_callback_ends_the_run_in_all_processes_after_the_next_update(answers, alone) -> None:
    first, second = (answer["stopped"] for answer in answers[1])
    assert first[:2] == second[:2] == ["stopped", 6]
    assert first[2] == 6 and first == stopped()


def test_one_process_writes(answers) -> None:
    folder, _ = answers
    records = (folder / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(record)["step"] for record in records] == list(range(1, 13))


def test_a_run_goes_on_in_another_number_of_processes(answers, alone) -> None:
    run = trained("pcd", updates=20, run_dir=answers[0] / "run", resume=True)
    assert run.updates == 20
    assert digest(*run.machine.parameters()) == digest(*trained("pcd", updates=20).machine.parameters())


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
    for call in (
        lambda: hm.train(machine, X, rule="pcd", updates=1, distributed=distributed),
        lambda: hm.likelihood.ais(machine, 8, 5, distributed=distributed),
    ):
        with pytest.raises(ValueError, match=message):
            call()


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


def stall(folder: Path) -> None:
    """The second process neither works nor dies."""
    if dist.get_rank() == 1:
        time.sleep(30)
        return
    begun = time.monotonic()
    try:
        trained("pcd")
    except RuntimeError:
        (folder / "waited").write_text(str(time.monotonic() - begun))


def test_a_process_that_answers_no_more_is_not_waited_for_longer_than_the_timeout(tmp_path) -> None:
    processes = [forked(lambda rank=rank: joined(tmp_path, rank, 2, stall)) for rank in range(2)]
    status = ended(processes[0])
    os.kill(processes[1], signal.SIGKILL)
    ended(processes[1])
    assert 1.5 < float((tmp_path / "waited").read_text()) < 20, status


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
    with pytest.raises(ValueError, match="start: expected at least one for each of 8 shards"):
        hm.chains.run(machine, kernel, X[:7], 1, **shared)
    with pytest.raises(ValueError, match="start: expected at least one for each of 8 shards"):
        hm.coupled.meet(machine, hm.coupled.Gibbs(), X[:7], **shared)
    with pytest.raises(ValueError, match="X: expected at least one for each of 8 shards"):
        hm.meanfield.landscape(machine, X[:7], distributed="auto")


def test_a_group_of_processes_is_taken(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        run = trained("pcd", updates=2, distributed=dist.group.WORLD)
        assert run.status == "completed"

    assert ended(forked(lambda: joined(tmp_path, 0, 30, work, size=1))) == 0


def test_a_word_that_is_no_group_is_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)])
    with pytest.raises(TypeError, match='distributed: expected None, "auto" or a'):
        hm.train(machine, X, rule="pcd", updates=1, distributed="all")
