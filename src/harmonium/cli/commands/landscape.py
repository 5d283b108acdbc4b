"""``harmonium landscape``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch

from harmonium._settings import Count, Setting
from harmonium._storage import replace_file
from harmonium.cli import options
from harmonium.cli.coding import refuse_label, rows_of, source_of
from harmonium.cli.output import note, working
from harmonium.cli.pictures import data_range, in_words
from harmonium.cli.runs import load_machine
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import SOLVERS, Landscape, Status, landscape as explore
from harmonium.report import basin_map, free_energy_bands, image_panels, solution_maps
from harmonium.report.images import mean_word
from harmonium.report.landscape_maps import PROJECTIONS
from harmonium.report.plots import require_figures

EXAMPLES = ("harmonium landscape runs/digits digits --starts 500",)

_FILES = ("landscape.json", "free_energies.png", "solutions.png", "basins.png", "modes.png")
_MODES = 100  # images at most, ten lines of ten


def landscape(
    run: options.Trained,
    data: options.Data,
    out: Path | None = None,
    starts: Count | None = None,
    before: Annotated[list[Path] | None, Setting(metavar="RUN")] = None,
    solver: Annotated[str, Setting(SOLVERS)] = "tap",
    order: int = 2,
    resolution: float = 0.01,
    tolerance: float = 1e-5,
    max_sweeps: int = 1000,
    damping: str = "adaptive",
    projection: Annotated[str, Setting(PROJECTIONS)] = "isomap",
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Find the TAP solutions that rows of DATA flow to, and draw them.

    Writes landscape.json (numbers, and which start flows where), the free energies, maps of the solutions and
    of the starts, and for images the solutions that most starts flow to.

    Args:
        data: where solutions start.
        out: folder for the results; RUN/landscape, or beside a machine file, if not given.
        starts: only so many rows of DATA, evenly spaced.
        before: earlier machines of the same shape, in their order; repeatable.
        solver: equations that are solved; adatap inverts a matrix a row and sweep.
        order: of tap: 1 naive mean field, 2 TAP, 3 the third order.
        resolution: root mean square difference up to which solutions are the same.
        tolerance: change in a sweep at which a start has converged.
        max_sweeps: sweeps after which a start is given up.
        damping: weight of old fields in [0, 1), or adaptive.
        projection: how the maps lay points out in the plane.
    """
    require_figures("landscape")
    damped: Any = damping if damping == "adaptive" else _number(damping)
    coding, source = run.load()
    machine = coding.machine
    folder = options.result_folder(run.run, out, "landscape", _FILES, overwrite)
    refuse_label(coding, "landscape")
    dataset = coding.read(data)
    rows = rows_of(coding, dataset)
    count = len(rows) if starts is None else min(len(rows), starts)
    places = torch.linspace(0, len(rows) - 1, count, dtype=torch.float64).round().long()
    X = rows.take(places).to(machine.device)
    labels = None if dataset.labels is None else torch.as_tensor(dataset.labels[:])[places]

    stems = [path.stem for path in before or []]
    machines = {  # by file name where that tells them apart
        str(path) if stems.count(path.stem) > 1 or path.stem == "now" else path.stem: _like(machine, path)
        for path in before or []
    }
    machines["now" if machines else source.stem] = machine
    landscapes: dict[str, Landscape] = {}
    for name, each in machines.items():
        with working(f"solving from {count} starts: {name}"):
            landscapes[name] = explore(
                each, X, solver=solver, order=order, resolution=resolution, tolerance=tolerance,
                damping=damped, max_sweeps=max_sweeps,
            )  # fmt: skip
    last = landscapes[list(landscapes)[-1]]

    folder.mkdir(parents=True, exist_ok=True)
    written = ["landscape.json", "free_energies.png", "solutions.png", "basins.png"]
    with working("drawing"):
        free_energy_bands(landscapes, folder / "free_energies.png")
        solution_maps(landscapes, folder / "solutions.png", projection=projection)
        basin_map(X, last, folder / "basins.png", labels=labels, projection=projection)
        shape = source_of(machine)[1] or dataset.image_shape
        if shape:
            means = machine.hamiltonian().visible_states(last.solutions.means)
            modes = coding.encoder.decode(means[:_MODES].cpu().numpy())
            limits = data_range(coding)
            title = f"{mean_word(machine)} of the solutions, those with most starts first{in_words(limits)}"
            image_panels({"": modes}, shape, folder / "modes.png", title=title.capitalize(), limits=limits)
            written.append("modes.png")
    record = {
        "machine": str(source),
        "data": dataset.name,
        "settings": {"solver": solver, "order": order, "resolution": resolution, "tolerance": tolerance,
                     "damping": damping, "max_sweeps": max_sweeps},
        "landscapes": {name: summary(each) for name, each in landscapes.items()},
        "free_energies": last.free_energies.tolist(),
        "counts": last.counts.tolist(),
        "rows": places.tolist(),
        "basin": last.basin.tolist(),
    }  # fmt: skip
    replace_file(folder / "landscape.json", (json.dumps(record, indent=1) + "\n").encode())
    lost = int((last.basin < 0).sum())
    if lost:
        note(f"warning: {lost} of {count} starts did not converge and belong to no solution")
    return {
        "machine": source,
        "data": dataset.name,
        "results": [{"landscape": name, **summary(each)} for name, each in landscapes.items()],
        "folder": folder,
        "files": written,
    }


def summary(found: Landscape) -> dict[str, Any]:
    """The numbers of a landscape."""
    energies = found.free_energies
    overlaps = found.overlaps()
    pairs = len(overlaps) * (len(overlaps) - 1)
    return {
        "starts": len(found.basin),
        "converged": float((found.basin >= 0).double().mean()),
        "unbounded": float((found.status == Status.UNBOUNDED).double().mean()),
        "solutions": len(energies),
        "admissible": None if found.solutions.plefka is None else float(found.admissible.double().mean()),
        "largest_basin": int(found.counts[0]),
        "mean_free_energy": float(energies.mean()),
        "least_free_energy": float(energies.min()),
        "greatest_free_energy": float(energies.max()),
        "mean_overlap": (float(overlaps.sum()) - len(overlaps)) / pairs if pairs else None,
    }


def _like(machine: BoltzmannMachine, path: Path) -> BoltzmannMachine:
    """Loads a machine of the shape, and to the device, of another."""
    other, source = load_machine(path, False, machine.device)
    widths, expected = ([layer.width for layer in each.layers] for each in (other, machine))
    if other.graph != machine.graph or widths != expected:
        raise ValueError(f"before: expected machines of the shape of RUN, {source} has another")
    return other


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"damping: expected a number or adaptive, received {text!r}") from error
