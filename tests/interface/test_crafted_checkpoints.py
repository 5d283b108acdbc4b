"""Checkpoints with right checksums and wrong contents: refused by name, never used, never a crash."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium import _storage
from harmonium.chains import KernelState
from harmonium.meanfield import Point
from harmonium.training import TrainingRun, callbacks, checkpoint, train
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint

WIDTHS = (6, 4)
DATA = np.random.default_rng(1).integers(0, 2, (23, WIDTHS[0])).astype(np.float32)
pytestmark = pytest.mark.usefixtures("one_thread")


def run(run_dir: Path, **settings: Any) -> TrainingRun:
    fixed = {
        "rule": hm.rules.pcd(1, 8),
        "updates": 9,
        "batch_size": 5,
        "optimizer": "adam",
        "averaging": 0.9,
        "validation": DATA,
        "metrics": {"bias": lambda machine, X: float(machine.layers[0].bias.mean())},
        "callbacks": [callbacks.EarlyStopping("bias", patience=100)],
        "progress": False,
        "run_dir": run_dir,
    }
    machine = hm.BoltzmannMachine([hm.Bernoulli(width) for width in WIDTHS])
    return train(machine, DATA, **{**fixed, **settings})


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    """An edit of a nested value, of dicts, lists and records."""

    def edit(content: Any, path: tuple[Any, ...] = path) -> Any:
        key, *rest = path
        if isinstance(content, KernelState):
            return content._replace(**{key: edit(getattr(content, key), tuple(rest)) if rest else value})
        content[key] = edit(content[key], tuple(rest)) if rest else value
        return content

    return edit


def without(*path: Any) -> Callable[[dict[str, Any]], None]:
    def edit(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return edit


def refused(tmp_path: Path, edit: Callable[[dict[str, Any]], None], **settings: Any) -> str:
    """The error that a resume from an edited checkpoint ends with."""
    run(tmp_path, **settings)
    path = tmp_path / "checkpoint.safetensors"
    content = read_checkpoint(path)
    edit(content)
    write_checkpoint(path, content)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors: damaged") as caught:
        run(tmp_path, resume=True, **{**settings, "updates": 12})
    assert path.read_bytes() == before
    return str(caught.value)


MOMENT = ("optimizer", "state", 2, "exp_avg")


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (put(*MOMENT, value=torch.zeros(0)), "exp_avg"),
        (put(*MOMENT, value=torch.full((6, 4), torch.nan)), "exp_avg"),
        (without(*MOMENT), "exp_avg"),
        (put("optimizer", "state", 2, "step", value=torch.ones(3)), "step"),
        (put("optimizer", "state", 7, value={}), "2, 7"),
        (put("optimizer", "param_groups", 0, "params", value=[0, 0, 0]), "param_groups"),
        (put("machine", "couplings.0.weight", value=torch.zeros(4, 6)), "couplings"),
        (put("machine", "couplings.0.weight", value=torch.full((6, 4), torch.inf)), "couplings"),
        (put("averaged", value=None), "averaged"),
        (put("machine", "more", value=torch.zeros(1)), "machine"),
        (put("averaged", "layers.0.bias", value=torch.zeros(0)), "averaged"),
        (put("rule", value=[torch.zeros(8, 6), torch.full((8, 4), torch.nan)]), "rule"),
        (put("rule", value=[torch.zeros(8, 6), torch.full((8, 4), 2.0)]), "state"),
        (put("rule", value=[torch.zeros(0, 6), torch.zeros(0, 4)]), "state"),
        (put("rule", "sweeps", value=-1), "state.sweeps"),
        (put("rule", "states", value=[torch.zeros(8, 6), torch.zeros(7, 4)]), "state"),
        (put("rule", "memory", value={"step": 1.0}), "state.memory"),
        (put("rule", value=3), "state"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.mostly_nightly(5)
def test_what_does_not_fit_is_refused_by_name(edit: Any, named: str, tmp_path: Path) -> None:
    message = refused(tmp_path, edit)
    assert any(word in message for word in named.split("|")), message


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        (
            hm.rules.ucd(chains=4, start="persistent"),
            KernelState([torch.zeros(4, 6), torch.zeros(4, 3)], 0, None, {}),
        ),
        (hm.rules.ucd(chains=4, start="persistent"), [torch.zeros(4, 6), torch.zeros(3, 4)]),
        (hm.rules.tap(start="persistent"), Point([torch.zeros(4, 6), torch.zeros(4, 4)], [], [], [], [])),
    ],
    ids=lambda value: str(value)[:24],
)
def test_rules_check_their_states(rule: Any, state: Any, tmp_path: Path) -> None:
    assert "state" in refused(tmp_path, put("rule", value=state), rule=rule)


@pytest.mark.parametrize(
    "optimizer", [torch.optim.Adagrad, torch.optim.SGD], ids=lambda optimizer: optimizer.__name__
)
def test_every_optimiser_of_torch_resumes_and_refuses_other_shapes(optimizer: Any, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", optimizer=optimizer, updates=12)
    run(tmp_path / "part", optimizer=optimizer, updates=9)
    part = run(tmp_path / "part", optimizer=optimizer, updates=12, resume=True)
    for a, b in zip(whole.machine.parameters(), part.machine.parameters(), strict=True):
        assert torch.equal(a, b)
    state = read_checkpoint(tmp_path / "part" / "checkpoint.safetensors")["optimizer"]["state"]
    for name, value in state.get(2, {}).items():
        if isinstance(value, torch.Tensor):
            edit = put("optimizer", "state", 2, name, value=torch.zeros(*value.shape, 0))
            assert name in refused(tmp_path / name, edit, optimizer=optimizer)


# The file itself -------------------------------------------------------------------------------------------


def test_a_checkpoint_gives_back_what_it_was_given(tmp_path: Path) -> None:
    values = {
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "part": torch.arange(9)[2:4],
        "expanded": torch.ones(1).expand(5),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(2.5, dtype=torch.bfloat16),
        "other": torch.tensor([1, 2]).to(torch.uint16),
        "plain": [1, -2, 300, 2**70, 1.5, 0.1, -0.0, float("inf"), None, True, "é", (1, (2,)), {}, [], ()],
        "keys": {0: "int", "$tensor": "a string that looks like a mark", "x": {(1, "a"): 2}},
    }
    path = tmp_path / "checkpoint.safetensors"
    run(tmp_path)
    write_checkpoint(path, {**read_checkpoint(path), "rule": values})
    read = read_checkpoint(path)["rule"]
    assert repr(read["plain"]) == repr(values["plain"]) and read["keys"] == values["keys"]
    for name in values.keys() - {"plain", "keys"}:
        assert torch.equal(read[name], values[name]) and read[name].dtype == values[name].dtype


@pytest.mark.parametrize("value", [{1, 2}, torch.ones(3).to_sparse(), np.ones(3), torch.ones(2) * 1j])
def test_what_a_checkpoint_cannot_keep_is_refused_by_its_place(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    with pytest.raises(TypeError, match=r"checkpoint\['rule'\]\[1\]: expected"):
        write_checkpoint(path, {"rule": [0, value]})
    assert not path.exists()


@pytest.mark.parametrize("mark", ["$eval", "$tensor"])
def test_marks_that_no_checkpoint_has_are_refused(mark: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.safetensors"
    header = {"format": checkpoint.FORMAT, "version": checkpoint.VERSION, "rule": {mark: 3}}
    path.write_bytes(_storage.pack({}, header))
    with pytest.raises(checkpoint.DamagedCheckpoint, match="damaged"):
        read_checkpoint(path)
