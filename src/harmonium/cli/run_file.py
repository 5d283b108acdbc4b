"""``run.toml``: every setting of a run, from which it can be repeated."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from textwrap import wrap
from types import NoneType
from typing import Any, final, get_args, get_origin

from harmonium import products
from harmonium.cli.output import note
from harmonium.cli.toml_text import toml_text
from harmonium.products.processor import processor

NAME = "run.toml"

_HEAD = """\
# A run of harmonium, in full. The same run once more, in another folder:
#     harmonium train --config {name} FOLDER
# Options on the command line win over what stands here. A name without a value was not given. Paths are
# those that were typed, relative to the folder in which the command is given.
"""
# What says how a command acts, and not what the run is.
_NO_SETTINGS = ("config", "resume", "overwrite", "as_json", "help")
_NOT_WRITTEN = (*_NO_SETTINGS, "run_dir", "ctx")
# What a machine brings along.
STRUCTURE = ("label", "kinds", "visible", "hidden", "hidden_kind", "hidden_states", "binarise", "initial_std")
_RECORD = ("commands", "made_with")
_WIDTH = 100


@final
@dataclass(frozen=True)
class RunFile:
    """The content of ``run.toml``: the settings of a run.

    Attributes:
        settings: by the name of the parameter of ``harmonium train``.
        kinds: of columns, where they stand in the file itself.
        commands: that made the run, as typed.
        made_with: versions and what else decides the last bits.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    made_with: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, parameters: Sequence[Any], kinds_of: Mapping[str, Any]) -> RunFile:
        """The content of a file.

        Args:
            path: of a TOML file.
            parameters: of the command whose settings it holds.
            kinds_of: the annotation of each by its name.

        Raises:
            FileNotFoundError: no such file.
            ValueError: no TOML, an unknown name, or a value of another kind; the message names it.
        """
        if not path.is_file():
            raise FileNotFoundError(f"config: expected a file such as RUN/{NAME}, there is no {path}")
        try:
            content = tomllib.loads(path.read_text("utf-8", "surrogateescape"))
        except ValueError as error:
            raise ValueError(f"config: {path} is no TOML ({error})") from error
        known = {key_of(each): each for each in parameters if each.name not in _NO_SETTINGS}
        settings: dict[str, Any] = {}
        for written, value in content.items():
            key = written.replace("-", "_")
            if key in _RECORD:
                continue
            if key not in known:
                raise ValueError(f"config: {path}: {_unknown(written, known)}")
            if key == "kinds" and isinstance(value, dict):
                continue
            parameter = known[key].name
            settings[parameter] = _fitting(kinds_of[parameter], value, f"config: {path}: {written}")
        made_with, commands = content.get("made_with", {}), content.get("commands", [])
        if not isinstance(made_with, dict) or not isinstance(commands, list):
            raise ValueError(f"config: {path}: expected a list of commands and a table made_with")
        kinds = content.get("kinds")
        return cls(settings, kinds if isinstance(kinds, dict) else {}, list(map(str, commands)), made_with)

    @classmethod
    def of(cls, settings: Mapping[str, Any], kinds: Mapping[str, Any], commands: Sequence[str]) -> RunFile:
        """Collects the content to write for a run.

        Args:
            settings: of a command, all of them.
            kinds: of columns, by name.
            commands: that made the run.
        """
        unwritten = _NOT_WRITTEN if settings["from_run"] is None else (*_NOT_WRITTEN, *STRUCTURE)
        kept = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in settings.items()
            if name not in unwritten
        }
        return cls(kept, dict(kinds) if "kinds" in kept else {}, list(commands))

    def text(self, parameters: Sequence[Any]) -> str:
        """The file as made by this process, each setting with its meaning; a setting of None has no value.

        Args:
            parameters: of the command whose settings these are, in the order of the file.
        """
        lines = [_HEAD.format(name=NAME), "commands = ["]
        lines += [*(f"    {toml_text(command)}," for command in self.commands), "]"]
        written = [each for each in parameters if each.name in self.settings]
        panels = list(dict.fromkeys(map(_panel, written)))
        panel = None
        for each in sorted(written, key=lambda each: panels.index(_panel(each))):
            if each.name == "kinds" and self.kinds:
                continue
            if _panel(each) != panel:
                panel = _panel(each)
                lines += ["", f"# {panel.upper()}"]
            value = self.settings[each.name]
            lines += ["", *(f"# {line}" for line in wrap(each.help or "", _WIDTH))]
            key = key_of(each)
            lines.append(f"# {key} =" if value is None else f"{key} = {toml_text(value)}")
        for name, table in (("kinds", self.kinds), ("made_with", made_with())):
            if table:
                lines += ["", f"[{name}]", *(f"{toml_text(k)} = {toml_text(v)}" for k, v in table.items())]
        return "\n".join(lines) + "\n"

    def act_alike(self) -> None:
        """Says of what differs from the run that the last bits may."""
        if "products" in self.made_with:
            products.get_backend()
        here = made_with()
        differing = [f"{name} {value}" for name, value in self.made_with.items() if here.get(name) != value]
        if differing:
            note(
                f"warning: the run was made with {', '.join(differing)}, which differs here: expect the same "
                "run but for rounding, not the same bytes"
            )


def made_with() -> dict[str, str]:
    """Returns the versions, processor and products that determine a run's last bits beside its settings."""
    here = {name: version(name) for name in ("harmonium", "torch")} | {"processor": processor()}
    return here if products.backend_name() is None else {**here, "products": str(products.get_backend())}


def key_of(parameter: Any) -> str:
    """The name of a parameter in the file, that of its option without dashes."""
    if parameter.param_type_name == "argument":
        return str(parameter.name)
    return str(parameter.opts[0]).lstrip("-").replace("-", "_")


def _panel(parameter: Any) -> str:
    named: str | None = getattr(parameter, "rich_help_panel", None)
    return named or ("Data" if parameter.name == "data" else "The run")


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name.replace("-", "_"), known, n=3, cutoff=0.5)
    hint = f"close to it: {', '.join(close)}" if close else "harmonium train --help lists the options"
    return f"there is no setting called {name!r}; {hint}"


def _fitting(kind: Any, value: Any, name: str) -> Any:
    """A value as the parser takes it.

    Args:
        kind: the annotation of the parameter, such as ``int | None``.
        value: from the file.
        name: of the setting, for the message.

    Raises:
        ValueError: of another kind.
    """
    kinds = {each for each in get_args(kind) or (kind,) if each is not NoneType}
    if any(get_origin(each) is list for each in kinds):
        return [_fitting(str, each, name) for each in (value if isinstance(value, list) else [value])]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if bool in kinds:
        fits, expected = isinstance(value, bool), "true or false"
    elif int in kinds:
        fits, expected = number and isfinite(value) and value == int(value), "a whole number"
    elif float in kinds:
        fits, expected = number, "a number"
    else:
        fits, expected = isinstance(value, str) or number, "text"
    if not fits:
        raise ValueError(f"{name}: expected {expected}, received {value!r}")
    return str(value) if expected == "text" else value
