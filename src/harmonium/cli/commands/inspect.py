"""``harmonium inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from harmonium._settings import From0
from harmonium._storage import replace_file
from harmonium.chains import Gibbs, run as run_chains
from harmonium.cli import options
from harmonium.cli.output import Listing, working
from harmonium.ladder import ages_of, hamiltonians_along
from harmonium.meanfield import solution_tree
from harmonium.report import draw_directions, draw_logos, draw_tree
from harmonium.report.logos import letters_of
from harmonium.report.plots import require_figures
from harmonium.tables import Codec
from harmonium.tasks import directions

EXAMPLES = ("harmonium inspect runs/digits", "harmonium inspect runs/digits --data digits --out inside")

_FILES = ("directions.png", "tree.png", "tree.nwk", "logos.png")
# Singular values that are listed; rows and chains that are drawn as points, before these cover all.
_VALUES, _ROWS, _CHAINS = 5, 1000, 500
_STARTS = 200  # rows that flow to solutions, as in a report: 1,000 of 136 sites took 38 s and found no more


def inspect(
    run: options.Trained,
    data: options.OtherData | None = None,
    out: Path | None = None,
    sweeps: From0 = 1000,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
) -> dict[str, Any]:
    """Look inside a machine: its directions and solutions, over the ages of its run.

    Writes directions.png (singular values over ages; data and samples along the first two directions), of
    sequences logos.png (the letters of these directions), and the tree of TAP solutions as tree.nwk (Newick)
    and tree.png. Ages are those that train --ladder has kept.

    Args:
        data: rows to look at; the training data if not given.
        out: folder for the results; RUN/inspect, or beside a machine file, if not given.
        sweeps: sweeps of the chains that are drawn, of all machines of a ladder together.
    """
    require_figures("inspect")
    coding, source = run.load()
    machine = coding.machine.requires_grad_(False)
    folder = options.result_folder(run.run, out, "inspect", _FILES, overwrite)
    dataset = coding.read(data)
    rows = coding.observed_rows(dataset, missing=True)
    X, starts = (rows.take(rows.spread(n, whole=True)).to(machine.device) for n in (_ROWS, _STARTS))
    if not len(X):
        raise ValueError(f"data: expected rows without missing cells, received none in {dataset.name}")
    kept = run.ladder(machine)
    hamiltonians = [machine.hamiltonian()] if kept is None else hamiltonians_along(machine, kept)
    ages = [0.0] if kept is None else ages_of(kept)
    with working("decomposing the couplings"):
        each = [directions(hamiltonian) for hamiltonian in hamiltonians]
    with working("sampling"):
        start, rounds = machine.random_states(_CHAINS, seed=seed), -(-sweeps // len(hamiltonians))
        states = run_chains(machine, kept or Gibbs(), start, rounds, seed=seed)
        samples = machine.hamiltonian().visible_states(states)
    with working("solving for the tree"):
        tree = solution_tree(machine, hamiltonians, ages, starts)
    folder.mkdir(parents=True, exist_ok=True)
    places = {"data": each[-1].project(X).cpu(), "samples": each[-1].project(samples).cpu()}
    if len(each[-1].values) > 1:
        draw_directions(ages, [one.values for one in each], places, folder / _FILES[0])
    _draw_letters(coding, each[-1].visible * each[-1].values, folder / _FILES[3])
    draw_tree(tree.root, folder / _FILES[1])
    replace_file(folder / _FILES[2], f"{tree.newick}\n".encode())
    notes = [] if kept else ["ages: the run has kept none (train --ladder); this is the last machine alone"]
    return {
        "machine": source,
        "data": dataset.name,
        "tree": tree.newick,
        "ages": Listing(
            {"updates": age, "solutions": int(number), "singular_values": one.values[:_VALUES].tolist()}
            for age, number, one in zip(ages, tree.solutions, each, strict=True)
        ),
        "folder": folder,
        "files": [name for name in _FILES if (folder / name).exists()],
        "notes": notes,
    }


def _draw_letters(coding: Codec, directions: Tensor, path: Path) -> None:
    """Draws a logo of each of the first two directions, (visible width, directions), of sequences."""
    letters = letters_of(coding.machine)
    if letters is not None:
        width = len(directions) - coding.label_width
        leading = directions[:width, :2].T.reshape(-1, width // len(letters), len(letters))
        draw_logos(leading.cpu(), letters, path, [f"direction {a + 1}" for a in range(len(leading))])
