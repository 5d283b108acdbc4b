"""``harmonium mutations``."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium._settings import From0, Setting
from harmonium.cli import options
from harmonium.cli.output import Listing, working
from harmonium.cli.rows_file import write_table
from harmonium.data import DataSet
from harmonium.likelihood import log_likelihood
from harmonium.report import draw_mutations
from harmonium.report.plots import has_figures
from harmonium.sequences import find_sequence, mutate, number_letters, single_mutants
from harmonium.tasks import mutations as effects_of

EXAMPLES = (
    "harmonium mutations runs/family",
    "harmonium mutations runs/family --wild-type P12345 --data family.a3m --out effects",
)

_FILES = ("mutations.csv", "mutations.png")
_LISTED = 10  # mutants that are shown
_UNTOLD = "mutant: numbered from 1, as the name has no range of its letters; first sets another number"


def mutations(
    run: options.Trained,
    wild_type: Annotated[str | None, Setting(metavar="ID")] = None,
    data: options.OtherData | None = None,
    mutants: Annotated[Path | None, Setting(metavar="FILE")] = None,
    first: From0 | None = None,
    out: Path | None = None,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Score every single mutation of a sequence: ln p(mutant) - ln p(sequence).

    Writes mutations.csv (mutant such as A24G, and score, as tables of ProteinGym have them) and, with
    matplotlib, mutations.png (a heat map). Below 0 a mutant is less likely in the family.

    Args:
        wild_type: name of the sequence, or its number from 1; the first one if not given.
        data: file of sequences that has it; the training data if not given.
        mutants: a .csv or .tsv file with a column mutant, such as A24G:C30D, scored in its order
            instead of all single mutants.
        first: number of its first letter; that of a name such as P12345/24-310, or 1, if not given.
        out: folder for the results; RUN/mutations, or beside a machine file, if not given.
    """
    coding, source = run.load()
    letters = coding.alphabet
    if letters is None:
        raise ValueError("machine: expected one of sequences, received one of other data")
    folder = options.result_folder(run.run, out, "mutations", _FILES, overwrite)
    name, codes, numbers, numbered = _find(
        coding.read(data), data or str(coding.source), letters, wild_type, first
    )
    with working("scoring mutants"):
        effects = effects_of(coding.machine, codes).cpu()
        if mutants is None:
            names, sites, states = single_mutants(codes, letters, numbers)
            scores = effects[sites, states].numpy()
        else:
            names = _read_mutants(mutants)
            mutated = np.concatenate([mutate(codes, names, letters, numbers), codes[None]])
            rows = coding.rows(mutated, torch.float64).all().to(coding.machine.device)
            values = log_likelihood(coding.machine, rows, 0.0).numpy(force=True)
            scores = values[:-1] - values[-1]
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / _FILES[0], {"mutant": np.array(names), "score": scores})
    if has_figures():
        next_number, gap = iter(numbers), letters.find("-")
        shown = [None if code == gap else next(next_number) for code in codes]
        draw_mutations(effects, codes, letters, folder / _FILES[1], title=name, numbers=shown)
    order = np.argsort(scores, kind="stable")[:_LISTED]
    return {
        "machine": source,
        "wild_type": name,
        "letters": len(numbers),
        "mutants": len(scores),
        "mean_score": float(scores.mean()),
        "lowest": Listing({"mutant": names[k], "score": float(scores[k])} for k in order),
        "folder": folder,
        "files": [name for name in _FILES if (folder / name).exists()],
        "notes": [] if numbered else [_UNTOLD],
    }


def _find(
    dataset: DataSet, source: str, letters: str, wild_type: str | None, first: int | None
) -> tuple[str, NDArray[np.int64], list[int], bool]:
    """Returns the name of a sequence, its states, the numbers of its letters, and whether these were told."""
    alignment = dataset.alignment
    names = [""] * len(dataset.samples) if alignment is None else alignment.names
    row = 0 if wild_type is None else find_sequence(names, wild_type)
    codes = np.nan_to_num(dataset.numbers()[row], nan=-1).astype(np.int64)
    if (codes < 0).any():
        raise ValueError(
            f"wild_type: expected a sequence whose letters are all known, received {names[row] or row + 1} "
            f"with {int((codes < 0).sum())} that stand for several, or for none"
        )
    shown = int((codes != letters.find("-")).sum())
    return names[row] or str(row + 1), codes, *number_letters(source, row, names[row], shown, first)


def _read_mutants(path: Path) -> list[str]:
    """Returns the names of mutants in a table.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no column of mutants.
    """
    if not path.is_file():
        raise FileNotFoundError(f"mutants: expected a table .csv or .tsv, there is no file {path}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            columns, names = table.fieldnames or (), [row.get("mutant") or "" for row in table]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"mutants: expected a table .csv or .tsv, {path} is none ({error})") from None
    if not names or "mutant" not in columns:
        raise ValueError(
            f"mutants: expected a table with a column mutant, such as A24G or A24G:C30D, in {path}, received "
            f"{len(names)} rows of the columns {', '.join(map(repr, columns))}"
        )
    return names
