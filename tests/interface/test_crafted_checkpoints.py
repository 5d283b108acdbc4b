"""Checkpoints with right checksums and wrong contents: refused by name, never used, never a crash."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.training import TrainingRun, callbacks, train
from harmonium.training.archive import read_archive
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
    """An edit of a nested value."""

    def edit(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

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
    path = tmp_path / "checkpoint.pt"
    content = torch.load(path, weights_only=True)
    edit(content)
    torch.save(content, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint\.pt: damaged") as caught:
        run(tmp_path, resume=True, **{**settings, "updates": 12})
    assert path.read_bytes() == before
    return str(caught.value)


NESTED: list[Any] = []
for _ in range(300):
    NESTED = [NESTED]

MOMENT = ("optimizer", "state", 2, "exp_avg")


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (put(*MOMENT, value=torch.zeros(0)), "exp_avg"),
        (put(*MOMENT, value=torch.zeros(6, 4).double()), "exp_avg"),
        (put(*MOMENT, value=torch.full((6, 4), torch.nan)), "exp_avg"),
        (put(*MOMENT, value=[1.0]), "exp_avg"),
        (without(*MOMENT), "exp_avg"),
        (put("optimizer", "state", 2, "step", value=torch.ones(3)), "step"),
        (put("optimizer", "state", 7, value={}), "parameter 7"),
        (put("optimizer", "state", value=[]), "optimizer"),
        (put("optimizer", "param_groups", value=[]), "param_groups"),
        (put("optimizer", "param_groups", 0, "params", value=[0, 0, 0]), "param_groups"),
        (put("optimizer", "param_groups", 0, "fused", value="yes"), "fused"),
        (put("optimizer", "param_groups", 0, "betas", value=(0.9,)), "betas"),
        (put("optimizer", "param_groups", 0, "eps", value=float("nan")), "eps"),
        (put("machine", "couplings.0.weight", value=torch.zeros(4, 6)), "couplings"),
        (put("machine", "couplings.0.weight", value=torch.zeros(6, 4).half()), "couplings"),
        (put("machine", "couplings.0.weight", value=torch.full((6, 4), torch.inf)), "couplings"),
        (without("machine", "layers.0.bias"), "machine"),
        (put("machine", "more", value=torch.zeros(1)), "machine"),
        (put("machine", 3, value=torch.zeros(1)), "machine"),
        (put("averaged", value=None), "averaged"),
        (put("averaged", "layers.0.bias", value=torch.zeros(0)), "averaged"),
        (put("rule", value=[torch.zeros(8, 6), torch.zeros(7, 4)]), "state"),
        (put("rule", value=[torch.zeros(8, 6), torch.zeros(8, 4).double()]), "state"),
        (put("rule", value=[torch.zeros(8, 6), torch.full((8, 4), 2.0)]), "state"),
        (put("rule", value=[torch.zeros(8, 6), torch.full((8, 4), torch.nan)]), "rule"),
        (put("rule", value=[torch.zeros(0, 6), torch.zeros(0, 4)]), "state"),
        (put("rule", "sweeps", value=-1), "state['sweeps']"),
        (put("rule", "sweeps", value="3"), "state['sweeps']"),
        (put("rule", "chains", value=[torch.zeros(8, 6), torch.zeros(7, 4)]), "state"),
        (without("rule", "sweeps"), "state"),
        (put("rule", value={"k": 1}), "state"),
        (put("rule", value=3), "state"),
        (put("generator", value=torch.zeros(3, dtype=torch.uint8)), "generator"),
        (put("generator", value=torch.zeros(5056, dtype=torch.uint8)), "generator"),
        (put("generator", value="x"), "generator"),
        (put("step", value="9"), "step"),
        (put("step", value=-1), "step"),
        (put("seconds", value=float("nan")), "seconds"),
        (put("stopped", value=1), "stopped"),
        (put("metrics", value={"bias": "x"}), "metrics"),
        (put("history", value={"length": -1}), "history"),
        (put("history", "sums", value={"x": 1.0}), "history"),
        (put("history", "counts", value=3), "history|AttributeError"),
        (put("settings", value={}), "settings"),
        (put("settings", "seed", value=torch.zeros(2)), "settings"),
        (put("callbacks", value=[3]), "callbacks"),
        (put("callbacks", 0, 1, value={}), "EarlyStopping"),
        (put("callbacks", 0, 1, "waited", value=None), "EarlyStopping"),
        (put("callbacks", 0, 1, "best_state", value={}), "EarlyStopping"),
        (put("metrics", value=NESTED), "64 levels"),
        *((without(name), name) for name in ("step", "threads", "history", "machine", "rule", "settings")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_by_name(edit: Any, named: str, tmp_path: Path) -> None:
    message = refused(tmp_path, edit)
    assert any(word in message for word in named.split("|")), message


@pytest.mark.parametrize(
    ("rule", "state"),
    [
        (hm.rules.tempered_pcd(1, chains=2, replicas=3), [torch.zeros(7, 6), torch.zeros(7, 4)]),
        (
            hm.rules.ucd(chains=4, start="persistent"),
            {"k": -1, "chains": [torch.zeros(4, 6), torch.zeros(4, 4)]},
        ),
        (hm.rules.ucd(chains=4, start="persistent"), {"k": 1, "chains": None}),
        (hm.rules.ucd(chains=4, start="persistent"), {"k": 1, "chains": [torch.zeros(4, 6)]}),
        (hm.rules.tap(start="persistent"), {"means": [torch.zeros(4, 6), torch.zeros(4, 4)]}),
    ],
    ids=lambda value: str(value)[:24],
)
def test_rules_check_their_states(rule: Any, state: Any, tmp_path: Path) -> None:
    assert "state" in refused(tmp_path, put("rule", value=state), rule=rule)


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adadelta, torch.optim.Adafactor, torch.optim.Adagrad, torch.optim.Adam,
        torch.optim.Adamax, torch.optim.AdamW, torch.optim.ASGD, torch.optim.NAdam, torch.optim.RAdam,
        torch.optim.RMSprop, torch.optim.Rprop, torch.optim.SGD,
    ],
    ids=lambda optimizer: optimizer.__name__,
)  # fmt: skip
def test_every_optimiser_of_torch_resumes_and_refuses_other_shapes(optimizer: Any, tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", optimizer=optimizer, updates=12)
    run(tmp_path / "part", optimizer=optimizer, updates=9)
    part = run(tmp_path / "part", optimizer=optimizer, updates=12, resume=True)
    for a, b in zip(whole.machine.parameters(), part.machine.parameters(), strict=True):
        assert torch.equal(a, b)
    state = torch.load(tmp_path / "part" / "checkpoint.pt", weights_only=True)["optimizer"]["state"]
    for name, value in state.get(2, {}).items():
        if isinstance(value, torch.Tensor):
            edit = put("optimizer", "state", 2, name, value=torch.zeros(*value.shape, 0))
            assert name in refused(tmp_path / name, edit, optimizer=optimizer)


# The archive itself ----------------------------------------------------------------------------------------


def rewritten(edit: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> io.BytesIO:
    """A file of torch.save with its records edited and their checksums right."""
    saved, result = io.BytesIO(), io.BytesIO()
    torch.save({"x": torch.arange(200.0)}, saved)
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(result, "w", compression) as target:
        for record in source.infolist():
            target.writestr(record.filename, edit(record.filename, source.read(record)))
    return result


def pickled(before: bytes, after: bytes) -> Callable[[str, bytes], bytes]:
    def edit(name: str, content: bytes) -> bytes:
        assert not name.endswith("data.pkl") or before in content
        return content.replace(before, after, 1) if name.endswith("data.pkl") else content

    return edit


COUNT = b"K\xc8"  # 200, first of the storage, then of the tensor


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (pickled(COUNT, b"J" + struct.pack("<i", 2**30)), "claims 1073741824 elements of 4 bytes, holds 800"),
        (pickled(b"K\x00" + COUNT, b"K\x00J" + struct.pack("<i", 2**30)), "larger than its 200 elements"),
        (pickled(b"K\x00" + COUNT, b"K\x01" + COUNT), "larger than its 200 elements"),
        (pickled(b"K\x00" + COUNT, b"J\xff\xff\xff\xff" + COUNT), "offset -1"),
        (pickled(b"torch._utils\n_rebuild_tensor_v2", b"builtins\neval"), "asks for builtins.eval"),
        (pickled(b"FloatStorage", b"DoubleStorage"), "claims 200 elements of 8 bytes"),
        (lambda name, content: b"big" if name.endswith("byteorder") else content, "big-endian"),
        (lambda name, content: content[:-1] if "/data/" in name else content, "4 bytes, holds 799"),
    ],
)  # fmt: skip
def test_claims_are_compared_with_what_is_there(edit: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_archive(rewritten(edit))


def test_compressed_records_are_refused() -> None:
    file = rewritten(lambda name, content: content, zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="records are compressed"):
        read_archive(file)


def test_the_archive_reads_what_torch_reads(tmp_path: Path) -> None:
    values = {
        "transposed": torch.arange(6.0).view(2, 3).t(),
        "part": torch.arange(9)[2:4],
        "expanded": torch.ones(1).expand(5),
        "empty": torch.zeros(0, 3),
        "number": torch.tensor(2.5, dtype=torch.bfloat16),
        "other": torch.tensor([1, 2]).to(torch.uint16),
        "plain": [1, -2, 300, 2**40, 1.5, None, True, "é", (1, (2,)), {}, [], ()],
    }
    path = tmp_path / "checkpoint.pt"
    run(tmp_path)
    write_checkpoint(path, {**read_checkpoint(path), "rule": values})
    read, reference = read_checkpoint(path), torch.load(path, weights_only=True)
    assert read["rule"]["plain"] == values["plain"]
    for name in values.keys() - {"plain"}:
        ours, theirs = read["rule"][name], reference["rule"][name]
        assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype and ours.stride() == theirs.stride()


def test_nothing_is_warned_of_where_nothing_is_wrong(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(tmp_path)
        run(tmp_path, resume=True, updates=12)
