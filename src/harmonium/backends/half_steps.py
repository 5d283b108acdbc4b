"""Half-steps: units drawn, or their means, given their field or the states beside them.

Each chooses by kind, size and device (``choice``) what makes it. Torch draws units of every kind. Compiled
code draws many units of few states on a CPU, with the sums that annealing asks for, or one after the other
within a layer. A GPU's matrix units multiply, draw and write in one pass, so that the field need not be made.
The functions that begin with a machine are methods of ``machine.Hamiltonian``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from math import prod
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from harmonium import _device
from harmonium.backends import calls, choice
from harmonium.backends.choice import Machine
from harmonium.backends.cuda import tensor_cores

Layer = Any
Part = Any
"""A ``layers.Layer`` and a ``machine.Part``, which stand above this package, as ``choice.Machine`` does."""
Theta = tuple[Tensor, ...]
Way = Literal["torch", "compiled", "matrix units"]
_CHUNK = 1 << 12  # numbers of one stream of noise, 16 KB: half of a first-level cache


def uniform(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draws uniform noise in [0, 1), on the generator's device; float32 has 24 bits, float64 53.

    Compiled noise lies inside the interval: it has odd multiples of 2^-24, from streams of a key of the
    generator.
    """
    size = prod(shape)
    if size < choice.NOISE or not choice.COMPILED or generator.device.type != "cpu" or dtype != torch.float32:
        return torch.rand(tuple(shape), generator=generator, device=generator.device, dtype=dtype)
    noise = torch.empty(size + size % 2, dtype=dtype, device="cpu")  # a word makes two numbers
    calls.over("per_row.uniform", -(-size // _CHUNK), _CHUNK, calls.key(generator), noise)
    return noise[:size].view(tuple(shape))


def way_of(kind: Layer, theta: Theta, field: Tensor) -> Way:
    """Returns what draws units of a kind given their field, (rows, width)."""
    if not (
        field.numel() >= choice.HALF_STEP
        and (kind.one_hot or kind.two_values in choice.VALUES)
        and field.dim() == 2
        and field.dtype is torch.float32
    ):
        return "torch"
    if choice.COMPILED and field.device.type == "cpu":
        return "compiled" if field.shape[1] >= choice.NARROW else "torch"
    served = theta[0].dim() == 1 and choice.matrix_units(field.device) and not torch.is_grad_enabled()
    return "matrix units" if served else "torch"


def draw(
    machine: Machine,
    part: Part,
    states: Sequence[Tensor],
    generator: torch.Generator,
    field: Tensor | None = None,
    keeps: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Draws a part given the others; clamped entries and other units stay.

    Args:
        machine: the machine.
        part: what to draw; if it is some units of a layer, the layer's state is written over.
        states: for each layer (batch, width_l), drawn and no means.
        generator: source of noise.
        field: Field of the part, where it is already known.
        keeps: whether the field is asked for.

    Returns:
        The state of the part's layer, (batch, width_l), and the field of the part, which may be None where it
        is not asked for.
    """
    l, columns, units = part
    kind, theta = units or machine.layers[l], machine.thetas[l]
    if columns is not None:
        theta = tuple(p[..., columns] for p in theta)
    if field is None and theta[0].device.type in choice.UNITS:
        neighbour = _find_neighbour(machine, part, states)
        if neighbour is not None and kind.two_values in choice.VALUES:
            return neighbour.draw(kind, theta[0], generator, keeps)
        field = None if neighbour is None else neighbour.field()
    if field is None:
        field = machine.field(part, states)
    x = sample_units(kind, theta, field, generator)
    if columns is not None:
        # Transposed, whole rows are copied, which takes half the time.
        x = states[l].t().index_copy_(0, columns, x.t()).t()
    return x if machine.held is None else machine.held.apply(l, x), field


def sample(machine: Machine, layer: int | Part, field: Tensor, generator: torch.Generator) -> Tensor:
    """Draws the states of a layer or part given its field, of the field's shape."""
    kind, theta = machine.units(layer)
    return sample_units(kind, theta, field, generator)


def sample_units(kind: Layer, theta: Theta, field: Tensor, generator: torch.Generator) -> Tensor:
    """Draws units of a kind given their field, (rows, width): of the field's shape."""
    way = way_of(kind, theta, field)
    if way == "compiled":
        return calls.draw(kind, theta[0], field, calls.key(generator))
    if way == "matrix units":
        key = calls.device_key(generator)
        if kind.one_hot:
            made = tensor_cores.draw_one_hot(field, theta[0], kind.columns_per_unit, key).state
        else:
            made = tensor_cores.draw(field, theta[0], kind.two_values, key).state
        assert made is not None
        return made
    noise = kind.noise(field.shape, generator=generator).to(field.dtype)
    x: Tensor = kind.sample(field, noise, theta)
    return x


def expect(
    machine: Machine,
    layer: int,
    states: Sequence[Tensor],
    exact: bool = False,
    field: Tensor | None = None,
) -> tuple[Theta, Tensor | None]:
    """Returns E[t(x)] of a layer given the others, each (batch, width_l), and its field if it was made.

    Args:
        machine: the machine, with what is held.
        layer: index of the layer.
        states: for each layer (batch, width_m).
        exact: whether these are known to be drawn, or data within the support of the units, and no means.
        field: Field of the layer, (batch, width_l), where it is already known; ``states`` is not read then.
    """
    kind, theta = machine.layers[layer], machine.thetas[layer]
    on_units = theta[0].device.type in choice.UNITS
    if field is None and on_units:
        neighbour = _find_neighbour(machine, layer, states)
        if neighbour is not None and kind.two_values in choice.VALUES:
            settings = neighbour.settings(exact and neighbour.exact)
            mean = tensor_cores.mean(neighbour.states, neighbour.J, theta[0], kind.two_values, **settings)
            return (mean,), None
        field = neighbour.field() if neighbour is not None and exact else None
    if field is None:
        field = machine.field(layer, states)
    held = None if machine.held is None else machine.mask(layer)
    if held is None and on_units and way_of(kind, theta, field) != "torch":
        if kind.one_hot:
            return (tensor_cores.probabilities(field, theta[0], kind.columns_per_unit),), field
        return (tensor_cores.mean_of_field(field, theta[0], kind.two_values),), field
    expected: Theta = kind.expected_statistics(field, theta=theta)
    if held is not None:
        seen = kind.statistics(machine.apply_clamp(layer, torch.zeros_like(field)))
        expected = tuple(_device.where(held, x, y) for x, y in zip(seen, expected, strict=True))
    return expected, field


def field(machine: Machine, layer: int | Part, states: Sequence[Tensor]) -> Tensor:
    """Returns the field of a layer or part given all others, which are drawn: (batch, width)."""
    if machine.device.type in choice.UNITS:
        neighbour = _find_neighbour(machine, layer, states)
        if neighbour is not None:
            return neighbour.field()
    made: Tensor = machine.field(layer, states)
    return made


def _find_neighbour(machine: Machine, layer: int | Part, states: Sequence[Tensor]) -> _Neighbour | None:
    """Returns what a GPU's matrix units make the units of a layer of; None where they do not serve."""
    l, columns = (layer, None) if isinstance(layer, int) else (layer.layer, layer.columns)
    joints = machine.graph.joints[l]
    if not joints or l in machine.graph.inner or columns is not None:
        return None
    (edge, other, above), *rest = joints
    if not choice.tensor_cores(machine, len(states[other]), machine.J[edge].numel()):
        return None
    addend: Tensor | None = None
    for rest_edge, rest_other, rest_above in rest:
        term = machine.J.factors[rest_edge].times(states[rest_other], rest_above)
        addend = term if addend is None else addend.add_(term)
    exact = machine.layers[other].short
    return _Neighbour(states[other], machine.J.parts[edge], above, machine.beta, addend, exact)


class _Neighbour(NamedTuple):
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
        """Returns the arguments of ``tensor_cores`` beside the states and couplings."""
        return {"transposed": self.transposed, "beta": self.beta, "addend": self.addend, "exact": exact}

    def field(self) -> Tensor:
        """Returns the field of the other layer."""
        return tensor_cores.field(self.states, self.J, **self.settings(self.exact))

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
        ends: θ of the part's layer at β = 0 and at 1, between which it is linear in β.
        betas: β before and after: two numbers, or (2,) in a recording.
        summed: whether the rise is asked for.
        start: field of the part at β = 0, (batch, width); None: 0.

    Returns:
        The part's state, (batch, width), and the rise, (batch,) float64, or 0.
    """
    (now, following), kind = betas, part.units or machine.layers[part.layer]
    if part.columns is not None:
        first, last = (tuple(p[part.columns] for p in theta) for theta in ends)
        ends = first, last
    field: Tensor | None = None
    if ends[1][0].device.type in choice.UNITS:
        neighbour = _find_neighbour(machine, part, states)
        if neighbour is not None and kind.two_values in choice.VALUES and not summed and start is None:
            bias = between(ends, following)[0]
            return neighbour._replace(beta=following).draw(kind, bias, generator, keeps=False)[0], 0.0
        field = None if neighbour is None else neighbour.field()
    if field is None:
        field = machine.field(part, states)
    if summed and isinstance(betas, Tensor):  # one pass for the β before and after
        both = betas.view(2, 1, 1)
        theta, fields = between(ends, both), field * both if start is None else torch.lerp(start, field, both)
        before, after = kind.log_partition(fields, theta=theta).sum(-1, dtype=torch.float64)
        return sample_units(kind, tuple(t[1].squeeze(0) for t in theta), fields[1], generator), after - before
    later = between(ends, following)
    if start is None and not kind.one_hot and way_of(kind, later, field) == "compiled":
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
    return sample_units(kind, later, after, generator), rise


def between(ends: tuple[Theta, Theta], beta: float | Tensor) -> Theta:
    """Returns the θ that lie a share β of the way between two; β may be several, (..., 1)."""
    if isinstance(beta, Tensor):
        return tuple(torch.lerp(x, y, beta.to(x.dtype)) for x, y in zip(*ends, strict=True))
    return tuple(torch._foreach_lerp(*ends, beta))


def pair_energies(machine: Machine, l: int, x: Tensor) -> Tensor | None:
    """Returns Σ J_ij x_i x_j over the pairs within a layer, (batch,) float64, of its states: (batch, width).

    None: products find it, as those are means or compiled code does not serve.
    """
    J = machine.J[machine.graph.inner[l]]
    serves = (
        machine.graph.patterns[machine.graph.inner[l]] is not None
        and not _device.needs_grad(x, J)
        and x.dim() == 2
        and x.dtype is J.dtype
        and l in choice.two_valued_in_turn(machine, len(x))
    )
    if not serves:
        return None
    from harmonium.backends.sparse_sweeps import pair_energies as find  # needs numba

    return find(x, calls.edge_couplings(machine, l))


def walk(
    machine: Machine,
    states: list[Tensor],
    parts: Iterable[Any],
    generator: torch.Generator,
    metropolis: bool = False,
) -> Iterator[tuple[Any, Tensor | None]]:
    """Yields the parts of a sweep, drawing the units of a layer one after the other where that pays.

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
    if machine.held is None and not machine.graph.inner:
        yield from zip(parts, repeat(None))
        return
    held, begun, whole = machine.held, set[int](), set[int]()
    served = choice.two_valued_in_turn if metropolis else choice.layers_in_turn
    for part in parts:
        l = part.layer
        if l in whole or (held is not None and held.is_clamped(l)):
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
