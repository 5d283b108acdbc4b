"""``harmonium anneal``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from harmonium._settings import Count, Setting
from harmonium.cli import options
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import TABLES, write_table
from harmonium.exchange import values_of, variables_of
from harmonium.tasks import MINIMISE_METHODS, minimise

EXAMPLES = (
    "harmonium anneal machine.safetensors --out low.csv",
    "harmonium anneal runs/family --runs 1000 --out modes.csv",
    "harmonium anneal network.uai --evidence network.uai.evid --out likeliest.csv",
)


def anneal(
    run: options.Trained,
    out: Path,
    runs: Count = 100,
    sweeps: Count = 1000,
    method: Annotated[str, Setting(MINIMISE_METHODS)] = "auto",
    evidence: options.Evidence | None = None,
    seed: options.Seed = 0,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Find states of the lowest energy, and write them with their energies.

    Exactly where that takes seconds (trees, strips, narrow lattices), else by simulated annealing. Of other
    programs files of networks, .uai, are read.

    Args:
        out: file for the states, the lowest first: .csv, .tsv, .parquet or .feather, with a column for each
            variable in the order of RUN, or for each unit; categories count from 0.
        runs: runs of annealing, each from a state of its own.
        sweeps: sweeps of every run.
        method: how: auto (exact where it takes seconds, else anneal), exact, anneal.
    """
    check_target(out, TABLES, overwrite)
    coding, source = run.load(evidence=evidence)
    machine = coding.machine
    with working("searching states of low energy"):
        minima = minimise(machine, runs, sweeps=sweeps, method=method, seed=seed)
    variables, values = variables_of(machine), values_of(machine, minima.states)
    values = values if (values % 1).any() else values.astype(int)
    named = machine.metadata.get("variables") is not None
    labels = [x.label if named else j for j, x in enumerate(variables)]
    has_name = (isinstance(label, str) and label not in ("energy", "count") for label in labels)
    names = [str(label) if known else f"x{label}" for label, known in zip(labels, has_name, strict=True)]
    energies, counts = minima.energies.numpy(force=True), minima.counts.numpy(force=True)
    write_table(out, {"energy": energies, "count": counts, **dict(zip(names, values.T, strict=True))})
    return {
        "machine": source,
        "file": out,
        "method": minima.method,
        "lowest_energy": float(energies[0]),
        "found": int(counts[0]),
        "states": len(energies),
    }
