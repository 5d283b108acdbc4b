"""``run.toml``: every setting of a run, from which it can be repeated, continued or begun otherwise."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal, final, get_args, get_origin

import typer

from harmonium import _checks, backends
from harmonium._settings import settings_of
from harmonium.backends import processor
from harmonium.cli.output import note
from harmonium.cli.runs import RUN_FILE
from harmonium.cli.settings import Structure, TrainSettings
from harmonium.machine import load
from harmonium.tables import Codec

_HEAD = """\
# A run of harmonium, in full. The same run once more, in another folder:
#     harmonium train --config {name} FOLDER
# Options on the command line win over what stands here. A name without a value was not given. Paths are
# those that were typed, relative to the folder in which the command is given.
"""

_LONG = 2**63  # TOML's own limit of whole numbers, which Python's reader does not keep
_WIDTH = 100  # characters of a line of comment
_SETTINGS = settings_of(TrainSettings)
_STRUCTURE = settings_of(Structure)
_AT_THE_START = ("initial_std", "init")  # of which a checkpoint has no trace


@final
@dataclass(frozen=True)
class RunFile:
    """The content of ``run.toml``.

    Attributes:
        values: Values of settings, by name.
        kinds: Kinds of columns, where they stand in the file itself.
        commands: that made the run, as typed.
        made_with: versions and what else decides the last bits.
    """

    values: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    made_with: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> RunFile:
        """Reads a file; refuses one that is no TOML, an unknown name or a value of another kind, by name."""
        if not path.is_file():
            raise FileNotFoundError(f"config: expected a file such as RUN/{RUN_FILE}, there is no {path}")
        try:
            content = tomllib.loads(path.read_text("utf-8", "surrogateescape"))
        except ValueError as error:
            raise ValueError(f"config: {path} is no TOML ({error})") from error
        known = {_key(name): name for name in _SETTINGS}
        made_with, commands = content.pop("made_with", {}), content.pop("commands", [])
        kinds = content.pop("kinds") if isinstance(content.get("kinds"), dict) else {}
        if not isinstance(made_with, dict) or not isinstance(commands, list):
            raise ValueError(f"config: {path}: expected a list of commands and a table made_with")
        values: dict[str, Any] = {}
        for written, value in content.items():
            key = written.replace("-", "_")
            if key not in known:
                hint = _checks.close_to(key, known) or "; harmonium train --help lists the options"
                raise ValueError(f"config: {path}: there is no setting called {written!r}{hint}")
            name = known[key]
            values[name] = _typed(_SETTINGS[name].kind, value, f"config: {path}: {written}")
        return cls(values, kinds, list(map(str, commands)), made_with)

    def without_structure(self) -> RunFile:
        """Returns the settings that hold for any machine, which goes on by chains."""
        structure = {*_STRUCTURE, "method"}
        return RunFile({name: value for name, value in self.values.items() if name not in structure})

    def left_by(self, given: Sequence[str], rule: str | None) -> dict[str, Any]:
        """Returns the values that the settings given on the command line leave in force.

        Each takes along what belongs to its old value, a rule only where it is another one.
        """
        changed = {name for name in given if name != "rule" or rule != self.values.get("rule")}
        return {
            name: value
            for name, value in self.values.items()
            if name not in given and changed.isdisjoint(_SETTINGS[name].belongs_to)
        }

    def text(self, settings: TrainSettings) -> str:
        """Returns the file as made by this process, each setting with its meaning; None has no value.

        ``kinds`` stand for the file that the settings name.
        """
        lines = [_HEAD.format(name=RUN_FILE), "commands = ["]
        lines += [*(f"    {as_toml(command)}," for command in self.commands), "]"]
        left_out = {
            "run_dir",
            *(("kinds",) if self.kinds else ()),
            *(_STRUCTURE if settings.from_run else ()),
        }
        panels: dict[str, list[str]] = {}
        for name, setting in _SETTINGS.items():
            if name not in left_out:
                panel = "Data" if setting.argument else setting.panel or "The run"
                panels.setdefault(panel, []).append(name)
        for panel, names in panels.items():
            lines += ["", f"# {panel.upper()}"]
            for name in names:
                value = getattr(settings, name)
                lines += ["", *(f"# {line}" for line in wrap(_SETTINGS[name].help, _WIDTH))]
                lines.append(f"# {_key(name)} =" if value is None else f"{_key(name)} = {as_toml(value)}")
        kinds = {} if settings.from_run else self.kinds
        for name, table in (("kinds", kinds), ("made_with", made_with())):
            if table:
                lines += ["", f"[{name}]", *(f"{as_toml(k)} = {as_toml(v)}" for k, v in table.items())]
        return "\n".join(lines) + "\n"

    def warn_of_differences(self) -> None:
        """Notes what differs from the process that made the run, and so may change the last bits."""
        here = made_with()
        differing = [f"{name} {value}" for name, value in self.made_with.items() if here.get(name) != value]
        if differing:
            note(
                f"warning: the run was made with {', '.join(differing)}, which differs here: expect the same "
                "run but for rounding, not the same bytes"
            )


def settings_of_run(run: Path) -> dict[str, Any]:
    """Returns the settings of a run's folder by name; none of a file, or where it holds no ``run.toml``."""
    path = run / RUN_FILE
    values = RunFile.read(path).values if path.is_file() else {}
    own = {"run_dir", "threads", "device", "from_run"}
    return {name: value for name, value in values.items() if name not in own}


def settings_in_force(
    ctx: typer.Context, typed: TrainSettings, config: Path | None, resume: bool
) -> tuple[TrainSettings, RunFile]:
    """Returns the settings of a run: those typed, else those of a file, else their defaults.

    ``--config FILE`` names the file; ``--resume`` and ``--from`` take the one in the folder of that run.
    Where it says what the data are, a single argument is RUN_DIR.
    """
    sources = {name: ctx.get_parameter_source(name) for name in _SETTINGS}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    stored = _file_of(typed, config, resume)
    alone = "data" in given and "run_dir" not in given
    if alone and "data" in stored.values and "run_dir" not in stored.values:
        typed, given = replace(typed, run_dir=Path(str(typed.data)), data=None), [*given, "run_dir"]
        given.remove("data")
    values = stored.left_by(given, typed.rule)
    if typed.from_run is not None or "from_run" in values:
        odd = [name for name in _STRUCTURE if name in given or name in values]
        if odd:
            raise ValueError(f"{odd[0]}: expected none with --from, whose machine it belongs to")
    for name in _AT_THE_START if resume and stored.values else ():
        begun, asked = stored.values.get(name), getattr(typed, name)
        if name in given and asked != begun:
            raise ValueError(
                f"{name}: expected {'none' if begun is None else begun} as in the run to resume, which has "
                f"begun, received {asked}; train without --resume begins another run"
            )
    settings = replace(typed, **values)
    for name in ("data", "run_dir"):
        if getattr(settings, name) is None:
            raise ValueError(f"{name.upper()}: expected one, received none (see harmonium train --help)")
    return settings, replace(
        stored,
        kinds={} if "kinds" in given else stored.kinds,
        commands=[*(stored.commands if resume else []), shlex.join(["harmonium", *ctx.obj])],
    )


def _file_of(typed: TrainSettings, config: Path | None, resume: bool) -> RunFile:
    """Reads the file that the command line names; an empty one where it names none."""
    if resume:
        for name, value in (("config", config), ("from_run", typed.from_run)):
            if value is not None:
                raise ValueError(f"resume, {name}: expected at most one of them")
        run = Path(typed.run_dir or typed.data or "")
        if (run / RUN_FILE).is_file():
            return RunFile.read(run / RUN_FILE)
        if typed.run_dir is None:
            reason = f"holds no {RUN_FILE}" if run.is_dir() else "is no folder"
            raise FileNotFoundError(
                f"RUN_DIR: expected the folder of a run, {run} {reason}; DATA RUN_DIR and the options "
                "that a run began with resume one without"
            )
        return RunFile()
    if config is not None:
        stored = RunFile.read(config)
        return stored if typed.from_run is None else stored.without_structure()
    if typed.from_run is not None:
        if (typed.from_run / RUN_FILE).is_file():
            return RunFile.read(typed.from_run / RUN_FILE).without_structure()
        if typed.from_run.is_file():
            source = Codec.of(load(typed.from_run)).source
            return RunFile({} if source is None else {"data": source})
    return RunFile()


def made_with() -> dict[str, str]:
    """Returns the versions, processor and products that determine a run's last bits beside its settings."""
    versions = {name: version(name) for name in ("harmonium", "torch")}
    return {**versions, "processor": processor(), "products": str(backends.get_backend())}


def as_toml(value: Any) -> str:
    """Returns a value as TOML, which Python reads but cannot write; TypeError for None and the like."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")  # which JSON leaves
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    raise TypeError(f"value: expected text, a number, a list or a table, received {type(value).__name__}")


def _key(name: str) -> str:
    """Returns the name of a setting in the file, that of its option without dashes."""
    return (_SETTINGS[name].option or name).lstrip("-").replace("-", "_")


def _typed(kind: Any, value: Any, name: str) -> Any:
    """Returns a value of a file as one of a setting's type, such as ``int | None``."""
    kinds = [str if get_origin(each) is Literal else each for each in get_args(kind) or (kind,)]
    if isinstance(value, int) and abs(value) >= _LONG:
        raise ValueError(f"{name}: expected a number below 2^63, received one of {len(str(value))} digits")
    if list[str] in kinds:
        return [_typed(str, each, name) for each in (value if isinstance(value, list) else [value])]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    for each, fits, expected in (
        (bool, isinstance(value, bool), "true or false"),
        (int, number and isfinite(value) and value == int(value), "a whole number"),
        (float, number, "a number"),
        (Path, isinstance(value, str) and bool(value), "a path"),
        (str, isinstance(value, str) or number, "text"),
    ):
        if each in kinds:
            if not fits:
                raise ValueError(f"{name}: expected {expected}, received {value!r}")
            return each(value)
    raise AssertionError(f"{name}: a setting of type {kind} has no place in a file")
