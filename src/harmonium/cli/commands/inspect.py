"""``harmonium inspect``."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import torch

from harmonium._settings import From0
from harmonium._storage import replace_file
from harmonium.chains import Gibbs, run as run_chains
from harmonium.cli import options
from harmonium.cli.coding import rows_of, source_of
from harmonium.cli.output import Listing, listening, working
from harmonium.ladder import ages_of, hamiltonians_along, log_partitions
from harmonium.likelihood import BASE_ROWS, find_log_partition, log_likelihood
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
    """Look inside a machine: its directions, solutions, couplings and entropy, over the ages of its run.

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
    named = data or source_of(machine)[0]
    if named is None:
        raise ValueError("data: expected DATA to look at, as the machine names no training data")
    rows = rows_of(coding, coding.read(named), missing=True)
    base = rows.take(rows.spread(BASE_ROWS, whole=True))
    if not len(base):
        raise ValueError(f"data: expected rows without missing cells, received none in {named}")
    X, starts = (rows.take(rows.spread(n, whole=True)).to(machine.device) for n in (_ROWS, _STARTS))
    kept = run.ladder(machine)
    notes = (
        [] if kept else ["ages: the run has kept none (train --ladder), so this is the last machine alone"]
    )
    hamiltonians = [machine.hamiltonian()] if kept is None else hamiltonians_along(machine, kept)
    ages = [0.0] if kept is None else ages_of(kept)
    with working("decomposing the couplings"):
        each = [directions(hamiltonian) for hamiltonian in hamiltonians]
    with working("sampling"):
        rounds = -(-sweeps // len(hamiltonians))
        start = machine.random_states(_CHAINS, seed=seed)
        states = run_chains(machine, kept or Gibbs(), start, rounds, seed=seed)
        samples = machine.hamiltonian().visible_states(states)
    with working("solving for the tree"):
        tree = solution_tree(machine, hamiltonians, ages, starts)
    with listening("finding ln Z") as remarks:
        if kept is None:
            partition = find_log_partition(machine, base, seed=seed)
        else:
            partition = log_partitions(machine, kept, data=base, seed=seed, progress=False).log_partition
    estimated = "ais" if kept is None else "ladder"
    folder.mkdir(parents=True, exist_ok=True)
    places = {"data": each[-1].project(X).cpu(), "samples": each[-1].project(samples).cpu()}
    if len(each[-1].values) > 1:
        draw_directions(ages, [one.values for one in each], places, folder / _FILES[0])
    if (letters := letters_of(machine)) is not None:
        width = machine.visible_width - coding.label_width
        leading = (each[-1].visible * each[-1].values)[:width, :2].T.reshape(
            -1, width // len(letters), len(letters)
        )
        titles = [f"direction {a + 1}" for a in range(len(leading))]
        draw_logos(leading.cpu(), letters, folder / _FILES[3], titles)
    draw_tree(tree.root, folder / _FILES[1])
    replace_file(folder / _FILES[2], f"{tree.newick}\n".encode())
    result: dict[str, Any] = {
        "machine": source,
        "data": named,
        "log_partition": {"method": estimated if partition.ess < inf else "exact", "value": partition.value,
                          "standard_error": partition.standard_error},
        "solutions": int(tree.solutions[-1]),
        "tree": tree.newick,
        "ages": Listing(
            {"updates": age, "solutions": int(number), "singular_values": one.values[:_VALUES].tolist()}
            for age, number, one in zip(ages, tree.solutions, each, strict=True)
        ),
    }  # fmt: skip
    if machine.graph.independent:
        surprise = -log_likelihood(machine, samples, partition)
        result["entropy"] = {
            "value": float(surprise.mean()),
            "standard_error": (float(surprise.var()) / len(surprise) + partition.standard_error**2) ** 0.5,
        }
    if strongest := strongest_pairs(coding, machine, notes):
        result["couplings"] = strongest
    result |= {"folder": folder, "files": [name for name in _FILES if (folder / name).exists()]}
    return {**result, "notes": [*notes, *remarks]}


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
    order = norms.flatten().topk(min(_PAIRS, norms.numel())).indices.tolist()
    known = [*coding.columns(), *([] if coding.label is None else [coding.label])]
    columns = known if len(known) == len(each) else [None] * len(each)
    several, lines = len(unit) > len(each), Listing()
    for pair in (divmod(place, len(each)) for place in order):
        first, second = ((unit == i).nonzero().flatten() for i in pair)
        block = found[first][:, second]
        states = divmod(int(block.abs().argmax()), block.shape[1])
        names = [i if columns[i] is None else columns[i].name for i in pair]
        values = [getattr(columns[i] and columns[i].coding, "values", ()) for i in pair]
        line: dict[str, Any] = {"columns": names, "norm": float(norms[pair])}
        if several:  # of a unit of one column there is one coupling alone
            line["states"] = [v[s] if s < len(v) else s for v, s in zip(values, states, strict=True)]
        if line["norm"]:
            lines.append({**line, "coupling": float(block[states])})
    return lines
