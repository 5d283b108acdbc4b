"""``run.toml``: the record of a run, from which the command repeats, continues or begins others."""

from __future__ import annotations

import json
import os
import platform
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from typing import Any

from harmonium import backends
from harmonium._settings import Setting, settings_of
from harmonium.backends import processor
from harmonium.training.settings import Settings, Steps, as_plain

RUN_FILE = "run.toml"
_WIDTH = 100  # characters of a line of comment
_HEAD = """\
# A run of harmonium.train. Another from its settings, as far as a file can hold them:
#     harmonium train --config {name} DATA FOLDER
# A name behind # has no value, or one of Python that the command cannot repeat.
"""
_APART = ("encoder", "label", "objective", "requires_grad")  # which the machine's own file has


def key_of(name: str, setting: Setting) -> str:
    """Returns the name of a setting in the file, that of its option without dashes."""
    return (setting.option or name).lstrip("-").replace("-", "_")


def setting_lines(settings: Any, names: Iterable[str]) -> list[str]:
    """Returns the lines of some settings, each with its meaning, by panels."""
    owner: Any = type(settings)
    known, panels = settings_of(owner), dict[str, list[str]]()
    for name in names:
        setting, value = known[name], getattr(settings, name)
        if isinstance(value, Mapping):  # as the command has it
            value = [f"{key}={item}" for key, item in value.items()]
        lines = panels.setdefault("Data" if setting.argument else setting.panel or "The run", [])
        lines += ["", *(f"# {line}" for line in wrap(setting.help, _WIDTH))]
        try:
            lines.append(f"{key_of(name, setting)} = {as_toml(value)}")
        except TypeError:
            words = "" if value is None else " ".join(str(as_plain(value)).split())
            lines.append(f"# {key_of(name, setting)} = {words}".rstrip())
    return [line for panel, lines in panels.items() for line in ("", f"# {panel.upper()}", *lines)]


def describe(settings: Settings) -> str:
    """Returns the settings of ``train`` as the file has them."""
    names = [*settings_of(Steps), "rule", "seed", "evaluate_every", "checkpoint_every"]
    return "\n".join([_HEAD.format(name=RUN_FILE), *setting_lines(settings, names)]) + "\n"


def tables(identity: Mapping[str, Any]) -> str:
    """Returns what the trainer adds to the settings: what the run was in the end, and what made it."""
    run = {name: value for name, value in identity.items() if name not in _APART and value is not None}
    lines = list[str]()
    for name, table in (("run", run), ("made_with", made_with())):
        lines += ["", f"[{name}]", *(f"{k} = {as_toml(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def made_with() -> dict[str, str]:
    """Returns what decides a run's last bits beside its settings: versions, processor, a chosen backend."""
    versions = {name: version(name) for name in ("harmonium", "torch")}
    here = {"python": platform.python_version(), "processor": processor()}
    asked = os.environ.get(backends.VARIABLE)
    return {**versions, **here, **({"products": asked} if asked else {})}


def read_run_file(path: Path) -> dict[str, Any]:
    """Returns the content of a file as TOML has it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: no TOML.
    """
    if not path.is_file():
        raise FileNotFoundError(f"config: expected a file such as RUN/{RUN_FILE}, there is no {path}")
    try:
        return tomllib.loads(path.read_text("utf-8", "surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"config: {path} is no TOML ({error})") from error


def as_toml(value: Any) -> str:
    """Returns a value as TOML, which Python reads but cannot write; TypeError for None and the like."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))  # NumPy's own too
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007F")  # which JSON leaves
    if isinstance(value, Mapping):
        items = (f"{json.dumps(key)} = {as_toml(item)}" for key, item in value.items() if item is not None)
        return "{ " + ", ".join(items) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    raise TypeError(f"value: expected text, a number, a list or a table, received {type(value).__name__}")
