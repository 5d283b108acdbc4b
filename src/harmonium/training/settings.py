"""The settings of a run, each described once: for ``train``, the command, ``run.toml`` and the estimators."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from textwrap import fill, indent
from typing import Annotated, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar, final, get_type_hints

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._settings import COUNT, AtLeast0, Checked, Count, Fraction, Interval, Setting, settings_of
from harmonium.backends import PRECISIONS
from harmonium.distributed import Distributed
from harmonium.ladder import Ladder
from harmonium.learning import rules
from harmonium.machine import BoltzmannMachine
from harmonium.training.callbacks import Callback
from harmonium.training.history import Metric
from harmonium.training.optimizers import OPTIMIZERS, OptimizerFactory, read_rates
from harmonium.training.penalties import L1, L2, Penalty, read_penalties
from harmonium.training.schedules import SCHEDULES, Schedule

Transform = Callable[[Tensor, torch.Generator], Tensor]
_SLOWER = 1 / 3  # of the rate, where training has diverged
_ABOVE_0 = Interval(0.0, closed="neither")


@dataclass(frozen=True, kw_only=True)
class Steps(Checked):
    """The length of a run and its steps: what the command, ``run.toml`` and ``train`` share.

    What is None the command chooses by the data (``tables.recipe``).

    Attributes:
        updates: length of the run, where epochs are not given.
        epochs: passes over the data; where no length is given, it follows from the number of rows.
        batch_size: rows of every update. Batches are cut from random permutations, one an epoch, so that
            every row appears once an epoch; a batch of at least all rows is the data in their own order.
        learning_rate: at the start; if not given by how columns vary together, the rows and the kinds of
            units.
        rates: factors of the learning rate for parameters by name, such as log_variance=0.01 beside Gaussian
            units; repeatable.
        schedule: schedule of the learning rate; linear if not given.
        optimizer: optimiser, sgd or adam, or lbfgs to a tolerance on all rows for rules without noise; sgd if
            not given, adam with a label or for grey images in Gaussian units.
        momentum: momentum of sgd, in [0, 1).
        weight_decay: L2 penalty on the couplings.
        l1: L1 penalty on the couplings.
        penalties: others on the couplings, such as group=0.01, which lets whole pairs of units go, or
            l1squared=0.1; fields=0.02 is for biases; repeatable.
        clip_norm: largest norm of the gradient, over all parameters together and after decay terms. Where
            none is given, the command takes 1 beside units without a bound (10 for grey images), else any.
        radius: largest norm of all parameters together, to which every update projects them; unbiased
            gradients then have bounded second moments (Qiu et al. 2020, Alg. 2, Cor. 2).
        averaging: decay of a running average of the parameters, such as 0.999. Its first updates weigh
            equally, so that it forgets where the machine started. With a label the command takes 0.99.
        ladder: keep running averages along the way as the rungs of a ladder.
        on_divergence: what follows then; slower begins again, from the same machine, at a third of the rate,
            with a warning, at most four times, each in the place of the one before; raise ends the run.
    """

    PANEL: ClassVar[str] = "Length and steps"
    METHOD: ClassVar[str] = "chains"
    updates: Annotated[int | None, Setting(COUNT, belongs_to=("epochs",))] = None
    epochs: Annotated[int | None, Setting(COUNT, belongs_to=("updates",))] = None
    batch_size: Count = 100
    learning_rate: AtLeast0 | None = None
    rates: Annotated[list[str] | None, Setting(option="--rate", metavar="NAME=FACTOR")] = None
    schedule: Annotated[str | Schedule | None, Setting(SCHEDULES)] = None
    optimizer: Annotated[str | OptimizerFactory | None, Setting(OPTIMIZERS)] = None
    momentum: Annotated[float, Setting(Interval(0.0, 1.0, "left"), belongs_to=("optimizer",))] = 0.0
    weight_decay: AtLeast0 = 0.0
    l1: AtLeast0 = 0.0
    penalties: Annotated[list[str] | None, Setting(option="--penalty", metavar="KIND=STRENGTH")] = None
    clip_norm: Annotated[float | None, Setting(_ABOVE_0)] = None
    radius: Annotated[float | None, Setting(_ABOVE_0)] = None
    averaging: Fraction | None = None
    ladder: Annotated[bool, Setting(option="--ladder")] = False
    on_divergence: Literal["slower", "raise"] = "slower"


@dataclass(frozen=True, kw_only=True)
class Watching(Checked):
    """Describes how a run is judged, followed and kept; none of it changes an update.

    Attributes:
        validation: Rows for the metrics, as X, few enough to be held as floats. Metrics get them as they
            are, NaN where not observed.
        validation_weights: Weights of these rows. Metrics do not get them, nor rows of weight 0.
        metrics: Callables ``(machine, validation)`` by name that return a value for every row, such as
            ``harmonium.likelihood.pseudo_log_likelihood``, of which the weighted mean is recorded; without
            ``validation_weights`` also a number. With ``averaging`` they judge the average.
        evaluate_every: Updates between two evaluations; None: an epoch. The end of the
            run is always evaluated.
        record_every: Updates between two records of the history; None: 100, or a hundredth of a shorter run.
        callbacks: Objects called with an ``Update`` after every update; see ``harmonium.training.callbacks``.
        run_dir: Folder for ``run.toml``, ``checkpoint.safetensors`` and the one before,
            ``checkpoint-previous.safetensors``, ``history.jsonl``, and at the end of the run
            ``machine.safetensors``, with averaging ``averaged.safetensors``, with ``ladder``
            ``ladder.safetensors``. One process at a time trains in it, that of its ``lock.json``.
        checkpoint_every: Updates between two checkpoints; None: about a minute of training. One is also
            written at the end, on Ctrl-C and on SIGTERM.
        resume: continue from the checkpoint in ``run_dir``, or start where it holds none. Where the last one
            is damaged, the one before is taken, with a warning. The settings must be the same; ``updates`` or
            ``epochs`` may change under a schedule that does not depend on them. A run that a callback stopped
            stays stopped.
        overwrite: remove the files of the run that ``run_dir`` holds, at the first record or checkpoint.
        run_file: Settings in ``run.toml`` in place of these, for who knows more of the run, as the command.
        progress: True shows a progress line on stderr, False none; None: in a terminal or a notebook, and
            elsewhere a plain line every half a minute.
    """

    validation: Any = None
    validation_weights: Any = None
    metrics: Mapping[str, Metric] | None = None
    evaluate_every: Count | None = None
    record_every: Count | None = None
    callbacks: Sequence[Callback] = ()
    run_dir: str | os.PathLike[str] | None = None
    checkpoint_every: Count | None = None
    resume: bool = False
    overwrite: bool = False
    run_file: str | None = None
    progress: bool | None = None


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Settings(Watching, Steps):
    """The settings of a run, beside its machine and its rows: the keywords of ``train``.

    Attributes:
        rule: Rule that estimates the gradient, for instance ``harmonium.rules.pcd()``; or the name of a
            recipe, ``"pcd"``, for its own settings.
        weights: Row weights, (rows,), finite, at least 0 and not all 0; only their ratios count. The
            mean is Σ w ln p(v) / Σ w, of which a batch gives an unbiased estimate. Rows of weight 0 are never
            read but to be checked, and belong to no epoch. None means uniform.
        learning_rate: Learning rate of the named optimisers, >= 0.
        rates: Factors >= 0 of the learning rate by parameter, such as ``{"log_variance": 0.01}``: the
            variances of Gaussian units fall much faster than local chains can follow (Melchior et al. 2017).
            A name is that of a parameter, ``"layers.0.log_variance"``, or the last part of it for all layers.
            Small machines then make their updates one by one, and not in compiled calls.
        schedule: Factor of the learning rates: ``"constant"``, ``"cosine"`` and ``"linear"`` (to 0 at the
            end), ``"warmup_cosine"`` (rising over the first twentieth), ``"inverse_sqrt"``
            (1 / sqrt(1 + step / 1000)), or a callable ``(step, total) -> factor``.
        optimizer: ``"sgd"``, ``"adam"``, or a callable ``parameters -> torch.optim.Optimizer`` that
            minimises, which then sets its own learning rates. ``"lbfgs"`` is for rules without noise, such as
            pseudo_likelihood: it reads all rows at every update, whatever ``batch_size``, and ends the run
            where the gradient is within the tolerance of ``training.LBFGS``.
        penalties: Other penalties on couplings, such as ``training.GroupLasso(0.01)``, or ``"group=0.01"``.
        ladder: True keeps running averages of the machine along the way as rungs of a ``ladder.Ladder``, for
            samples and ln Z of every age: ``TrainingRun.ladder`` and ``ladder.safetensors`` in ``run_dir``
            (FORMULAS §8). A ``Ladder`` without rungs has their spacing and largest number.
        transform: Function that makes visible states of a batch at every update, ``(rows, generator) ->
            states``: for instance ``harmonium.data.bernoulli_binarise`` on intensities. Its noise is a
            function of the seed and the step. None: the rows are states.
        rule_state: State to start the rule with, ``TrainingRun.rule_state`` of an earlier run, whose chains
            go on. A resumed run goes on with its own. None: the rule starts afresh.
        seed: Seed of the order of the rows and of the rule's noise: an int in [0, 2**63), or a generator, of
            which one is drawn. To resume, the generator has to be where it was.
        device: Device to train on; the machine is moved there. None: where it is. Data stay where they are,
            and batches are sent.
        precision: Precision of the fields that the rule computes: "float32", "tf32" or "bf16", see
            ``harmonium.backends.precision``. Statistics and parameters are in the machine's own.
        distributed: ``"auto"``: all processes of the default group of ``torch.distributed`` train one
            machine; or a ``ProcessGroup``. All have to make this call alike. The first of them writes, shows,
            evaluates, calls callbacks and records the diagnostics of its own chains. A callback that stops,
            or a signal to any of them, ends the run in all after the next update. Rows of a batch and chains
            are split evenly, at least one for each process; another number of processes gives other bits of
            the same distribution. None: this process alone, as "auto" is where it was started alone.
    """

    rule: Any
    weights: Any = None
    learning_rate: AtLeast0 = 0.05
    rates: Any = None
    schedule: Annotated[str | Schedule, Setting(SCHEDULES)] = "constant"
    optimizer: Annotated[str | OptimizerFactory, Setting(OPTIMIZERS)] = "sgd"
    penalties: Any = None
    ladder: Any = False
    on_divergence: Literal["slower", "raise"] = "raise"
    transform: Transform | None = None
    rule_state: Any = None
    seed: int | torch.Generator = 0
    device: str | torch.device | None = None
    precision: Annotated[str, Setting(PRECISIONS)] = "float32"
    distributed: Distributed = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", rules.from_options(self.rule))
        if isinstance(self.seed, torch.Generator):
            object.__setattr__(self, "seed", int(_random.integers(1 << 62, (), self.seed)))
        if not callable(getattr(self.rule, "gradient", None)):
            raise TypeError(
                "rule: expected a rule such as harmonium.rules.pcd(), or its name, "
                f"received {type(self.rule).__name__}"
            )
        if (self.updates is None) == (self.epochs is None):
            raise ValueError("updates, epochs: expected exactly one of them")
        super().__post_init__()
        object.__setattr__(self, "penalties", read_penalties(self.penalties) or None)
        object.__setattr__(self, "rates", read_rates(self.rates) or None)
        if self.rates and self.optimizer not in ("sgd", "adam"):
            raise ValueError(
                'rates: expected with optimizer="sgd" or "adam", as any other sets its own, '
                f"received {self.rates} with {as_plain(self.optimizer)}"
            )
        if self.momentum > 0 and self.optimizer != "sgd":
            raise ValueError('momentum: only optimizer="sgd" takes it; expected 0 with any other')
        if self.transform is not None and not callable(self.transform):
            raise TypeError(
                f"transform: expected a callable or None, received {type(self.transform).__name__}"
            )
        if not (isinstance(self.callbacks, Sequence) and all(map(callable, self.callbacks))):
            raise TypeError(f"callbacks: expected a list of callables, received {self.callbacks!r}")
        _checks.positive_int(self.seed, "seed", minimum=0)
        if self.run_dir is None and (self.resume or self.overwrite):
            raise ValueError("run_dir: expected a folder with resume or overwrite, received None")
        if self.resume and self.overwrite:
            raise ValueError("resume, overwrite: expected at most one of them to be True")
        if not isinstance(self.ladder, bool | Ladder):
            raise TypeError(
                f"ladder: expected True, False or a ladder.Ladder, received {type(self.ladder).__name__}"
            )

    @property
    def root(self) -> int:
        """The seed as the int that a run is known by."""
        assert not isinstance(self.seed, torch.Generator)
        return int(self.seed)

    def slower(self, times: int, again: bool = False) -> Settings:
        """Returns the settings of an attempt at 3^-times the rates, which begins ``again`` in the folder."""
        factor, optimizer = _SLOWER**times, self.optimizer
        if callable(optimizer):
            optimizer = partial(_slowed, optimizer, factor)
        folder: dict[str, Any] = {"resume": False, "overwrite": self.run_dir is not None} if again else {}
        state, rate = deepcopy(self.rule_state), self.learning_rate * factor
        return replace(self, learning_rate=rate, optimizer=optimizer, rule_state=state, **folder)

    def pulls(self) -> tuple[Penalty, ...]:
        """Returns all penalties, also those that ``weight_decay`` and ``l1`` are short for."""
        short = (L2(self.weight_decay), L1(self.l1))
        return (*(penalty for penalty in short if penalty.strength), *(self.penalties or ()))

    def as_dict(self) -> dict[str, Any]:
        """The settings that determine updates, as numbers and strings, to recognise them on resuming."""
        apart = {*settings_of(Watching), "on_divergence", "weights", "rule_state", "device", "distributed"}
        content = {f.name: as_plain(getattr(self, f.name)) for f in fields(self) if f.name not in apart}
        return {**content, "ladder": int(self.ladder is not False)}


def _slowed(
    make: OptimizerFactory, factor: float, parameters: list[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Returns an optimiser with all its rates times a factor."""
    optimizer = make(parameters)
    for group in getattr(optimizer, "param_groups", ()):  # what is no optimiser the trainer refuses
        group["lr"] *= factor
    return optimizer


_P = ParamSpec("_P")
_T = TypeVar("_T")


def with_settings(
    make: Callable[_P, Settings],
) -> Callable[
    [Callable[[BoltzmannMachine, Any, Settings], _T]], Callable[Concatenate[BoltzmannMachine, Any, _P], _T]
]:
    """Gives a function of a machine, rows and settings these as keywords, documented one by one."""
    known = settings_of(make)
    asked = [x.name for x in signature(make).parameters.values() if x.default is Parameter.empty]

    def decorate(
        function: Callable[[BoltzmannMachine, Any, Settings], _T],
    ) -> Callable[Concatenate[BoltzmannMachine, Any, _P], _T]:
        @wraps(function)
        def call(machine: BoltzmannMachine, X: Any, *args: _P.args, **options: _P.kwargs) -> _T:
            for name in options:
                if name not in known:
                    close = _checks.close_to(name, known)
                    raise TypeError(f"{name}: expected a setting of {function.__name__}{close}")
            for name in asked:
                if name not in options:
                    raise TypeError(f"{name}: expected one, received none. {known[name].help}")
            return function(machine, X, make(*args, **options))

        described: Any = call
        first, hints = list(signature(function).parameters.values())[:2], get_type_hints(make)
        own_parameters = [x.replace(annotation=hints[x.name]) for x in signature(make).parameters.values()]
        own_parameters.sort(
            key=lambda x: x.default is not Parameter.empty
        )  # what has to be given comes first
        described.__signature__ = Signature([*first, *own_parameters])
        entries = [fill(f"{name}: {x.help}", 98, subsequent_indent="    ") for name, x in known.items()]
        text = indent("\n".join(entries), " " * 8)
        here = re.compile(r"^ {8}settings: .*(\n {12}.*)*", re.M)
        described.__doc__ = here.sub(lambda _: text, function.__doc__ or "")
        taking: Callable[Concatenate[BoltzmannMachine, Any, _P], _T] = described
        return taking

    return decorate


def as_plain(value: Any) -> Any:
    """Returns a value as a number or text, a callable by its name."""
    if value is None or isinstance(value, str):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    if hasattr(value, "__float__"):
        return float(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    # The address that a default repr ends in changes from process to process.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def move(machine: BoltzmannMachine, device: str | torch.device | None) -> None:
    """Moves a machine to a device; None leaves it where it is.

    Raises:
        TypeError: no machine.
        ValueError: a device that cannot be used.
    """
    if not isinstance(machine, BoltzmannMachine):
        raise TypeError(f"machine: expected a BoltzmannMachine, received {type(machine).__name__}")
    if device is not None:
        try:
            if torch.device(device).type == "meta":
                raise RuntimeError("it holds no numbers, and the machine would lose its own")
            machine.to(torch.device(device))
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device: {device} cannot be used ({str(error).splitlines()[0]})") from error
