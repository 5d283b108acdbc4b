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
        super().__init__(parameters, {"lr": lr, "tolerance": tolerance, "history": history})
        self.ratio, self.converged = float("inf"), False
        self.preconditioner: Preconditioner | None = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Makes the next trial along the direction, or takes the step and turns to a new direction."""
        parameters = self._parameters
        gradient = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
        state = self.state[parameters[0]]
        if not state:
            pairs = self.param_groups[0]["history"]
            state["line"], state["curvatures"] = [*_Line()], [0.0] * pairs  # torch would round tensors
            state["direction"], state["gradient"] = (torch.zeros_like(gradient) for _ in range(2))
            for name in ("steps", "changes"):  # each apart: products of unaligned rows take six times as long
                state[name] = [torch.zeros_like(gradient) for _ in range(pairs)]
        length = float(torch.stack(torch._foreach_norm(parameters)).norm())
        self.ratio = float(gradient.norm()) / max(1.0, length)
        self.converged = self.ratio <= self.param_groups[0]["tolerance"]
        if self.converged:
            return
        line = _Line(*state["line"])
        if line.at:
            slope = float(state["direction"] @ gradient)
            if not _TURNED <= slope / line.first_slope <= _FALLEN and line.trials < _TRIALS:
                tried, at = line.next_trial(slope)
                self._move(at - line.at)
                state["line"] = [*tried._replace(at=at, trials=line.trials + 1)]
                return
            line = _remember(line, state, gradient)
        line = self._turn(line, state, gradient)
        self._move(1.0)
        state["line"] = [*line._replace(at=1.0, trials=1.0)]

    @property
    def _parameters(self) -> list[Tensor]:
        return [p for p in self.param_groups[0]["params"] if p.grad is not None]

    def _as_parameters(self, x: Tensor) -> list[Tensor]:
        """Returns the parts of what is kept of all parameters, in their shapes."""
        parts = torch.split(x, [p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True)]

    def _move(self, steps: float) -> None:
        """Moves the parameters by so many steps of the direction."""
        direction = self.state[self._parameters[0]]["direction"]
        torch._foreach_add_(self._parameters, self._as_parameters(direction), alpha=steps)

    def _turn(self, line: _Line, state: dict[str, Any], gradient: Tensor) -> _Line:
        """Writes the next direction, -H g, and the gradient at its start (two-loop recursion).

        Args:
            line: with the pairs that are kept.
            state: what is kept of all parameters.
            gradient: Gradient here, which is not changed.
        """
        steps, changes, curvatures = state["steps"], state["changes"], state["curvatures"]
        slots = [(int(line.newest) - back) % len(steps) for back in range(int(line.pairs))]
        state["gradient"].copy_(gradient)
        direction, alphas = torch.neg(gradient, out=state["direction"]), dict[int, float]()
        for slot in slots:
            alphas[slot] = float(steps[slot] @ direction) / curvatures[slot]
            direction.sub_(changes[slot], alpha=alphas[slot])
        scale = self.param_groups[0]["lr"] if self.preconditioner is None else _FIRST
        if slots:
            newest = conditioned = changes[slots[0]]
            if self.preconditioner is not None:
                conditioned = newest.clone()
                self.preconditioner.apply_(*self._as_parameters(conditioned))
            scale = curvatures[slots[0]] / float(newest @ conditioned)
        if self.preconditioner is not None:
            self.preconditioner.apply_(*self._as_parameters(direction))
        direction.mul_(scale)
        for slot in reversed(slots):
            back = float(changes[slot] @ direction) / curvatures[slot]
            direction.add_(steps[slot], alpha=alphas[slot] - back)
        slope = float(direction @ gradient)
        if slope >= 0 and line.pairs:
            return self._turn(line._replace(pairs=0.0), state, gradient)
        return _Line(first_slope=slope, low_slope=slope, pairs=line.pairs, newest=line.newest)

    def warn(self) -> None:
        """Warns where the run ended before the gradient was within the tolerance."""
        if not self.converged:
            tolerance = self.param_groups[0]["tolerance"]
            _checks.warn(
                f"lbfgs: the gradient is {self.ratio:.2g} of the parameters, above the tolerance of "
                f"{tolerance:g}; more updates take it further",
                RuntimeWarning,
            )


def check_search(rule: Any, schedule: Any, clip_norm: float | None, radius: float | None) -> None:
    """Refuses a run whose gradients are not those of one objective, or whose steps are changed.

    Raises:
        ValueError: naming the setting and what to do.
    """
    if not getattr(rule, "noiseless", False) or getattr(rule, "centred", False):
        raise ValueError(
            'optimizer: "lbfgs" expects a gradient without noise, of a rule such as pseudo_likelihood or '
            f'exact that is not centred, received the rule {rule}; take "sgd" or "adam" for it'
        )
    settings = {"schedule": schedule, "clip_norm": clip_norm, "radius": radius}
    changed = [f"{name}={x!r}" for name, x in settings.items() if x not in (None, "constant")]
    if changed:
        raise ValueError(
            'optimizer: "lbfgs" chooses its steps itself; expected schedule="constant", no clip_norm and no '
            f"radius, received {', '.join(changed)}"
        )


def _remember(line: _Line, state: dict[str, Any], gradient: Tensor) -> _Line:
    """Takes a step: keeps it, and how it changed the gradient, in place of the oldest pair."""
    pairs = len(state["steps"])
    slot = (int(line.newest) + 1) % pairs
    step = torch.mul(state["direction"], line.at, out=state["steps"][slot])
    change = torch.sub(gradient, state["gradient"], out=state["changes"][slot])
    curvature = float(step @ change)
    if line.trials >= _TRIALS or curvature <= 1e-10 * float(change @ change):  # not convex, or rounding alone
        return line._replace(pairs=0.0)
    state["curvatures"][slot] = curvature
    return line._replace(newest=float(slot), pairs=min(line.pairs + 1, float(pairs)))
