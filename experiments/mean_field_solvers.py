"""How good mean-field solvers are: their gap to enumeration as couplings grow, and to TAP as machines grow.

    python experiments/mean_field_solvers.py --budget quick
    python experiments/mean_field_solvers.py --budget paper   # more machines, larger ones

No figure of Tramel et al. (2018) corresponds to it: the paper states without a plot that belief propagation
has TAP as its dense limit and that adaptive TAP is more accurate. Couplings are N(0, s²/N) with N units in
all, biases N(0, 0.5²). A point where not all machines converged is hollow. Results go to --out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import torch

import harmonium as hm
from harmonium.meanfield import Solution

matplotlib.use("Agg")
import matplotlib.pyplot as plt

Solver = Callable[..., Solution]
SOLVERS: dict[str, Solver] = {
    "naive": hm.meanfield.naive,
    "TAP": hm.meanfield.tap,
    "third order": partial(hm.meanfield.tap, order=3),
    "relaxed BP": partial(hm.meanfield.tap, solver="relaxed_bp"),
    "adaptive TAP": partial(hm.meanfield.tap, solver="adatap"),
}
KINDS: dict[str, Callable[[int], list[hm.layers.Layer]]] = {
    "Bernoulli": lambda n: [hm.Bernoulli(n), hm.Bernoulli(n)],
    "Spin": lambda n: [hm.Spin(n), hm.Spin(n)],
    "truncated Gaussian-Bernoulli": lambda n: [hm.TruncatedGaussian(n, -1.0, 1.0), hm.Bernoulli(n)],
    "Bernoulli, two hidden layers": lambda n: [hm.Bernoulli(n // 2), hm.Bernoulli(n), hm.Bernoulli(n // 2)],
}
BUDGETS = {
    "quick": {"machines": 4, "enumerated": 12, "sizes": (10, 20, 40, 80, 160)},
    "paper": {"machines": 20, "enumerated": 18, "sizes": (10, 20, 40, 80, 160, 320)},
}
SCALES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)


def random_machine(layers: list[hm.layers.Layer], scale: float, seed: int) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine(layers).double()
    generator = torch.Generator().manual_seed(seed)
    units = sum(layer.n_units for layer in layers)
    with torch.no_grad():
        for layer in machine.layers:
            for parameter in layer.parameters():
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
        for W in (coupling.weight for coupling in machine.couplings):
            W.copy_(scale / units**0.5 * torch.randn(W.shape, generator=generator))
    return machine


def solve(solver: Solver, machine: hm.BoltzmannMachine) -> Solution:
    start = machine.random_states(1, seed=torch.Generator().manual_seed(1))[0]
    return solver(machine, start, tolerance=1e-10, damping=0.5, max_sweeps=5000)


def gaps(budget: dict[str, Any]) -> dict[str, Any]:
    """Root mean square of F - F_exact for every kind, solver and scale, and the part that converged."""
    table: dict[str, Any] = {}
    for kind, layers in KINDS.items():
        for name, solver in SOLVERS.items():
            if name == "third order" and "Gaussian" in kind:
                continue
            rows = []
            for scale in SCALES:
                errors, converged = [], 0
                for seed in range(budget["machines"]):
                    machine = random_machine(layers(budget["enumerated"]), scale, seed)
                    solution = solve(solver, machine)
                    converged += int(solution.converged[0])
                    exact = hm.likelihood.exact_log_partition(machine)
                    errors.append(float(-solution.free_energy[0]) - exact)
                rms = (sum(e * e for e in errors) / len(errors)) ** 0.5
                rows.append({"scale": scale, "rms": rms, "converged": converged / len(errors)})
            table.setdefault(kind, {})[name] = rows
            print(f"{kind}, {name}: " + ", ".join(f"{row['rms']:.1e}" for row in rows), flush=True)
    return table


def growth(budget: dict[str, Any]) -> dict[str, Any]:
    """Root mean square difference of the means from TAP's, spins with couplings N(0, 0.6²/n), n a layer."""
    table: dict[str, Any] = {}
    for name in ("naive", "third order", "relaxed BP", "adaptive TAP"):
        rows = []
        for n in budget["sizes"]:
            squares = []
            for seed in range(budget["machines"]):
                machine = random_machine(KINDS["Spin"](n), 0.6 * 2**0.5, seed)
                tap, other = solve(SOLVERS["TAP"], machine), solve(SOLVERS[name], machine)
                squares += [
                    float((a - b).square().mean()) for a, b in zip(tap.means, other.means, strict=True)
                ]
            rows.append({"units_a_layer": n, "rms": (sum(squares) / len(squares)) ** 0.5})
        table[name] = rows
        print(f"{name} from TAP: " + ", ".join(f"{row['rms']:.1e}" for row in rows), flush=True)
    return table


def plot(record: dict[str, Any], path: Path) -> None:
    kinds = list(record["gaps"])
    size = (3.2 * (len(kinds) + 1), 3.4)
    figure, panels = plt.subplots(1, len(kinds) + 1, figsize=size, layout="constrained")
    colours = {name: f"C{place}" for place, name in enumerate(SOLVERS)}
    for panel, kind in zip(panels, kinds, strict=False):
        for name, rows in record["gaps"][kind].items():
            panel.plot([r["scale"] for r in rows], [r["rms"] for r in rows], color=colours[name], label=name)
            for r in rows:
                fill = colours[name] if r["converged"] == 1 else "white"
                panel.plot(r["scale"], r["rms"], "o", markersize=4, color=colours[name], markerfacecolor=fill)
        panel.set(xlabel="couplings, in 1/√N", xscale="log", yscale="log")
        panel.set_xticks(SCALES, [f"{scale:g}" for scale in SCALES], minor=False)
        panel.minorticks_off()
        panel.set_title(kind, fontsize="small")
    panels[0].set(ylabel="|F - F exact|")
    panels[0].legend(fontsize="x-small")
    for name, rows in record["growth"].items():
        sizes, values = [r["units_a_layer"] for r in rows], [r["rms"] for r in rows]
        panels[-1].loglog(sizes, values, "o-", markersize=4, color=colours[name], label=name)
    panels[-1].set(xlabel="units a layer")
    panels[-1].set_title("Spin, difference of means from TAP", fontsize="small")
    panels[-1].legend(fontsize="x-small")
    figure.savefig(path, dpi=70)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--out", type=Path, default=None, help="default: runs/mean_field_solvers_BUDGET")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    budget = BUDGETS[arguments.budget]
    out = arguments.out or Path("runs") / f"mean_field_solvers_{arguments.budget}"
    out.mkdir(parents=True, exist_ok=True)
    record = {
        "experiment": "mean-field solvers against enumeration and against TAP",
        "budget": arguments.budget,
        "reduced": arguments.budget == "quick",
        "settings": budget,
        "gaps": gaps(budget),
        "growth": growth(budget),
    }
    (out / "result.json").write_text(json.dumps(record, indent=1) + "\n")
    plot(record, out / "solvers.png")
    print(f"written to {out}: result.json, solvers.png")


if __name__ == "__main__":
    main()
