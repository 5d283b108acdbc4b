"""Options: those that commands share, and how settings become options."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from inspect import Parameter, Signature, cleandoc, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
import typer

from harmonium._settings import COUNT, Checked, Interval, Setting, settings_of
from harmonium._storage import LADDER
from harmonium.chains import Kernel
from harmonium.cli.output import Unfinished, show
from harmonium.cli.runs import load_machine
from harmonium.data import BUILT_IN
from harmonium.distributed import count_started
from harmonium.ladder import Ladder, lead_to, load_ladder
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec

Result = TypeVar("Result")

Data = Annotated[str, Setting(metavar="DATA", argument=True, suggests=BUILT_IN)]
"""Data by their place on the command line."""
OtherData = Annotated[str, Setting(metavar="DATA", suggests=BUILT_IN)]
"""Data by an option."""
Seed = Annotated[int, Setting(help="Where all randomness comes from.")]
Device = Annotated[str, Setting(help="Where to compute, such as cpu or cuda.")]
Threads = Annotated[int, Setting(COUNT, help="CPU threads; torch's own choice if not given.")]
Evidence = Annotated[
    Path, Setting(metavar="FILE", help="Observed variables of a file of UAI, such as a .uai.evid file.")
]
Overwrite = Annotated[bool, Setting(option="--overwrite", help="Replace what is already there.")]
ImageShape = Annotated[str, Setting(help="Shape of an image, such as 28x28, where the data have none.")]
Unknown = Annotated[
    Literal["error", "missing"],
    Setting(
        help="Of letters of sequences that stand for several: missing sums over them, error refuses them. "
        "If not given as in training, and there gaps.",
    ),
]

Read = Annotated[
    list[str],
    Setting(
        metavar="NAME=VALUE",
        help="Of tables in files: an argument of pandas' reader, such as sep=;, decimal=,, header=none, "
        "comment=#, encoding=latin-1, sheet_name=2019, or na_values=-99 for missing cells; repeatable.",
    ),
]
Kinds = Annotated[
    str,
    Setting(
        metavar="FILE",
        help="TOML, or such a line itself: what kinds of units some columns have.",
    ),
]
Alphabet = Annotated[
    str,
    Setting(
        help="Of sequences: protein, rna, dna, or letters in an order of their own; by the letters if not "
        "given."
    ),
]
Reweight = Annotated[
    float,
    Setting(
        Interval(0.0, 1.0, "right"),
        help="Count a row as 1/n where n rows, itself among them, agree with it in this share of columns, "
        "such as 0.8 for sequences.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Common(Checked):
    """Options of every command that shows a result."""

    threads: Threads | None = None
    as_json: Annotated[bool, Setting(option="--json", help="Print the result as JSON.")] = False


@dataclass(frozen=True, kw_only=True)
class Trained(Checked):
    """The machine of a command that uses one.

    Attributes:
        run: a run's folder, a machine's .safetensors file, or a file of another program.
        averaged: take the run's averaged parameters.
    """

    run: Annotated[Path, Setting(metavar="RUN", argument=True)]
    averaged: Annotated[bool, Setting(option="--averaged")] = False
    device: Device | None = None

    def load(self, unknown: str | None = None, evidence: Path | None = None) -> tuple[Codec, Path]:
        """Returns the machine with the coding of its data, and the file that it comes from.

        Args:
            unknown: of sequences, what letters that stand for several are taken as; None: as
                in training.
            evidence: observed variables of a file of UAI.

        Raises:
            FileNotFoundError: no such run, or it holds no such machine.
            ValueError: a damaged file, or a device that cannot be used.
        """
        machine, source = load_machine(self.run, self.averaged, as_device(self.device), evidence)
        return Codec.of(machine, unknown), source

    def ladder(self, machine: BoltzmannMachine) -> Ladder | None:
        """Returns the ladder to a machine that its run has kept; None: it has kept none.

        Raises:
            ValueError: a damaged file.
        """
        path = self.run / LADDER
        if not path.is_file():
            return None
        stored = load_ladder(path, machine)
        return lead_to(stored, machine) if self.averaged else stored


@dataclass(frozen=True, kw_only=True)
class Chains(Checked):
    """The kernel of a command that runs chains.

    Attributes:
        kernel: what moves the chains; gibbs if not given.
        kernel_option: what the kernel takes, such as step=0.2; repeatable.
    """

    PANEL: ClassVar[str] = "Chains"
    METHOD: ClassVar[str] = "chains"
    kernel: Annotated[str | None, Setting(Kernel.registry, belongs_to=("rule",))] = None
    kernel_option: Annotated[
        list[str] | None, Setting(metavar="NAME=VALUE", belongs_to=("rule", "kernel"))
    ] = None

    def make_kernel(self) -> Kernel | None:
        """Returns the kernel that the options describe; None where none was named.

        Raises:
            ValueError: an option that the kernel does not take.
        """
        chosen = Kernel.registry[self.kernel or "gibbs"]
        kernel = make_named("kernel_option", chosen, self.kernel_option, signature(chosen).parameters)
        return None if self.kernel is None else kernel


def result_folder(run: Path, out: Path | None, name: str, files: Sequence[str], overwrite: bool) -> Path:
    """Returns the folder of a command's results: ``out``, or one of this name in the run's or beside a file.

    Raises:
        FileExistsError: it holds one of the files, which are not to be replaced.
    """
    folder = out or (run if run.is_dir() else run.parent) / name
    existing = [name for name in files if (folder / name).exists()]
    if existing and not overwrite:
        raise FileExistsError(f"out: {folder / existing[0]} exists; --overwrite replaces it")
    return folder


def as_device(name: str | None) -> torch.device:
    """Returns a device by its name, the CPU by default, that torch can put a tensor on.

    Under torchrun "cuda" is the GPU that has the number of the process on its computer.

    Raises:
        ValueError: it cannot.
    """
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: {name} cannot be used ({str(error).splitlines()[0]})") from error
    return device


def is_leading() -> bool:
    """Returns whether this process checks, prints and writes for all."""
    return count_started() == 1 or os.environ.get("RANK") == "0"


def image_shape_of(text: str | None, known: Sequence[int] | None, needed: bool) -> tuple[int, ...]:
    """Returns (28, 28) for "28x28", (32, 32, 3) for "32x32x3"; without a text the known shape, or ().

    Args:
        text: the option ``ImageShape``.
        known: that of the data, where they have one.
        needed: whether there has to be one.

    Raises:
        ValueError: another form, or no shape where one is needed.
    """
    sides = known or () if text is None else text.lower().split("x")
    good = len(sides) in (2, 3) and all(str(side).isdecimal() and int(side) > 0 for side in sides)
    if not good and (needed or text is not None):
        received = "none for data without a shape" if text is None else repr(text)
        raise ValueError(f"image_shape: expected a form such as 28x28 or 32x32x3, received {received}")
    return tuple(map(int, sides))


def make_named(
    name: str, make: Callable[..., Result], texts: Sequence[str] | None, known: Collection[str], **fixed: Any
) -> Result:
    """Makes a rule or a kernel from values by options of their own and by one NAME=VALUE.

    Args:
        name: the second option, such as ``rule_option``.
        make: what takes the values.
        texts: what was typed with that option.
        known: names that may be typed there.
        **fixed: values by options of their own.

    Raises:
        ValueError: another form, an unknown name, one given twice, or a value of no meaning.
    """
    read: dict[str, Any] = {}
    for text in texts or ():
        option, equals, value = (part.strip() for part in text.partition("="))
        if not equals or option not in known:
            names = f"with NAME one of {', '.join(known)}" if known else "for another rule or kernel"
            raise ValueError(f"{name}: expected NAME=VALUE {names}, received {text!r}")
        if option in fixed or option in read:
            raise ValueError(f"{name}: expected {option} once, received it twice")
        read[option] = _read_value(value)
    try:
        return make(**fixed, **read)
    except (TypeError, ValueError) as error:
        if re.split(r"[:\[]", str(error), maxsplit=1)[0] in read:
            raise ValueError(f"{name}: {error}") from error
        raise


def _read_value(text: str) -> Any:
    """Returns a truth value, nothing at all, numbers as JSON has them, or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (json.loads, float):
        try:
            return read(text)
        except (ValueError, RecursionError):  # the last of deep brackets
            continue
    return text


def with_options(function: Callable[..., Mapping[str, Any]]) -> Callable[..., int]:
    """Returns a command as the parser calls it, which checks the settings and shows the result.

    Args:
        function: takes settings, dataclasses of them, and the parser's context as ``ctx``, and returns what
            is shown. It is given the options ``Common`` too.
    """
    parameters, hints = signature(function).parameters, get_type_hints(function)
    own_settings = settings_of(function)
    groups = {name: hints[name] for name in parameters if is_dataclass(hints[name])} | {"common": Common}
    described_parameters: dict[str, Parameter] = {}
    for name in (*parameters, "common"):
        if name in groups:
            described_parameters |= {
                option: _parameter(option, setting, getattr(groups[name], option, Parameter.empty))
                for option, setting in settings_of(groups[name]).items()
            }
        else:
            described_parameters[name] = _parameter(name, own_settings[name], parameters[name].default)

    def call(**values: Any) -> int:
        for name, setting in own_settings.items():
            setting.check(values[name], name)
        arguments = {name: values[name] for name in own_settings}
        for name, group in groups.items():
            arguments[name] = group(**{option: values[option] for option in settings_of(group)})
        common, status = arguments.pop("common"), 0
        if common.threads is not None:
            torch.set_num_threads(common.threads)
        try:
            result = function(**arguments)
        except Unfinished as ended:
            result, status = ended.result, ended.status
        if result:
            show(result, common.as_json)
        return status

    described: Any = call
    described.__signature__ = Signature(list(described_parameters.values()))
    described.__annotations__ = {
        name: parameter.annotation for name, parameter in described_parameters.items()
    }
    described.__doc__ = cleandoc(function.__doc__ or "").partition("\nArgs:\n")[0]
    return call


def _parameter(name: str, setting: Setting, default: Any) -> Parameter:
    """Returns a setting as the parser's own kind of parameter."""
    if setting.kind is typer.Context:  # which the parser passes on
        return Parameter(name, Parameter.KEYWORD_ONLY, annotation=typer.Context)

    words = setting.words or setting.suggests

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    about: dict[str, Any] = {"help": setting.help, "metavar": setting.metavar}
    about["autocompletion"] = complete if words else None
    if setting.argument:
        info = typer.Argument(**about)
    else:
        option = [setting.option] if setting.option else []
        info = typer.Option(*option, rich_help_panel=setting.panel, **about)
    parts = get_args(setting.kind) if get_origin(setting.kind) in (Union, UnionType) else (setting.kind,)
    kinds = [str if get_origin(part) is Literal else part for part in parts]
    kind: Any = Union[tuple(allowed for allowed in kinds if get_origin(allowed) is not Callable)]  # noqa: UP007
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])
