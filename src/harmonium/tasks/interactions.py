"""Effective couplings: what a machine with hidden units says of its visible ones, as fields and couplings.

-F(v) = ln Σ_h exp(-E(v, h)) is a function of discrete visible units, and any such function is a sum of a
constant, a field of every unit, couplings of pairs, of triples and so on, once each of these is centred over
the states of each of its units (the zero-sum gauge). That expansion is unique. Decelle, Navas Gómez & Seoane
(2025) read interactions off trained machines by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, permutations
from math import prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.sums import affordable, couplings_of_columns, list_states, log_weights

EFFECTIVE_METHODS = ("auto", "exact", "gaussian")

_TRIPLE_COLUMNS = 400  # whose triples take half a gigabyte
# Of the average over a normal distribution, in deviations: its reach, and the distances of its points, the
# smaller where fields are spread by 2 and more, the larger up to 1. The error is exp(-2π²/(distance ·
# spread)) for softplus, whose poles are at ±iπ, and the root of that for ln 2cosh.
_REACH, _DISTANCES = 6.0, (0.3, 0.6)
_PAIRS = 8  # Of each hidden unit, of which the errors are averaged.
_DRAWS, _PART = 1 << 15, 1 << 12  # visible states that the normal fields are compared with, and at a time
# Of the size of the couplings. Beside enumeration, estimates were below .07 for 36 of 37 machines that were
# right to .16, and above .1 for 11 of 13 that were further off.
_OFF = 0.1
_NUMBERS = 1 << 17  # that are worked on at a time: a megabyte stays near the processor


class EffectiveCouplings(NamedTuple):
    """The expansion of -F in the zero-sum gauge, by visible column.

    A unit with two values has one column, for its sign: -1 at the lower value and +1 at the upper. A
    categorical unit has a column for every state.

    Attributes:
        fields: J⁽¹⁾, (visible_width,) float64.
        pairs: J⁽²⁾, (visible_width, visible_width), symmetric; zero between the columns of one unit.
        triples: J⁽³⁾, (visible_width,) three times, symmetric; None unless ``order=3``.
        method: "exact" or "gaussian".
    """

    fields: Tensor
    pairs: Tensor
    triples: Tensor | None
    method: str


@torch.no_grad()
def effective_couplings(
    machine: BoltzmannMachine, order: int = 2, method: str = "auto"
) -> EffectiveCouplings:
    """Returns the fields and the couplings of pairs and triples that act among the visible units.

    For spins J_S = 2⁻ⁿ Σ_v (-F(v)) Π_{i∈S} v_i, for units of 0 and 1 the same in terms of 2v - 1; for
    categorical units the components of the distribution in the zero-sum gauge (Decelle, Navas Gómez & Seoane
    2025; FORMULAS §10). They do not depend on the gauge of the machine.

    Args:
        machine: Machine of visible units with two values or categories; edges among them are counted in.
        order: 2, or 3 for triples too, whose number grows as the cube of the columns.
        method: "exact": by a sum over visible states, for any machine whose hidden layers can be summed out,
            where states times columns^order are at most 2^28 (19 columns of two values, 16 with triples).
            "gaussian": for hidden layers of independent units that see visible units alone; the field from
            all visible units but those of the coupling is taken as normal, with its mean and variance under
            the uniform distribution. That is exact in the limit of many small weights, and takes half a
            second for 100 columns and 100 hidden units, minutes for 784 and 500, or for 112 sites of 21
            letters and 200. "auto": "exact" where it serves, else "gaussian".

    Warns:
        RuntimeWarning: "gaussian" couplings whose error is estimated at over a tenth of their size: hidden
            units that switch far out, where their fields are not normal.

    Raises:
        ValueError: other visible units, too many states for "exact", other hidden layers for "gaussian", or
            more than 400 columns with ``order=3``.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Spin(3), hm.Spin(1)])
        >>> _ = machine.couplings[0].fill_(torch.tensor([[1.0], [1.0], [0.0]]))
        >>> found = hm.tasks.effective_couplings(machine)
        >>> found.pairs[0].round(decimals=3)  # half of ln cosh 2
        tensor([0.0000, 0.6630, 0.0000], dtype=torch.float64)
    """
    _checks.one_of(method, "method", EFFECTIVE_METHODS)
    if order not in (2, 3):
        raise ValueError(f"order: expected 2 or 3, received {order!r}")
    hamiltonian = machine.hamiltonian().to(torch.float64)
    units = list(_units_of(hamiltonian))
    if order == 3 and hamiltonian.visible_width > _TRIPLE_COLUMNS:
        raise ValueError(
            f"order: expected 2 beyond {_TRIPLE_COLUMNS} visible columns, "
            f"received 3 with {hamiltonian.visible_width}"
        )
    few = affordable(prod(len(unit.states) for unit in units) * hamiltonian.visible_width**order)
    if method == "auto":
        method = "exact" if few else "gaussian"
    if method == "exact" and not few:
        raise ValueError(
            f'method: expected "gaussian" where visible states times columns to the power {order} are more '
            'than 2^28, received "exact"'
        )
    if method == "exact":
        return _expand(_enumerate(hamiltonian, units), units, hamiltonian.visible_width, order, method)
    fields = _GaussianFields(hamiltonian, units)
    error = fields.estimate_error()
    if error > _OFF:
        _checks.warn(
            f"effective_couplings: gaussian couplings are off by {min(error, 1.0):.0%} of their size, "
            "as hidden units switch where their fields are not normal; take method='exact' where visible "
            "states are few, or correlations of samples",
            RuntimeWarning,
        )
    return _expand(fields.means_given, units, hamiltonian.visible_width, order, method)


class _Unit(NamedTuple):
    """A visible unit: its layer, its number there, its visible columns, and its states, (q, columns)."""

    layer: int
    number: int
    columns: slice
    states: Tensor

    @property
    def centred(self) -> Tensor:
        """The states less their mean."""
        return self.states - self.states.mean(0)

    @property
    def reader(self) -> Tensor:
        """From a centred function of the states, (q,), to columns: (q, columns)."""
        if self.states.shape[1] > 1:
            return torch.eye(len(self.states)).to(self.states)
        return self.states.new_tensor([[-0.5], [0.5]])


def _units_of(hamiltonian: Hamiltonian) -> Iterator[_Unit]:
    start = 0
    for l in hamiltonian.graph.visible:
        layer = hamiltonian.layers[l]
        if not (layer.two_values or layer.one_hot):
            raise ValueError(
                f"machine: expected visible units with two values, or categorical ones, received {layer}"
            )
        width = layer.columns_per_unit
        for number in range(layer.n_units):
            yield _Unit(l, number, slice(start, start + width), layer.values().to(hamiltonian.thetas[0][0]))
            start += width


_Means = Callable[[tuple[int, ...], list[int]], Tensor]
"""Returns means of -F over all visible units but a few, under the uniform distribution.

Given at most two units, rising, and units of one layer side by side above those, of which one at a time is
fixed too: (states of each fixed unit…, number of the last, states of such a unit).
"""


def _enumerate(hamiltonian: Hamiltonian, units: list[_Unit]) -> _Means:
    """Returns the means by a sum over all visible states."""
    rows = hamiltonian.visible_states(list_states(hamiltonian, hamiltonian.graph.visible))
    values = log_weights(hamiltonian, rows).view([len(unit.states) for unit in units])

    def means_given(fixed: tuple[int, ...], last: list[int]) -> Tensor:
        means = []
        for j in last:
            others = [i for i in range(len(units)) if i != j and i not in fixed]
            means.append(values.mean(others) if others else values)
        return torch.stack(means, len(fixed))

    return means_given


@final
class _GaussianFields:
    """With a normal distribution for the field that every hidden unit has from the other visible units."""

    def __init__(self, hamiltonian: Hamiltonian, units: list[_Unit]) -> None:
        graph = hamiltonian.graph
        hidden = [hamiltonian.layers[m] for m in graph.hidden]
        if not graph.independent or any(layer.n_units != layer.width for layer in hidden):
            raise ValueError(
                'method: expected "exact" for hidden layers that are joined, or whose units have several '
                'columns, received "gaussian"'
            )
        self._hamiltonian, self._units = hamiltonian, units
        self._J, up = couplings_of_columns(hamiltonian)
        self._up = up
        self._pulls = [unit.centred @ up[unit.columns] for unit in units]
        self._mean = torch.cat([unit.states.mean(0) for unit in units]) @ up
        self._variances = torch.stack([pull.square().mean(0) for pull in self._pulls])
        outside = self._J @ torch.cat([unit.states.mean(0) for unit in units])
        self._local = [
            _state_weights(hamiltonian, unit) + unit.centred @ outside[unit.columns] for unit in units
        ]
        (fine, coarse), spread = _DISTANCES, max(self._variances.sum(0).tolist(), default=0.0) ** 0.5
        points = 2 * round(_REACH / max(fine, coarse / max(1.0, spread))) + 1
        self._z = torch.linspace(-_REACH, _REACH, points).to(up)
        self._node_weights = (-0.5 * self._z.square()).softmax(0)

    def means_given(self, fixed: tuple[int, ...], last: list[int]) -> Tensor:
        units, states = self._units, self._units[last[0]].centred
        columns = slice(units[last[0]].columns.start, units[last[-1]].columns.stop)
        field = self._mean + torch.stack([self._pulls[j] for j in last])
        total = torch.stack([self._local[j] for j in last])
        for i in reversed(fixed):  # from the inside out: each puts its states in front
            J = self._J[units[i].columns, columns].view(-1, len(last), states.shape[1])
            joined = torch.einsum("sc,cnd,td->snt", units[i].centred, J, states)
            inner = total.dim() - 2
            field = self._pulls[i].view(len(joined), *[1] * (inner + 2), field.shape[-1]) + field
            total = total + self._local[i].view(len(joined), *[1] * total.dim())
            total = total + joined.view(len(joined), *[1] * inner, *joined.shape[1:])
        if len(fixed) == 2:
            a, b = (units[i] for i in fixed)
            pair = a.centred @ self._J[a.columns, b.columns] @ b.centred.t()
            total = total + pair[:, :, None, None]
        rest = self._variances.sum(0) - sum(self._variances[i] for i in fixed)
        spread = (rest - torch.stack([self._variances[j] for j in last])).clamp(min=0).sqrt()
        spread = spread.unsqueeze(1).expand(field.shape)
        return total + self._average(field.flatten(0, -2), spread.flatten(0, -2)).view(total.shape)

    def estimate_error(self) -> float:
        """Returns the error of the pairs over their size, with two standard errors of it taken off.

        A pair (i, j) has about the sum over hidden units of w_i w_j E ψ'', where i and j are counted out and
        the field of the others is taken as normal. For some pairs of each hidden unit, drawn by their pulls,
        that mean is compared with the one over drawn visible states.
        """
        total, generator = self._variances.sum(0), _random.as_generator(0, self._variances.device)
        if not len(total):
            return 0.0
        first, second = torch.zeros_like(total), torch.zeros_like(total)
        for _ in range(_DRAWS // _PART):
            draws = [
                unit.centred[_random.integers(len(unit.states), (_PART,), generator)] for unit in self._units
            ]
            curvature = self._curvatures(self._mean + torch.cat(draws, 1) @ self._up)
            first, second = first + curvature.sum(0) / _DRAWS, second + curvature.square().sum(0) / _DRAWS
        variance = (second - first * first).clamp(min=0) / _DRAWS
        off, size = torch.zeros_like(total), torch.zeros_like(total)
        for _ in range(_PAIRS):
            # The largest log-weights less the logarithms of Exp(1) variates are drawn without replacement.
            race = -torch.log(-torch.log(_random.uniform(self._variances.shape, generator, torch.float64)))
            pair = (self._variances.log() + race).topk(min(2, len(self._units)), 0).indices
            expected = self._expect_given(pair)
            off, size = off + (expected - first).square() / _PAIRS, size + expected.square() / _PAIRS
        noise = (variance.sqrt() * total).norm()
        scale = (size.sqrt() * total).norm()
        return float(((off.sqrt() * total).norm() - 2 * noise) / scale) if float(scale) > 0 else 0.0

    def _expect_given(self, fixed: Tensor) -> Tensor:
        """Returns E ψ'' of every hidden unit, with the units (fixed, hidden columns) not taken as normal."""
        rest = self._variances.sum(0) - self._variances.gather(0, fixed).sum(0)
        spread, expected = rest.clamp(min=0).sqrt(), torch.zeros_like(rest)
        joint = []
        for a, units in enumerate(fixed.t().tolist()):
            pulls = [self._pulls[i][:, a] for i in units]
            joint.append(sum(torch.meshgrid(*pulls, indexing="ij"), torch.zeros(()).to(rest)).flatten())
        # Where units have fewer states, joint ones stand for nothing.
        most = max(map(len, joint))
        fields = torch.stack([torch.nn.functional.pad(part, (0, most - len(part))) for part in joint], 1)
        counts = torch.tensor([len(part) for part in joint], dtype=rest.dtype, device=rest.device)
        state_weights = (torch.arange(most, device=rest.device).unsqueeze(1) < counts) / counts
        for z, share in zip(self._z, self._node_weights, strict=True):
            expected += share * (state_weights * self._curvatures(self._mean + fields + z * spread)).sum(0)
        return expected

    def _curvatures(self, fields: Tensor) -> Tensor:
        """Returns ψ'' of all hidden units at their fields, (rows, hidden columns)."""
        hamiltonian, variances, start = self._hamiltonian, [], 0
        for m in hamiltonian.graph.hidden:
            part = slice(start, start + hamiltonian.layers[m].width)
            start = part.stop
            variances.append(
                hamiltonian.layers[m].moments(fields[:, part], 0.0, hamiltonian.thetas[m]).variance
            )
        return torch.cat(variances, 1)

    def _average(self, field: Tensor, spread: Tensor) -> Tensor:
        """Returns Σ_a E ψ_a(field + spread · z), (rows,)."""
        hamiltonian, total = self._hamiltonian, field.new_zeros(len(field))
        points = len(self._z)
        size = max(1, _NUMBERS // (points * max(1, field.shape[1])))
        for rows in torch.split(torch.arange(len(field), device=field.device), size):
            start = 0
            for m in hamiltonian.graph.hidden:
                part = slice(start, start + hamiltonian.layers[m].width)
                start = part.stop
                fields = field[rows, None, part] + self._z[:, None] * spread[rows, None, part]
                psi = hamiltonian.log_partition(m, fields.flatten(0, 1)).view(len(rows), points)
                total[rows] += psi @ self._node_weights
        return total


def _state_weights(hamiltonian: Hamiltonian, unit: _Unit) -> Tensor:
    """Returns the log-weight of every state of a visible unit by itself, (q,)."""
    layer, theta = hamiltonian.layers[unit.layer], hamiltonian.thetas[unit.layer]
    rows = unit.states.repeat(1, layer.n_units)
    return layer.unit_log_weights(rows, theta)[:, unit.number]


def _expand(means: _Means, units: list[_Unit], width: int, order: int, method: str) -> EffectiveCouplings:
    """Collects the components of all units, of all pairs and of all triples."""
    fields = units[0].states.new_zeros(width)
    pairs = fields.new_zeros(width, width)
    triples = fields.new_zeros(width, width, width) if order == 3 else None
    layers = [list(group) for _, group in groupby(range(len(units)), lambda i: units[i].layer)]
    for layer in layers:
        columns, component = _columns(means, units, (), layer)
        fields[columns] = component
        for i in range(layer[-1]):
            above = [j for j in layer if j > i]
            columns, component = _columns(means, units, (i,), above)
            pairs[units[i].columns, columns] = component
            pairs[columns, units[i].columns] = component.t()
            if triples is None:
                continue
            for k in range(i + 1, layer[-1]):
                columns, component = _columns(means, units, (i, k), [j for j in layer if j > k])
                here = units[i].columns, units[k].columns, columns
                for axes in permutations(range(3)):
                    first, second, third = (here[axis] for axis in axes)
                    triples[first, second, third] = component.permute(axes)
    return EffectiveCouplings(fields, pairs, triples, method)


def _columns(
    means: _Means, units: list[_Unit], fixed: tuple[int, ...], last: list[int]
) -> tuple[slice, Tensor]:
    """Returns the columns of the last units, and the components of each with the fixed ones, by column."""
    component = means(fixed, last)
    for axis in (*range(len(fixed)), -1):
        component = component - component.mean(axis, keepdim=True)
    component = component @ units[last[0]].reader
    for axis, i in enumerate(fixed):
        component = torch.tensordot(component, units[i].reader, ([axis], [0])).movedim(-1, axis)
    columns = slice(units[last[0]].columns.start, units[last[-1]].columns.stop)
    return columns, component.flatten(len(fixed))
