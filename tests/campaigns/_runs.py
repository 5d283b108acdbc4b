"""Small runs of many kinds, trained in forked processes, and whether two of them left the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import harmonium as hm
from harmonium._states import leaves
from harmonium.training import TrainingRun, Update, callbacks, train
from harmonium.training.checkpoint import read_checkpoint

FAILED, INTERRUPTED, REFUSED = 70, 71, 72
_TIMED = ("['seconds']", "['history']['records']")  # records are compared without their times

_RULES: list[Callable[[], Any]] = [
    lambda: hm.rules.cd(2),
    lambda: hm.rules.pcd(2, chains=6),
    lambda: hm.rules.tempered_pcd(1, chains=4, replicas=3),
    lambda: hm.rules.centred(hm.rules.pcd(1, chains=5)),
    lambda: hm.rules.ucd(chains=4, start="persistent"),
    lambda: hm.rules.ucd_lmi(chains=4),
    lambda: hm.rules.mean_field_pcd(2, 5),
    lambda: hm.rules.tap(start="persistent"),
]
_OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.5},
    {"optimizer": "adam", "learning_rate": 0.01},
    {"optimizer": torch.optim.RMSprop},
    {"optimizer": torch.optim.AdamW},
    {"optimizer": torch.optim.Adafactor},
]


class Counter:
    """A callback with a state: the sum of the gradient norms that it has seen."""

    def __init__(self) -> None:
        self.total = torch.zeros(2, dtype=torch.float64)

    def __call__(self, update: Update) -> None:
        self.total += torch.tensor([1.0, update.gradient_norm], dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"].clone()


class Case:
    """The settings of a run, a function of a seed."""

    def __init__(self, seed: str) -> None:
        random = Random(seed)
        widths = random.choice([(6, 4), (9, 7), (6, 4, 3)])
        self.widths = widths
        self.rule = random.choice(_RULES)
        self.settings: dict[str, Any] = {
            **random.choice(_OPTIMIZERS),
            "updates": random.randrange(40, 160),
            "batch_size": random.choice([4, 5, 23]),
            "averaging": random.choice([None, 0.9]),
            "schedule": random.choice(["constant", "cosine"]),
            "weight_decay": random.choice([0.0, 0.01]),
            "checkpoint_every": random.choice([1, 3, 10, 25]),
            "record_every": random.choice([1, 4, 30]),
            "evaluate_every": random.choice([2, 7]),
            "seed": random.randrange(1000),
            "progress": False,
        }
        self.observers = random.choice([(), ("count",), ("stop",), ("stop", "count")])
        self.validated = "stop" in self.observers or random.random() < 0.5
        self.patience = random.choice([3, 1000])

    def train(self, run_dir: Path, extra: tuple[Any, ...] = (), **settings: Any) -> TrainingRun:
        """The run, in this process; it resumes what is in the folder unless told otherwise."""
        rows = np.random.default_rng(1).integers(0, 2, (23, self.widths[0])).astype(np.float32)
        observers: list[Any] = []
        for name in self.observers:
            stopping = callbacks.EarlyStopping("bias", patience=self.patience)
            observers.append(Counter() if name == "count" else stopping)
        checks: dict[str, Any] = {}
        if self.validated:
            checks = {"validation": rows[:9], "metrics": {"bias": _mean_bias}}
        return train(
            hm.BoltzmannMachine([hm.Bernoulli(width) for width in self.widths], seed=3),
            rows,
            rule=self.rule(),
            run_dir=run_dir,
            callbacks=[*observers, *extra],
            **{"resume": True, **self.settings, **checks, **settings},
        )

    def __str__(self) -> str:
        settings = {"widths": self.widths, "rule": self.rule(), "callbacks": self.observers, **self.settings}
        return ", ".join(f"{name}={value}" for name, value in settings.items())


def warm_up(folder: Path) -> None:
    """Load what runs load, so that forked processes need not; on one thread, as a fork takes no other."""
    torch.set_num_threads(1)
    case = Case("any")
    for number, rule in enumerate(_RULES):
        case.rule = rule
        case.settings |= {"updates": 2, "momentum": 0.0, **_OPTIMIZERS[number % len(_OPTIMIZERS)]}
        case.train(folder / "warm")
        shutil.rmtree(folder / "warm")


def _mean_bias(machine: hm.BoltzmannMachine, X: torch.Tensor) -> float:
    return float(machine.layers[0].bias.mean())


def forked(work: Callable[[], int]) -> int:
    """The id of a new process that does some work and ends with its status; a warning is an error there."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    status = FAILED
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        warnings.simplefilter("error")
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def ended(process: int) -> int:
    """How a process ended: its status, or minus the number of the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def difference(one: Path, other: Path) -> str | None:
    """The first thing in which two finished runs differ beside their times; None where they are equal."""
    if (one / "lock.json").exists() or (other / "lock.json").exists():
        return "lock.json was left behind"
    for name in ("machine.safetensors", "averaged.safetensors"):
        contents = [(run / name).read_bytes() if (run / name).exists() else b"" for run in (one, other)]
        if contents[0] != contents[1]:
            return name
    histories = [
        [{**json.loads(line), "seconds": 0} for line in (run / "history.jsonl").read_text().splitlines()]
        for run in (one, other)
    ]
    if histories[0] != histories[1]:
        return "history.jsonl"
    states = [dict(leaves(read_checkpoint(run / "checkpoint.safetensors"))) for run in (one, other)]
    if states[0].keys() != states[1].keys():
        return "what checkpoint.safetensors holds"
    for where, value in states[0].items():
        same = torch.equal if isinstance(value, torch.Tensor) else lambda a, b: a == b
        if where not in _TIMED and not same(value, states[1][where]):
            return f"checkpoint.safetensors{where}"
    return None
