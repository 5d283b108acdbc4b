"""Machine files: what is written comes back; what is not a whole machine file is refused, never guessed."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact.machines import build
from exact.specifications import ADJACENT, SPECIFICATIONS, Specification
from safetensors.torch import save as safetensors_bytes

import harmonium as hm
from harmonium import _storage

KEY = "harmonium"

every = pytest.mark.parametrize("specification", (*SPECIFICATIONS, ADJACENT), ids=lambda s: s.name)
precisions = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def small() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(3), hm.Categorical(2, 3), hm.Spin(2)], seed=3)


def saved(path: Path, machine: hm.BoltzmannMachine | None = None) -> bytes:
    (machine or small()).save(path)
    return path.read_bytes()


def header(contents: bytes) -> dict[str, Any]:
    """The JSON that harmonium put into the safetensors header."""
    (length,) = struct.unpack("<Q", contents[:8])
    outer = json.loads(contents[8 : 8 + length])
    return dict(json.loads(outer["__metadata__"][KEY]))


def forged(path: Path, change: Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]) -> Path:
    """A file of the small machine whose header or tensors were changed before writing."""
    machine = small()
    text = header(saved(path.with_suffix(".true"), machine))
    values = {name: x.detach().clone() for name, x in machine.state_dict().items()}
    replaced = change(text, values)
    if replaced is None:
        text.pop("checksum")
        text["checksum"] = _storage.checksum(text, values)
        replaced = json.dumps(text)
    path.write_bytes(safetensors_bytes(values, {KEY: replaced}))
    return path


def same(left: hm.BoltzmannMachine, right: hm.BoltzmannMachine) -> bool:
    """The same layers and, bit for bit, the same parameters."""
    a, b = left.state_dict(), right.state_dict()
    return (
        [str(layer) for layer in left.layers] == [str(layer) for layer in right.layers]
        and a.keys() == b.keys()
        and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)
        and left.metadata == right.metadata
    )


def refusal(path: Path) -> str:
    """The message with which a file is refused; anything but ValueError fails the test."""
    with pytest.raises(ValueError) as caught:
        hm.load(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


# What comes back -------------------------------------------------------------------------------------------


@every
@precisions
def test_a_round_trip_keeps_every_energy(
    specification: Specification, dtype: torch.dtype, tmp_path: Path
) -> None:
    machine = build(specification, dtype)
    machine.constant = 0.1 + 0.2
    machine.metadata = {"encoder": {"mean": [0.25, 1e-300], "kind": "standardise"}, "ünits": None}
    machine.save(tmp_path / "machine")
    loaded = hm.load(str(tmp_path / "machine"))
    assert same(loaded, machine)
    assert loaded.dtype == dtype
    assert all(parameter.requires_grad for parameter in loaded.parameters())
    states = machine.random_states(20, seed=0)
    assert torch.equal(loaded.energy(states), machine.energy(states))


def test_a_loaded_machine_shares_nothing_with_its_file_or_another_load(tmp_path: Path) -> None:
    contents = saved(tmp_path / "machine")
    first, second = hm.load(tmp_path / "machine"), hm.load(tmp_path / "machine")
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1.0)
    assert same(second, small())
    assert (tmp_path / "machine").read_bytes() == contents


def test_the_same_machine_gives_the_same_bytes(tmp_path: Path) -> None:
    assert saved(tmp_path / "one") == saved(tmp_path / "two")


def test_views_and_transposed_parameters_are_saved_as_their_values(tmp_path: Path) -> None:
    machine = small()
    with torch.no_grad():
        machine.couplings[0].weight.data = machine.couplings[0].weight.detach().t().contiguous().t()
    saved(tmp_path / "machine", machine)
    assert same(hm.load(tmp_path / "machine"), small())


# What is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absent", "."])
def test_what_is_no_file(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a file"):
        hm.load(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (safetensors_bytes({"weight": torch.zeros(3)}, {"format": "pt"}), "not one that harmonium wrote"),
        (np.random.default_rng(0).bytes(4096), "not a harmonium file"),
    ],
    ids=["another program's", "noise"],
)
def test_files_of_something_else(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(content)
    assert said in refusal(tmp_path / "other")


def test_every_truncation(tmp_path: Path) -> None:
    contents = saved(tmp_path / "machine")
    (length,) = struct.unpack("<Q", contents[:8])
    path = tmp_path / "short"
    places = {0, 1, 7, 8, 9, 7 + length, 8 + length, 9 + length, len(contents) - 4, len(contents) - 1}
    for kept in sorted(places | set(range(0, len(contents), 61))):
        path.write_bytes(contents[:kept])
        assert "damaged" in refusal(path), kept


def test_a_flipped_bit_in_the_header_never_changes_the_machine(tmp_path: Path) -> None:
    """Refused with ValueError, at every place, or without any effect."""
    machine = small()
    contents = saved(tmp_path / "machine", machine)
    (length,) = struct.unpack("<Q", contents[:8])
    path = tmp_path / "flipped"
    refused = 0
    for place in range(8 + length):
        damaged = bytearray(contents)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            loaded = hm.load(path)
        except ValueError:
            refused += 1
        else:
            assert same(loaded, machine), place
    assert refused > 0.9 * length


def test_flipped_and_further_bytes_in_the_tensors(tmp_path: Path) -> None:
    contents = saved(tmp_path / "machine")
    (length,) = struct.unpack("<Q", contents[:8])
    path = tmp_path / "flipped"
    path.write_bytes(contents + b"\0")
    assert "damaged" in refusal(path)
    for place in range(8 + length, len(contents)):
        damaged = bytearray(contents)
        damaged[place] ^= 0x01
        path.write_bytes(damaged)
        assert "damaged" in refusal(path), place


@pytest.mark.parametrize("version", [2, None])
def test_another_version(version: Any, tmp_path: Path) -> None:
    path = forged(tmp_path / "machine", lambda text, values: text.update(version=version))
    message = refusal(path)
    assert f"format version {version!r}" in message
    assert "reads version 1" in message


def test_an_unknown_kind_of_layer_is_no_damage(tmp_path: Path) -> None:
    path = forged(tmp_path / "machine", lambda text, values: text["layers"][2].update(kind="potts"))
    message = refusal(path)
    assert "has no layer 'potts'" in message and "HARMONIUM_IMPORT" in message
    assert "damaged" not in message


@pytest.mark.parametrize(
    ("name", "value"), [("couplings.1.weight", float("nan")), ("layers.0.log_variance", -float("inf"))]
)
def test_values_that_are_not_finite(name: str, value: float, tmp_path: Path) -> None:
    path = forged(tmp_path / "machine", lambda text, values: values[name].view(-1)[-1].fill_(value) and None)
    message = refusal(path)
    assert name in message
    assert f"expected finite values, received {value}" in message


FORGERIES: dict[str, Callable[[dict[str, Any], dict[str, torch.Tensor]], str | None]] = {
    "another size": lambda text, values: text["layers"][2].update(n_units=3),
    "an unknown argument": lambda text, values: text["layers"][0].update(temperature=1),
    "layers turned round": lambda text, values: text["layers"].reverse(),
    "words for layers": lambda text, values: text.update(layers=["gaussian", "categorical", "spin"]),
    "a kind that is no name": lambda text, values: text["layers"][2].update(kind=None),
    "a missing tensor": lambda text, values: values.__delitem__("couplings.1.weight"),
    "one tensor more": lambda text, values: values.update({"couplings.2.weight": torch.zeros(2, 2)}),
    "integers": lambda text, values: values.update({"layers.2.bias": values["layers.2.bias"].int()}),
    "two precisions": lambda text, values: values.update({"layers.2.bias": values["layers.2.bias"].double()}),
    "metadata in a list": lambda text, values: text.update(metadata=[1]),
    "no JSON": lambda text, values: "{",
}


@pytest.mark.parametrize("change", FORGERIES)
def test_a_header_that_does_not_fit(change: str, tmp_path: Path) -> None:
    refusal(forged(tmp_path / "machine", FORGERIES[change]))


# Writing ---------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.safetensors"
    with pytest.raises(FileNotFoundError, match=r"path: .* received .*new/m.safetensors; make .*/new first"):
        hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(1)]).save(path)
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "machine"
    contents = saved(path)
    other = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)])
    with pytest.raises(FileExistsError, match="overwrite replaces it"):
        other.save(path)
    assert path.read_bytes() == contents
    other.save(path, overwrite=True)
    assert same(hm.load(path), other)
    assert os.listdir(tmp_path) == ["machine"]


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(
    ("failing", "error"),
    [
        ("fsync", OSError(errno.ENOSPC, "No space left on device")),
        ("replace", OSError(errno.ENOSPC, "No space left on device")),
        ("fsync", KeyboardInterrupt()),
    ],
    ids=repr,
)
def test_a_full_disk_or_an_interrupt_loses_nothing(
    existing: bool, failing: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "machine"
    contents = saved(path) if existing else None

    def full(*arguments: Any, **named: Any) -> None:
        raise error

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(type(error)) as caught:
        hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)]).save(path, overwrite=True)
    assert getattr(caught.value, "errno", errno.ENOSPC) == errno.ENOSPC
    monkeypatch.undo()
    assert os.listdir(tmp_path) == (["machine"] if existing else [])
    if contents is not None:
        assert path.read_bytes() == contents
        assert same(hm.load(path), small())


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    for overwrite in (False, True):
        with pytest.raises(OSError):
            small().save(tmp_path / "machine", overwrite=overwrite)
    assert os.listdir(tmp_path) == ["machine"]


def test_a_file_has_the_rights_that_the_user_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        saved(tmp_path / "machine")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "machine").stat().st_mode) == 0o640


def test_a_machine_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    contents = saved(tmp_path / "machine")
    machine = small()
    with torch.no_grad():
        machine.couplings[1].weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"couplings\.1.*nan"):
        machine.save(tmp_path / "machine", overwrite=True)
    assert (tmp_path / "machine").read_bytes() == contents


def test_metadata_that_is_not_json(tmp_path: Path) -> None:
    machine = small()
    machine.metadata = {"encoder": object()}
    with pytest.raises(TypeError, match="metadata"):
        machine.save(tmp_path / "machine")
    assert os.listdir(tmp_path) == []
