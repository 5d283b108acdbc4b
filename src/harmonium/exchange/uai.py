"""Text files of the UAI inference competitions: Markov and Bayesian networks of variables with a few values.

A file is ``MARKOV`` or ``BAYES``, the number of variables, their numbers of values, the number of factors, a
scope for each, and a table for each, the last variable fastest: the product of the tables is exp(-E). Of a
Bayesian network they are conditional probabilities. A file of evidence has the number of observed variables,
and each with its value.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import exp, inf, isfinite, prod
from pathlib import Path

import numpy as np
from torch import Tensor

from harmonium._size_limit import check_claim
from harmonium.exchange._format import Exchanged, Format, begins_with, finite
from harmonium.exchange._pairwise import Array, Pairwise, of_machine, to_machine
from harmonium.machine import BoltzmannMachine

_LARGEST = 700.0  # exp of it, and of its negative, are in the range of a double


def _read(path: Path, evidence: Path | None = None) -> Exchanged:
    words = _Words(path)
    if words.take("MARKOV or BAYES") not in ("MARKOV", "BAYES"):
        raise ValueError(f"line {words.line}: expected MARKOV or BAYES")
    variables = words.count("the number of variables", 1)
    values = [words.count(f"the values of variable {i}", 2) for i in range(variables)]
    size = path.stat().st_size
    width = sum(values)
    check_claim(8 * width, size, f"values of {variables} variables")  # couplings are as many as its numbers
    seen = {} if evidence is None else _read_evidence(evidence, values)
    free = {i: k for k, i in enumerate(i for i in range(variables) if i not in seen)}
    scopes = [_read_scope(words, f, values, seen) for f in range(words.count("the number of factors", 0))]
    fields = [np.zeros(values[i]) for i in free]
    tables = dict[tuple[int, int], Array]()
    constant = 0.0
    for f, scope in enumerate(scopes):
        table = _read_table(words, f, [values[i] for i in scope])
        table = table[tuple(seen.get(i, slice(None)) for i in scope)]
        left = [free[i] for i in scope if i in free]
        if not left:
            constant += float(table)
        elif len(left) == 1:
            fields[left[0]] += table
        else:
            i, j = left
            pair = (min(i, j), max(i, j))
            tables.setdefault(pair, np.zeros([len(fields[i]) for i in pair]))[...] += (
                table if i < j else table.T
            )
    words.end()
    if not free or not isfinite(constant):
        raise ValueError(
            "expected variables that are not observed, and a weight above 0 of those that are, received "
            f"{exp(constant):g} and evidence for {len(seen)} of {variables} variables"
        )
    machine = to_machine(Pairwise(fields, tables, constant), range(variables), seen)
    machine.metadata["origin"] = {"form": "uai"}
    return Exchanged(machine, None, "uai")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    model = of_machine(machine, "UAI files")
    scopes = [(i,) for i in range(len(model.fields))] + list(model.tables)
    share = model.constant / len(model.fields)  # in all fields alike, which keeps exp of it in range
    tables = [*(field + share for field in model.fields), *model.tables.values()]
    lines = ["MARKOV", str(len(model.fields)), " ".join(str(len(field)) for field in model.fields)]
    lines += [str(len(scopes)), *(" ".join(map(str, (len(scope), *scope))) for scope in scopes)]
    for scope, table in zip(scopes, tables, strict=True):
        largest = float(np.abs(table[table > -inf]).max(initial=0.0))
        if not largest <= _LARGEST:
            units = ", ".join(map(str, scope))
            raise ValueError(
                f"machine: expected log-weights within ±{_LARGEST:g}, as UAI files have their "
                f"exponentials, received {largest:g} for unit{'s' * (len(scope) > 1)} {units}"
            )
        lines += ["", str(table.size), " ".join(f"{exp(x):.17g}" for x in table.flatten().tolist())]
    return ("\n".join(lines) + "\n").encode()


class _Words:
    """The words of a text file, one after the other, with the line of the last one."""

    def __init__(self, path: Path) -> None:
        self.line = 0
        self._words = self._read(path)

    def _read(self, path: Path) -> Iterator[str]:
        with path.open(encoding="ascii", errors="replace") as file:
            for self.line, text in enumerate(file, 1):
                yield from text.split()

    def take(self, what: str) -> str:
        """Returns the next word; ValueError: the file ends."""
        word = next(self._words, None)
        if word is None:
            raise ValueError(f"expected {what} after line {self.line}, where the file ends; it is cut off")
        return word

    def count(self, what: str, least: int) -> int:
        """Returns a whole number of at least so much."""
        word = self.take(what)
        if not word.isdecimal() or len(word) > 9 or int(word) < least:
            raise ValueError(f"line {self.line}: expected {what}, at least {least}, received {word[:30]!r}")
        return int(word)

    def end(self) -> None:
        """Refuses words that follow."""
        word = next(self._words, None)
        if word is not None:
            raise ValueError(f"line {self.line}: expected the end of the file, received {word[:30]!r}")


def _read_evidence(path: Path, values: list[int]) -> dict[int, int]:
    """Returns the values of observed variables; older files have the number of samples, 1, before them."""
    try:
        words = list(map(int, path.read_text("ascii").split()))
    except (OSError, ValueError) as error:
        raise ValueError(f"evidence: expected a file of whole numbers, received {path} ({error})") from error
    if len(words) > 1 and words[0] == 1 and len(words) == 2 + 2 * words[1]:
        words = words[1:]
    seen = dict(zip(words[1::2], words[2::2], strict=False))
    fits = all(0 <= i < len(values) and 0 <= x < values[i] for i, x in seen.items())
    if not words or len(words) != 1 + 2 * words[0] or len(seen) != words[0] or not fits:
        raise ValueError(
            f"evidence: expected the number of observed variables, and each with its value, in {path}: "
            f"different ones below {len(values)}, with values that the network has; received {words[:9]}"
        )
    return seen


def _read_scope(words: _Words, factor: int, values: list[int], seen: Container[int]) -> list[int]:
    scope = [
        words.count(f"variable {k + 1} of factor {factor}", 0)
        for k in range(words.count(f"the number of variables of factor {factor}", 0))
    ]
    if len({*scope}) < len(scope) or any(i >= len(values) for i in scope):
        raise ValueError(
            f"line {words.line}: expected different variables below {len(values)} for factor {factor}, "
            f"received {scope[:9]}"
        )
    if sum(i not in seen for i in scope) > 2:
        raise ValueError(
            f"line {words.line}: expected at most two variables for factor {factor}, as a machine joins "
            f"pairs, received {scope[:9]}; make one variable of two, with all pairs of their values, or "
            "observe one (evidence)"
        )
    return scope


def _read_table(words: _Words, factor: int, shape: list[int]) -> Array:
    """Returns the logarithms of a table."""
    size = words.count(f"the size of the table of factor {factor}", 1)
    if size != prod(shape):
        raise ValueError(
            f"line {words.line}: expected {prod(shape)} entries for factor {factor}, received {size}"
        )
    entries = list[float]()
    for k in range(size):
        word = words.take(f"entry {k} of factor {factor}")
        try:
            if (value := finite(word)) < 0:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"line {words.line}: expected a finite number of at least 0, whose logarithm is an energy, "
                f"for entry {k} of factor {factor}, received {word[:30]!r}"
            ) from None
        entries.append(value)
    with np.errstate(divide="ignore"):  # 0 forbids
        return np.asarray(np.log(entries).reshape(shape))


_recognises = begins_with(rb"\s*(MARKOV|BAYES)\s")
UAI = Format("uai", ".uai", "networks of the UAI competitions", _recognises, _read, _write, "evidence", True)
"""Networks of UAI files whose factors have at most two variables that are not observed."""
