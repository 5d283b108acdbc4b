"""Numbers in files of their own beside the data: weights of rows, and distances of sites."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._storage import check_free, replace_file
from harmonium.data._read_arrays import read_npy
from harmonium.data._text_files import open_text
from harmonium.data.dataset import DataSet
from harmonium.data.toy_family import FAMILY, family_distances

_WEIGHTS = ("weight", "weights")
_SEPARATORS = re.compile(r"\s*[,;]\s*|\s+")


def weighted(dataset: DataSet, path: Path | None, threshold: float | None) -> DataSet:
    """Returns data with the weights of a file, where there is one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: weights that do not fit the data, or both a file and a threshold.
    """
    if path is None:
        return dataset
    if threshold is not None:
        raise ValueError(f"weights: expected none beside reweight, received {path} and {threshold:g}")
    return replace(dataset, weights=read_weights(path, len(dataset.samples)).numpy())


def read_weights(path: str | Path, rows: int) -> Tensor:
    """Reads weights of rows, one for each in their order.

    Text with a number a line, as plmc, bmDCA, adabmDCA and EVcouplings write it; a table with a column headed
    ``weight``; or a NumPy array in ``.npy``, as the pipelines of EVE and ProteinGym keep it. A weight of 0
    leaves a row out, as plmc does with sequences that it passes over.

    Args:
        path: Path of the file.
        rows: Number of rows of the data.

    Returns:
        (rows,) float64.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another number of weights, or one that is negative or not finite; the message names the
            file and the line.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     hm.data.write_weights(f"{folder}/weights.txt", [0.5, 0.5, 1.0])
        ...     hm.data.read_weights(f"{folder}/weights.txt", 3)
        tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    path = Path(path)
    values, names = _numbers_of(path, "weights")
    if values.ndim == 2:
        headed = [j for j, name in enumerate(names) if name.lower() in _WEIGHTS]
        if values.shape[1] != 1 and len(headed) != 1:
            raise ValueError(
                f"weights: {path}: expected a number a line, or one column headed weight, received "
                f"{values.shape[1]} columns {', '.join(map(repr, names))}".rstrip()
            )
        values = values[:, headed[0] if headed else 0]
    if values.shape != (rows,):
        raise ValueError(
            f"weights: {path}: expected {rows}, one for each row of the data, received {len(values)}"
        )
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        place = int(wrong.argmax())
        raise ValueError(
            f"weights: {path}: expected finite numbers of at least 0, received {values[place]} as number "
            f"{place + 1}"
        )
    if not values.any():
        raise ValueError(f"weights: {path}: expected one above 0, received {rows} times 0")
    return torch.from_numpy(values)


def write_weights(path: str | Path, weights: Any, *, overwrite: bool = False) -> None:
    """Writes weights of rows as a number a line, which plmc, bmDCA and adabmDCA read.

    Args:
        path: Path of the file.
        weights: (rows,), such as ``sequences.similarity_weights`` returns.
        overwrite: whether to replace a file that is there.

    Raises:
        FileExistsError: there is a file, and no ``overwrite``.
    """
    check_free(Path(path), overwrite)
    lines = [f"{weight:.17g}\n" for weight in torch.as_tensor(weights, dtype=torch.float64).tolist()]
    replace_file(Path(path), "".join(lines).encode())


def read_distances(path: str | Path, sites: int) -> Tensor:
    """Reads distances between the sites of an alignment, from a structure.

    Lines ``i j … distance``, with the distance in the last column, or with columns headed ``i``, ``j`` and
    ``dist`` or ``distance``, as EVcouplings has them. Sites are from 1, or from 0 where a site 0 occurs. Or
    the whole matrix, as text or in ``.npy``. Pairs that the file leaves out are unknown.

    Args:
        path: Path of the file, or "family" for those of ``protein_family``.
        sites: Number of sites.

    Returns:
        (sites, sites) float64, symmetric, NaN where unknown.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another form, or sites that there are not.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> with TemporaryDirectory() as folder:
        ...     _ = open(f"{folder}/pairs.txt", "w").write("1 2 3.8\\n1 3 6.5\\n")
        ...     hm.data.read_distances(f"{folder}/pairs.txt", 3)[0]
        tensor([   nan, 3.8000, 6.5000], dtype=torch.float64)
    """
    if str(path) == FAMILY and sites == len(family_distances()):
        return family_distances()
    path = Path(path)
    if str(path) == FAMILY and not path.exists():
        raise ValueError(
            f"distances: expected a file, received {FAMILY!r}, whose distances are for a run on {FAMILY!r} "
            f"alone, of {len(family_distances())} sites; this one has {sites}"
        )
    values, names = _numbers_of(path, "distances")
    if values.shape == (sites, sites) and not names and sites != 3:
        matrix = torch.from_numpy(values)
        return torch.where(matrix.isnan(), matrix.t(), matrix)
    if values.ndim != 2 or values.shape[1] < 3:
        raise ValueError(
            f"distances: {path}: expected lines 'i j distance', or ({sites}, {sites}) numbers, "
            f"received shape {values.shape}"
        )
    headed = [j for j, name in enumerate(names) if name.lower() in ("dist", "distance")]
    ends = [names.index("i"), names.index("j")] if {"i", "j"} <= set(names) else [0, 1]
    pairs, lengths = values[:, ends], values[:, headed[0] if headed else -1]
    first = 0 if (pairs == 0).any() else 1
    wrong = ~((pairs == np.round(pairs)) & (pairs >= first) & (pairs < sites + first)).all(1)
    if wrong.any():
        i, j = pairs[int(wrong.argmax())].tolist()
        raise ValueError(
            f"distances: {path}: expected pairs of sites from {first} to {sites - 1 + first}, received "
            f"{i:g} {j:g}; sites are columns of the alignment"
        )
    i, j = (pairs.T - first).astype(np.int64)
    found = np.full((sites, sites), np.nan)
    found[i, j] = found[j, i] = lengths
    return torch.from_numpy(found)


def _numbers_of(path: Path, name: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Returns the numbers of a table or an array, and the names above them, () where there are none.

    A cell that is no number, such as the name of a sequence, is NaN where another cell of its line is one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{name}: there is no file {path}")
    try:
        if path.suffix.lower() == ".npy":
            array = read_npy(path)[0]
            if array.dtype.kind not in "biuf":
                raise ValueError(f"expected numbers, received {array.dtype}")
            return np.asarray(array, np.float64), ()
        return _numbers_in(path)
    except ValueError as error:
        raise ValueError(f"{name}: {path}: {error}") from error


def _numbers_in(path: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Returns the numbers of lines of text, whose cells spaces, tabs, commas or semicolons separate."""
    names: tuple[str, ...] = ()
    lines = list[list[float]]()
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = _SEPARATORS.split(line.strip())
            if not line.strip() or line.startswith("#"):
                continue
            values = [_number_in(cell) for cell in cells]
            if np.isnan(values).all() and not lines and not names:
                names = tuple(cell.strip('"') for cell in cells)
            elif len(values) != len(names or lines[0] if names or lines else values):
                raise ValueError(
                    f"line {number}: expected {len(names or lines[0])} columns, received {len(values)}"
                )
            elif np.isnan(values).all():
                raise ValueError(f"line {number}: expected a number, received {line.strip()[:40]!r}")
            else:
                lines.append(values)
    if not lines:
        raise ValueError("expected numbers, received none")
    return np.array(lines, np.float64), names


def _number_in(cell: str) -> float:
    """Returns the number that a cell holds; NaN: it holds none."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")
