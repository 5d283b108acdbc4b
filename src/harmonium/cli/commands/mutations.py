"""``harmonium mutations``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from harmonium._settings import From0, Setting
from harmonium.cli import options
from harmonium.cli.coding import row_named, source_of
from harmonium.cli.output import Listing, working
from harmonium.cli.rows_file import write_table
from harmonium.data import DataSet
from harmonium.report import draw_mutations
from harmonium.report.plots import has_figures
from harmonium.sequences import Mutants, first_number, single_mutants
from harmonium.tasks import mutations as effects_of

EXAMPLES = (
    "harmonium mutations runs/family",
    "harmonium mutations runs/family --wild-type P12345 --data family.a3m --out effects",
)

_FILES = ("mutations.csv", "matrix.csv", "mutations.png")
_LISTED = 10  # mutants that are shown


def mutations(
    run: options.Trained,
    wild_type: Annotated[str | None, Setting(metavar="ID")] = None,
    data: options.OtherData | None = None,
    first: From0 | None = None,
    out: Path | None = None,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Score every single mutation of a sequence: ln p(mutant) - ln p(sequence).

    Writes mutations.csv (mutant such as A24G, and score, as tables of ProteinGym have them), matrix.csv (a
    line for every site, a column for every letter) and mutations.png (a heat map). Below 0 a mutant is less
    likely in the family.

    Args:
        wild_type: name of the sequence, or its number from 1; the first one if not given.
        data: file of sequences that has it; the training data if not given.
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
    name, codes = row_named(dataset, wild_type)
    shown = int(((codes >= 0) & (codes != letters.find("-"))).sum())
    told = first_number(name, shown)
    mutants = single_mutants(codes, letters, (told or 1) if first is None else first)
    with working("scoring mutants"):
        effects = effects_of(coding.machine, codes).cpu()
    scores = effects[mutants.sites, mutants.states].numpy()
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / _FILES[0], {"mutant": np.array(mutants.names), "score": scores})
    matrix = {"site": np.arange(1, len(codes) + 1), "letter": np.array([letters[code] for code in codes])}
    columns = {letter: effects[:, state].numpy() for state, letter in enumerate(letters)}
    write_table(folder / _FILES[1], {**matrix, **columns})
    notes = _never_seen(dataset, mutants) if data is None else []
    if first is None and told is None:
        notes.append(
            "mutant: numbered from 1, as the name has no range of that many letters; --first says otherwise"
        )
    if has_figures():
        draw_mutations(effects, codes, letters, folder / _FILES[2], title=name)
    else:
        notes.append("files: without pictures, which need matplotlib; pip install 'harmonium[plot]'")
    order = np.argsort(scores, kind="stable")[:_LISTED]
    result: dict[str, Any] = {
        "machine": source,
        "wild_type": name or wild_type or "1",
        "letters": shown,
        "mutants": len(scores),
        "mean_score": float(scores.mean()),
        "lowest": Listing({"mutant": mutants.names[k], "score": float(scores[k])} for k in order),
        "folder": folder,
        "files": [name for name in _FILES if (folder / name).exists()],
    }
    return {**result, "notes": notes} if notes else result


def _never_seen(dataset: DataSet, mutants: Mutants) -> list[str]:
    """Returns a note where mutants have letters that the training data never show at their sites."""
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
