"""The application: its commands, and what becomes of errors."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Annotated, Any, final

import typer
from typer.core import TyperGroup

from harmonium._upgrade import OPTIONS
from harmonium.cli.examples import epilog
from harmonium.cli.output import note

# Each is the function of that name in the file of that name, and begins its description with this line.
COMMANDS = {
    "train": "Train a machine on DATA and keep it in RUN_DIR.",
    "evaluate": "Evaluate a machine: ln Z, and the mean log-likelihood and pseudo-likelihood of DATA, "
    "in nats.",
    "sample": "Draw samples from a machine by Markov chains and write them to a file.",
    "denoise": "Estimate clean rows from noisy ones, with a machine as what is known of clean rows.",
    "impute": "Fill in missing values given the rest of each row, and write the completed rows to a file.",
    "predict": "Predict the label, or any column, from the rest of each row, and write it to a file.",
    "landscape": "Find the TAP solutions that rows of DATA flow to, and draw them.",
    "report": "Tell of a run in one HTML page: how it went, how good the machine is, what it has learned.",
    "data": "Describe DATA; convert them, draw them.",
    "reproduce": "List the experiments behind the documentation's figures, or run one again.",
    "info": "Show what harmonium runs on here, and which matrix-multiplication backend it uses.",
}


_HELP = {"help_option_names": ["-h", "--help"]}


@final
class _Commands(TyperGroup):
    """Commands that are imported when one is called: torch takes seconds, and a list of them needs none."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, listed and _command(str(name)), rest


@cache
def _command(name: str) -> Any:
    alone = typer.Typer(add_completion=False)
    gc.disable()
    try:
        module = import_module(f"harmonium.cli.{name}")
        alone.command(
            cls=getattr(module, "COMMAND", None),
            context_settings={**_HELP, **getattr(module, "CONTEXT", {})},
            epilog=epilog(name),
        )(getattr(module, name))
    finally:
        gc.freeze()  # what imports make stays: a search for garbage in it takes part of a second
        gc.enable()
    return typer.main.get_command(alone)


app = typer.Typer(
    name="harmonium",
    cls=_Commands,
    context_settings=_HELP,
    epilog="harmonium COMMAND -h says more of one, with examples.",
    pretty_exceptions_enable=False,
)
for name, summary in COMMANDS.items():
    app.command(name, help=summary)(lambda: None)

USAGE, FAILURE, INTERRUPTED = 2, 1, 130
IMPORT = "HARMONIUM_IMPORT"  # modules that make units, couplings and kernels of the user's own

# The common base of every complaint of the parser; its own name has moved between versions of typer.
_UsageError: Any = typer.BadParameter.__base__
_MISTAKES = (ValueError, TypeError, FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"harmonium {version('harmonium')}")
        raise typer.Exit


@app.callback()
def harmonium(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Train, evaluate, sample and use Boltzmann machines."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: what follows the program's name; None takes them from the process.

    Returns:
        The exit status: 0 on success, 2 after a mistake in the arguments or the data, 1 after any other
        failure, 130 after Ctrl-C, 143 after a training run that SIGTERM ended.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: note(f"warning: {message}")
        try:
            for module in filter(None, os.environ.get(IMPORT, "").split(",")):
                import_module(module.strip())
            return int(app(args=arguments, prog_name="harmonium", standalone_mode=False) or 0)
        except _UsageError as error:
            received = _received(error, arguments)
            command = error.ctx.command_path if error.ctx else "harmonium"
            gone = next((f"; {OPTIONS[word]}" for word in arguments if word in OPTIONS), "")
            return _fail(f"{error.format_message()}{received} (see {command} --help){gone}", USAGE)
        except _MISTAKES as error:
            return _fail(_in_options(str(error)), USAGE)
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except (ImportError, OSError, MemoryError) as error:
            return _fail(str(error) or type(error).__name__, FAILURE)
        except RuntimeError as error:
            from harmonium.training import TrainingDiverged  # torch is loaded by now

            if not isinstance(error, TrainingDiverged):
                raise
            return _fail(str(error), FAILURE)


def _fail(message: str, status: int) -> int:
    """One line, also where a damaged file put line breaks, or orders to a terminal, into its names."""
    line = " ".join(message.split())
    note("error: " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
    return status


def _received(error: Any, arguments: Sequence[str]) -> str:
    """The value of the option that the parser complains about, which its message leaves out."""
    names = getattr(getattr(error, "param", None), "opts", ())
    return next((f", received {value!r}" for name, value in pairwise(arguments) if name in names), "")


def _in_options(message: str) -> str:
    """A message of the library with its arguments called as on the command line."""
    names = {"X": "DATA", "k": "--sweeps", "run_dir": "RUN_DIR"}
    for command in COMMANDS:
        for parameter in _command(command).params:
            if parameter.param_type_name == "option":
                names.setdefault(parameter.name, parameter.opts[0])
    head, colon, rest = message.partition(": ")
    head = ", ".join(names.get(word, word) for word in head.split(", "))
    text = head + colon + rest
    words = {
        "overwrite=True": "--overwrite",
        "resume=True": "--resume",
        'unknown="missing"': "--unknown missing",
    }
    for word, flag in words.items():
        text = text.replace(word, flag)
    return text
