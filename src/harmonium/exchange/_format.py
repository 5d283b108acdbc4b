"""Formats of other programs, and helpers that several of them share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from harmonium.layers import Bernoulli, Layer
from harmonium.machine import BoltzmannMachine

Row = TypeVar("Row")


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
        read: Reads a file, with ``option`` by its name where it is not None. ValueError: damaged, or a
            machine that harmonium has not.
        write: Returns a file's contents, of a machine and its chains, or None; None: the format is only read.
            ValueError: a machine that the format has no place for.
        option: name of the argument of ``exchange.read`` that the format takes; "": none.
        whole: whether a file has a place for a machine's constant, and takes care of forbidden states.
    """

    form: str
    suffix: str
    program: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Exchanged]
    write: Callable[[BoltzmannMachine, Tensor | None], bytes] | None = None
    option: str = ""
    whole: bool = False


def begins_with(pattern: bytes) -> Callable[[Path], bool]:
    """Returns a function that tests the first 4096 bytes of a file."""

    def matches(path: Path) -> bool:
        with path.open("rb") as file:
            return re.match(pattern, file.read(4096)) is not None

    return matches


def parse_lines(
    lines: Iterable[tuple[int, str]], parse: Callable[[list[str]], Row], expected: str
) -> list[Row]:
    """Parses the words of every line that has any.

    Args:
        lines: Numbers and texts of the lines.
        parse: Returns the value of a line; ValueError or TypeError: it has none.
        expected: The content of a line, for messages.
    """
    rows = []
    for number, line in lines:
        try:
            if words := line.split():
                rows.append(parse(words))
        except (TypeError, ValueError):
            message = f"line {number}: expected {expected}, received {line.strip()[:60]!r}"
            raise ValueError(message) from None
    return rows


def finite(word: str) -> float:
    """Returns a finite number; ValueError: the word is none."""
    value = float(word)
    if not isfinite(value):
        raise ValueError(f"expected a finite number, received {word}")
    return value


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
