"""``harmonium mutations``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from harmonium._settings import From0, Setting
from harmonium.cli import options
from harmonium.cli.coding import row_named, source_of
from harmonium.cli.output import Listing, working
from harmonium.cli.rows_file import write_table
from harmonium.data import DataSet, Series, read
from harmonium.likelihood import log_likelihood
from harmonium.report import draw_mutations
from harmonium.report.plots import has_figures
from harmonium.sequences import (
    SUFFIXES,
    Mutants,
    first_number,
    letter_numbers,
    mutate,
    single_mutants,
    written_row,
)
from harmonium.tables import Codec
from harmonium.tasks import mutations as effects_of

EXAMPLES = (
    "harmonium mutations runs/family",
    "harmonium mutations runs/family --wild-type P12345 --data family.a3m --out effects",
)

_MEASURED = "DMS_score"  # the column of ProteinGym with what was measured
_FILES = ("mutations.csv", "matrix.csv", "mutations.png")
_LISTED = 10  # mutants that are shown


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

    Writes mutations.csv (mutant such as A24G, and score, as tables of ProteinGym have them), matrix.csv (a
    line for every site of the alignment with the number of its residue, a column for every letter) and
    mutations.png (a heat map, with the numbers of residues). Below 0 a mutant is less likely in the family.

    Args:
        wild_type: name of the sequence, or its number from 1; the first one if not given.
        data: file of sequences that has it; the training data if not given.
        mutants: a table with a column mutant, such as A24G:C30D, whose rows are scored instead of all single
            mutants, but for stop codons, A24*; with a column DMS_score their rank correlation is printed.
        first: number of its first letter; that of a name such as P12345/24-310, or 1, if not given.
        out: folder for the results; RUN/mutations, or beside a machine file, if not given.
    """
    coding, source = run.load()
    letters = coding.alphabet
    if letters is None:
        raise ValueError("RUN: expected a machine of sequences for mutations, received one of other data")
    folder = options.result_folder(run.run, out, "mutations", _FILES, overwrite)
    named = data or source_of(coding.machine)[0]
    if named is None:
        raise ValueError("data: expected a file of sequences, as the machine names no training data")
    dataset = coding.read(named)
    row, name, codes = row_named(dataset, wild_type)
    shown = int(((codes >= 0) & (codes != letters.find("-"))).sum())
    if (codes < 0).any():
        raise ValueError(
            f"wild_type: expected a sequence whose letters are all known, received {name or 'one'} with "
            f"{int((codes < 0).sum())} that stand for several, or for none"
        )
    told, counted, whole = _count_letters(named, row, name, shown)
    start = (told or 1) if first is None else first
    own = (start + counted).tolist()
    singles = single_mutants(codes, letters, own)
    listed, stops = (None, []) if mutants is None else _listed(mutants, letters)
    with working("scoring mutants"):
        effects = effects_of(coding.machine, codes).cpu()
        if listed is None:
            names, scores = singles.names, effects[singles.sites, singles.states].numpy()
        else:
            names = listed["mutant"].values.tolist()
            try:
                rows = mutate(codes, names, letters, own)
            except ValueError as error:
                taken = (
                    f"the wild type is {name or wild_type or '1'}, numbered from {start}; --first sets that"
                )
                raise ValueError(str(error).replace("number it otherwise by first", taken)) from error
            scores = _scores(coding, codes, rows)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / _FILES[0], {"mutant": np.array(names), "score": scores})
    numbers = np.full(len(codes), np.nan)
    numbers[(codes >= 0) & (codes != letters.find("-"))] = own
    matrix: dict[str, Any] = {
        "site": np.arange(1, len(codes) + 1),
        "number": Series("number", numbers, "int64"),
        "letter": np.array([letters[code] for code in codes]),
    }
    columns = {letter: effects[:, state].numpy() for state, letter in enumerate(letters)}
    write_table(folder / _FILES[1], {**matrix, **columns})
    notes = _never_seen(coding, dataset, named, singles) if listed is None else stops
    if first is None and told is None:
        notes.append(
            f"mutant: numbered from 1, as the name has no range of {whole} letters; --first N numbers from N"
        )
    if has_figures():
        shown_as = [None if np.isnan(number) else int(number) for number in numbers]
        draw_mutations(effects, codes, letters, folder / _FILES[2], title=name, numbers=shown_as)
    else:
        notes.append("files: without pictures, which need matplotlib; pip install 'harmonium[plot]'")
    order = np.argsort(scores, kind="stable")[:_LISTED]
    result: dict[str, Any] = {
        "machine": source,
        "wild_type": name or wild_type or "1",
        "letters": shown,
        "mutants": len(scores),
        "mean_score": float(scores.mean()),
        "lowest": Listing({"mutant": names[k], "score": float(scores[k])} for k in order),
        **({} if listed is None or _MEASURED not in listed else _rank_correlation(listed, scores)),
        "folder": folder,
        "files": [name for name in _FILES if (folder / name).exists()],
    }
    return {**result, "notes": notes} if notes else result


def _count_letters(source: str, row: int, name: str, shown: int) -> tuple[int | None, NDArray[np.int64], int]:
    """Returns the first number by a row's name, the places of its letters from 0, and how many it has.

    Insertions count, which the file has in small letters, but where the name's range leaves them out too.
    """
    told, places = first_number(name, shown), np.arange(shown)
    files = Path(source).is_file() and source.lower().removesuffix(".gz").endswith(SUFFIXES)
    text = written_row(source, row) if files and told is None else None
    if text is None or len(counted := letter_numbers(text)) != shown:
        return told, places, shown
    whole = sum(map(str.isalpha, text))
    return first_number(name, whole), counted, whole


def _never_seen(coding: Codec, dataset: DataSet, source: str, mutants: Mutants) -> list[str]:
    """Returns a note where mutants have letters that the training data never show at their sites."""
    learned = source_of(coding.machine)[0]
    if learned != source:
        if learned is None or not Path(learned).exists():
            return []
        dataset = coding.read(learned)
    codes = dataset.numbers()
    seen = np.array(
        [(codes[:, site] == state).any() for site, state in zip(mutants.sites, mutants.states, strict=True)]
    )
    if seen.all():
        return []
    return [
        f"score: {int((~seen).sum())} of {len(seen)} mutants have a letter that no sequence of the training "
        "shows at that site; their scores come from smoothing (a row spread over all letters) and decay"
    ]


def _listed(path: Path, alphabet: str) -> tuple[dict[str, Series], list[str]]:
    """Returns the columns of a table of mutants, by name, without stop codons, and a note about these."""
    lines = path.read_text("utf-8-sig", "replace").rstrip().split("\n") if path.is_file() else []
    words = [line.strip().strip('"') or None for line in lines]
    if words[:1] == ["mutant"]:  # a column alone
        columns = {"mutant": Series("mutant", np.array(words[1:], object), "str")}
    else:
        columns = {str(cells.name): cells for cells in read(path).frame().columns}
    cells = columns.get("mutant")
    if cells is None or (cells.numeric and not cells.missing.all()):
        raise ValueError(
            f"mutants: expected a table with a column mutant, such as A24G or A24G:C30D, in {path}, received "
            f"the columns {', '.join(map(repr, columns))}"
        )
    if cells.missing.any():
        row = int(cells.missing.argmax()) + 1
        raise ValueError(
            f"mutants: expected a name such as A24G in every row of {path}, received none in row {row}; "
            "leave it out"
        )
    measured = columns.get(_MEASURED)
    if measured is not None and not (measured.numeric or measured.missing.all()):
        raise ValueError(
            f"mutants: expected numbers in the column {_MEASURED} of {path}, received others, such as "
            f"{measured.values[~measured.missing][0]!r}; rename it where they are labels"
        )
    names = cells.values.tolist()
    stops = np.array(["*" in str(name) and "*" not in alphabet for name in names])
    if not stops.any():
        return columns, []
    note = f"mutant: {int(stops.sum())} of {len(names)} have a stop codon, as {names[stops.argmax()]}, "
    if stops.all():
        raise ValueError(
            f"mutants: expected letters in {alphabet!r}; {path}: {note}and so none can be scored"
        )
    kept = {name: replace(x, values=x.values[~stops], texts=None) for name, x in columns.items()}
    return kept, [f"{note}and are left out"]


def _scores(coding: Codec, codes: NDArray[np.int64], mutants: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns ln p(mutant) - ln p(sequence) of mutants, (mutants, sites)."""
    machine = coding.machine
    rows = coding.rows(np.concatenate([mutants, codes[None]]), torch.float64).all()
    values = log_likelihood(machine, rows.to(machine.device), 0.0)
    return (values[:-1] - values[-1]).numpy(force=True)


def _rank_correlation(listed: dict[str, Series], scores: NDArray[np.float64]) -> dict[str, float]:
    """Returns Spearman's correlation of scores and what was measured, over rows that have both."""
    from scipy.stats import spearmanr  # takes part of a second to import

    known = ~listed[_MEASURED].missing
    return {"spearman": float(spearmanr(scores[known], listed[_MEASURED].values[known]).statistic)}
