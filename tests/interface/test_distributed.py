"""Several processes that train one machine: the same bits as one, one writer, errors that say what to do."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

import harmonium as hm
from harmonium import products

if not dist.is_available() or sys.platform == "win32":
    pytest.skip("this torch has no torch.distributed over gloo", allow_module_level=True)

SHARDS = 4
X = torch.from_numpy(hm.data.bars_and_stripes(4)).float()
REAL = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
PROBLEMS = {
    "pcd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.pcd(1, 32)),
    "centred": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.centred(hm.rules.pcd(1, 32))),
    "ucd": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.ucd(chains=16, quantile=0.5)),
    "noise_cd": ([(hm.Gaussian, 6), (hm.Bernoulli, 8)], REAL, hm.rules.noise_cd(4)),
    "mean_field": ([(hm.Bernoulli, 16), (hm.Bernoulli, 8), (hm.Spin, 8)], X, hm.rules.mean_field_pcd(1, 32)),
    "tap": ([(hm.Bernoulli, 16), (hm.Bernoulli, 12)], X, hm.rules.tap()),
    "ucd_lmi": ([(hm.Spin, 16), (hm.Spin, 8), (hm.Spin, 8)], 2 * X - 1, hm.rules.ucd_lmi()),
}  # fmt: skip


def digest(machine: hm.BoltzmannMachine) -> str:
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in machine.parameters())).hexdigest()


def trained(name: str, **settings) -> hm.training.TrainingRun:
    layers, data, rule = PROBLEMS[name]
    machine = hm.BoltzmannMachine([kind(units) for kind, units in layers], seed=1)
    hm.machine.normal_(machine, 0.1, torch.Generator().manual_seed(2))
    settings = {"updates": 12, "batch_size": 28, "clip_norm": 1.0, **settings}
    return hm.train(
        machine, data, rule=rule, seed=3, progress=False, distributed="auto", shards=SHARDS, **settings
    )


def work(folder: Path) -> None:
    """What every process does; the first writes what came of it."""
    digests = {name: digest(trained(name).machine) for name in PROBLEMS}
    digests["begun"] = digest(trained("pcd", run_dir=folder / "run").machine)
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)], seed=1)
    value = hm.likelihood.ais(machine, 16, 20, seed=1, distributed="auto", shards=SHARDS).value
    refusals = []
    for settings in ({"learning_rate": 0.1 + dist.get_rank()}, {"run_dir": folder / "run"}):
        try:
            trained("pcd", **settings)
        except ValueError as error:
            refusals.append(str(error))

    others: list = [None, None]
    dist.all_gather_object(others, os.getpid())

    def send(update: hm.training.callbacks.Update) -> None:
        if update.step == 3:  # a second one would act at once
            os.kill(others[1], signal.SIGTERM)

    ended = trained("pcd", updates=100_000, callbacks=[send])
    answer = {"digests": digests, "ais": value, "refusals": refusals, "ended": [ended.status, ended.updates]}
    (folder / f"rank{dist.get_rank()}.json").write_text(json.dumps(answer))


def start(folder: str, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    work(Path(folder))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def answers(tmp_path_factory) -> tuple[Path, list]:
    """Two processes, as torchrun starts them."""
    folder = tmp_path_factory.mktemp("two")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HARMONIUM_PRODUCTS": "torch", "WORLD_SIZE": "2"}
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = []
    for rank in range(2):
        start = f"from tests.interface.test_distributed import start; start({str(folder)!r}, {rank})"
        processes.append(
            subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", start],
                env={**environment, "RANK": str(rank)},
                cwd=Path(__file__).parents[2],
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    errors = [process.communicate(timeout=240)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    return folder, [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture
def alone(one_thread):
    """One process that does all shards."""
    before = products.made()
    products.use("torch")
    yield
    products.use(before)


def test_two_processes_get_the_bits_of_one(answers, alone) -> None:
    _, (first, second) = answers
    assert first["digests"] == second["digests"]
    for name in PROBLEMS:
        assert digest(trained(name).machine) == first["digests"][name], name


def test_one_process_writes(answers) -> None:
    folder, _ = answers
    records = (folder / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(record)["step"] for record in records] == list(range(1, 13))


def test_a_run_goes_on_in_another_number_of_processes(answers, alone) -> None:
    folder, _ = answers
    whole = digest(trained("pcd", updates=20).machine)
    run = trained("pcd", updates=20, run_dir=folder / "run", resume=True)
    assert run.updates == 20 and digest(run.machine) == whole


def test_annealing_in_two_processes_is_that_in_one(answers, alone) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)], seed=1)
    value = hm.likelihood.ais(machine, 16, 20, seed=1, distributed="auto", shards=SHARDS).value
    assert [each["ais"] for each in answers[1]] == [value, value]


def test_what_one_process_refuses_all_refuse(answers) -> None:
    for each in answers[1]:
        other, existing = each["refusals"]
        assert other == (
            "distributed: expected the same learning_rate in all processes, received 0.1 in rank 0 "
            "and 1.1 in rank 1"
        )
        assert "already holds a run" in existing


def test_a_signal_to_one_process_ends_the_run_in_all(answers) -> None:
    first, second = (each["ended"] for each in answers[1])
    assert first == second
    assert first[0] == "interrupted" and first[1] < 100_000


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


def test_a_word_that_is_no_group_is_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(12)])
    with pytest.raises(TypeError, match='distributed: expected None, "auto" or a'):
        hm.train(machine, X, rule="pcd", updates=1, distributed="all")
