"""The options of ``harmonium train``, but those that other commands have too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harmonium.cli import completion
from harmonium.cli.hidden import FEW, MANY
from harmonium.cli.metrics import METRICS
from harmonium.cli.objective import EPOCHS, LABEL_EPOCHS, LABEL_UPDATES, OBJECTIVES, SHARE, UPDATES
from harmonium.data import BINARISE
from harmonium.learning import rules
from harmonium.machine import HIDDEN_KINDS, VISIBLE_KINDS
from harmonium.training import SCHEDULES

RATE = 0.05

_MACHINE, _RULE, _LEARNING = "Machine", "Learning rule", "Length and steps"
_WATCHING = "What is followed"


def _option(panel: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


Data = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        help="A file, a folder of images, or a built-in name.",
        autocompletion=completion.data,
    ),
]
RunDir = Annotated[
    Path | None, typer.Argument(metavar="RUN_DIR", help="Folder for the run.", show_default=False)
]
Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Settings, DATA among them, from a TOML file such as RUN/run.toml."),
]
FromRun = Annotated[
    Path | None,
    _option(
        _MACHINE,
        "--from",
        metavar="RUN",
        help="Begin with the machine of another run, and its settings where no others are given.",
    ),
]
Label = Annotated[
    str | None,
    _option(
        _MACHINE,
        metavar="COLUMN",
        help="A column of labels, or label for those beside an array; empty cells are missing labels.",
    ),
]
Objective = Annotated[
    str | None,
    _option(
        _RULE,
        help=f"With --label, what is learned: {', '.join(OBJECTIVES)}; hybrid if not given.",
        autocompletion=completion.words(OBJECTIVES),
    ),
]
Joint = Annotated[
    float | None,
    _option(_RULE, help=f"Share of ln p(rest, label) in --objective hybrid; {SHARE} if not given."),
]
Kinds = Annotated[
    Path | None,
    _option(_MACHINE, metavar="FILE", help="TOML or JSON: what kinds of units some columns have."),
]
Unknown = Annotated[
    str | None,
    _option(
        _MACHINE,
        help="What later cells are taken as that a column has no state for: refuse (if not given) or "
        "missing.",
        autocompletion=completion.words(("refuse", "missing")),
    ),
]
Visible = Annotated[
    str,
    _option(
        _MACHINE,
        help=f"Kind of visible units: {', '.join(VISIBLE_KINDS)}.",
        autocompletion=completion.words(VISIBLE_KINDS),
    ),
]
Hidden = Annotated[
    list[str] | None,
    _option(
        _MACHINE,
        help=f"Hidden units; {MANY} if not given, {FEW} for data of a width below that; 500,1000 for two "
        "layers, relu:100 or categorical:50:4 for a kind and states of its own; repeatable.",
    ),
]
HiddenKind = Annotated[
    str,
    _option(
        _MACHINE,
        help=f"Kind of hidden units: {', '.join(HIDDEN_KINDS)}.",
        autocompletion=completion.words(HIDDEN_KINDS),
    ),
]
HiddenStates = Annotated[
    int, _option(_MACHINE, help="States of each hidden unit, where the kind leaves it open.")
]
Binarise = Annotated[
    str,
    _option(
        _MACHINE,
        help=f"What to do to grey levels: {', '.join(BINARISE)}.",
        autocompletion=completion.words(BINARISE),
    ),
]
InitialStd = Annotated[
    float | None,
    _option(
        _MACHINE,
        help="Standard deviation of the first couplings; if not given 0.01, and a start from the data "
        "beside Gaussian visible units.",
    ),
]
Rule = Annotated[
    str,
    _option(
        _RULE,
        help=f"Learning rule: {', '.join(rules.RECIPES)}.",
        autocompletion=completion.words(rules.RECIPES),
    ),
]
Sweeps = Annotated[int | None, _option(_RULE, help="Sweeps of the rule's chains at every update.")]
Chains = Annotated[int | None, _option(_RULE, help="Chains of the rule; the batch size if not given.")]
Replicas = Annotated[int | None, _option(_RULE, help="Temperatures of tempered_pcd.")]
BurnIn = Annotated[int | None, _option(_RULE, help="Sweeps that noise_cd leaves out of its average.")]
RuleOption = Annotated[
    list[str] | None,
    _option(
        _RULE,
        metavar="NAME=VALUE",
        help="Anything else that the rule takes; repeatable.",
        autocompletion=completion.rule_option,
    ),
]
Centred = Annotated[bool, _option(_RULE, "--centred/--no-centred", help="Centre the gradient.")]
Updates = Annotated[int | None, _option(_LEARNING, help="Length of the run, or use --epochs.")]
Epochs = Annotated[
    int | None,
    _option(
        _LEARNING,
        help=f"Passes over the data; where --updates is not given either at least {EPOCHS} and {UPDATES} "
        f"updates, with --label {LABEL_EPOCHS} and {LABEL_UPDATES}.",
    ),
]
BatchSize = Annotated[int, _option(_LEARNING, help="Rows of every update.")]
LearningRate = Annotated[
    float | None,
    _option(
        _LEARNING, help=f"At the start; {RATE} if not given, and with a label what hm.RBMClassifier takes."
    ),
]
Schedule = Annotated[
    str | None,
    _option(
        _LEARNING,
        help=f"Of the learning rate: {', '.join(SCHEDULES)}; constant if not given, linear with --label "
        "and for real columns.",
        autocompletion=completion.words(SCHEDULES),
    ),
]
Optimizer = Annotated[
    str | None,
    _option(
        _LEARNING,
        help="sgd or adam; sgd if not given, adam with --label.",
        autocompletion=completion.words(("sgd", "adam")),
    ),
]
Momentum = Annotated[float, _option(_LEARNING, help="Of sgd, in [0, 1).")]
WeightDecay = Annotated[float, _option(_LEARNING, help="L2 penalty on the couplings.")]
L1 = Annotated[float, _option(_LEARNING, help="L1 penalty on the couplings.")]
ClipNorm = Annotated[
    float | None,
    _option(_LEARNING, help="Largest norm of the gradient; 1 beside Gaussian units or a label if not given."),
]
Averaging = Annotated[
    float | None,
    _option(_LEARNING, help="Decay of a running average of the parameters, such as 0.999."),
]
Validation = Annotated[
    str | None,
    _option(_WATCHING, metavar="DATA", help="Held-out data for the metric.", autocompletion=completion.data),
]
Metric = Annotated[
    str | None,
    _option(
        _WATCHING,
        help=f"Of --validation: {', '.join(METRICS)}; what the machine has if not given. likelihood is a "
        "bound for deep machines, with ln Z by a short AIS.",
        autocompletion=completion.words(METRICS),
    ),
]
EvaluateEvery = Annotated[
    int | None, _option(_WATCHING, help="Updates between two evaluations; an epoch if not given.")
]
EarlyStopping = Annotated[
    int | None,
    _option(
        _WATCHING,
        metavar="EVALUATIONS",
        help="End after so many without a better metric, and keep the best machine.",
    ),
]
Tensorboard = Annotated[
    bool, _option(_WATCHING, "--tensorboard/--no-tensorboard", help="Write TensorBoard events.")
]
CheckpointEvery = Annotated[
    int | None, typer.Option(help="Updates between two checkpoints; about a minute if not given.")
]
Shards = Annotated[
    int | None,
    typer.Option(help="Parts of a batch that processes share, under torchrun; 8 there if not given."),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in RUN_DIR, with its own settings and DATA.")
]
