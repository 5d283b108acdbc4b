"""Model cards: what a published machine is, what it learned from and how good it is, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harmonium._html import format_value
from harmonium.machine import BoltzmannMachine
from harmonium.report.logos import letters_of


def model_card(
    machine: BoltzmannMachine,
    evaluation: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    *,
    title: str = "A Boltzmann machine",
    file: str = "machine.safetensors",
) -> str:
    """Returns a model card as Markdown: the machine, its training, its evaluation, and how to use it.

    What nobody but its author knows, such as what it is meant for, stands there as a question.

    Args:
        machine: Machine that is published.
        evaluation: Results as in the JSON of ``harmonium evaluate``, with ``log_partition``, ``results`` and
            ``notes``; None: the card says that there is none.
        training: settings of the run by name, such as those of ``run.toml``; None is left out.
        title: Title of the card.
        file: Name of the file that the machine is published as.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        >>> print(hm.report.model_card(machine).splitlines()[0])
        # A Boltzmann machine
    """
    alphabet = letters_of(machine)
    letters = "" if alphabet is None else f"Its letters are `{alphabet}`, by their states."
    parts = [
        f"# {title}",
        "Intended use: … Not intended for: … License: …",
        "## Machine",
        f"```\n{machine.describe().rstrip()}\n```",
        *([letters] if letters else []),
        "## Training",
        _table(_known(training)) if training else "Not recorded.",
        "## Evaluation",
        *(_evaluated(evaluation) if evaluation else ["None yet: `harmonium evaluate` makes one."]),
        "## Use",
        f'```python\nimport harmonium as hm\n\nmachine = hm.load("{file}")\n'
        "rows = hm.tasks.sample(machine, 100).rows\n```",
        "`harmonium sample -h` says how to draw from it on the command line.",
    ]
    return "\n\n".join(parts) + "\n"


def _evaluated(evaluation: Mapping[str, Any]) -> list[str]:
    parts = []
    if partition := evaluation.get("log_partition"):
        parts += ["ln Z, in nats:", _table(_known(partition))]
    rows: Sequence[Mapping[str, Any]] = evaluation.get("results") or ()
    if rows:
        names = list(rows[0])
        lines = [[row.get(name) for name in names] for row in rows]
        parts += ["Means over rows, in nats:", _table(lines, [name.replace("_", " ") for name in names])]
    if notes := evaluation.get("notes"):
        parts.append("\n".join(f"- {note}" for note in notes))
    return parts


def _known(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns the values that there are, each with its name."""
    return [(name.replace("_", " "), value) for name, value in values.items() if value is not None]


def _table(rows: Iterable[Sequence[Any]], head: Sequence[str] = ("", "")) -> str:
    """Returns rows below their head as a Markdown table."""
    texts = [[format_value(x).replace("|", "\\|").replace("\n", " ") for x in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *texts])
