"""L-BFGS for gradients without noise: fits to a stated tolerance, in one gradient an update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.nn import Parameter

from harmonium import _checks
from harmonium.training.preconditioner import Preconditioner

# A step is taken where the slope along it has fallen to 0.9 of that at its start (Nocedal & Wright, 3.8), and
# has not turned to more than half of it the other way: of a convex quadratic, three quarters of the way down
# are then left over at least.
_FALLEN, _TURNED = 0.9, -0.5
_NEAREST = 0.1  # of a bracket, from either end: no trial lies nearer
_FURTHEST = 10.0  # times a step that was too short
# Trials along one direction. More are rounding alone: the slope is then taken as it is, and memory is lost.
_TRIALS = 12

# The first step along a preconditioned gradient. Correlations of the data, which the preconditioner leaves
# out, make the curvature of some directions 10 to 25 times as large as it has it (PF00072).
_FIRST = 0.1

_Own = dict[str, Any]  # what is kept of a parameter


class _Line(NamedTuple):
    """The search along one direction, as numbers that a checkpoint keeps.

    Attributes:
        at: steps of the direction from its start; 0: there is no direction yet.
        low, high: ends of the bracket; a ``high`` of 0 is none.
        low_slope, high_slope, first_slope: slopes at its ends and at its start.
        trials: gradients that were asked for along it.
        pairs: how many pairs of steps and changes are kept.
        newest: place of the last of them.
    """

    at: float = 0.0
    low: float = 0.0
    high: float = 0.0
    low_slope: float = 0.0
    high_slope: float = 0.0
    first_slope: float = 0.0
    trials: float = 0.0
    pairs: float = 0.0
    newest: float = -1.0

    def next_trial(self, slope: float) -> tuple[_Line, float]:
        """Returns the bracket with the slope here in it, and where the slope is likely to vanish."""
        if slope < 0:
            line = self._replace(low=self.at, low_slope=slope)
        else:
            line = self._replace(high=self.at, high_slope=slope)
        if not line.high:
            # A secant through the last two slopes; convex functions do not bend the other way.
            rise = slope - self.low_slope
            secant = self.at - slope * (self.at - self.low) / rise if rise > 0 else _FURTHEST * self.at
            return line, min(max(secant, 2 * self.at), _FURTHEST * self.at)
        width = line.high - line.low
        share = -line.low_slope / (line.high_slope - line.low_slope)
        return line, line.low + width * min(max(share, _NEAREST), 1 - _NEAREST)


@final
class LBFGS(torch.optim.Optimizer):
    """Limited-memory BFGS by gradients alone, one an update (Liu & Nocedal 1989).

    Slopes alone bracket a minimum along each direction: no value of the objective is asked for. That is
    right for convex objectives, such as the penalised pseudo-likelihood, and for gradients of all rows
    without noise: ``train`` gives it all rows at every update, and refuses rules that draw.

    Args:
        parameters: Parameters.
        lr: The first step, times the gradient; later ones follow from the curvature. With a preconditioner
            the first does too.
        tolerance: A run ends where the norm of the gradient, with penalties, is at most this share of the
            norm of the parameters, or of 1 if that is larger: the criterion of libLBFGS, for the mean over
            rows. With an L2 penalty on all parameters they are then within tolerance / strength of the
            optimum, as a share of their norm.
        history: Pairs of steps and changes of the gradient that are kept, each as large as the parameters
            twice over.

    Attributes:
        ratio: That share after the last update.
        converged: whether it is within the tolerance.
        preconditioner: What directions begin with in place of the gradient, for two parameters: fields and
            couplings. ``train`` sets it for one layer of discrete units; None: the gradient itself.

    Raises:
        TypeError, ValueError: arguments out of range.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> rows = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
        >>> spins = hm.BoltzmannMachine([hm.Bernoulli(2)], edges=[(0, 0)], seed=None)
        >>> run = hm.train(
        ...     spins, rows, rule="pseudo_likelihood", optimizer="lbfgs", weight_decay=0.1, updates=100
        ... )
        >>> run.status, run.updates < 20
        ('stopped', True)
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.1,
        *,
        tolerance: float = 1e-4,
        history: int = 6,
    ) -> None:
        _checks.real(lr, "lr", low=0.0)
        _checks.real(tolerance, "tolerance", low=0.0)
        _checks.positive_int(history, "history")
        super().__init__(
            parameters, {"lr": lr, "tolerance": tolerance, "history": history, "maximize": False}
        )
        self.ratio, self.converged = float("inf"), False
        self.preconditioner: Preconditioner | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes the next trial along the direction, or takes the step and turns to a new direction."""
        group = self.param_groups[0]
        parameters = [p for p in group["params"] if p.grad is not None]
        gradient = [p.grad.neg() if group["maximize"] else p.grad.clone() for p in parameters]
        own = [self._state_of(p, group["history"]) for p in parameters]
        norm = torch._foreach_norm
        size, length = (float(torch.stack(norm(x)).norm()) for x in (gradient, parameters))
        self.ratio = size / max(1.0, length)
        self.converged = self.ratio <= group["tolerance"]
        line = _Line(*own[0]["line"])
        if self.converged:
            return
        if line.at:
            slope = _dot([state["direction"] for state in own], gradient)
            if not _TURNED <= slope / line.first_slope <= _FALLEN and line.trials < _TRIALS:
                tried, at = line.next_trial(slope)
                self._move(parameters, own, at - line.at)
                self._note(own, tried._replace(at=at, trials=line.trials + 1))
                return
            line = _remember(line, own, gradient, group["history"])
        first = group["lr"] if self.preconditioner is None else _FIRST
        line = _turn(line, own, gradient, first, self.preconditioner)
        self._move(parameters, own, 1.0)
        self._note(own, line._replace(at=1.0, trials=1.0))

    def warn(self) -> None:
        """Warns where the run ended before the gradient was within the tolerance."""
        if not self.converged:
            tolerance = self.param_groups[0]["tolerance"]
            _checks.warn(
                f"lbfgs: the gradient is {self.ratio:.2g} of the parameters, above the tolerance of "
                f"{tolerance:g}; more updates take it further",
                RuntimeWarning,
            )

    def _state_of(self, parameter: Tensor, history: int) -> dict[str, Any]:
        """Returns what is kept of a parameter, made at the first step."""
        state: dict[str, Any] = self.state[parameter]
        if not state:
            many = (history, *parameter.shape)
            state["line"], state["curvatures"] = [*_Line()], [0.0] * history  # torch would round tensors
            state["direction"], state["gradient"] = (torch.zeros_like(parameter) for _ in range(2))
            state["steps"], state["changes"] = (parameter.new_zeros(many) for _ in range(2))
        return state

    @staticmethod
    def _move(parameters: list[Tensor], own: list[_Own], steps: float) -> None:
        torch._foreach_add_(parameters, [state["direction"] for state in own], alpha=steps)

    @staticmethod
    def _note(own: list[_Own], line: _Line) -> None:
        for state in own:
            state["line"] = [*line]


def check_search(rule: Any, schedule: Any, clip_norm: float | None, radius: float | None) -> None:
    """Refuses a run whose gradients are not those of one objective, or whose steps are changed.

    Raises:
        ValueError: naming the setting and what to do.
    """
    if not getattr(rule, "noiseless", False):
        raise ValueError(
            'optimizer: "lbfgs" expects a gradient without noise, of a rule such as pseudo_likelihood or '
            f'exact, received the rule {rule}; take "sgd" or "adam" for it'
        )
    if getattr(rule, "centred", False):
        raise ValueError('rule: expected a gradient with optimizer="lbfgs", received a centred direction')
    rates = None if schedule == "constant" else schedule
    given = {"schedule": rates, "clip_norm": clip_norm, "radius": radius}
    changed = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    if changed:
        raise ValueError(
            'optimizer: "lbfgs" chooses its steps itself; expected schedule="constant", no clip_norm and no '
            f"radius, received {changed}"
        )


def _remember(line: _Line, own: list[_Own], gradient: list[Tensor], history: int) -> _Line:
    """Takes a step: keeps it, and how it changed the gradient, in place of the oldest pair."""
    if line.trials >= _TRIALS:
        return line._replace(pairs=0.0)
    place = (int(line.newest) + 1) % history
    curvature = squares = 0.0
    for state, g in zip(own, gradient, strict=True):
        step = torch.mul(state["direction"], line.at, out=state["steps"][place])
        change = torch.sub(g, state["gradient"], out=state["changes"][place])
        curvature += _dot([step], [change])
        squares += _dot([change], [change])
    if curvature <= 1e-10 * squares:  # not convex here, or rounding alone
        return line._replace(pairs=0.0)
    for state in own:
        state["curvatures"][place] = curvature
    return line._replace(newest=float(place), pairs=min(line.pairs + 1, float(history)))


def _turn(
    line: _Line, own: list[_Own], gradient: list[Tensor], first: float, preconditioner: Preconditioner | None
) -> _Line:
    """Writes the next direction, -H g, and the gradient at its start; returns its slope (two-loop recursion).

    Args:
        line: with the pairs that are kept.
        own: the states of the parameters.
        gradient: the gradient here, which is not changed.
        first: H where there are no pairs.
        preconditioner: A matrix that H is a multiple of, before pairs change it; None: the identity.
    """
    direction = [state["direction"] for state in own]
    history = len(own[0]["steps"])
    places = [(int(line.newest) - back) % history for back in range(int(line.pairs))]
    for d, state, g in zip(direction, own, gradient, strict=True):
        state["gradient"].copy_(g)
        torch.neg(g, out=d)
    shares = dict[int, float]()
    for place in places:
        steps, changes = ([state[name][place] for state in own] for name in ("steps", "changes"))
        shares[place] = _dot(steps, direction) / own[0]["curvatures"][place]
        torch._foreach_add_(direction, changes, alpha=-shares[place])
    scale = first
    if places:
        newest = [state["changes"][places[0]] for state in own]
        conditioned = newest
        if preconditioner is not None:
            conditioned = [change.clone() for change in newest]
            preconditioner.apply_(*conditioned)
        scale = own[0]["curvatures"][places[0]] / _dot(newest, conditioned)
    if preconditioner is not None:
        preconditioner.apply_(*direction)
    torch._foreach_mul_(direction, scale)
    for place in reversed(places):
        steps, changes = ([state[name][place] for state in own] for name in ("steps", "changes"))
        back = _dot(changes, direction) / own[0]["curvatures"][place]
        torch._foreach_add_(direction, steps, alpha=shares[place] - back)
    slope = _dot(direction, gradient)
    if slope >= 0 and line.pairs:
        return _turn(line._replace(pairs=0.0), own, gradient, first, preconditioner)
    return _Line(first_slope=slope, low_slope=slope, pairs=line.pairs, newest=line.newest)


def _dot(x: list[Tensor], y: list[Tensor]) -> float:
    return sum(float(torch.dot(a.flatten(), b.flatten())) for a, b in zip(x, y, strict=True))
