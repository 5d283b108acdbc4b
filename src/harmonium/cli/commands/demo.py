"""``harmonium demo``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from harmonium.cli.app import main
from harmonium.cli.output import note

EXAMPLES = ("harmonium demo", "harmonium demo runs/first")

_SETTINGS = "--binarise threshold --hidden 50 --updates 3000 --learning-rate 0.3 --schedule linear"
_STEPS = (
    f"train digits RUN {_SETTINGS} --weight-decay 0.001 --threads 1",
    "evaluate RUN digits --chains 50 --temperatures 500",
    "sample RUN --rows 40 --out RUN/samples.png",
    "report RUN",
)


def demo(
    run_dir: Annotated[
        Path, typer.Argument(metavar="[RUN_DIR]", help="A new folder for the run and all that is made of it.")
    ] = Path("runs/demo"),
) -> None:
    """Train, judge and sample a small machine on digits, and write a report: four commands, half a minute.

    Each command is shown before it runs, so that you can take it over with data of your own.
    """
    if run_dir.exists():
        raise ValueError(f"run_dir: {run_dir} exists; name a new folder, such as {run_dir}-2")
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    for step in _STEPS:
        words = [word.replace("RUN", str(run_dir)) for word in step.split()]
        note(f"\n$ harmonium {shlex.join(words)}")
        status = main(words)
        if status and words[0] != "report":  # which needs an extra, and says so
            raise typer.Exit(status)
    note(f"\nlook at {run_dir / 'report.html'} and {run_dir / 'samples.png'}; then take data of your own:")
    note("$ harmonium data FILE         what its columns are")
    note("$ harmonium train FILE runs/first")
