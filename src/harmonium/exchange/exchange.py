"""Formats of other programs: what they have in common, and the choice between them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from harmonium import _checks
from harmonium._storage import check_free, replace_file
from harmonium.layers import Bernoulli, Layer
from harmonium.machine import BoltzmannMachine, refuse_infinite


class Exchanged(NamedTuple):
    """A machine of another program.

    Attributes:
        machine: Machine whose ``metadata["origin"]`` has what the file says of its origin.
        chains: its persistent chains, (chains, visible_width), as visible states; None: the file has none.
        form: the name of the format.
    """

    machine: BoltzmannMachine
    chains: Tensor | None
    form: str


class Format(ABC):
    """A format of files. Another one is a subclass in a file of its own that this package imports.

    Attributes:
        form: its name, for ``read`` and ``write``.
        suffix: Suffix that files usually have.
        program: The files in words, by the program that writes them.
        ages: whether a file may have a machine at several ages.
        observes: whether a file of evidence may go with a file.
        whole: whether a file has a place for a machine's constant, and takes care of forbidden states.
    """

    form: ClassVar[str]
    suffix: ClassVar[str]
    program: ClassVar[str]
    ages: ClassVar[bool] = False
    observes: ClassVar[bool] = False
    whole: ClassVar[bool] = False
    registry: ClassVar[dict[str, type[Format]]] = {}
    """Every format by its name."""

    def __init_subclass__(cls) -> None:
        Format.registry[cls.form] = cls

    @classmethod
    @abstractmethod
    def recognises(cls, path: Path) -> bool:
        """Returns whether a file is of this format, by its beginning."""

    @classmethod
    @abstractmethod
    def read(cls, path: Path, update: int | None, evidence: Path | None) -> Exchanged:
        """Reads a file; ValueError: damaged, or a machine that harmonium has not.

        Args:
            path: Path of the file.
            update: age of the machine; None: the last. Read where a file has ``ages``.
            evidence: file of observed variables, or None. Read where a format ``observes``.
        """

    @classmethod
    def pack(cls, machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
        """Returns a file's contents.

        Args:
            machine: Machine to write.
            chains: visible states, (chains, visible_width), or None.

        Raises:
            ValueError: a machine that the format has no place for.
        """
        raise ValueError(
            f"form: expected one of {', '.join(writable())}, received {cls.form!r}, which is only read"
        )


def make_rbm(visible: Layer, W: Tensor, a: Tensor, b: Tensor, origin: dict[str, Any]) -> BoltzmannMachine:
    """Returns an RBM of Bernoulli hidden units by couplings W, visible biases a and hidden biases b."""
    machine = BoltzmannMachine([visible, Bernoulli(len(b))], seed=None).to(W.dtype)
    machine.couplings[0].fill_(W.reshape(visible.width, len(b)))
    for layer, bias in zip(machine.layers, (a, b), strict=True):
        layer.set_finite_(bias=bias)
    machine.metadata["origin"] = origin
    return machine


def is_rbm(machine: BoltzmannMachine) -> bool:
    """Returns whether a machine is a visible layer joined to a layer of Bernoulli hidden units."""
    pair = len(machine.layers) == 2 and machine.edges == ((0, 1),) and machine.visible == (0,)
    return pair and machine.layers[1].two_values == (0.0, 1.0)


def misfit(machine: BoltzmannMachine, expected: str) -> ValueError:
    """Returns the error for a machine that another program has no place for."""
    return ValueError(f"machine: expected {expected}, received {', '.join(map(str, machine.layers))}")


def writable() -> list[str]:
    """Returns the names of the formats that are written."""
    return [name for name, kind in Format.registry.items() if "pack" in vars(kind)]


def form_by_suffix(path: Path) -> str:
    """Returns the format that is written to a file of this name; ValueError: none is."""
    known = {Format.registry[name].suffix: name for name in writable()}
    if path.suffix not in known:
        raise ValueError(f"path: expected a name that ends in {', '.join(known)}, or a form, received {path}")
    return known[path.suffix]


def read(
    path: str | Path, *, form: str = "auto", update: int | None = None, evidence: str | Path | None = None
) -> Exchanged:
    """Reads a machine of another program.

    Args:
        path: the file.
        form: "rbms" (HDF5, versions 0.5 and 0.6 and older files; Bernoulli and Potts), "rbm.jl" (HDF5 of
            RestrictedBoltzmannMachines.jl: plain, centred and standardised), "adabmdca" (its text), "plmc"
            (its binary parameters), "uai" (Markov and Bayesian networks of pairs), "qubo" (of qbsolv), "gset"
            (graphs whose largest cut is asked for), "text" (of ``write``); "auto": by what the file holds.
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
    _checks.one_of(form, "form", ("auto", *Format.registry))
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a file of another program, found none at {path}")
    try:
        chosen = _recognise(path) if form == "auto" else Format.registry[form]
        if update is not None and not chosen.ages:
            raise ValueError(f"update: expected None, as the file has one machine, received {update}")
        if evidence is not None and not chosen.observes:
            raise ValueError(f"evidence: expected beside a file of UAI, received beside one of {chosen.form}")
        with torch.no_grad():
            found = chosen.read(path, update, None if evidence is None else Path(evidence))
        refuse_infinite(found.machine, forbidden=chosen.whole)
        return found
    except ValueError as error:
        raise ValueError(f"path: {path}: {error}") from error
    except ImportError:
        raise
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"path: {path}: damaged, or no file of {form} ({error})") from error


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
            units alone, "uai" units with two values or categories, "qubo" units with two values, "gset" spins
            without biases, "text" any. What has no place for a constant of the energy or for
            forbidden states (-inf) refuses them.
        path: Path of the file.
        form: "rbms", "rbm.jl", "adabmdca", "uai", "qubo", "gset", "text"; "auto": by the suffix: .h5
            rbms, .hdf5 rbm.jl, .dat adabmdca, .uai, .qubo, .gset, .txt.
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
    _checks.one_of(form, "form", ("auto", *writable()))
    form = form_by_suffix(path) if form == "auto" else form
    check_free(path, overwrite)
    if chains is not None:
        chains = _checks.tensor(chains, "chains", machine.dtype, machine.device)
        machine.check_rows(chains, "chains")
    chosen = Format.registry[form]
    if machine.constant and not chosen.whole:
        raise ValueError(
            f"machine: expected no constant of the energy for {chosen.program}, which have no place for it, "
            f"received {machine.constant:g}; machine.constant = 0 changes no probability"
        )
    with torch.no_grad():
        if not chosen.whole:
            refuse_infinite(machine, forbidden=False)
        contents = chosen.pack(machine, chains)
    replace_file(path, contents)


def recognised(path: Path) -> type[Format] | None:
    """Returns the format of a file by its beginning; None where it is of no other program."""
    return next((kind for kind in Format.registry.values() if kind.recognises(path)), None)


def _recognise(path: Path) -> type[Format]:
    if chosen := recognised(path):
        return chosen
    known = "; ".join(f"{name} ({kind.program})" for name, kind in Format.registry.items())
    raise ValueError(f"expected a file of a known format, {known}; harmonium.load reads harmonium's own")
