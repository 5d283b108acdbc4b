"""Half-steps: units drawn, or their means, given their field or the states beside them.

The one place that knows which way makes them (``choice`` decides by kind, size and device): torch draws units
of every kind; compiled code draws many units of few states on a CPU, with the sums that annealing asks for
beside them, or one after the other within a layer; a GPU's matrix units multiply, draw and write in one pass,
so that the field need not be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium.backends import calls, choice, tensor_cores
from harmonium.backends.choice import Machine

Layer = Any
"""A ``layers.Layer``, which stands above this package, as ``choice.Machine`` does."""
Theta = tuple[Tensor, ...]


class _Beside(NamedTuple):
    """The states of one layer beside another, for a GPU's matrix units.

    Attributes:
        states: (batch, width_m).
        J: its coupling, (width_m, width_l), or
        transposed: the other way round.
        beta: inverse temperature of the couplings.
        addend: what all other layers add to the field but for β, (batch, width_l); None: nothing.
        exact: whether the states are -1, 0 or 1.
    """

    states: Tensor
    J: tensor_cores.Couplings
    transposed: bool
    beta: float | Tensor
    addend: Tensor | None
    exact: bool

    def settings(self, exact: bool) -> dict[str, Any]:
        """Returns what ``tensor_cores`` is told beside the states and couplings."""
        return {"transposed": self.transposed, "beta": self.beta, "addend": self.addend, "exact": exact}

    def draw(
        self, kind: Layer, theta: Tensor, generator: torch.Generator, keeps: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Draws the other layer, of two-valued units; ``keeps``: whether its field is asked for."""
        key, settings = calls.device_key(generator), self.settings(self.exact)
        drawn = tensor_cores.half_step(
            self.states, self.J, theta, kind.two_values, key, field=keeps, **settings
        )
        assert drawn.state is not None
        return drawn.state, drawn.field


def sample(
    kind: Layer, theta: Theta, field: Tensor, generator: torch.Generator, antithetic: bool = False
) -> Tensor:
    """Draws units of a kind given their field, (rows, width): of the field's shape.

    With ``antithetic`` the noise of the second half of the rows mirrors that of the first.
    """
    way = choice.half_step(kind, theta, field)
    if way == "compiled" and kind.one_hot and not antithetic:
        return calls.draw_categorical(field, theta[0], kind.n_units, calls.key(generator))
    if way == "compiled" and not kind.one_hot:
        mirrored_from = len(field) // 2 if antithetic else 0
        return calls.draw(field, theta[0], kind.two_values, calls.key(generator), mirrored_from)
    if way == "matrix units" and not antithetic:
        key = calls.device_key(generator)
        if kind.one_hot:
            drawn = tensor_cores.draw_one_hot(field, theta[0], kind.columns_per_unit, key).state
        else:
            drawn = tensor_cores.draw(field, theta[0], kind.two_values, key).state
        assert drawn is not None
        return drawn
    drawn = kind.sample(field, noise(kind, field.shape, field.dtype, generator, antithetic), theta)
    return drawn  # type: ignore[no-any-return]


def noise(
    kind: Layer,
    shape: Sequence[int],
    dtype: torch.dtype,
    generator: torch.Generator,
    antithetic: bool = False,
) -> Tensor:
    """Draws the noise of units of a kind, whose states have this shape, (rows, width): (rows, n_units)."""
    rows = shape[0] // 2 if antithetic else shape[0]
    drawn: Tensor = kind.noise((rows, *shape[1:]), generator=generator).to(dtype)
    return torch.cat((drawn, kind.mirrored(drawn))) if antithetic else drawn


def expected_statistics(kind: Layer, theta: Theta, field: Tensor) -> Theta:
    """Returns E[t(x)] of units of a kind given their field, (rows, width), each of its shape."""
    if field.device.type in choice.UNITS and choice.half_step(kind, theta, field) == "matrix units":
        if kind.one_hot:
            return (tensor_cores.probabilities(field, theta[0], kind.columns_per_unit),)
        return (tensor_cores.mean_of_field(field, theta[0], kind.two_values),)
    expected: Theta = kind.expected_statistics(field, theta=theta)
    return expected


def field(machine: Machine, l: int, states: Sequence[Tensor]) -> Tensor | None:
    """Returns the field of a layer given states of all others that are drawn; None: torch adds it up."""
    beside = _find_beside(machine, l, states)
    if beside is None:
        return None
    return tensor_cores.field(beside.states, beside.J, **beside.settings(beside.exact))


def draw(
    machine: Machine, l: int, states: Sequence[Tensor], generator: torch.Generator, keeps: bool
) -> tuple[Tensor, Tensor | None] | None:
    """Draws a layer given the others without its field; None: it is drawn given its field.

    Args:
        machine: the machine.
        l: the layer.
        states: for each layer (batch, width_m), drawn and no means.
        generator: source of noise.
        keeps: whether the field is asked for.

    Returns:
        The layer's state, and its field if it is asked for; None if no noise was drawn.
    """
    beside = _find_beside(machine, l, states, two_valued=True)
    if beside is None:
        return None
    return beside.draw(machine.layers[l], machine.thetas[l][0], generator, keeps)


def expect(machine: Machine, l: int, states: Sequence[Tensor], exact: bool) -> Theta | None:
    """Returns E[t(x)] of a layer given the others without its field; None: it is found given its field.

    ``exact``: the states are known to be drawn, or data within the support of the units, and no means.
    """
    beside = _find_beside(machine, l, states, two_valued=True)
    if beside is None:
        return None
    values, settings = machine.layers[l].two_values, beside.settings(exact and beside.exact)
    return (tensor_cores.mean(beside.states, beside.J, machine.thetas[l][0], values, **settings),)


def _find_beside(
    machine: Machine, l: int, states: Sequence[Tensor], two_valued: bool = False
) -> _Beside | None:
    """Returns what a GPU's matrix units make the units of a layer of; None where they do not serve."""
    if machine.device.type not in choice.UNITS or (
        two_valued and machine.layers[l].two_values not in choice.VALUES
    ):
        return None
    joints = machine.graph.joints[l]
    if not joints or l in machine.graph.inner:
        return None
    (edge, other, above), *rest = joints
    if not choice.tensor_cores(machine, len(states[other]), machine.J[edge].numel()):
        return None
    addend: Tensor | None = None
    for rest_edge, rest_other, rest_above in rest:
        term = machine.J.factors[rest_edge].times(states[rest_other], rest_above)
        addend = term if addend is None else addend.add_(term)
    exact = machine.layers[other].short
    return _Beside(states[other], machine.J.parts[edge], above, machine.beta, addend, exact)


def anneal(
    machine: Machine,
    part: Any,
    states: Sequence[Tensor],
    generator: torch.Generator,
    ends: tuple[Theta, Theta],
    betas: Sequence[float] | Tensor,
    summed: bool,
    start: Tensor | None = None,
) -> tuple[Tensor, Tensor | float]:
    """Draws a part after a change of β, and finds by how much the Σ ψ of its units has risen by it.

    Args:
        machine: the machine at β = 1.
        part: units of a layer.
        states: for each layer (batch, width_m), drawn and no means.
        generator: source of noise.
        ends: θ of the part at β = 0 and at 1, between which it is linear in β.
        betas: β before and after: two numbers, or (2,) in a recording.
        summed: whether the rise is asked for.
        start: field of the part at β = 0, (batch, width); None: 0.

    Returns:
        The part's state, (batch, width), and the rise, (batch,) float64, or 0.
    """
    (now, following), kind = betas, machine.units(part)[0]
    if not summed and start is None and part.columns is None:
        beside = _find_beside(machine, part.layer, states, two_valued=True)
        if beside is not None:
            bias = between(ends, following)[0]
            return beside._replace(beta=following).draw(kind, bias, generator, keeps=False)[0], 0.0
    field = machine.field(part, states, drawn=True)
    if summed and isinstance(betas, Tensor):  # one pass for the β before and after
        both = betas.view(2, 1, 1)
        theta, fields = between(ends, both), field * both if start is None else torch.lerp(start, field, both)
        before, after = kind.log_partition(fields, theta=theta).sum(-1, dtype=torch.float64)
        return sample(kind, tuple(t[1].squeeze(0) for t in theta), fields[1], generator), after - before
    later = between(ends, following)
    if start is None and not kind.one_hot and choice.half_step(kind, later, field) == "compiled":
        earlier = between(ends, now) if summed else later
        biases, changes = (earlier[0], later[0]), (float(now), float(following))
        return calls.anneal(field, kind.two_values, changes, biases, calls.key(generator), summed)
    rise: Tensor | float = 0.0
    after = field * following if start is None else torch.lerp(start, field, following)
    if summed:
        before = field * now if start is None else torch.lerp(start, field, now)
        earlier = between(ends, now)
        rises = kind.log_partition(after, theta=later) - kind.log_partition(before, theta=earlier)
        rise = rises.sum(-1, dtype=torch.float64)
    return sample(kind, later, after, generator), rise


def between(ends: tuple[Theta, Theta], beta: float | Tensor) -> Theta:
    """Returns the θ that lie a share β of the way between two; β may be several, (..., 1)."""
    if isinstance(beta, Tensor):
        return tuple(torch.lerp(x, y, beta.to(x.dtype)) for x, y in zip(*ends, strict=True))
    return tuple(torch._foreach_lerp(*ends, beta))


def pair_energies(machine: Machine, l: int, x: Tensor) -> Tensor | None:
    """Returns Σ J_ij x_i x_j over the pairs within a layer, (batch,) float64, of its states: (batch, width).

    None: products find it, as those are means or compiled code does not serve.
    """
    return calls.pair_energies(machine, l, x) if choice.energies_by_word(machine, l, x) else None


def walk(
    machine: Machine,
    states: list[Tensor],
    parts: Iterable[Any],
    generator: torch.Generator,
    metropolis: bool = False,
) -> Iterator[tuple[Any, Tensor | None]]:
    """Walks through the parts of a sweep, drawing the units of a layer one after the other where that pays.

    Args:
        machine: the machine, with what is held.
        states: for each layer (batch, width_l), which the caller sets as it goes; those of a layer with inner
            edges are replaced by a copy that may be written over.
        parts: the parts in their order.
        generator: source of noise.
        metropolis: whether to propose and accept as ``chains.Metropolis`` does, in place of a Gibbs sweep.

    Yields:
        Every part to be drawn, and None; of a layer that was drawn its first part, and its new states.
    """
    begun, whole = set[int](), set[int]()
    served = choice.two_valued_in_turn if metropolis else choice.layers_in_turn
    for part in parts:
        l = part.layer
        if l in whole or machine.is_clamped(l):
            continue
        in_turn: Tensor | None = None
        if l in machine.graph.inner and l not in begun:
            begun.add(l)
            if l not in served(machine, len(states[l])):
                states[l] = states[l].clone()
            elif metropolis:
                in_turn = calls.sweep_two_valued(
                    machine, l, states, calls.keys(1, generator), metropolis=True
                )
            else:
                in_turn = calls.draw_in_turn(machine, l, states, calls.key(generator))
            if in_turn is not None:
                whole.add(l)
        yield part, in_turn


def sweep_alone(
    machine: Machine,
    states: Sequence[Tensor],
    generator: torch.Generator,
    sweeps: int,
    metropolis: bool = False,
) -> list[Tensor] | None:
    """Makes so many sweeps of ``walk`` at once, where all that is not clamped is one such layer."""
    free = [l for l in range(len(machine.layers)) if not machine.is_clamped(l)]
    if len(free) != 1 or free[0] not in choice.two_valued_in_turn(machine, len(states[0])):
        return None
    moved, keys = list(states), calls.keys(sweeps, generator)
    moved[free[0]] = calls.sweep_two_valued(machine, free[0], moved, keys, metropolis)
    return moved
