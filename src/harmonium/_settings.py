"""Settings as fields of dataclasses: one declaration makes option, help, ``run.toml`` and the check."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from inspect import cleandoc, get_annotations
from math import inf
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, final, get_args, get_origin, get_type_hints

import numpy as np

from harmonium import _checks


@final
@dataclass(frozen=True)
class Interval:
    """Describes the numbers that a setting takes.

    Attributes:
        low: the lower end.
        high: the upper end.
        closed: the ends that belong to it.
        whole: Whether numbers have to be ints; then ``low`` belongs to it, and ``high`` is not read.
    """

    low: float = -inf
    high: float = inf
    closed: Literal["both", "left", "right", "neither"] = "both"
    whole: bool = False

    def check(self, value: Any, name: str) -> None:
        """Refuses what is no number, and those outside; TypeError or ValueError."""
        if self.whole:
            _checks.positive_int(value, name, minimum=int(self.low))
        else:
            _checks.real(value, name, self.low, self.high, self.closed)


@final
@dataclass(frozen=True, eq=False)
class Setting:
    """Describes a setting: a field of a dataclass, or a parameter of a command.

    Options and help of the command, the lines of ``run.toml`` and the checks are made from it. Type and
    default are those of the field, the help is its line in the docstring, and what else there is to be said
    stands in its annotation: ``Annotated[int, Setting(COUNT)]``.

    Attributes:
        takes: the numbers or the words that are allowed, beside callables where its type has them; None:
            whatever its type allows.
        option: the option's name, such as ``--from``, where it is not that of the setting.
        metavar: stands for the value in the help.
        argument: whether it is given by its place on the command line.
        suggests: words that the shell completes, beside which others are allowed.
        belongs_to: settings whose new value replaces what a file has for this one.
        kind: its type.
        help: a line, for the command and ``run.toml``, where the docstring has none.
        method: the one method of training that uses it, the ``METHOD`` of the dataclass; None: all do.
        panel: under which the help shows it, the ``PANEL`` of the dataclass.
    """

    takes: Interval | Collection[str] | None = None
    option: str | None = None
    metavar: str | None = None
    argument: bool = False
    suggests: Collection[str] = ()
    belongs_to: tuple[str, ...] = ()
    kind: Any = object
    help: str = ""
    method: str | None = None
    panel: str | None = None

    @property
    def words(self) -> Collection[str] | None:
        """The words that are allowed; None where it takes others."""
        return None if isinstance(self.takes, Interval) else self.takes

    def check(self, value: Any, name: str) -> None:
        """Refuses a value that is not allowed; None passes where the type has it.

        Args:
            value: Value of the setting.
            name: what to call it in the message.

        Raises:
            TypeError, ValueError: it is not allowed.
        """
        kinds = get_args(self.kind) if get_origin(self.kind) in (Union, UnionType) else (self.kind,)
        if NoneType in kinds and value is None:
            return
        if bool in kinds:
            _checks.instance(value, name, bool | np.bool_, "True or False")
        if self.takes is None:
            return
        if isinstance(self.takes, Interval):
            literals = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
            if not (isinstance(value, str) and value in literals):
                self.takes.check(value, name)
            return
        origins = [get_origin(kind) or kind for kind in kinds]
        others: tuple[Any, ...] = tuple(
            x for x in origins if isinstance(x, type) and x not in (str, NoneType)
        )
        if isinstance(value, str) or not others:
            _checks.one_of(value, name, self.takes)
        elif not isinstance(value, others):
            there = "a callable" if Callable in others else others[-1].__name__
            raise TypeError(f"{name}: expected a name or {there}, received {type(value).__name__}")


@cache
def settings_of(owner: Any) -> dict[str, Setting]:
    """Returns the description of every setting by its name, in their order.

    Args:
        owner: a dataclass, or a function whose parameters are settings.
    """
    settings: dict[str, Setting] = {}
    for base in reversed(getattr(owner, "__mro__", (owner,))):
        hints, kinds = get_type_hints(base, include_extras=True), get_type_hints(base)
        method, panel = (vars(base).get(name) for name in ("METHOD", "PANEL"))
        for name in get_annotations(base):
            if name == "return" or is_dataclass(kinds[name]) or get_origin(kinds[name]) is ClassVar:
                continue
            parts = (hints[name], *get_args(hints[name]))
            declared = [
                x for part in parts for x in getattr(part, "__metadata__", ()) if isinstance(x, Setting)
            ]
            setting = declared[0] if declared else settings.get(name, Setting())
            literals = [x for part in parts if get_origin(part) is Literal for x in get_args(part)]
            if any(isinstance(part, type) and part.__module__ != "builtins" for part in parts[1:]):
                literals = []  # words beside objects of a class: whoever takes them checks them
            settings[name] = replace(
                setting,
                kind=kinds[name],
                takes=setting.takes or literals or None,
                method=setting.method or method,
                panel=panel or setting.panel,
            )
        for name, text in _documented(base).items():
            if name in settings:
                settings[name] = replace(settings[name], help=text)
    return {
        name: replace(setting, help=_with_words(setting.help, setting.words))
        for name, setting in settings.items()
    }


def _documented(owner: Any) -> dict[str, str]:
    """Returns the text that a docstring has for each of its arguments or attributes."""
    section = re.search(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)*)", cleandoc(owner.__doc__ or ""), re.M)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8,}.*)*)", section[1] if section else "", re.M)
    return {name: " ".join((text[:1].upper() + text[1:]).split()) for name, text in entries}


def _with_words(text: str, words: Collection[str] | None) -> str:
    """Returns a line of help with the words of a setting behind its first clause, where it lacks some."""
    if words is None or all(word in text for word in words):
        return text
    head, mark, rest = re.split(r"([;.]|$)", text, maxsplit=1)
    return f"{head}: {', '.join(words)}{mark}{rest}"


COUNT = Interval(1, whole=True)
Count = Annotated[int, Setting(COUNT)]
From0 = Annotated[int, Setting(Interval(0, whole=True))]
Fraction = Annotated[float, Setting(Interval(0.0, 1.0, "neither"))]
AtLeast0 = Annotated[float, Setting(Interval(0.0))]


def list_unused(settings: Any, method: str) -> list[str]:
    """Lists the settings of a dataclass that are not at their defaults and that a method does not use."""
    owner: Any = type(settings)
    plain = {known.name: known.default for known in fields(settings)}
    return [
        name
        for name, setting in settings_of(owner).items()
        if setting.method not in (None, method) and getattr(settings, name) != plain[name]
    ]


def check_settings(settings: Any) -> None:
    """Refuses settings of a dataclass of a wrong type or out of range; TypeError or ValueError names one."""
    owner: Any = type(settings)
    for known in fields(settings):
        settings_of(owner)[known.name].check(getattr(settings, known.name), known.name)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """Settings that are checked when they are made, by ``check_settings``."""

    def __post_init__(self) -> None:
        check_settings(self)
