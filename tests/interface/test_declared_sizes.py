"""A file is believed as far as its size can vouch for it: small ones cost little, and others stay closed."""

from __future__ import annotations

import gzip
import json
import resource
import struct
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from campaigns._hostile import hostile
from PIL import Image
from safetensors.torch import save as safetensors_bytes
from scipy import sparse

import harmonium as hm
from harmonium import _storage
from harmonium.cli.runs import load_machine
from harmonium.data import Rows, read
from harmonium.machine import rebuild
from harmonium.training.checkpoint import write_checkpoint

MEBIBYTE = 1 << 20
UNIT = 1 if sys.platform == "darwin" else 1024  # of the peak that the system reports, in bytes


@contextmanager
def growth_below(limit: int) -> Iterator[None]:
    """Fails where the most memory that this process ever had grows by more than ``limit`` bytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * UNIT
    assert grown < limit, f"{grown >> 20} MiB"


def refused(path: Path, *texts: str) -> None:
    with growth_below(200 * MEBIBYTE), pytest.raises(ValueError) as caught:
        read(path)
    for text in (str(path), *texts):
        assert text in str(caught.value)


@pytest.fixture
def h5py() -> Any:
    return pytest.importorskip("h5py", reason="the extra hdf5 is not installed")


# Data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "reasons"),
    [
        ("npz", "x.npz", ["claims 1073741", "Bad CRC-32"]),
        ("sparse", "x.npz", ["the shape ("] * 5),
        ("idx.gz", "x.idx.gz", ["expected 4 bytes for shape (2, 2), received 5", "claims 1073741824"]),
        ("image b.png", "b.png", ["claims 81000000 bytes", "exceeds limit of 178956970"]),
        ("npy", "x.npy", ["cannot be read", "cannot be read", "cannot be read"]),
    ],
)
def test_a_small_file_does_not_unfold_to_gigabytes(
    kind: str, name: str, reasons: list[str], tmp_path: Path
) -> None:
    path = tmp_path / name
    for content, reason in zip(hostile(kind, b""), reasons, strict=True):
        path.write_bytes(content)
        source = path.parent if kind.startswith("image") else path
        with growth_below(200 * MEBIBYTE), pytest.raises(ValueError) as caught:
            read(source)
        assert str(source) in str(caught.value)
        assert reason in str(caught.value)


def test_many_images_are_believed_by_the_sum_of_their_sizes(tmp_path: Path) -> None:
    for i in range(20):
        Image.new("L", (2000, 2000)).save(tmp_path / f"{i}.png")  # 4 MB each, of a few thousand bytes
    refused(tmp_path, "20 images of shape (2000, 2000) claims 80000000 bytes")


def test_the_limit_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, np.zeros((70, MEBIBYTE), np.uint8))
    refused(path, "claims 73400", "may claim up to 67108864", "set HARMONIUM_READ_LIMIT=73400")
    monkeypatch.setenv("HARMONIUM_READ_LIMIT", "80000000")
    assert read(path).samples.shape == (70, MEBIBYTE)
    monkeypatch.setenv("HARMONIUM_READ_LIMIT", "1000")
    refused(path, "may claim up to 1000")
    monkeypatch.setenv("HARMONIUM_READ_LIMIT", "much")
    refused(path, "HARMONIUM_READ_LIMIT: expected a number of bytes, received 'much'")


def test_what_a_file_vouches_for_grows_with_it(tmp_path: Path) -> None:
    noise = np.random.Generator(np.random.PCG64(0)).integers(0, 256, 2 * MEBIBYTE, dtype=np.uint8)
    array = np.zeros((70, MEBIBYTE), np.uint8)
    array[:2] = noise.reshape(2, MEBIBYTE)
    np.savez_compressed(tmp_path / "x.npz", array)
    assert np.array_equal(read(tmp_path / "x.npz").samples, array)


def test_hdf5_that_was_never_written_or_unfolds(tmp_path: Path, h5py: Any) -> None:
    unwritten, pictures, one_chunk = hostile("hdf5", b"")[4:7]
    for content in (unwritten, pictures, one_chunk):
        (tmp_path / "x.h5").write_bytes(content)
        refused(tmp_path / "x.h5", "samples claims", "HARMONIUM_READ_LIMIT=")


def test_hdf5_reads_no_other_file(tmp_path: Path, h5py: Any) -> None:
    other = tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["samples"] = np.ones((3, 2))
    layout = h5py.VirtualLayout((3, 2), "f8")
    layout[:] = h5py.VirtualSource(str(other), "samples", (3, 2))

    def external_link(file: Any) -> None:
        file["samples"] = h5py.ExternalLink(str(other), "samples")

    def soft_link(file: Any) -> None:
        file["away"], file["samples"] = h5py.ExternalLink(str(other), "/"), h5py.SoftLink("/away/samples")

    def external_storage(file: Any) -> None:
        file.create_dataset("samples", (3, 2), "f8", external=[(str(other), 0, 48)])

    def virtual(file: Any) -> None:
        file.create_virtual_dataset("samples", layout)

    def labels(file: Any) -> None:
        file["samples"], file["labels"] = np.ones((3, 2)), h5py.ExternalLink(str(other), "samples")

    for write in (external_link, soft_link, external_storage, virtual, labels):
        path = tmp_path / f"{write.__name__}.h5"
        with h5py.File(path, "w") as file:
            write(file)
        refused(path, "expected data in the file itself, received a")


def test_hdf5_labels_without_a_fixed_size(tmp_path: Path, h5py: Any) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["samples"], file["labels"] = np.ones((2, 2)), ["long", "longer"]
    refused(tmp_path / "x.h5", "labels: expected numbers, or text of a fixed length, received object")


@pytest.mark.parametrize(
    "options", [{"compression": "gzip", "shuffle": True, "fletcher32": True}, {}], ids=str
)
def test_hdf5_filters_that_are_read(options: dict[str, Any], tmp_path: Path, h5py: Any) -> None:
    array = np.random.Generator(np.random.PCG64(0)).normal(size=(50, 7))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("samples", data=array, chunks=(8, 3), **options)
    rows = Rows.of(read(tmp_path / "x.h5").samples, torch.float64)
    assert np.array_equal(rows.take(torch.arange(50)).numpy(), array)


def test_hdf5_with_a_wrong_checksum_names_its_file(tmp_path: Path, h5py: Any) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        data = file.create_dataset("samples", (4, 3), "f8", chunks=(4, 3), fletcher32=True)
        data.id.write_direct_chunk((0, 0), bytes(96) + b"\1\2\3\4")
    rows = Rows.of(read(tmp_path / "x.h5").samples)
    with pytest.raises(ValueError, match=r"x\.h5: rows cannot be read"):
        rows.take(torch.tensor([0]))


def test_arrays_of_other_than_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones((7, 3)))
    content = path.read_bytes()
    path.write_bytes(content.replace(b"(7, 3)", b"(6, 3)"))  # a row less was read, without a word
    refused(path, "expected 272 bytes for shape (6, 3), received 296")
    path.write_bytes(content.replace(b"(7, 3)", b"(-7,-3)")[:-1])
    refused(path, "cannot be read as a NumPy array")


def test_a_sparse_matrix_whose_index_falls_to_zero(tmp_path: Path) -> None:
    """scipy checks such an index no further, and its compiled loops then read beyond it: a crash."""
    matrix = sparse.csr_matrix(np.eye(4))
    content = {"format": b"csr", "shape": (4, 4), "data": matrix.data, "indices": matrix.indices}
    np.savez(tmp_path / "x.npz", **content, indptr=np.array([0, 1, 2, 3, 0], dtype=np.int32))
    refused(tmp_path / "x.npz", "an indptr that never falls")


def test_a_picture_is_what_its_name_says(tmp_path: Path) -> None:
    """Pillow would start another program for these."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 2 2\n%%EOF\n")
    refused(tmp_path, "a.png: cannot identify image file")


# Machines ---------------------------------------------------------------------------------------------------


def machine_file(path: Path, header: Any, tensors: dict[str, torch.Tensor] | None = None) -> Path:
    """A machine file that says what it is told to, with the checksum that belongs to it."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    tensors = tensors or {name: x.clone() for name, x in machine.state_dict().items()}
    if isinstance(header, dict):
        header = {"format": "harmonium", "version": 1, **header}
        header["checksum"] = _storage.checksum(header, tensors)
        header = json.dumps(header)
    path.write_bytes(safetensors_bytes(tensors, {"harmonium": header}))
    return path


def layers(*widths: int) -> list[dict[str, Any]]:
    return [{"kind": "bernoulli", "n_units": width} for width in widths]


@pytest.mark.parametrize("widths", [(40_000, 20_000), (10**18, 2), (10**30, 2)], ids=str)
def test_a_machine_file_that_claims_too_much_costs_nothing(widths: tuple[int, int], tmp_path: Path) -> None:
    path = machine_file(tmp_path / "m", {"layers": layers(*widths)})
    assert path.stat().st_size < 1000
    with growth_below(64 * MEBIBYTE), pytest.raises(ValueError, match=r"m is damaged, "):
        hm.load(path)


def test_a_description_that_claims_too_much_costs_nothing(tmp_path: Path) -> None:
    unfinished_run(tmp_path, {"layers": layers(40_000, 20_000), "metadata": {}})
    with (
        growth_below(64 * MEBIBYTE),
        pytest.raises(ValueError, match=r"checkpoint\.safetensors makes no machine, layers\[0\]: "),
    ):
        load_machine(tmp_path, False, torch.device("cpu"))


def test_parameters_that_repeat_a_few_numbers_are_refused() -> None:
    tensors = {
        "layers.0.bias": torch.zeros(1).expand(40_000),
        "layers.1.bias": torch.zeros(1).expand(20_000),
        "couplings.0.weight": torch.zeros(1).expand(40_000, 20_000),
    }
    with growth_below(64 * MEBIBYTE), pytest.raises(ValueError, match="views of the same numbers"):
        rebuild({"layers": layers(40_000, 20_000)}, tensors)


def unfinished_run(folder: Path, description: dict[str, Any]) -> None:
    """The checkpoint of a run that tells this of its machine."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    hm.train(machine, np.eye(3), rule=hm.rules.cd(1), updates=1, run_dir=folder)
    (folder / "machine.safetensors").unlink()
    path = folder / "checkpoint.safetensors"
    write_checkpoint(path, {**hm.training.read_checkpoint(path), "description": description})


NESTED = "[" * 100_000 + "]" * 100_000
HEADERS = [
    *('{"a": ' * 5000 + "1" + "}" * 5000, "[" * 100_000, NESTED, "9" * 5000, "3", "null", '"x"'),
    *({"layers": 3}, {"layers": {}}, {"layers": [None, None]}, {}, {"layers": layers(3, 2), "metadata": 3}),
    *({"layers": [{"kind": ["spin"]}] * 2}, {"layers": [{"n_units": 3}] * 2}),
    {"layers": [{"kind": "truncated_gaussian", "n_units": 3, "low": 10**400, "high": 1}, *layers(2)]},
    {"layers": [{"kind": "truncated_gaussian", "n_units": 3, "low": {"a": 1}, "high": 1}, *layers(2)]},
    {"layers": [{"kind": "bernoulli", "n_units": 3, "self": 1}, *layers(2)]},
]  # fmt: skip


def test_units_are_compared_with_the_parameters_before_windows_are_laid_out(tmp_path: Path) -> None:
    local = {"layers": [0, 1], "kind": "local", "shape": [3, 1], "window": [1, 1]}
    path = machine_file(tmp_path / "m", {"layers": layers(3, 10_000), "edges": [local]})
    with pytest.raises(ValueError, match=r"layers\[1\]: expected parameters for 10000 units, received 6"):
        hm.load(path)


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: str(header)[:40])
def test_no_header_shows_a_traceback(header: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = machine_file(tmp_path / "m", header)
    with pytest.raises(ValueError, match=r"path: .*m is "):
        hm.load(path)
    assert one_error(capsys, "sample", str(path), "--out", str(tmp_path / "x.npy")) == 2


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int32, torch.complex64])
def test_tensors_that_are_no_parameters(
    dtype: torch.dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    tensors = {name: torch.zeros(x.shape).to(dtype) for name, x in machine.state_dict().items()}
    path = machine_file(tmp_path / "m", {"layers": layers(3, 2)}, tensors)
    with pytest.raises(ValueError, match=rf"m is damaged, .*expected a dense floating tensor, .*{dtype}"):
        hm.load(path)
    assert one_error(capsys, "sample", str(path), "--out", str(tmp_path / "x.npy")) == 2


@pytest.mark.parametrize(
    "metadata",
    [
        *({"encoder": 3}, {"encoder": {"kind": "Standardise", "mean": "x", "scale": 1}}, {"encoder": []}),
        *({"data": 3}, {"data": "mnist"}, {"data": {"image_shape": 3}}, {"data": {"image_shape": ["a"]}}),
        {"data": {"image_shape": [-2, 3]}},
    ],
    ids=str,
)
def test_no_metadata_show_a_traceback(
    metadata: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = machine_file(tmp_path / "m", {"layers": layers(3, 2), "metadata": metadata})
    assert hm.load(path).metadata == metadata
    assert one_error(capsys, "sample", str(path), "--out", str(tmp_path / "x.npy")) == 2


def test_no_description_of_a_run_shows_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unfinished_run(tmp_path, {"layers": [], "metadata": 3})
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors makes no machine"):
        load_machine(tmp_path, False, torch.device("cpu"))
    assert one_error(capsys, "sample", str(tmp_path), "--out", str(tmp_path / "x.npy")) == 2


def test_an_error_is_one_line_whatever_a_file_calls_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "x.npz", **{"a\nb\x1b[2J": np.ones(3), "c": np.ones(3)})
    assert one_error(capsys, "data", str(tmp_path / "x.npz")) == 2


def one_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> int:
    """The exit status of a command that says one printable line of error and nothing else."""
    from harmonium.cli import main

    status = main(list(arguments))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.removesuffix("\n").isprintable()
    return status


def test_metadata_that_could_not_be_read_back_are_not_written(tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    deep: Any = 0
    for _ in range(100_000):
        deep = [deep]
    machine.metadata = {"deep": deep}
    with pytest.raises(ValueError, match="metadata: expected values that can be read back"):
        machine.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_gzip_is_read_to_its_checksum(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"\0\0\x08\x02" + struct.pack(">2I", 2, 2) + b"\1\2\3\4"))
    assert struct.unpack("<I", content[-8:-4])[0] == zlib.crc32(gzip.decompress(content))
    content[-5] ^= 1
    (tmp_path / "x.idx.gz").write_bytes(content)
    refused(tmp_path / "x.idx.gz", "CRC check failed")
