"""Honest files of sequences and of other programs' machines, ways to damage them, and files made to harm."""

from __future__ import annotations

import gzip
import io
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import harmonium as hm
from harmonium.sequences import read_alignment

from ._damage import WORDS, Edit, gzip_edit, unfolding
from ._kind import Kind

FASTA = b">one\nACDE-F\nGH\n>two\nAC-EKF\nGX\n\n>three\nKKDEAF\nGH\n"
STOCKHOLM = b"""# STOCKHOLM 1.0
#=GF ID three
#=GS one OS human
one AC.DE-
two ACgE-F
#=GR two SS HHHHHH
#=GC RF xx.xxx

one FGH
two AGX
#=GR two SS HHH
#=GC RF xxx
//
"""
MEGABYTES = 1024


def exchanged_kinds() -> list[Kind]:
    """All kinds; those of HDF5 are left out without h5py."""

    def sequences(name: str, contents: list[bytes], **more: Any) -> Kind:
        return Kind(name, name, [{name: x} for x in contents], _read_sequences, _describe, **more)

    lines = b"".join(part.replace(b"\n", b"") + b"\n" for part in re.split(rb">\w+\n", FASTA)[1:])
    found = [
        sequences("x.fasta", [FASTA], share=6),
        sequences("x.txt", [lines], share=2),
        sequences("x.fasta.gz", [gzip.compress(FASTA)], sealed=True, share=4),
        *(_machine(f"exchanged{end}", _written(end)) for end in (".dat", ".txt")),
    ]
    found.append(sequences("x.sto", [STOCKHOLM], share=4))
    if find_spec("h5py"):
        found.append(_machine("exchanged.h5", [*_written(".h5"), _julia()]))
    return found


def words_edit(random: Random, content: bytes) -> bytes:
    """A text with other words in some places."""
    cells = re.split(rb"(\s)", content)
    for _ in range(random.randint(1, 3)):
        i = random.randrange(len(cells))
        cells[i] = random.choice((*WORDS, b">", b"", cells[random.randrange(len(cells))], b"1e999", b"nan"))
    return b"".join(cells)


def hostile_exchanged(name: str) -> list[bytes]:
    """Files of a kind that ask for more memory than they could fill."""
    if name == "x.fasta.gz":
        packed, checksum, size = unfolding(b">one\nACDEFG\n", MEGABYTES)
        tail = checksum.to_bytes(4, "little") + (size % (1 << 32)).to_bytes(4, "little")
        bombs = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + packed + tail]
        return [*bombs, *(gzip.compress(line * (20 << 20)) for line in (b"A\n", b">\n", b"\n"))]
    if name == "x.sto":
        return [b"# STOCKHOLM 1.0\n" + b"".join(b"%x A\n" % i for i in range(1 << 20)) + b"//\n"]
    if name == "exchanged.dat":
        return [b"".join(b"h %d %c 0.5\n" % (i, a) for i in range(40_000) for a in b"AC")]
    if name == "exchanged.txt":
        config = b'{"layers": [{"kind": "bernoulli", "n_units": 1000000000}, {"kind": "spin", "n_units": 9}]}'
        return [b"# harmonium machine " + config + b"\n"]
    return []


EXCHANGED_EDITS: dict[str, Edit] = {
    "x.fasta": words_edit,
    "x.txt": words_edit,
    "x.sto": words_edit,
    "x.fasta.gz": gzip_edit,
    "exchanged.dat": words_edit,
    "exchanged.txt": words_edit,
}


def _machine(name: str, contents: list[bytes]) -> Kind:
    return Kind(name, name, [{name: x} for x in contents], _read_machine, _convert, share=4)


def _written(end: str) -> list[bytes]:
    """A Potts machine for adabmDCA, else an RBM, in the format of a suffix."""
    edges = {(0, 0): hm.Dense()}
    machine = hm.BoltzmannMachine([hm.Categorical(3, 5), hm.Bernoulli(2)], seed=0)
    if end == ".dat":
        machine = hm.BoltzmannMachine([hm.Categorical(3, 5)], edges, [0], seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"x{end}")
        hm.exchange.write(machine, path)
        return [path.read_bytes()]


def _julia() -> bytes:
    """A machine of RestrictedBoltzmannMachines.jl: HDF5 has its axes reversed."""
    import h5py

    buffer, values = io.BytesIO(), np.arange(6.0).reshape(2, 3) / 10
    with h5py.File(buffer, "w") as file:
        file["rbm_hdf5_file_format_version"], file["rbm_type"] = "1.0.0", "RBM"
        file["weights"] = values
        for side, size in (("visible", 3), ("hidden", 2)):
            file[f"{side}_type"], file[f"{side}_par"] = "Binary", np.zeros((size, 1))
    return buffer.getvalue()


def _read_sequences(path: Path) -> Any:
    found = read_alignment(path)
    return found.codes.tolist(), found.names, found.alphabet


def _read_machine(path: Path) -> Any:
    found = hm.exchange.read(path)
    chains = None if found.chains is None else found.chains.tolist()
    return {name: x.tolist() for name, x in found.machine.state_dict().items()}, chains


def _describe(path: Path) -> list[str]:
    return ["data", str(path), "--reweight", "0.8"]


def _convert(path: Path) -> list[str]:
    return ["convert", str(path), str(path.with_name("machine.safetensors")), "--overwrite"]
