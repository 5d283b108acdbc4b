"""``harmonium inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    ladder = run.ladder(machine)
    hamiltonians = [machine.hamiltonian()] if ladder is None else hamiltonians_along(machine, ladder)
    ages = [0.0] if ladder is None else ages_of(ladder)
    by_rung = [directions(hamiltonian) for hamiltonian in hamiltonians]
    with working("sampling"):
        start, rounds = machine.random_states(_CHAINS, seed=seed), -(-sweeps // len(hamiltonians))
        states = run_chains(machine, ladder or Gibbs(), start, rounds, seed=seed)
        samples = machine.hamiltonian().visible_states(states)
    with working("solving for the tree"):
        tree = solution_tree(machine, hamiltonians, ages, starts)
    folder.mkdir(parents=True, exist_ok=True)
    last = by_rung[-1]
    places = {"data": last.project(X).cpu(), "samples": last.project(samples).cpu()}
    if len(last.values) > 1:
        draw_directions(ages, [one.values for one in by_rung], places, folder / _FILES[0])
    if letters := letters_of(machine):
        leading = (last.visible * last.values)[: len(last.visible) - coding.label_width, :2].T
        titles = [f"direction {a + 1}" for a in range(len(leading))]
        draw_logos(leading.reshape(len(leading), -1, len(letters)).cpu(), letters, folder / _FILES[3], titles)
    draw_tree(tree.root, folder / _FILES[1])
    replace_file(folder / _FILES[2], f"{tree.newick}\n".encode())
    return {
        "machine": source,
        "data": dataset.name,
        "tree": tree.newick,
        "ages": Listing(
            {"updates": age, "solutions": number, "singular_values": one.values[:_VALUES].tolist()}
            for age, number, one in zip(ages, tree.solutions.tolist(), by_rung, strict=True)
        ),
        "folder": folder,
        "files": [name for name in _FILES if (folder / name).exists()],
    }
