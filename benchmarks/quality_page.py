"""Time to quality on docs/benchmarks.md: a figure and a table for each data set, from the records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality_contestants import CONTESTANTS, DEFAULTS, RATES
from benchmarks.quality_records import Record, Results
from benchmarks.quality_sets import SETS
from benchmarks.race import markdown, number

IMAGES = Path(__file__).parents[1] / "docs" / "images"

_COLOURS = dict(zip(CONTESTANTS, ("C0", "C1", "C2", "C3", "C9"), strict=True))
_RATES = ", ".join(f"{rate:g}" for rate in RATES)

_HEAD = f"""\
## Time to quality

The mean log-likelihood of rows that were held out, over the CPU seconds of training on one thread. Higher and
further to the left is better.

- **Everyone has the same chance.** Batches of 100 rows, 100 chains, one sweep an update. The first length
  tries the rates {_RATES}, constant and falling linearly to 0, with the centred gradient too where a library
  has it. The best settings go on to longer runs, which start afresh; a run that would take
  more than `--limit` seconds is left out, whoever makes it. The held-out rows choose among settings, for all
  alike.
- **Every machine is judged by the same code.** A peer's parameters become a machine of harmonium; ln Z comes
  from annealed importance sampling (AIS). Bars and brackets are its bounds, and a target is reached where the
  lower one is. Evaluation is not charged, nor is what a process does once, such as loading compiled code.
- **Each library as its authors have it.** scikit-learn has no schedule: a constant rate is its `fit`; a
  falling one is set between calls of `partial_fit`, which computes in float64. rbms runs the body of its
  own training loop, which scales every gradient to length 1. The plain loop is PCD-1 as one writes it down
  in torch.
- **harmonium twice.** "Recipe" is `pcd()` or `centred(pcd())` on `hm.train`, with averaged parameters where
  the rate is constant. "Defaults" is `hm.RBM(n_hidden)`, at the one length that it chooses.
- Times between two lengths are interpolated, linear in the logarithm of the seconds. Every point is one run
  with one seed, on a machine that may be shared.

`python -m benchmarks quality` makes the runs that its record in `benchmarks/results/` lacks, and this page
anew; it can be interrupted. `--only mnist --contestant "plain torch" --again` replaces some.
MNIST and the RNA family are read from the folder `HARMONIUM_DATA`.
"""


def text(found: Sequence[Record]) -> str:
    """Returns the section, empty where nothing was measured."""
    shown = _shown(found)
    return "\n".join([_HEAD, *(_set(name, having) for name, having in shown.items())]) if shown else ""


def _shown(found: Sequence[Record]) -> dict[str, list[Record]]:
    """Returns the records by data set, of each those that are beyond the search for settings."""
    shown: dict[str, list[Record]] = {}
    for name in SETS:
        for record in found:
            runs = record.results[name].runs if name in record.results else []
            if len({run.passes for run in runs if run.passes}) > 1:
                shown.setdefault(name, []).append(record)
    return shown


def image(name: str) -> str:
    """Returns the file name of a data set's figure."""
    return f"quality_{name}.png"


def _set(name: str, found: Sequence[Record]) -> str:
    title = found[0].results[name].title
    parts = [
        f"### {title}\n",
        f"![{title}: log-likelihood of held-out rows over CPU seconds](images/{image(name)})\n",
    ]
    for record in found:
        parts.append(f"{_label(record)}, {_measured(record, name)}:\n")
        parts.append(_table(record.results[name]))
    parts += [f"- {note}" for note in found[0].results[name].notes]
    return "\n".join([*parts, ""])


def _label(record: Record) -> str:
    processor = record.processor
    return f"{processor.name} ({processor.family}/{processor.model})"


def _measured(record: Record, name: str) -> str:
    """Returns when, and of which commit."""
    commands = dict.fromkeys(run.command for run in record.results[name].runs)
    told = dict.fromkeys(
        f"{date[:10]} at {record.commands[date]['commit']}, load {record.commands[date]['load']}"
        for date in commands
    )
    return "; ".join(told)


def _table(found: Results) -> str:
    heading = ["", *(f"CPU s to {target:g}" for target in found.targets)]
    heading += ["best, nats", "after CPU s", "settings"]
    rows = []
    for contestant in CONTESTANTS:
        frontier = found.frontier(contestant)
        if not frontier:
            continue
        best = max(frontier, key=lambda run: run.low or 0.0)
        option = best.option
        rows.append(
            [
                contestant,
                *(_time(found, contestant, target) for target in found.targets),
                f"{best.test:.2f} ({best.low:.2f} to {best.high:.2f})",
                number(best.seconds),
                "its own" if option is None else f"{option}, {best.passes} passes",
            ]
        )
    return markdown(heading, rows)


def _time(found: Results, contestant: str, target: float) -> str:
    seconds = found.seconds_to(contestant, target)
    frontier = found.frontier(contestant)
    if seconds is None:
        return f"not in {number(max(run.seconds or 0.0 for run in frontier))}"
    at_most = "" if contestant == DEFAULTS or seconds > (frontier[0].seconds or 0.0) else "≤ "
    return at_most + number(seconds)


def draw(found: Sequence[Record], folder: Path = IMAGES) -> None:
    """Draws the figure of every data set, a panel for each processor."""
    from harmonium.report.plots import new_figure, save_figure

    for name, having in _shown(found).items():
        figure = new_figure("benchmarks.quality_page.draw", (6.4 * len(having), 4.2))
        for panel, record in zip(figure.subplots(1, len(having), squeeze=False)[0], having, strict=True):
            _draw(panel, record.results[name], _label(record))
        save_figure(figure, folder / image(name), dpi=130)


def _draw(panel: Any, found: Results, label: str) -> None:
    ends = []
    for contestant in CONTESTANTS:
        runs = found.frontier(contestant)
        if not runs:
            continue
        values = [run.test or 0.0 for run in runs]
        bars = [
            [value - (run.low or 0.0) for run, value in zip(runs, values, strict=True)],
            [(run.high or 0.0) - value for run, value in zip(runs, values, strict=True)],
        ]
        panel.errorbar(
            [run.seconds for run in runs],
            values,
            [[max(0.0, each) for each in side] for side in bars],
            color=_COLOURS[contestant],
            marker="*" if contestant == DEFAULTS else "o",
            markersize=11 if contestant == DEFAULTS else 5,
            capsize=2,
            label=contestant,
        )
        ends.append(max(values))
    top, spread = max(ends), max(ends) - min(ends) + 1.0
    panel.set_ylim(min(ends) - spread, top + 0.15 * spread)
    for target in found.targets:
        panel.axhline(target, color="0.8", linewidth=0.8, zorder=0)
    panel.set_xscale("log")
    panel.set_xlabel("CPU seconds of training, one thread")
    panel.set_ylabel("held-out log-likelihood, nats")
    panel.set_title(f"{found.title}\n{label}", fontsize=10)
    panel.legend(fontsize=8, loc="lower right")
