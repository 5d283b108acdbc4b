"""Exact training: Adam in centred coordinates by a rule without noise, and a rate that falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.learning import Rule, rules
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.training.callbacks import STOP, Signal, Update
from harmonium.training.divergence import TrainingDiverged
from harmonium.training.history import Record
from harmonium.training.optimizers import Adam
from harmonium.training.penalties import L2
from harmonium.training.schedules import Schedule
from harmonium.training.settings import Settings
from harmonium.training.state import TrainingRun
from harmonium.training.trainer import Run

LOOK = 10
"""Updates between two looks at rows that are held out, as a look takes about the time of an update."""
EXACT_BATCH = 2048
"""Rows of an update: more made tables slower to learn and no better (docs/decisions/0019)."""
_GAIN = 2e-3  # nats a row, the least gain that counts (docs/decisions/0019)
_FALLS = ((1.0, 3), (0.3, 2))  # factors of the rate, each with the looks without a gain that end it
# Adam averages squares over 50 updates (0.98) rather than 1000: exact gradients have no noise to average out.
_BETAS, _EPSILON = (0.9, 0.98), 1e-8


class Objective(NamedTuple):
    """The objective, (1 - joint) ln p(y | x) + joint ln p(x, y); by default ln p of all columns.

    Attributes:
        condition_on: Layers of x; none: there is no label.
        joint: Weight of ln p(x, y), in [0, 1].
    """

    condition_on: Sequence[int] = ()
    joint: float = 1.0

    def rule(self, roots: Mapping[int, Tensor] | None) -> Rule:
        """Returns the rule that ascends it without noise, for rows of columns with roots."""
        rule = rules.exact(roots=roots)
        return rules.hybrid(rule, self.condition_on, self.joint) if self.condition_on else rule


def mean_score(
    machine: BoltzmannMachine,
    v: Tensor,
    *,
    weights: Tensor | None = None,
    roots: Mapping[int, Tensor] | None = None,
    objective: Objective = Objective(),  # noqa: B008
) -> float:
    """Returns the weighted mean of ln p over rows, or of ln p(y | x), in nats; -inf in place of NaN."""
    hamiltonian, layers = machine.hamiltonian(), objective.condition_on
    table = HiddenStates(hamiltonian, roots)
    rest = table.log_weights(hamiltonian.observe_only(layers, v)) if layers else table.log_partition
    scores = table.log_weights(v) - rest
    score = float(scores.mean() if weights is None else weights.to(scores) @ scores / weights.sum())
    return score if score == score else -inf


def take_rows(v: Tensor, weights: Tensor | None, index: Tensor | slice) -> tuple[Tensor, Tensor | None]:
    """Returns some rows with their weights, by indices or booleans on the host, or a slice."""
    return v[index], None if weights is None else weights[index]


def count_rows(v: Tensor, weights: Tensor | None) -> float:
    """Returns the number of rows that these rows stand for."""
    return len(v) if weights is None else float(weights.sum())


def unit_means(machine: BoltzmannMachine, v: Tensor) -> list[Tensor]:
    """Returns the means of units, (width_l,) for every layer, where nothing joins them to others."""
    seen = machine.split(v.nanmean(0, keepdim=True).nan_to_num(0.0))
    means = []
    for l, layer in enumerate(machine.layers):
        theta = layer.reference()
        if l in machine.visible and layer.scale is None:
            mean = seen[l][0]
        elif l in machine.visible:  # standardised, and 0 keeps the map linear in the scale
            mean = torch.zeros(layer.width)
        else:
            mean = layer.moments(torch.zeros_like(theta[0]), theta=theta).mean
        means.append(mean.to(v))
    return means


@final
class CentredAdam(Adam):  # type: ignore[misc, valid-type]
    """Adam in coordinates that count units from their means: locations are b' = b + W μ.

    Steps of the couplings then keep the means of units. In these coordinates the path of Adam does not depend
    on which state of a unit is called 1. (``rules.centred`` returns a direction in the old coordinates, of
    which Adam rescales every entry.) μ: means of every layer.
    """

    def __init__(
        self,
        machine: BoltzmannMachine,
        means: Sequence[Tensor],
        learning_rate: float,
        parameters: list[Parameter],
    ) -> None:
        super().__init__(parameters, lr=learning_rate, betas=_BETAS, eps=_EPSILON, fused=True)
        at = [getattr(layer, layer.location) for layer in machine.layers]
        weights = [coupling.weight for coupling in machine.couplings]
        self.edges = [
            (W, at[l], at[m], means[l], means[m]) for W, (l, m) in zip(weights, machine.edges, strict=True)
        ]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Makes one update of all parameters by their gradients."""
        for W, low, high, mean_low, mean_high in self.edges:
            assert W.grad is not None and low.grad is not None and high.grad is not None
            gradient = W.grad.addr(low.grad.flatten(), mean_high, alpha=-1)
            W.grad = gradient.addr_(mean_low, high.grad.flatten(), alpha=-1)
        before = [W.detach().clone() for W, *_ in self.edges]
        super().step()
        for (W, *ends), W_before in zip(self.edges, before, strict=True):
            _keep_means(W - W_before, *ends)


def _keep_means(W: Tensor, low: Tensor, high: Tensor, mean_low: Tensor, mean_high: Tensor) -> None:
    """Takes W μ, by which a coupling has changed the fields at means, off the locations of both its ends."""
    low.view(-1).addmv_(W, mean_high, alpha=-1)
    high.view(-1).addmv_(W.t(), mean_low, alpha=-1)


@torch.no_grad()
def draw_couplings(
    machine: BoltzmannMachine, std: float, means: Sequence[Tensor], generator: torch.Generator
) -> None:
    """Draws normal couplings in place, of a standard deviation, and keeps the means of units."""
    for coupling, (l, m) in zip(machine.couplings, machine.edges, strict=True):
        before = coupling.weight.detach().clone()
        coupling.draw_(std, generator)
        low, high = (getattr(machine.layers[k], machine.layers[k].location) for k in (l, m))
        _keep_means(coupling.weight - before, low, high, means[l], means[m])


def train_exact(
    machine: BoltzmannMachine,
    X: Numbers,
    weights: Tensor | None = None,
    *,
    updates: int,
    learning_rate: float,
    roots: Mapping[int, Tensor] | None = None,
    objective: Objective = Objective(),  # noqa: B008
    weight_decay: float | Sequence[float] = 3e-4,
    schedule: Schedule | str = "constant",
    earlier: Sequence[Record] | None = None,
    every: int = LOOK,
    seed: int | torch.Generator = 0,
    **watch: Any,
) -> TrainingRun:
    """Trains a machine in place by exact gradients and ``CentredAdam``, in the loop of ``train``.

    Of more than 2,048 rows every update reads 2,048.

    Args:
        machine: a visible side without edges of its own beside hidden layers that ``HiddenStates`` takes.
        X: visible states, (rows, visible_width), NaN where missing.
        weights: Row weights, (rows,), at least 0; None means uniform.
        updates: Updates beside those of ``earlier``, at least 1.
        learning_rate: Learning rate, at least 0.
        roots: see ``rules.exact``.
        objective: Objective to ascend.
        weight_decay: at least 0; half of it times |W|² is taken from the mean ln p of a row. Or one for each
            coupling of the machine, in the order of its edges.
        schedule: Schedule, as in ``train``.
        earlier: Records of updates that were made before; None: a training begins here.
        every: Updates between two records and evaluations, where ``watch`` has no number.
        seed: Seed of the rows of every update.
        **watch: validation, callbacks, folder and the like, as of ``train``, where not None, and what ``Run``
            takes besides; progress is False by default.

    Raises:
        ValueError: a machine that ``HiddenStates`` does not take, or another number of decays than of
            couplings.
    """
    count = len(machine.edges)
    decays = [*weight_decay] if isinstance(weight_decay, Sequence) else [weight_decay] * count
    if len(decays) != count:
        raise ValueError(
            f"weight_decay: expected one number, or one for each of {count} couplings, received {len(decays)}"
        )
    v = _checks.tensor(X, "X", machine.dtype, machine.device)
    usual = {"record_every": every, "evaluate_every": every, "progress": False}
    run_settings = usual | {name: value for name, value in watch.items() if value is not None}
    run_options = {name: run_settings.pop(name) for name in ("show", "spent") if name in run_settings}
    settings = Settings(
        rule=objective.rule(roots),
        updates=updates + (earlier[-1]["step"] if earlier else 0),
        batch_size=EXACT_BATCH,
        optimizer=partial(CentredAdam, machine, unit_means(machine, v), learning_rate),
        learning_rate=learning_rate,
        schedule=schedule,
        penalties=[L2(decay, (edge,)) for edge, decay in enumerate(decays) if decay],
        seed=seed,
        weights=weights,
        **run_settings,
    )
    run = Run(machine, v, settings, earlier=earlier, **run_options)
    run.state.limit = inf  # the likelihood itself is at hand: no cheap bound on it is watched
    return run.train()


class BestFit(NamedTuple):
    """The result of ``train_exact_until_best``.

    Attributes:
        score: the best mean ln p of the rows that were held out, in nats, or ln p(y | x).
        history: records of looks at them, up to the best one.
    """

    score: float
    history: list[Record]


def train_exact_until_best(
    machine: BoltzmannMachine,
    X: Numbers,
    weights: Tensor | None = None,
    *,
    validation: Tensor,
    validation_weights: Tensor | None = None,
    roots: Mapping[int, Tensor] | None = None,
    objective: Objective = Objective(),  # noqa: B008
    learning_rate: float = 0.05,
    max_updates: int = 200,
    weight_decay: float | Sequence[float] = 3e-4,
    initial_std: float | None = 0.1,
    seed: int | torch.Generator = 0,
) -> BestFit:
    """Trains a machine in place by exact gradients, until the likelihood of held-out rows stops rising.

    The machine's biases are those of columns that nothing joins, as ``init_visible_biases_`` finds them.
    The rate falls where ln p of the rows held out no longer rises, or with a label their ln p(y | x); then
    training ends. The best parameters are kept. The other arguments are those of ``train_exact``.

    Args:
        validation: Rows held out, of which 2,048 are read at most.
        validation_weights: Weights of those rows, (rows,); None means uniform.
        learning_rate: First learning rate, above 0.
        max_updates: Most updates, at least 1.
        initial_std: Standard deviation of couplings to draw, above 0; None: those of the machine are kept.
        seed: Seed of the couplings and of the rows of every update.

    Raises:
        ValueError: as ``train_exact``.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat(50, 1)
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)])
        >>> fit = hm.training.train_exact_until_best(machine, rows, validation=rows)
        >>> fit.score > -0.9  # independent columns: -1.4
        True
    """
    v = _checks.tensor(X, "X", machine.dtype, machine.device)
    generator = _random.as_generator(seed, machine.device)
    if initial_std is not None:
        draw_couplings(machine, initial_std, unit_means(machine, v), generator)
    held, held_weights = validation.to(v), validation_weights
    if len(held) > EXACT_BATCH:
        read = _random.permutation(len(held), generator)[:EXACT_BATCH].cpu()
        held, held_weights = take_rows(held, held_weights, read)
    score = partial(mean_score, weights=held_weights, roots=roots, objective=objective)
    falling, history = _FallingRate(machine, score(machine, held)), list[Record]()
    with suppress(TrainingDiverged):  # the best parameters until then serve
        run = train_exact(
            machine,
            v,
            weights,
            updates=max_updates,
            learning_rate=learning_rate,
            roots=roots,
            objective=objective,
            weight_decay=weight_decay,
            schedule=falling.schedule,
            seed=generator,
            validation=held,
            metrics={"validation_score": score},
            callbacks=[falling],
        )
        history = run.whole().history
    falling.put_back()
    return BestFit(falling.best, [record for record in history if record["step"] <= falling.best_step])


@final
class _FallingRate:
    """Lowers the rate of a run where its metric stops rising, at the best parameters, and then ends it.

    A callback and a schedule.
    """

    def __init__(self, machine: BoltzmannMachine, score: float) -> None:
        self.parameters = [parameter.detach() for parameter in machine.parameters()]
        self.best_values, self.best_step = [parameter.clone() for parameter in self.parameters], 0
        self.best, self.bar, self.waited = score, score, 0
        self.falls = iter(_FALLS)
        self.factor, self.patience = next(self.falls)

    def schedule(self, step: int, total: int) -> float:
        """Returns the factor of the rate."""
        return self.factor

    def needs_update(self, step: int, total: int) -> bool:
        """Returns False: metrics alone count."""
        return False

    def __call__(self, update: Update) -> Signal | None:
        """Looks at the metric where it was evaluated."""
        if not update.metrics:
            return None
        (score,) = update.metrics.values()
        gains = score > self.bar + _GAIN
        self.bar, self.waited = (score, 0) if gains else (self.bar, self.waited + 1)
        if score > self.best:
            self.best, self.best_step = score, update.step
            torch._foreach_copy_(self.best_values, self.parameters)
        if self.waited >= self.patience:
            fall = next(self.falls, None)
            if fall is None:
                return STOP
            self.put_back()
            (self.factor, self.patience), self.bar, self.waited = fall, self.best, 0
        return None

    def put_back(self) -> None:
        """Goes back to the best parameters; momenta stay, as to go back with them was no better."""
        torch._foreach_copy_(self.parameters, self.best_values)
