"""Training by exact gradients, without chains: until rows that are held out are told no better."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.learning import Parametrisation, exact_gradient
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates

_BATCH = 2048  # rows of an update at most
_EVERY = 10  # updates between two looks at the rows that are held out
_GAIN = 2e-3  # nats a row
_FALLS = ((1.0, 3), (0.3, 2))  # of the rate, each with the looks without a gain of _GAIN after which it ends
_TREND = 4  # looks, whose gain once more has to reach a score that is to be beaten
_MEAN, _SQUARE, _TINY = 0.9, 0.98, 1e-8  # of Adam


class ExactFit(NamedTuple):
    """The result of ``fit_exact``.

    Attributes:
        score: the best mean ln p of the rows that were held out, in nats, or ln p(y | x) with
            ``condition_on``; with ``rates`` the last one; NaN without any.
        rates: the learning rate of every update that led there; ``fit_exact(rates=...)`` makes them again.
        history: a record of every look at the rows that were held out.
    """

    score: float
    rates: list[float]
    history: list[dict[str, Any]]


@final
class _Coordinates:
    """The parameters of a machine as one vector, in coordinates that count units from their means.

    Locations are b' = b + W μ: where couplings move, the means of units then stay. It is a linear change of
    coordinates, in which Adam finds a way that does not depend on which state of a unit is called 1.
    """

    def __init__(
        self,
        machine: BoltzmannMachine,
        v: Tensor,
        roots: Mapping[int, Tensor] | None,
        condition_on: Collection[int],
        joint: float,
    ) -> None:
        self.law, self.roots = Parametrisation(machine), roots
        self.condition_on, self.joint = condition_on, joint
        self.names = list(self.law.parameters)
        self.shapes = [self.law.parameters[name].shape for name in self.names]
        self.edges = [(f"couplings.{number}.weight", *edge) for number, edge in enumerate(machine.edges)]
        self.places = [f"layers.{l}.{layer.location}" for l, layer in enumerate(machine.layers)]
        seen = machine.split(v.nanmean(0, keepdim=True).nan_to_num(0.0))
        self.means: list[Tensor] = []
        for l, layer in enumerate(machine.layers):
            theta = layer.reference()
            if l in machine.visible and layer.scale is None:
                mean = seen[l][0]
            elif l in machine.visible:  # standardised, and 0 keeps the map linear in the scale
                mean = torch.zeros(layer.width)
            else:
                mean = layer.moments(torch.zeros_like(theta[0]), theta=theta).mean
            self.means.append(mean.to(v))

    def read(self) -> Tensor:
        """Returns the machine as a vector."""
        x = {name: p.detach().clone() for name, p in self.law.parameters.items()}
        self._shift(x, 1.0)
        return self._join(x)

    def write_(self, vector: Tensor) -> None:
        """Makes the machine one of a vector."""
        parts = torch.split(vector, [shape.numel() for shape in self.shapes])
        x = {n: p.view(s).clone() for n, p, s in zip(self.names, parts, self.shapes, strict=True)}
        self._shift(x, -1.0)
        for name, p in self.law.parameters.items():
            p.copy_(x[name])

    def gradient(self, v: Tensor, weights: Tensor | None, decays: Sequence[float]) -> tuple[float, Tensor]:
        """Returns the mean that rows are learned by, and the gradient of it less Σ decay/2 · |W|²."""
        value, g = exact_gradient(
            self.law, v, weights, roots=self.roots, condition_on=self.condition_on, joint=self.joint
        )
        for (name, l, m), decay in zip(self.edges, decays, strict=True):
            below, above = g[self.places[l]].flatten(), g[self.places[m]].flatten()
            g[name] -= torch.outer(below, self.means[m]) + torch.outer(self.means[l], above)
            g[name] -= decay * self.law.parameters[name]
        return value, self._join(g)

    def _shift(self, x: dict[str, Tensor], sign: float) -> None:
        for name, l, m in self.edges:
            below, above = x[self.places[l]], x[self.places[m]]
            below += sign * (x[name] @ self.means[m]).view_as(below)
            above += sign * (x[name].t() @ self.means[l]).view_as(above)

    def _join(self, x: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([x[name].flatten() for name in self.names])


@torch.no_grad()
def fit_exact(
    machine: BoltzmannMachine,
    X: Numbers,
    weights: Tensor | None = None,
    *,
    validation: Tensor | None = None,
    validation_weights: Tensor | None = None,
    roots: Mapping[int, Tensor] | None = None,
    condition_on: Collection[int] = (),
    joint: float = 1.0,
    rates: Sequence[float] | None = None,
    learning_rate: float = 0.05,
    max_updates: int = 200,
    weight_decay: float | Sequence[float] = 3e-4,
    initial_std: float | None = 0.1,
    to_beat: float = -inf,
    seed: int | torch.Generator = 0,
) -> ExactFit:
    """Trains a machine in place by exact gradients and Adam, from small couplings that are drawn.

    The machine's biases are those of columns that nothing joins, as ``init_visible_biases_`` finds them.
    Beyond 2,048 rows every update reads 2,048 of them, and judges no more.

    Args:
        machine: a visible side without edges of its own beside hidden layers that ``HiddenStates`` takes.
        X: visible states, (rows, visible_width), NaN where missing.
        weights: of the rows, (rows,), at least 0; None: all count alike.
        validation: other rows. The rate falls where their ln p no longer rises, then training ends; the best
            parameters are kept. None: ``rates`` are needed.
        validation_weights: of those rows.
        roots: see ``rules.exact``.
        condition_on: layers of x, to learn (1 - joint) ln p(y | x) + joint ln p(x, y) of the others, y; see
            ``exact_gradient``. Rows held out are then judged by ln p(y | x).
        joint: in [0, 1].
        rates: of every update, in place of a rate that falls. All are made, whatever ``validation`` is told.
        learning_rate: the first one, above 0.
        max_updates: at least 1.
        weight_decay: at least 0; half of it times |W|² is taken from the mean ln p of a row. Or one for each
            coupling of the machine, in the order of its edges.
        initial_std: of the couplings, above 0; None: training goes on from those of the machine.
        to_beat: a score of another fit; this one ends where it does not seem to reach it.
        seed: of couplings and of the rows of every update.

    Raises:
        ValueError: a machine that ``HiddenStates`` does not take, neither ``validation`` nor ``rates``, or
            another number of decays than of couplings.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat(50, 1)
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)])
        >>> done = hm.training.fit_exact(machine, rows, validation=rows)
        >>> done.score > -0.9  # independent columns: -1.4
        True
    """
    if validation is None and rates is None:
        raise ValueError("validation: expected rows, or else rates of every update, received neither")
    edges = len(machine.edges)
    decays = [*weight_decay] if isinstance(weight_decay, Sequence) else [weight_decay] * edges
    if len(decays) != edges:
        raise ValueError(
            f"weight_decay: expected one number, or one for each of {edges} couplings, received {len(decays)}"
        )
    v = _checks.tensor(X, "X", machine.dtype, machine.device)
    generator = _random.as_generator(seed, machine.device)
    at = _Coordinates(machine, v, roots, condition_on, joint)
    x = at.read()
    if initial_std is not None:
        for coupling in machine.couplings:
            coupling.draw_(initial_std, generator)
        drawn = {f"couplings.{n}.weight": c.weight for n, c in enumerate(machine.couplings)}
        parts = zip(at.names, torch.split(x, [shape.numel() for shape in at.shapes]), strict=True)
        x = torch.cat([drawn[name].flatten() if name in drawn else part for name, part in parts])
    state = (x, torch.zeros_like(x), torch.zeros_like(x), 0)

    def step(state: tuple[Tensor, Tensor, Tensor, int], rate: float) -> tuple[Tensor, Tensor, Tensor, int]:
        x, mean, square, number = state
        rows, each = _some(v, weights, generator)
        _, g = at.gradient(rows, each, decays)
        number += 1
        mean, square = torch.lerp(g, mean, _MEAN), torch.lerp(g.square(), square, _SQUARE)
        spread = (square / (1 - _SQUARE**number)).sqrt() + _TINY
        x = x + rate / (1 - _MEAN**number) * mean / spread
        at.write_(x)
        return x, mean, square, number

    at.write_(x)
    held, shares = (v, None) if validation is None else _some(validation.to(v), validation_weights, generator)

    def judge() -> float:
        if condition_on:
            found, _ = exact_gradient(at.law, held, shares, roots=roots, condition_on=condition_on, joint=0.0)
        else:
            each = HiddenStates(machine.hamiltonian(), roots).log_likelihood(held)
            found = float(each.mean() if shares is None else shares.to(each) @ each / shares.sum())
        return found if found == found else -inf

    score, history = float("nan"), list[dict[str, Any]]()
    if rates is not None:
        for number, rate in enumerate([*rates, 0.0]):
            if validation is not None and (number % _EVERY == 0 or number == len(rates)):
                score = judge()
                history.append({"step": number, "validation_score": score})
            if number < len(rates):
                state = step(state, rate)
        return ExactFit(score, list(rates), history)
    made, count = list[float](), 0
    best, score, kept = state, judge(), 0
    history.append({"step": 0, "validation_score": score})
    for factor, patience in _FALLS:
        state, since, bar = best, 0, score
        at.write_(state[0])
        del made[kept:]
        while since < patience and count < max_updates and not _is_beaten(history, to_beat):
            for _ in range(min(_EVERY, max_updates - count)):
                state = step(state, factor * learning_rate)
                made.append(factor * learning_rate)
                count += 1
            now = judge()
            history.append({"step": count, "learning_rate": made[-1], "validation_score": now})
            since = 0 if now > bar + _GAIN else since + 1
            bar = max(bar, now) if since == 0 else bar
            if now > score:
                best, score, kept = state, now, len(made)
    at.write_(best[0])
    return ExactFit(score, made[:kept], history)


def _is_beaten(history: list[dict[str, Any]], to_beat: float) -> bool:
    """Returns whether the last looks, gaining as much once more, would not reach a score."""
    if len(history) <= _TREND:
        return False
    before, now = (history[i]["validation_score"] for i in (-1 - _TREND, -1))
    return bool(2 * now - before < to_beat)


def _some(v: Tensor, weights: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
    """Returns the rows of one update, with their weights: all, or as many as are read at a time."""
    if len(v) <= _BATCH:
        return v, weights
    index = _random.integers(len(v), (_BATCH,), generator)
    if weights is not None and not bool((weights[index.to(weights.device)] > 0).any()):
        return v, weights
    return v[index], None if weights is None else weights[index.to(weights.device)]
