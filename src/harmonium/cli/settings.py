"""The settings of ``harmonium train`` and of ``run.toml``: what the command adds to those of a run."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from torch import Tensor

from harmonium._settings import COUNT, Checked, Interval, Setting
from harmonium.chains import Kernel
from harmonium.cli import options
from harmonium.cli.scores import METRICS
from harmonium.data import BINARISE, Rows
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import INITS, check_init, hidden_for
from harmonium.training import IMAGES, METHODS, OBJECTIVES, Recipe, Steps, make_rule, share_of


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


@dataclass(frozen=True, kw_only=True)
class Structure(Checked):
    """The settings of a new machine, which a machine of another run brings along.

    Attributes:
        label: a column of labels, or label for those beside an array; empty cells are missing labels.
        visible: kind of visible units.
        hidden: hidden units; if not given 8 for tables, else 100, or 500 for data of 500 columns or more;
            500,1000 for two layers, relu:100 or categorical:50:4 for a kind and states of its own;
            repeatable. 0: none, visible units are joined to each other, as in a Potts machine.
        hidden_kind: kind of hidden units.
        hidden_states: states of each hidden unit, where the kind leaves it open.
        binarise: what to do to grey levels.
        initial_std: standard deviation of the first couplings; if not given 0.03, 0.27/√n beside n > 81
            columns, and a start from the data beside Gaussian visible units.
        init: first parameters by name, such as orthogonal,logistic (Taniguchi et al. 2023): couplings normal
            or orthogonal, biases logistic (all) or data (the visible ones); normal,data if not given.
    """

    PANEL: ClassVar[str] = "Machine"
    label: Annotated[str | None, Setting(metavar="COLUMN")] = None
    kinds: options.Kinds | None = None
    missing_words: options.MissingWords | None = None
    alphabet: options.Alphabet | None = None
    visible: Annotated[str, Setting(ChainMap(Layer.registry, {"auto": None}))] = "auto"
    hidden: list[str] | None = None
    hidden_kind: Annotated[str, Setting(Layer.registry)] = "bernoulli"
    hidden_states: Annotated[int, Setting(Interval(2, whole=True))] = 2
    binarise: Annotated[str, Setting(BINARISE)] = "none"
    initial_std: Annotated[float | None, Setting(method="chains")] = None
    init: Annotated[str | None, Setting(metavar="NAMES", complete=options.words(INITS), method="chains")] = (
        None
    )

    def hidden_layers(self) -> list[Layer] | None:
        """Returns new hidden layers, from the lowest up; None where ``hidden`` is not given.

        Raises:
            ValueError: sizes or kinds of no meaning, or a start that does not suit them.
        """
        check_init(self.init, self.initial_std, self.hidden != ["0"])
        if self.hidden is None:
            return None
        if self.hidden == ["0"]:
            return []
        layers: list[Layer] = []
        parts = [part.strip() for given in self.hidden for part in given.split(",")]
        if "0" in parts:
            others = ", ".join(part for part in parts if part != "0") or "another 0"
            raise ValueError(
                "hidden: expected 0, which is a machine without hidden units, alone, received '0' beside "
                f"{others}; leave one of them out"
            )
        for each in parts:
            *named, numbers = each.partition(":") if ":" in each else ("", "", each)
            size, _, states = numbers.partition(":")
            if not size.isdecimal() or int(size) < 1 or (states and not states.isdecimal()):
                raise ValueError(
                    "hidden: expected numbers of units such as 500, 500,1000, spin:500 or categorical:50:4, "
                    f"received {each!r}"
                )
            own = named[0] or self.hidden_kind
            name = "hidden" if named[0] else "hidden_kind"
            layers += hidden_for(own, [int(size)], int(states) if states else self.hidden_states, name)
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

    def share(self, label: str | None) -> tuple[str | None, float | None]:
        """Returns the objective's name, and the weight of ln p(rest, label) in it; None without a label."""
        for name, value in (("objective", self.objective), ("joint", self.joint)):
            if label is None and value is not None:
                raise ValueError(f"{name}: expected with --label COLUMN, received {value} without")
        if label is None:
            return None, None
        chosen = self.objective or "hybrid"
        if chosen != "hybrid" and self.joint is not None:
            raise ValueError(f"joint: expected none with --objective {chosen}, received {self.joint}")
        return chosen, share_of(chosen, self.joint)


_OF_RULE = Setting(belongs_to=("rule",))


@dataclass(frozen=True, kw_only=True)
class RuleSettings(Checked):
    """The learning rule.

    Attributes:
        rule: learning rule; pcd if not given, noise_cd for images by --visible gaussian.
        sweeps: of the rule's chains an update; if not given 10 for sequences, 20 for images, else its own.
        chains: chains of the rule; the batch size if not given.
        replicas: temperatures of tempered_pcd.
        burn_in: sweeps that noise_cd leaves out of its average.
        rule_option: anything else that the rule takes; repeatable.
        centred: centre the gradient; so if not given, but not with a label or --optimizer adam.
    """

    PANEL: ClassVar[str] = "Learning rule"
    METHOD: ClassVar[str] = "chains"
    rule: Annotated[str | None, Setting(rules.BY_NAME)] = None
    sweeps: Annotated[int | None, _OF_RULE] = None
    chains: Annotated[int | None, _OF_RULE] = None
    replicas: Annotated[int | None, _OF_RULE] = None
    burn_in: Annotated[int | None, _OF_RULE] = None
    rule_option: Annotated[
        list[str] | None,
        replace(_OF_RULE, metavar="NAME=VALUE", complete=options.complete_rule_option),
    ] = None
    centred: Annotated[bool | None, _OF_RULE] = None

    @property
    def has_sweeps(self) -> bool:
        """Returns whether the number of sweeps is given, by its own option or by --rule-option."""
        named = {each.partition("=")[0].strip() for each in self.rule_option or ()}
        return self.sweeps is not None or "k" in named

    def made_rule(self, kernel: Kernel | None, optimizer: Any, chains: int | None) -> Rule:
        """Returns the learning rule; None for kernel or number of chains stands for its own."""
        given = {
            "k": self.sweeps,
            "chains": self.chains,
            "replicas": self.replicas,
            "burn_in": self.burn_in,
            "kernel": kernel,
        }
        arguments = {option: value for option, value in given.items() if value is not None}
        rule = self.rule or "pcd"
        read = options.read_named("rule_option", self.rule_option, rule, rules.options(rule), arguments)
        with options.naming_option("rule_option", read):
            return make_rule(
                rule, optimizer, centred=bool(self.centred), batch_size=chains, **arguments, **read
            )


@dataclass(frozen=True, kw_only=True)
class Watching(Checked):
    """The metrics of a machine while it learns.

    Attributes:
        validation: held-out data for the metric.
        metric: of --validation; what the machine has if not given. likelihood is a bound for deep machines,
            with ln Z by a short AIS.
        evaluate_every: updates between two evaluations; an epoch if not given.
        early_stopping: end after so many without a better metric, and keep the best machine.
        until_correlation: end where pair covariances of chains from noise correlate so much with those of the
            data, such as 0.95, or no longer rise; the best machine is kept.
        tensorboard: write TensorBoard events.
    """

    PANEL: ClassVar[str] = "What is followed"
    validation: options.OtherData | None = None
    metric: Annotated[str | None, Setting(METRICS)] = None
    evaluate_every: Annotated[int | None, Setting(COUNT)] = None
    early_stopping: Annotated[int | None, Setting(COUNT, metavar="EVALUATIONS", method="chains")] = None
    until_correlation: Annotated[float | None, Setting(Interval(0.0, 1.0, "right"), method="chains")] = None
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Watching, Steps, options.Chains, RuleSettings, Learning, Structure, Source):
    """All settings of ``harmonium train``, in the order of ``run.toml``.

    Attributes:
        checkpoint_every: updates between two checkpoints; about a minute if not given.
        shards: parts of a batch that processes share, under torchrun; 8 there if not given.
    """

    seed: options.Seed = 0
    device: options.Device | None = None
    threads: options.Threads | None = None
    checkpoint_every: Annotated[int | None, Setting(COUNT)] = None
    shards: Annotated[int | None, Setting(method="chains")] = None

    @property
    def may_learn_images(self) -> bool:
        """True if nothing else is asked for than what is done with grey images beside Gaussian units."""
        layers = self.hidden_layers()
        one = layers is None or len(layers) == 1
        asked = self.visible != "auto" and self.method != "exact" and self.rule in (None, IMAGES.rule)
        return one and asked and self.label is None

    def decided(self, recipe: Recipe, rows: Rows, weights: Tensor | None = None) -> TrainSettings:
        """Returns the settings with what the data, (rows,) with weights, decide where nothing is given."""
        hidden = [str(recipe.machine.layers[l].n_units) for l in recipe.machine.hidden]
        decided = replace(
            self, method=recipe.method, hidden=self.hidden if self.from_run else self.hidden or hidden
        )
        if recipe.method == "exact":
            return decided
        optimizer = self.optimizer or recipe.defaults.optimizer
        plain = recipe.defaults_with(optimizer)
        updates, rate = recipe.budget(
            rows,
            weights,
            batch_size=self.batch_size,
            optimizer=optimizer,
            learning_rate=self.learning_rate,
        )
        rule = self.rule or plain.rule
        return replace(
            decided,
            rule=rule,
            sweeps=plain.sweeps if rule == plain.rule and not self.has_sweeps else self.sweeps,
            centred=recipe.is_centred(rule, optimizer, self.centred),
            updates=updates if self.updates is None and self.epochs is None else self.updates,
            learning_rate=rate,
            schedule=self.schedule or plain.schedule,
            optimizer=optimizer,
            clip_norm=plain.clip_norm if self.clip_norm is None else self.clip_norm,
            averaging=plain.averaging if self.averaging is None else self.averaging,
        )
