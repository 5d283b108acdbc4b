"""A command whose options may come from a file, or from a run that there is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, final, get_type_hints

from typer.core import TyperCommand

from harmonium.cli.coding import source_of
from harmonium.cli.run_file import NAME, STRUCTURE, RunFile
from harmonium.machine import load

# An option given on the command line replaces what these say in a file, since they belong to its old value.
_DEPENDENTS = {
    "rule": (
        *("sweeps", "chains", "replicas", "burn_in", "rule_option", "centred"),
        *("kernel", "step", "inner", "correction"),
    ),
    "kernel": ("step", "inner", "correction"),
    "updates": ("epochs",),
    "epochs": ("updates",),
    "optimizer": ("momentum",),
    "objective": ("joint",),
}


@final
class Repeatable(TyperCommand):
    """``harmonium train``: its options from the command line, else from a file, else their defaults.

    ``--config FILE`` names the file; ``--resume`` and ``--from`` take the one in the folder of that run.
    Where it says what the data are, a single argument is RUN_DIR. The context's ``obj`` is the ``RunFile``,
    with this command as the last of its commands.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse twice: to find the file, and then with its settings for defaults."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        command = shlex.join(["harmonium", "train", *args])
        found = self.make_parser(ctx).parse_args(args=list(args))[0]
        given = {name: value for name, value in found.items() if _is_given(value)}
        if given.get("help"):
            return super().parse_args(ctx, args)
        stored = self._stored(given)
        settings = _merged(stored.settings, given)
        if settings.keys() & {"from_run"} or "from_run" in given:
            odd = [name for name in STRUCTURE if name in given or name in settings]
            if odd:
                raise ValueError(f"{odd[0]}: expected none with --from, whose machine it belongs to")
        ctx.obj = replace(
            stored,
            kinds={} if "kinds" in given else stored.kinds,
            commands=[*(stored.commands if "resume" in given else []), command],
        )
        ctx.default_map = settings
        rest = super().parse_args(ctx, args)
        if ctx.params["run_dir"] is None and "data" in settings and "data" in given:
            ctx.params.update(run_dir=Path(ctx.params["data"]), data=settings["data"])
        for name in ("data", "run_dir"):
            if ctx.params[name] is None:
                raise ValueError(f"{name.upper()}: expected one, received none (see harmonium train --help)")
        return rest

    def _stored(self, given: Mapping[str, Any]) -> RunFile:
        """The file that the command line names, or an empty one."""
        if "resume" in given:
            for name in ("config", "from_run"):
                if name in given:
                    raise ValueError(f"resume, {name}: expected at most one of them")
            run = Path(given.get("run_dir", given.get("data", "")))
            if (run / NAME).is_file():
                return self._read(run / NAME)
            if "run_dir" not in given:
                reason = f"holds no {NAME}" if run.is_dir() else "is no folder"
                raise FileNotFoundError(
                    f"RUN_DIR: expected the folder of a run, {run} {reason}; DATA RUN_DIR and the options "
                    "that a run began with resume one without"
                )
            return RunFile()
        if "config" in given:
            stored = self._read(Path(given["config"]))
            return _without_structure(stored) if "from_run" in given else stored
        if "from_run" in given:
            run = Path(given["from_run"])
            if (run / NAME).is_file():
                return _without_structure(self._read(run / NAME))
            if run.is_file():
                source = source_of(load(run))[0]
                return RunFile({} if source is None else {"data": source})
        return RunFile()

    def _read(self, path: Path) -> RunFile:
        return RunFile.read(path, self.params, get_type_hints(self.callback))


def _is_given(value: Any) -> bool:
    return isinstance(value, str | bool | int) or (isinstance(value, list | tuple) and len(value) > 0)


def _merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file that the command line leaves in force."""
    gone = {each for name in given for each in _DEPENDENTS.get(name, ())}
    if "rule" in given and given["rule"] == stored.get("rule"):
        gone -= set(_DEPENDENTS["rule"])
    return {name: value for name, value in stored.items() if name not in gone}


def _without_structure(stored: RunFile) -> RunFile:
    settings = {name: value for name, value in stored.settings.items() if name not in STRUCTURE}
    return RunFile(settings, {}, [], {})
