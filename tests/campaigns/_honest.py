"""Honest small files of every kind that harmonium reads, and how each is read."""

from __future__ import annotations

import gzip
import io
import json
import socket
import struct
import tempfile
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import sparse

import harmonium as hm
from harmonium.cli.runs import load_machine
from harmonium.data import Rows, Standardise, read
from harmonium.tables import Codec
from harmonium.tables.codec import naming

from ._exchanged import exchanged_kinds
from ._kind import Files, Kind
from ._tables import table_kinds

RANDOM = np.random.Generator(np.random.PCG64(20))
IMAGES = RANDOM.integers(0, 256, (6, 5, 4), dtype=np.uint8)
POINTS = RANDOM.normal(size=(7, 3))
LABELS = np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)
BITS = (RANDOM.random((8, 3)) < 0.5).astype(np.float32)
UPDATES = 3


def kinds() -> list[Kind]:
    """All kinds; made anew, which takes about a second."""
    return [*_data_kinds(), *table_kinds(), *machine_kinds(), *exchanged_kinds()]


def idx(array: Any) -> bytes:
    """An array of bytes in the IDX format."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def written(write: Callable[[Any], Any]) -> bytes:
    """What a function writes to a file object."""
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def _data_kinds() -> list[Kind]:
    def kind(name: str, target: str, contents: list[bytes], beside: Files | None = None, **more: Any) -> Kind:
        folder = beside or {}
        return Kind(name, target, [{**folder, target: x} for x in contents], _read, _describe, **more)

    arrays = [POINTS, IMAGES, np.asfortranarray(POINTS.astype("f4")), IMAGES[0] > 9]
    saved = [written(lambda file, x=x: np.save(file, x)) for x in arrays]
    packed = [
        written(lambda file, save=save: save(file, samples=IMAGES, labels=LABELS))
        for save in (np.savez, np.savez_compressed)
    ]
    matrix = sparse.coo_array(IMAGES[:2].reshape(8, 5) % 3)
    forms = [
        written(lambda file, form=form: sparse.save_npz(file, matrix.asformat(form)))
        for form in ("csr", "csc", "coo", "bsr", "dia")
    ]
    table = "a,b,label\n" + "".join(f"{x:.6g},{y:.6g},{i % 3}\n" for i, (x, y, _) in enumerate(POINTS))
    image = Image.fromarray(IMAGES[0])
    folders = []
    for end in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"):
        data = written(lambda file, end=end: image.save(file, end.upper()))
        name, files = f"b.{end}", {f"a.{end}": data, f"b.{end}": data}
        folders.append(Kind(f"image {name}", name, [files], _read_folder, _describe_folder, share=1))
    pair = {"images.idx": idx(IMAGES), "labels.idx": idx(LABELS)}
    labels = gzip.compress(idx(LABELS))
    return [
        kind("npy", "x.npy", saved, share=8),
        kind("npz", "x.npz", packed, share=10),
        kind("sparse", "x.npz", forms, share=8),
        kind("csv", "x.csv", [table.encode(), table.partition("\n")[2].encode()], share=8),
        kind("idx", "images.idx", [idx(IMAGES)], {"labels.idx.gz": labels}, share=6),
        Kind("idx labels", "labels.idx", [pair], _read_images, _describe_images, share=2),
        kind("idx.gz", "x.idx.gz", [gzip.compress(idx(IMAGES))], sealed=True, share=8),
        kind("hdf5", "x.h5", _hdf5(), share=10),
        *folders,
    ]


def _hdf5() -> list[bytes]:
    try:
        import h5py
    except ImportError:
        return [b""]
    contents = []
    for version in ("earliest", "latest"):
        for options in ({}, {"chunks": (2, 3), "compression": "gzip", "fletcher32": True}):
            buffer = io.BytesIO()
            with h5py.File(buffer, "w", libver=version) as file:
                file.create_dataset("samples", data=POINTS[:6], **options)
                file["labels"] = LABELS
            contents.append(buffer.getvalue())
    return contents


def _machines() -> list[hm.BoltzmannMachine]:
    layers = hm.layers
    machines = [
        hm.BoltzmannMachine([layers.Bernoulli(3), layers.Spin(2)]),
        hm.BoltzmannMachine([layers.Gaussian(3, 0.1), layers.Categorical(2, 3), layers.Spin(2)]),
        hm.BoltzmannMachine([layers.TruncatedGaussian(3, [0, 1, 2], 4), layers.Gaussian(2)]),
        hm.BoltzmannMachine([layers.Gaussian(2), layers.TruncatedGaussBernoulli(2, -1.0, 1.0)]),
        hm.BoltzmannMachine([layers.Binomial(3, 4), layers.ReLU(2), layers.Spin(1), layers.DoubleReLU(1)]),
        hm.BoltzmannMachine(
            [layers.Spin(4), layers.Categorical(1, 3), layers.Bernoulli(4)],
            edges={(0, 0): hm.Masked(np.eye(4, k=1)), (0, 2): hm.Local((2, 2), 1), (1, 2): hm.Dense()},
            visible=[1, 0],
        ),
    ]
    machines[0].metadata = {
        "encoder": Standardise(0.0, 255.0).to_dict(),
        "data": {"source": "x.npy", "image_shape": [3, 1]},
    }
    machines[1].metadata = {"encoder": Standardise((0.0, 1.0, 2.0), (1.0, 1.0, 0.5)).to_dict()}
    return machines


def machine_kinds() -> list[Kind]:
    """Machines, and folders of runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        saved = []
        for i, machine in enumerate(_machines()):
            machine.save(folder / f"{i}")
            saved.append((folder / f"{i}").read_bytes())
        run_dir = folder / "run"
        _trained(run_dir, UPDATES, resume=False)
        run = {path.name: path.read_bytes() for path in sorted(run_dir.iterdir()) if path.is_file()}
        dead = {"process": 1 << 22, "host": socket.gethostname()}
        run["lock.json"] = json.dumps(dead).encode()
    unfinished = {name: run[name] for name in ("checkpoint.safetensors",)}
    alone = {name: content for name, content in run.items() if name != "checkpoint-previous.safetensors"}

    def resumed(target: str, **more: Any) -> Kind:
        return Kind(
            f"resume {target}", target, [run, alone], _resume, _sample_folder, False, writes=True, **more
        )

    def opened(target: str, **more: Any) -> Kind:
        return Kind(f"run {target}", target, [unfinished], _open, _sample_folder, False, **more)

    machines = [{"m.safetensors": content} for content in saved]
    return [
        Kind("machine", "m.safetensors", machines, _load, _sample, sealed=True, share=20),
        opened("checkpoint.safetensors", sealed=True, share=8),
        resumed("checkpoint.safetensors", sealed=True, share=4),
        resumed("history.jsonl", share=3),
        resumed("run.toml", share=1),
        resumed("lock.json", share=1),
    ]


def _trained(run_dir: Path, updates: int, *, resume: bool) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.layers.Bernoulli(3), hm.layers.Bernoulli(2)])
    machine.metadata = {"encoder": {"kind": "Identity"}}
    hm.train(
        machine, BITS, rule=hm.rules.pcd(1, chains=4), updates=updates, batch_size=4, averaging=0.9,
        optimizer="adam", learning_rate=0.01, record_every=1, checkpoint_every=2, run_dir=run_dir,
        resume=resume, progress=False,
    )  # fmt: skip
    return machine


# What reads them --------------------------------------------------------------------------------------------


def _read(path: Path) -> Any:
    found = read(path)
    if found.samples.dtype.kind == "O":  # a number became text or a missing cell, which makes a table
        with naming(found):
            return [cells.values.tolist() for cells in found.frame().columns]
    rows = Rows.of(found.samples, dtype=torch.float64)
    sums = [float(chunk.sum()) for chunk in rows.chunks(max(1, (1 << 20) // rows.width))]
    close = getattr(getattr(found.samples, "file", None), "close", None)
    if close:
        close()
    return sums, None if found.labels is None else found.labels.tolist(), found.samples.shape


def _read_folder(path: Path) -> Any:
    return _read(path.parent)


def _read_images(path: Path) -> Any:
    return _read(path.with_name("images.idx"))


def _load(path: Path) -> Any:
    machine = hm.load(path)
    return _content(machine)


def _open(path: Path) -> Any:
    with redirect_stderr(io.StringIO()):
        machine, _ = load_machine(path.parent, False, torch.device("cpu"))
    assert Codec.of(machine).source is None or Codec.of(machine).image_shape is not None
    machine.metadata = {"encoder": {"kind": "Identity"}}
    return _content(machine)


def _resume(path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _content(_trained(path.parent, UPDATES + 1, resume=True))


def _content(machine: hm.BoltzmannMachine) -> Any:
    layers = [str(layer) for layer in machine.layers]
    return layers, {name: (x.dtype, x.tolist()) for name, x in machine.state_dict().items()}


def _describe(path: Path) -> list[str]:
    return ["data", str(path)]


def _describe_folder(path: Path) -> list[str]:
    return _describe(path.parent)


def _describe_images(path: Path) -> list[str]:
    return _describe(path.with_name("images.idx"))


def _sample(path: Path) -> list[str]:
    out = path.with_name("drawn.npy")
    return ["sample", str(path), "--out", str(out), "--overwrite", "--rows", "2", "--sweeps", "1"]


def _sample_folder(path: Path) -> list[str]:
    return _sample(path.parent)
