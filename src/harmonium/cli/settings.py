"""The settings of ``harmonium train`` and of ``run.toml``: what the command adds to those of a run."""

from __future__ import annotations

import re
import shlex
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, final, get_args, get_origin

import typer

from harmonium import _checks
from harmonium._settings import COUNT, Checked, Interval, Setting, settings_of
from harmonium.cli import options
from harmonium.cli.options import Result
from harmonium.data import BINARISE
from harmonium.layers import Layer
from harmonium.learning import rules
from harmonium.machine import INITS, hidden_for
from harmonium.tables import IMAGES, METHODS, OBJECTIVES, share_of
from harmonium.tasks import METRICS
from harmonium.training import RUN_FILE, Steps, as_toml, key_of, read_run_file, setting_lines


@dataclass(frozen=True, kw_only=True)
class Source(Checked):
    """The data, the folder of the run, and the run whose machine it begins with.

    Attributes:
        data: a file, a folder of images, or a built-in name.
        run_dir: folder for the run.
        from_run: begin with the machine of another run, and its settings where no others are given.
        weights: a file with the weight of every row: a number a line, as plmc and bmDCA write them, a column
            headed weight, or .npy.
    """

    PANEL: ClassVar[str] = "Machine"
    data: options.Data | None = None
    run_dir: Annotated[Path | None, Setting(metavar="RUN_DIR", argument=True)] = None
    from_run: Annotated[Path | None, Setting(option="--from", metavar="RUN")] = None
    unknown: options.Unknown | None = None
    reweight: options.Reweight | None = None
    weights: Annotated[Path | None, Setting(metavar="FILE", belongs_to=("data",))] = None


_HIDDEN = re.compile(r"((?P<kind>[^:]+):)?(?P<size>\d+)(:(?P<states>\d+))?")


@dataclass(frozen=True, kw_only=True)
class Structure(Checked):
    """The settings of a new machine, which a machine of another run brings along.

    Attributes:
        label: a column of labels, or label for those beside an array; empty cells are missing labels.
        visible: kind of visible units.
        hidden: hidden units; if not given 8 for tables, else 100, or 500 for data of 500 columns or more;
            500,1000 for two layers, relu:100 or categorical:50:4 for a kind and states of its own;
            repeatable. 0: none, visible units are joined to each other, as in a Potts machine.
        binarise: what to do to grey levels.
        initial_std: standard deviation of the first couplings; if not given 0.03, 0.27/√n beside n > 81
            columns, and a start from the data beside Gaussian visible units.
        init: first parameters by name, such as orthogonal,logistic (Taniguchi et al. 2023): couplings normal
            or orthogonal, biases logistic (all) or data (the visible ones); normal,data if not given.
    """

    PANEL: ClassVar[str] = "Machine"
    label: Annotated[str | None, Setting(metavar="COLUMN")] = None
    kinds: options.Kinds | None = None
    read: options.Read | None = None
    alphabet: options.Alphabet | None = None
    visible: Annotated[str, Setting(ChainMap(Layer.registry, {"auto": None}))] = "auto"
    hidden: list[str] | None = None
    binarise: Annotated[str, Setting(BINARISE)] = "none"
    initial_std: Annotated[float | None, Setting(method="chains")] = None
    init: Annotated[str | None, Setting(metavar="NAMES", suggests=INITS, method="chains")] = None

    def hidden_layers(self) -> list[Layer] | None:
        """Returns new hidden layers, from the lowest up; None where ``hidden`` is not given.

        Raises:
            ValueError: sizes or kinds of no meaning.
        """
        if self.hidden is None:
            return None
        if self.hidden == ["0"]:
            return []
        layers: list[Layer] = []
        for layer_text in (part.strip() for listed in self.hidden for part in listed.split(",")):
            written = _HIDDEN.fullmatch(layer_text)
            if written is None or int(written["size"]) < 1 or int(written["states"] or 2) < 2:
                raise ValueError(
                    "hidden: expected numbers of units such as 500, 500,1000, spin:500 or categorical:50:4 "
                    f"(of 4 states), or 0 alone for a machine without hidden units, received {layer_text!r}"
                )
            kind, states = written["kind"] or "bernoulli", int(written["states"] or 2)
            layers += hidden_for(kind, [int(written["size"])], states, "hidden")
        return layers


@dataclass(frozen=True, kw_only=True)
class Learning(Checked):
    """Settings of the label that is learned, and of the method.

    Attributes:
        method: how the machine is trained. exact: by sums over all states of at most 12 hidden units, in
            seconds; chains: by the options below. auto: exact for tables with at most 12 hidden units, where
            that takes at most a minute, else chains.
        objective: with --label, what is learned; hybrid if not given.
        joint: share of ln p(rest, label) in --objective hybrid; 0.03 if not given.
    """

    PANEL: ClassVar[str] = "Learning"
    method: Annotated[str, Setting(METHODS, belongs_to=("hidden",))] = "auto"
    objective: Annotated[str | None, Setting(OBJECTIVES)] = None
    joint: Annotated[float | None, Setting(Interval(0.0, 1.0), belongs_to=("objective",))] = None

    def share(self, label: str | None) -> float | None:
        """Returns the weight of ln p(rest, label) in what is learned; None without a label."""
        for name, value in (("objective", self.objective), ("joint", self.joint)):
            if label is None and value is not None:
                raise ValueError(f"{name}: expected with --label COLUMN, received {value} without")
        chosen = self.objective or "hybrid"
        if chosen != "hybrid" and self.joint is not None:
            raise ValueError(f"joint: expected none with --objective {chosen}, received {self.joint}")
        return None if label is None else share_of(chosen, self.joint)


_OF_RULE = Setting(belongs_to=("rule",))


@dataclass(frozen=True, kw_only=True)
class RuleSettings(Checked):
    """The learning rule.

    Attributes:
        rule: learning rule; pcd if not given, noise_cd for images by --visible gaussian.
        sweeps: of the rule's chains an update; if not given 10 for sequences, 20 for images, else its own.
        chains: chains of the rule; the batch size if not given.
        rule_option: anything else that the rule takes; repeatable.
        centred: centre the gradient; so if not given, but not with a label, --optimizer adam or lbfgs.
    """

    PANEL: ClassVar[str] = "Learning rule"
    METHOD: ClassVar[str] = "chains"
    rule: Annotated[str | None, Setting(rules.BY_NAME)] = None
    sweeps: Annotated[int | None, _OF_RULE] = None
    chains: Annotated[int | None, _OF_RULE] = None
    rule_option: Annotated[list[str] | None, replace(_OF_RULE, metavar="NAME=VALUE")] = None
    centred: Annotated[bool | None, _OF_RULE] = None


@dataclass(frozen=True, kw_only=True)
class Metrics(Checked):
    """The metrics of a machine while it learns.

    Attributes:
        validation: held-out data for the metric.
        metric: of --validation; what the machine has if not given. likelihood is a bound for deep machines,
            with ln Z by a short AIS.
        evaluate_every: updates between two evaluations; an epoch if not given.
        early_stopping: end after so many without a better metric, and keep the best machine.
        until_correlation: end where pair covariances of chains from noise correlate so much with those of the
            data, such as 0.95, or no longer rise; the best machine is kept.
    """

    PANEL: ClassVar[str] = "What is followed"
    validation: options.OtherData | None = None
    metric: Annotated[str | None, Setting(METRICS)] = None
    evaluate_every: Annotated[int | None, Setting(COUNT)] = None
    early_stopping: Annotated[int | None, Setting(COUNT, metavar="EVALUATIONS", method="chains")] = None
    until_correlation: Annotated[float | None, Setting(Interval(0.0, 1.0, "right"), method="chains")] = None


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Metrics, Steps, options.Chains, RuleSettings, Learning, Structure, Source):
    """All settings of ``harmonium train``, in the order of ``run.toml``.

    Attributes:
        checkpoint_every: updates between two checkpoints; about a minute if not given.
    """

    seed: options.Seed = 0
    device: options.Device | None = None
    threads: options.Threads | None = None
    checkpoint_every: Annotated[int | None, Setting(COUNT)] = None

    @property
    def may_learn_images(self) -> bool:
        """True if nothing else is asked for than what is done with grey images beside Gaussian units."""
        layers = self.hidden_layers()
        one = layers is None or len(layers) == 1
        return one and self.label is None and self.method != "exact" and self.rule in (None, IMAGES.rule)

    def with_rule_options(self, make: Callable[[dict[str, Any]], Result]) -> Result:
        """Returns what a function makes of the options of the rule but its sweeps; errors name the option."""
        chain_settings = {"chains": self.chains, "kernel": self.make_kernel(), "k": self.sweeps}
        chain_settings = {name: value for name, value in chain_settings.items() if value is not None}
        known = rules.options(self.rule or "pcd")

        def make_from_options(**rule_options: Any) -> Result:
            return make({name: x for name, x in rule_options.items() if name != "k" or self.sweeps is None})

        return options.make_named("rule_option", make_from_options, self.rule_option, known, **chain_settings)


_HEAD = """\
# A run of harmonium, in full. The same run once more, in another folder:
#     harmonium train --config {name} FOLDER
# Options on the command line win over what stands here. A name without a value was not given. Paths are
# those that were typed, relative to the folder in which the command is given.
"""

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
    """

    values: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> RunFile:
        """Reads a file; refuses one that is no TOML, an unknown name or a value of another kind, by name."""
        content = read_run_file(path)
        known = {key_of(name, setting): name for name, setting in _SETTINGS.items()}
        commands = _typed(list[str] | None, content.pop("commands", []), f"config: {path}: commands")
        for added in ("run", "made_with"):  # by the trainer
            content.pop(added, None)
        kinds = content.pop("kinds") if isinstance(content.get("kinds"), dict) else {}
        values: dict[str, Any] = {}
        for written, value in content.items():
            key = written.replace("-", "_")
            if key not in known:
                hint = _checks.close_to(key, known) or "; harmonium train --help lists the options"
                raise ValueError(f"config: {path}: there is no setting called {written!r}{hint}")
            name = known[key]
            values[name] = _typed(_SETTINGS[name].kind, value, f"config: {path}: {written}")
        return cls(values, kinds, commands)

    def without_structure(self) -> RunFile:
        """Returns the settings that hold for any machine, which goes on by chains."""
        structure = {*_STRUCTURE, "method"}
        return RunFile({name: value for name, value in self.values.items() if name not in structure})

    def left_by(self, typed_names: Sequence[str], rule: str | None) -> dict[str, Any]:
        """Returns the values that the settings given on the command line leave in force.

        Each takes along what belongs to its old value, a rule only where it is another one.
        """
        changed = {name for name in typed_names if name != "rule" or rule != self.values.get("rule")}
        return {
            name: value
            for name, value in self.values.items()
            if name not in typed_names and changed.isdisjoint(_SETTINGS[name].belongs_to)
        }

    def text(self, settings: TrainSettings) -> str:
        """Returns the file as made by this process; ``kinds`` stand for the file that the settings name."""
        lines = [_HEAD.format(name=RUN_FILE), "commands = ["]
        lines += [*(f"    {as_toml(command)}," for command in self.commands), "]"]
        unwritten = {"run_dir"} | ({"kinds"} if self.kinds else set())
        unwritten |= {*_STRUCTURE} if settings.from_run else set()
        lines += setting_lines(settings, [name for name in _SETTINGS if name not in unwritten])
        if self.kinds and not settings.from_run:
            lines += ["", "[kinds]", *(f"{as_toml(k)} = {as_toml(v)}" for k, v in self.kinds.items())]
        return "\n".join(lines) + "\n"


def settings_in_force(
    ctx: typer.Context, typed: TrainSettings, config: Path | None, resume: bool
) -> tuple[TrainSettings, RunFile]:
    """Returns the settings of a run: those typed, else those of a file, else their defaults.

    ``--config FILE`` names the file; ``--resume`` and ``--from`` take the one in the folder of that run.
    Where it says what the data are, a single argument is RUN_DIR.
    """
    sources = {name: ctx.get_parameter_source(name) for name in _SETTINGS}
    typed_names = [
        name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"
    ]
    stored = _file_of(typed, config, resume)
    alone = "data" in typed_names and "run_dir" not in typed_names
    if alone and "data" in stored.values and "run_dir" not in stored.values:
        typed, typed_names = (
            replace(typed, run_dir=Path(str(typed.data)), data=None),
            [*typed_names, "run_dir"],
        )
        typed_names.remove("data")
    values = stored.left_by(typed_names, typed.rule)
    if typed.from_run is not None or "from_run" in values:
        odd = [name for name in _STRUCTURE if name in typed_names or name in values]
        if odd:
            raise ValueError(f"{odd[0]}: expected none with --from, whose machine it belongs to")
    for name in _AT_THE_START if resume and stored.values else ():
        begun, asked = stored.values.get(name), getattr(typed, name)
        if name in typed_names and asked != begun:
            raise ValueError(
                f"{name}: expected {'none' if begun is None else begun} as in the run to resume, which has "
                f"begun, received {asked}; train without --resume begins another run"
            )
    settings = replace(typed, **values)
    if settings.data is None or settings.run_dir is None:
        raise ValueError(f"DATA, RUN_DIR: expected both, received {settings.data} and {settings.run_dir}")
    return settings, replace(
        stored,
        kinds={} if "kinds" in typed_names else stored.kinds,
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
    path = config or (typed.from_run and typed.from_run / RUN_FILE)
    if path is None or (config is None and not path.is_file()):
        return RunFile()
    stored = RunFile.read(path)
    return stored if typed.from_run is None else stored.without_structure()


def _typed(kind: Any, value: Any, name: str) -> Any:
    """Returns a value of a file as one of a setting's type, such as ``int | None``."""
    parts = (kind,) if get_origin(kind) is Literal else get_args(kind) or (kind,)
    kinds = [str if get_origin(part) is Literal else part for part in parts]
    if list[str] in kinds:
        return [_typed(str, item, name) for item in (value if isinstance(value, list) else [value])]
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    number = whole or isinstance(value, float)
    for allowed, fits, expected in (
        (bool, isinstance(value, bool), "true or false"),
        (int, number and isfinite(value) and value == int(value), "a whole number below 2^63"),
        (float, number, "a number"),
        (Path, isinstance(value, str) and bool(value), "a path"),
        (str, isinstance(value, str) or number, "text"),
    ):
        if allowed in kinds:
            if not fits:
                raise ValueError(f"{name}: expected {expected}, received {value!r}")
            return allowed(value)
    raise AssertionError(f"{name}: a setting of type {kind} has no place in a file")
