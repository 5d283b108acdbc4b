"""``harmonium landscape``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch

from harmonium._settings import Count, Setting
from harmonium._storage import replace_file
from harmonium.cli import options
from harmonium.cli.output import note, working
from harmonium.meanfield import SOLVERS, Landscape, Status, landscape as explore
from harmonium.report import basin_map, free_energy_bands, image_panels, solution_maps
from harmonium.report.plots import require_figures
from harmonium.tables import Codec

EXAMPLES = ("harmonium landscape runs/digits digits --starts 500",)

_FILES = ("landscape.json", "free_energies.png", "solutions.png", "basins.png", "modes.png")
_MODES = 100  # images at most, ten lines of ten


def landscape(
    run: options.Trained,
    data: options.Data,
    out: Path | None = None,
    starts: Count | None = None,
    solver: Annotated[str, Setting(SOLVERS)] = "tap",
    max_sweeps: Count = 1000,
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Find the TAP solutions that rows of DATA flow to, and draw them.

    Writes landscape.json (numbers, and which start flows where), the free energies, maps of the solutions and
    of the starts, and for images the solutions that most starts flow to.

    Args:
        data: where solutions start.
        out: folder for the results; RUN/landscape, or beside a machine file, if not given.
        starts: only so many rows of DATA, evenly spaced.
        solver: equations that are solved; adatap inverts a matrix a row and sweep.
        max_sweeps: sweeps after which a start is given up.
    """
    require_figures("landscape")
    coding, source = run.load()
    folder = options.result_folder(run.run, out, "landscape", _FILES, overwrite)
    coding.require_generative("landscape", label=False)
    dataset = coding.read(data)
    rows = coding.observed_rows(dataset)
    places = rows.spread(len(rows) if starts is None else starts)
    X = rows.take(places).to(coding.machine.device)
    labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[:])[places]
    with working(f"solving from {len(places)} starts"):
        explored = explore(coding.machine, X, solver=solver, max_sweeps=max_sweeps)
    folder.mkdir(parents=True, exist_ok=True)
    with working("drawing"):
        free_energy_bands({source.stem: explored}, folder / "free_energies.png")
        solution_maps({source.stem: explored}, folder / "solutions.png")
        basin_map(X, explored, folder / "basins.png", labels=labels)
        if shape := coding.image_shape or dataset.image_shape:
            _draw_modes(coding, explored, shape, folder / "modes.png")
    result = {"machine": str(source), "data": dataset.name, "solver": solver, **summary(explored)}
    record = result | {
        name: getattr(explored, name).tolist() for name in ("free_energies", "counts", "basin")
    }
    record["rows"] = places.tolist()
    replace_file(folder / "landscape.json", (json.dumps(record, indent=1) + "\n").encode())
    if lost := int((explored.basin < 0).sum()):
        note(f"warning: {lost} of {len(places)} starts did not converge and belong to no solution")
    return {**result, "folder": folder, "files": [name for name in _FILES if (folder / name).exists()]}


def summary(explored: Landscape) -> dict[str, Any]:
    """Returns the numbers of a landscape."""
    return {
        "starts": len(explored.basin),
        "converged": float((explored.basin >= 0).double().mean()),
        "unbounded": float((explored.status == Status.UNBOUNDED).double().mean()),
        "solutions": len(explored.free_energies),
        "admissible": None
        if explored.solutions.plefka is None
        else float(explored.admissible.double().mean()),
        "largest_basin": int(explored.counts[0]),
        "least_free_energy": float(explored.free_energies.min()),
    }


def _draw_modes(coding: Codec, explored: Landscape, shape: tuple[int, ...], path: Path) -> None:
    """Draws the means of the solutions as images."""
    means = coding.machine.hamiltonian().visible_states(explored.solutions.means)
    modes = coding.encoder.decode(means[:_MODES].cpu().numpy())
    image_panels({"": modes}, shape, path, title="Means of the solutions, those with most starts first")
