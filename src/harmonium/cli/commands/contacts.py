"""``harmonium contacts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from harmonium._settings import Count, Setting
from harmonium.cli import options
from harmonium.cli.output import Listing, working
from harmonium.cli.rows_file import write_table
from harmonium.data import read_distances
from harmonium.report import draw_contacts, draw_precision
from harmonium.report.plots import has_figures
from harmonium.tasks import APART, TOUCHING, contact_precision, contacts as scores_of, rank_pairs

EXAMPLES = (
    "harmonium contacts runs/family",
    "harmonium contacts runs/family --distances 1abc.txt --out contacts",
)

_FILES = ("contacts.csv", "contacts.png", "precision.png")
_LISTED = 10  # pairs that are shown


def contacts(
    run: options.Trained,
    distances: Annotated[Path | None, Setting(metavar="FILE")] = None,
    out: Path | None = None,
    apart: Count = APART,
    touching: float = TOUCHING,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Predict contacts from the couplings of a machine of sequences.

    Writes contacts.csv (every pair with its score, the strongest first) and, with matplotlib, contacts.png
    (the map), and with --distances precision.png (the share of true contacts among the strongest pairs).

    Args:
        distances: distances in a structure, lines of two sites and a distance in Å, or a matrix.
        out: folder for the results; RUN/contacts, or beside a machine file, if not given.
        apart: smallest distance of two sites along the chain.
        touching: distance in Å below which two sites touch.
    """
    coding, source = run.load()
    folder = options.result_folder(run.run, out, "contacts", _FILES, overwrite)
    with working("finding couplings"):
        scores = scores_of(coding.machine).cpu()
    sites, pairs = len(scores), rank_pairs(scores, apart=apart)
    known = None if distances is None else read_distances(distances, sites)
    precision = None if known is None else contact_precision(scores, known, apart=apart, touching=touching)
    folder.mkdir(parents=True, exist_ok=True)
    i, j = pairs.sites.T
    distance = {} if known is None else {"distance": known[i, j]}
    entries = {"i": i + 1, "j": j + 1, "score": pairs.scores, **distance}
    columns = {name: np.asarray(values) for name, values in entries.items()}
    write_table(folder / _FILES[0], columns)
    if has_figures():
        draw_contacts(scores, folder / _FILES[1], distances=known, apart=apart, touching=touching)
        if known is not None:
            draw_precision(scores, known, folder / _FILES[2], apart=apart, touching=touching)
    result: dict[str, Any] = {"machine": source, "sites": sites, "pairs": len(pairs.scores)}
    if precision is not None:
        at = {"L/5": sites // 5, "L/2": sites // 2, "L": sites, "2 L": 2 * sites}
        ranked = {f"at {name}": k for name, k in at.items() if 1 <= k <= len(precision)}
        result["precision"] = {name: float(precision[k - 1]) for name, k in ranked.items()}
        result["precision"]["of any pair"] = float(precision[-1])
    shown = zip(*(values[:_LISTED].tolist() for values in columns.values()), strict=True)
    strongest = Listing(dict(zip(columns, line, strict=True)) for line in shown)
    written = [name for name in _FILES if (folder / name).exists()]
    return {**result, "strongest": strongest, "folder": folder, "files": written}
