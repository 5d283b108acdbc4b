"""``harmonium inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium._settings import From0
from harmonium._storage import replace_file
from harmonium.chains import Gibbs, run as run_chains
from harmonium.cli import options
from harmonium.cli.output import Listing, working
from harmonium.ladder import ages_of, hamiltonians_along
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import solution_tree
from harmonium.report import draw_directions, draw_logos, draw_tree
from harmonium.report.logos import letters_of
from harmonium.report.plots import require_figures
from harmonium.tables import Codec
from harmonium.tasks import directions, effective_couplings

EXAMPLES = ("harmonium inspect runs/digits", "harmonium inspect runs/digits --data digits --out inside")

_FILES = ("directions.png", "tree.png", "tree.nwk", "logos.png")
# Singular values and pairs that are listed; rows and chains that are drawn as points, before these cover all.
_VALUES, _PAIRS, _ROWS, _CHAINS = 5, 10, 1000, 500
_STARTS = 200  # rows that flow to solutions, as in a report: 1,000 of 136 sites took 38 s and found no more
_COLUMNS = 200  # for which couplings through hidden units take seconds


def inspect(
    run: options.Trained,
    data: options.OtherData | None = None,
    out: Path | None = None,
    sweeps: From0 = 1000,
    overwrite: options.Overwrite = False,
    seed: options.Seed = 0,
) -> dict[str, Any]:
    """Look inside a machine: its directions, solutions and couplings, over the ages of its run.

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
        "couplings": strongest_pairs(coding, machine, notes),
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


def strongest_pairs(coding: Codec, machine: BoltzmannMachine, notes: list[str]) -> Listing:
    """Returns the pairs of visible units that are coupled most strongly, where the machine allows them."""
    if machine.hidden and machine.visible_width > _COLUMNS:
        notes.append(
            f"couplings: left out, as those through hidden units take long beyond {_COLUMNS} columns; "
            "harmonium contacts and couplings find them for sequences"
        )
        return Listing()
    try:
        with working("finding effective couplings"):
            found = effective_couplings(machine).pairs.cpu()
    except ValueError as error:
        notes.append(f"couplings: left out, {error}")
        return Listing()
    unit = machine.unit_of_column.cpu()
    each = torch.eye(int(unit[-1]) + 1, dtype=found.dtype)[:, unit]  # (units, columns)
    norms = (each @ found.square() @ each.t()).sqrt().triu(1)
    known = [*coding.columns(), *([] if coding.label is None else [coding.label])]
    columns, lines = known if len(known) == len(each) else [None] * len(each), Listing()
    for place in norms.flatten().topk(min(_PAIRS, norms.numel())).indices.tolist():
        pair = divmod(place, len(each))
        block = found[unit == pair[0]][:, unit == pair[1]]
        states = divmod(int(block.abs().argmax()), block.shape[1])
        names = [i if columns[i] is None else columns[i].name for i in pair]
        values = [getattr(columns[i], "values", ()) for i in pair]
        line: dict[str, Any] = {"columns": names, "norm": float(norms[pair])}
        if len(unit) > len(each):  # of a unit of one column there is one coupling alone
            line["states"] = [v[s] if s < len(v) else s for v, s in zip(values, states, strict=True)]
        if line["norm"]:
            lines.append({**line, "coupling": float(block[states])})
    return lines
