"""Formats of other programs, and helpers that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from harmonium.layers import Bernoulli, Layer
from harmonium.machine import BoltzmannMachine


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


class Format(NamedTuple):
    """A format of files. Another one is a file of its own, and a row of the table in ``exchange``.

    Attributes:
        form: its name, for ``read`` and ``write``.
        suffix: Suffix that files usually have.
        program: The files in words, by the program that writes them.
        recognises: whether a file is of this format, by its beginning.
        read: Reads a file; with ``ages`` at an age in updates (None: the last), and with ``observes`` beside
            a file of evidence, or None. ValueError: damaged, or a machine that harmonium has not.
        write: Returns a file's contents, of a machine and its chains, or None; None: the format is only read.
            ValueError: a machine that the format has no place for.
        ages: whether a file may have a machine at several ages.
        observes: whether a file of evidence may go with a file.
        whole: whether a file has a place for a machine's constant, and takes care of forbidden states.
    """

    form: str
    suffix: str
    program: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Exchanged]
    write: Callable[[BoltzmannMachine, Tensor | None], bytes] | None = None
    ages: bool = False
    observes: bool = False
    whole: bool = False


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
