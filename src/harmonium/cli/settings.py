"""The settings of ``harmonium train`` and of ``run.toml``: what the command adds to those of a run."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from harmonium import coupled
from harmonium._settings import COUNT, Checked, Count, Interval, Setting, any_given
from harmonium.chains import Kernel
from harmonium.cli import options
from harmonium.cli.metrics import METRICS
from harmonium.data import BINARISE
from harmonium.layers import Layer
from harmonium.learning import Rule, rules
from harmonium.machine import hidden_for
from harmonium.training import FEW_UNITS, Steps

MANY, FEW = 500, 100  # hidden units, where none are given
OBJECTIVES = {"hybrid": 0.03, "discriminative": 0.0, "joint": 1.0}
"""Weight of ln p(rest, label) in each objective with a label."""


@dataclass(frozen=True, kw_only=True)
class Source(Checked):
    """The data, the folder of the run, and the run whose machine it begins with.

    Attributes:
        data: a file, a folder of images, or a built-in name.
        run_dir: folder for the run.
        from_run: begin with the machine of another run, and its settings where no others are given.
        unknown: what later cells are taken as that a column has no state for: missing (if not given), with a
            warning, or refuse. In sequences a letter that stands for several is a gap if not given.
        reweight: count a row as 1/n where n rows, itself among them, agree with it in this share of columns,
            such as 0.8 for sequences.
    """

    PANEL: ClassVar[str] = "Machine"
    data: options.Data | None = None
    run_dir: Annotated[Path | None, Setting(metavar="RUN_DIR", argument=True)] = None
    from_run: Annotated[Path | None, Setting(option="--from", metavar="RUN")] = None
    unknown: options.Unknown | None = None
    reweight: options.Reweight | None = None


@dataclass(frozen=True, kw_only=True)
class Structure(Checked):
    """The settings of a new machine, which a machine of another run brings along.

    Attributes:
        label: a column of labels, or label for those beside an array; empty cells are missing labels.
        kinds: TOML or JSON: what kinds of units some columns have.
        alphabet: of sequences: protein, rna, dna, or letters in an order of their own; by the letters if not
            given.
        visible: kind of visible units.
        hidden: hidden units; if not given 8 for tables that are learned without chains, else 500, or 100 for
            data of a width below that; 500,1000 for two layers, relu:100 or categorical:50:4 for a kind and
            states of its own; repeatable. 0: none, visible units are joined to each other, as in a Potts
            machine.
        hidden_kind: kind of hidden units.
        hidden_states: states of each hidden unit, where the kind leaves it open.
        binarise: what to do to grey levels.
        initial_std: standard deviation of the first couplings; if not given 0.01, and a start from the data
            beside Gaussian visible units.
    """

    PANEL: ClassVar[str] = "Machine"
    label: Annotated[str | None, Setting(metavar="COLUMN")] = None
    kinds: Annotated[Path | None, Setting(metavar="FILE")] = None
    alphabet: options.Alphabet | None = None
    visible: Annotated[str, Setting(ChainMap(Layer.registry, {"auto": None}))] = "auto"
    hidden: list[str] | None = None
    hidden_kind: Annotated[str, Setting(Layer.registry)] = "bernoulli"
    hidden_states: int = 2
    binarise: Annotated[str, Setting(BINARISE)] = "none"
    initial_std: float | None = None

    def hidden_or_default(self, width: int) -> list[str]:
        """Returns ``hidden``, or what it is for data of some width where it is not given."""
        return self.hidden or [str(MANY if width >= MANY else FEW)]

    def hidden_layers(self, width: int) -> list[Layer]:
        """Returns new hidden layers for data of some width, from the lowest up.

        Raises:
            ValueError: another form of ``hidden``, or an unknown kind.
        """
        layers: list[Layer] = []
        if self.hidden == ["0"]:
            return layers
        for each in (part.strip() for given in self.hidden_or_default(width) for part in given.split(",")):
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


_OF_RULE = Setting(belongs_to=("rule",))


@dataclass(frozen=True, kw_only=True)
class RuleSettings(Checked):
    """The learning rule, and the objective with a label.

    Attributes:
        objective: with --label, what is learned; hybrid if not given.
        joint: share of ln p(rest, label) in --objective hybrid; 0.03 if not given.
        rule: learning rule; pcd if not given, but for tables of at most 100 columns: without any option of
            steps, chains or rules they are learned in seconds by exact sums over at most 12 hidden units.
        sweeps: sweeps of the rule's chains at every update.
        chains: chains of the rule; the batch size if not given.
        replicas: temperatures of tempered_pcd.
        burn_in: sweeps that noise_cd leaves out of its average.
        rule_option: anything else that the rule takes; repeatable.
        centred: centre the gradient.
    """

    PANEL: ClassVar[str] = "Learning rule"
    objective: Annotated[str | None, Setting(OBJECTIVES)] = None
    joint: Annotated[float | None, Setting(Interval(0.0, 1.0), belongs_to=("objective",))] = None
    rule: Annotated[str | None, Setting(rules.RECIPES)] = None
    sweeps: Annotated[int | None, _OF_RULE] = None
    chains: Annotated[int | None, _OF_RULE] = None
    replicas: Annotated[int | None, _OF_RULE] = None
    burn_in: Annotated[int | None, _OF_RULE] = None
    rule_option: Annotated[
        list[str] | None,
        replace(_OF_RULE, metavar="NAME=VALUE", complete=options.complete_rule_option),
    ] = None
    centred: Annotated[bool, _OF_RULE] = False

    def make_rule(self, kernel: Kernel | None) -> Rule:
        """Returns the learning rule.

        Args:
            kernel: of its chains; None: its own.

        Raises:
            TypeError, ValueError: what the rule does not take; the message lists what it takes.
        """
        given = {
            "k": self.sweeps,
            "chains": self.chains,
            "replicas": self.replicas,
            "burn_in": self.burn_in,
            "kernel": kernel,
            "centred": self.centred or None,
        }
        arguments = {option: value for option, value in given.items() if value is not None}
        rule, texts = self.rule or "pcd", self.rule_option or []
        known = rules.options(rule)
        for each in texts:
            option, equals, value = (part.strip() for part in each.partition("="))
            takes = f"{rule} takes {', '.join(known) or 'no options'}"
            if not equals:
                raise ValueError(f"rule_option: expected NAME=VALUE, received {each!r}; {takes}")
            if option not in known:
                raise ValueError(f"rule_option: expected another name, received {option!r}; {takes}")
            if option in arguments:
                raise ValueError(f"rule_option: expected {option} once, received it twice")
            arguments[option] = _read_value(option, value)
        try:
            return rules.from_options(rule, **arguments)
        except (TypeError, ValueError) as error:
            if str(error).partition(":")[0] in {each.partition("=")[0].strip() for each in texts}:
                raise ValueError(f"rule_option: {error}") from error
            raise


@dataclass(frozen=True, kw_only=True)
class Watching(Checked):
    """The metrics and pictures of a machine while it learns.

    Attributes:
        validation: held-out data for the metric.
        metric: of --validation; what the machine has if not given. likelihood is a bound for deep machines,
            with ln Z by a short AIS.
        evaluate_every: updates between two evaluations; an epoch if not given.
        early_stopping: end after so many without a better metric, and keep the best machine.
        tensorboard: write TensorBoard events.
    """

    PANEL: ClassVar[str] = "What is followed"
    validation: options.OtherData | None = None
    metric: Annotated[str | None, Setting(METRICS)] = None
    evaluate_every: Count | None = None
    early_stopping: Annotated[int | None, Setting(COUNT, metavar="EVALUATIONS")] = None
    tensorboard: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainSettings(Watching, Steps, options.Chains, RuleSettings, Structure, Source):
    """All settings of ``harmonium train``, in the order of ``run.toml``.

    Attributes:
        checkpoint_every: updates between two checkpoints; about a minute if not given.
        shards: parts of a batch that processes share, under torchrun; 8 there if not given.
    """

    seed: options.Seed = 0
    device: options.Device | None = None
    threads: options.Threads | None = None
    checkpoint_every: Count | None = None
    shards: int | None = None

    def few_hidden(self) -> int | None:
        """Returns how many hidden units a table's machine has that is trained without chains.

        None where a setting asks for chains, or for other hidden units.
        """
        if any_given(self, _BY_CHAINS):
            return None
        given = self.hidden or [str(FEW_UNITS)]
        return (int(given[0]) or None) if len(given) == 1 and given[0].isdecimal() else None


_OF_CHAINS = {known.name for each in (Steps, RuleSettings, options.Chains) for known in fields(each)}
_BY_CHAINS = (_OF_CHAINS - {"objective", "joint"}) | {
    *("initial_std", "hidden_kind", "binarise", "from_run", "early_stopping", "evaluate_every"),
    *("tensorboard", "checkpoint_every", "shards"),
}


def share_of(
    label: str | None, objective: str | None, joint: float | None
) -> tuple[str | None, float | None]:
    """Returns the objective's name, and the weight of ln p(rest, label) in it; None without a label.

    Raises:
        ValueError: settings that do not go together.
    """
    for name, value in (("objective", objective), ("joint", joint)):
        if label is None and value is not None:
            raise ValueError(f"{name}: expected with --label COLUMN, received {value} without")
    if label is None:
        return None, None
    chosen = objective or "hybrid"
    if chosen != "hybrid" and joint is not None:
        raise ValueError(f"joint: expected none with --objective {chosen}, received {joint}")
    return chosen, OBJECTIVES[chosen] if joint is None else joint


_NAMED: dict[str, Mapping[str, Callable[[], Any]]] = {
    "kernel": Kernel.registry,
    "pair_kernel": {"gibbs": coupled.Gibbs, "metropolis": coupled.Metropolis},
}


def _read_value(option: str, text: str) -> Any:
    """Returns a number, a truth value, nothing at all, one of the named things, or else a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if option in _NAMED:
        make = _NAMED[option].get(text.lower())
        if make is None:
            raise ValueError(
                f"rule_option: expected {option} among {', '.join(_NAMED[option])}, received {text!r}"
            )
        return make()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
