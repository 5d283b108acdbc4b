"""Files of other programs, read and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from harmonium import _checks
from harmonium._storage import check_free, replace_file
from harmonium.exchange._format import Exchanged, Format
from harmonium.exchange.adabm_dca import ADABMDCA
from harmonium.exchange.plmc import PLMC
from harmonium.exchange.rbm_jl import RBM_JL
from harmonium.exchange.rbms import RBMS
from harmonium.exchange.text import TEXT
from harmonium.exchange.uai import UAI
from harmonium.machine import BoltzmannMachine, refuse_infinite

FORMATS = {x.form: x for x in (ADABMDCA, PLMC, RBM_JL, RBMS, TEXT, UAI)}
"""Every format by its name, in the order in which files are looked at."""
SUFFIXES = {x.suffix: x for x in FORMATS.values() if x.write}
"""The formats that are written, by the suffixes of their files."""


def read(
    path: str | Path, *, form: str = "auto", update: int | None = None, evidence: str | Path | None = None
) -> Exchanged:
    """Reads a machine of another program.

    Args:
        path: the file.
        form: "rbms" (HDF5, versions 0.5 and 0.6 and older files; Bernoulli and Potts), "rbm.jl" (HDF5 of
            RestrictedBoltzmannMachines.jl: plain, centred and standardised), "adabmdca" (its text), "plmc"
            (its binary parameters), "uai" (Markov and Bayesian networks of pairs), "text" (of
            ``write``); "auto": by what the file holds.
        update: age of the machine, in updates, where a file of rbms has several; None: the last.
        evidence: file of observed variables beside one of UAI: the machine is that of the others given these,
            and its Z is that of the file with these at their values.

    Raises:
        FileNotFoundError: no such file.
        ImportError: HDF5 without h5py.
        ValueError: of another format, damaged, or a machine that harmonium has not; the message names the
            file and what is wrong.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> with TemporaryDirectory() as folder:
        ...     hm.exchange.write(machine, f"{folder}/machine.txt")
        ...     hm.exchange.read(f"{folder}/machine.txt").machine.layers[0]
        Bernoulli(3)
    """
    path = Path(path)
    _checks.one_of(form, "form", ("auto", *FORMATS))
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a file of another program, found none at {path}")
    try:
        chosen = recognised(path) if form == "auto" else FORMATS[form]
        if chosen is None:
            known = "; ".join(f"{name} ({kind.program})" for name, kind in FORMATS.items())
            raise ValueError(
                f"expected a file of a known format, {known}; harmonium.load reads harmonium's own"
            )
        options = {"update": update, "evidence": None if evidence is None else Path(evidence)}
        options = {name: value for name, value in options.items() if value is not None}
        for name in (name for name in options if name != chosen.option):
            takers = ", ".join(kind.form for kind in FORMATS.values() if kind.option == name)
            raise ValueError(f"{name}: expected beside a file of {takers}, received beside {chosen.form}")
        with torch.no_grad():
            exchanged = chosen.read(path, **options)
        refuse_infinite(exchanged.machine, forbidden=chosen.whole)
        return exchanged
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from error
    except ImportError:
        raise
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"path: {path}: damaged, or of another format ({error})") from error


def write(
    machine: BoltzmannMachine,
    path: str | Path,
    *,
    form: str = "auto",
    chains: Any = None,
    overwrite: bool = False,
) -> None:
    """Writes a machine for another program.

    Args:
        machine: Machine that the format has a place for: "rbms" RBMs of Bernoulli hidden units beside
            Bernoulli or categorical visible ones, "rbm.jl" RBMs of its units, "adabmdca" categorical visible
            units alone, "uai" units with two values or categories, "text" any. What has no
            place for a constant of the energy or for forbidden states (-inf) refuses them.
        path: Path of the file.
        form: "rbms", "rbm.jl", "adabmdca", "uai", "text"; "auto": by the suffix: .h5 rbms, .hdf5
            rbm.jl, .dat adabmdca, .uai, .txt.
        chains: visible states to go with it, (chains, visible_width); only "rbms" keeps them.
        overwrite: whether to replace a file that is there.

    Raises:
        FileExistsError: there is a file, and no ``overwrite``.
        ImportError: HDF5 without h5py.
        ValueError: no such format, or one that has no place for the machine.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> with TemporaryDirectory() as folder:
        ...     hm.exchange.write(machine, f"{folder}/machine.txt")
    """
    path = Path(path)
    _checks.one_of(form, "form", ("auto", *(kind.form for kind in SUFFIXES.values())))
    if form == "auto" and path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"path: expected a name that ends in {', '.join(SUFFIXES)}, or a form, received {path}"
        )
    chosen = SUFFIXES[path.suffix.lower()] if form == "auto" else FORMATS[form]
    check_free(path, overwrite)
    if chains is not None:
        chains = _checks.tensor(chains, "chains", machine.dtype, machine.device)
        machine.check_rows(chains, "chains")
    if machine.constant and not chosen.whole:
        raise ValueError(
            f"machine: expected no constant of the energy for {chosen.program}, which have no place for it, "
            f"received {machine.constant:g}; machine.constant = 0 changes no probability"
        )
    with torch.no_grad():
        if not chosen.whole:
            refuse_infinite(machine, forbidden=False)
        assert chosen.write is not None
        contents = chosen.write(machine, chains)
    replace_file(path, contents)


def recognised(path: Path) -> Format | None:
    """Returns the format of a file by its beginning; None where it is of no other program."""
    return next((kind for kind in FORMATS.values() if kind.recognises(path)), None)
