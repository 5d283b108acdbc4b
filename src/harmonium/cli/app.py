"""The application: commands, found by their files, and errors as lines and exit statuses."""

from __future__ import annotations

import ast
import gc
import os
import re
import sys
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from itertools import islice, pairwise
from pathlib import Path
from typing import Annotated, Any, final

import typer
from typer.core import TyperCommand, TyperGroup

from harmonium.cli.output import note

_HELP = {"help_option_names": ["-h", "--help"]}
_FOLDER = Path(__file__).with_name("commands")
IMPORT = "HARMONIUM_IMPORT"  # modules that make units, couplings and kernels of the user's own
# Of torch: the allocators of processors and of GPUs, and sizes that do not even fit into 64 bits.
_NO_ROOM = re.compile("can't allocate memory|out of memory|Storage size calculation overflowed")
_FIRST = ("demo", "train", "evaluate", "sample")  # in the list of commands; the others follow by their names


def command_names() -> list[str]:
    """Returns the names of all commands, as they are listed."""
    commands = {path.stem for path in _FOLDER.glob("*.py")} - {"__init__"}
    return [*(name for name in _FIRST if name in commands), *sorted(commands.difference(_FIRST))]


def summary(name: str) -> str:
    """Returns the first paragraph of a command's description, without importing what the command needs."""
    (function,) = (
        node
        for node in ast.parse((_FOLDER / f"{name}.py").read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    return " ".join((ast.get_docstring(function) or "").partition("\n\n")[0].split())


@cache
def parser_of(name: str) -> Any:
    """Returns the parser of a command, whose file is imported.

    A function that returns nothing is typer's own; of others the parameters are settings.
    """
    alone = typer.Typer(add_completion=False)
    gc.disable()
    try:
        module = import_module(f"harmonium.cli.commands.{name}")
        function = getattr(module, name)
        if function.__annotations__.get("return", "") not in ("None", None):
            from harmonium.cli.options import with_options  # needs torch

            function = with_options(function)
        alone.command(
            context_settings=_HELP,
            # Paragraphs keep their lines apart.
            epilog="\n\n".join([*getattr(module, "LISTED", ()), "Examples:", *module.EXAMPLES]),
        )(function)
    finally:
        gc.freeze()  # what imports make stays: a search for garbage in it takes part of a second
        gc.enable()
    return typer.main.get_command(alone)


@final
class _Commands(TyperGroup):
    """Commands that are imported when one is called: torch takes seconds, and a list of them needs none."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = dict.fromkeys(command_names())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=summary(cmd_name)) if cmd_name in self.commands else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, listed, rest = super().resolve_command(ctx, args)
        for module in filter(None, os.environ.get(IMPORT, "").split(",")):
            import_module(module.strip())  # before the parser is made, whose help and completion list kinds
        return name, listed and parser_of(str(name)), rest


app = typer.Typer(
    name="harmonium",
    cls=_Commands,
    context_settings=_HELP,
    epilog="Begin with harmonium demo. harmonium COMMAND -h says more of one, with examples.",
    pretty_exceptions_enable=False,
)

USAGE, FAILURE, INTERRUPTED = 2, 1, 130

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
        warnings.showwarning = lambda said, *_: note(f"warning: {_in_options(str(said), arguments)}")
        try:
            return int(app(args=arguments, prog_name="harmonium", standalone_mode=False, obj=arguments) or 0)
        except _UsageError as error:
            path = error.ctx.command_path if error.ctx else "harmonium"
            names = getattr(getattr(error, "param", None), "opts", ())
            values = (value for name, value in pairwise(arguments) if name in names)
            received = "".join(f", received {value!r}" for value in islice(values, 1))
            return _fail(f"{error.format_message()}{received} (see {path} --help)", USAGE)
        except _MISTAKES as error:
            return _fail(_in_options(str(error), arguments), USAGE)
        except (KeyboardInterrupt, typer.Abort):
            return INTERRUPTED
        except (ImportError, OSError, MemoryError) as error:
            return _fail(str(error) or type(error).__name__, FAILURE)
        except RuntimeError as error:
            from harmonium.training import TrainingDiverged  # torch is loaded by now

            if _NO_ROOM.search(str(error)):
                message = "not enough memory; use smaller batches, or fewer chains or units"
                return _fail(f"{message} ({str(error).splitlines()[0]})", FAILURE)
            if not isinstance(error, TrainingDiverged):
                raise
            return _fail(str(error), FAILURE)


def _fail(message: str, status: int) -> int:
    """Prints one line, also where a damaged file put line breaks, or orders to a terminal, into its names."""
    line = " ".join(message.split())
    note("error: " + "".join(c if c.isprintable() else repr(c)[1:-1] for c in line))
    return status


def _in_options(message: str, arguments: Sequence[str]) -> str:
    """Returns a message that begins with the command's options and arguments in place of its settings."""
    called = next((name for name in arguments if name in command_names()), None)
    names = {"X": "DATA"}
    for parameter in parser_of(called).params if called else ():
        argument = parameter.param_type_name == "argument"
        metavar = parameter.metavar or parameter.name.upper()
        names[parameter.name] = metavar.strip("[]") if argument else parameter.opts[0]
    names = {name: names.get("run", name) for name in ("machine", "path")} | names
    head, colon, rest = message.partition(": ")
    rest = re.sub(r"(?<!-)\b(?=(resume continues|overwrite replaces) it)", "--", rest)
    return ", ".join(names.get(word, word) for word in head.split(", ")) + colon + rest
