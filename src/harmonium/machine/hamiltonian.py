"""A machine in natural parameters: what every sampler, solver and estimator works on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import torch
from torch import Tensor

from harmonium import _checks, _device
from harmonium.backends import half_steps, product
from harmonium.layers import Layer, Theta
from harmonium.machine.clamp import Clamp, ClampLike
from harmonium.machine.coupling_matrices import CouplingMatrices
from harmonium.machine.graph import Graph, Part

States = list[Tensor]
# Numbers of a product that is summed at once on a CPU: 1 MB stays in the cache. Whole products made tempering
# of 5,000 chains 1.4 times (2 with sparse couplings) as long a chain as of 200; with 2^16 to 2^20 it is not.
_BLOCK = 1 << 18


@final
@dataclass(frozen=True)
class Hamiltonian:
    """-E(x) = Σ_l θ_l·t_l(x_l) + β Σ_{l<m} x_lᵀ J_lm x_m + ½ β Σ_l x_lᵀ J_ll x_l - β c (FORMULAS §1).

    A machine's learnable parameters map to one of these (``BoltzmannMachine.hamiltonian``); tempering and
    annealing make others from it without touching the machine.

    Attributes:
        layers: the kinds of units; their own parameters are not used here.
        graph: which of them are joined, and which are visible.
        thetas: natural parameters of each layer, each (width_l,); mean-field solvers also take one for each
            row of a batch, (batch, width_l).
        J: couplings of every edge (l, m) of the graph, (width_l, width_m); symmetric where l = m. Of a sparse
            one its entries, (entries,), each pair within a layer once.
        beta: inverse temperature of the couplings; a number, or one for each chain as (batch, 1).
        held: entries of the state that are observed; None: none. Energies and fields do not read it, draws
            and solvers do.
        constant: c, in energies, free energies and ln Z alone, as no distribution depends on it.
    """

    layers: tuple[Layer, ...]
    graph: Graph
    thetas: tuple[Theta, ...]
    J: CouplingMatrices
    beta: float | Tensor = 1.0
    held: Clamp | None = None
    constant: float = 0.0

    # What makes them, torch, compiled code or a GPU's matrix units, is decided there.
    draw = half_steps.draw
    sample = half_steps.sample
    expect = half_steps.expect

    def __post_init__(self) -> None:
        if not isinstance(self.J, CouplingMatrices):
            object.__setattr__(self, "J", CouplingMatrices(self.J))
        self.J.patterns = self.graph.patterns

    @property
    def dtype(self) -> torch.dtype:
        return self.thetas[0][0].dtype

    @property
    def device(self) -> torch.device:
        return self.thetas[0][0].device

    @property
    def edges(self) -> Iterator[tuple[int, int, Tensor]]:
        """Every edge with its coupling: l, m and J as a matrix, (width_l, width_m)."""
        return ((l, m, self.J.matrix(edge)) for edge, (l, m) in enumerate(self.graph.edges))

    def joined_units(self, edge: int) -> tuple[Tensor, Tensor]:
        """Returns the pairs of units with couplings that are not all 0, within a layer each pair once.

        Args:
            edge: Index of the edge in the graph.

        Returns:
            Units of the layer below and above, (pairs, 2) int64, the smaller first within a layer; and the
            blocks of J, (pairs, columns of the first unit, columns of the second).
        """
        (l, m), pattern, J = self.graph.edges[edge], self.graph.patterns[edge], self.J[edge].detach()
        if pattern is not None:
            pairs, blocks = pattern.pairs, J.view(-1, *pattern.block)
            joined = (blocks != 0).any(-1).any(-1)
            return pairs[joined], blocks[joined]
        below, above = self.layers[l], self.layers[m]
        blocks = J.view(below.n_units, -1, above.n_units, above.columns_per_unit).transpose(1, 2)
        joined = (blocks != 0).any(-1).any(-1)
        # Within a layer J is symmetric: above the diagonal every pair of units stands once.
        pairs = (joined.triu(1) if l == m else joined).nonzero()
        return pairs, blocks[pairs[:, 0], pairs[:, 1]]

    @property
    def visible_width(self) -> int:
        """Columns of the data."""
        return sum(self.layers[l].width for l in self.graph.visible)

    def split(self, v: Tensor) -> States:
        """Splits data, (rows, visible_width), into states of the visible layers; others are empty, (0, 0)."""
        states = [v[:0, :0]] * len(self.layers)
        visible = self.graph.visible
        if len(visible) == 1:
            states[visible[0]] = v
            return states
        widths = [self.layers[l].width for l in visible]
        for l, x in zip(visible, torch.split(v, widths, -1), strict=True):
            states[l] = x
        return states

    def visible_states(self, states: Sequence[Tensor]) -> Tensor:
        """Joins the visible layers side by side, (batch, visible_width): the inverse of ``split``."""
        visible = self.graph.visible
        return states[visible[0]] if len(visible) == 1 else torch.cat([states[l] for l in visible], -1)

    def unobserved(self, v: Tensor) -> Tensor:
        """Marks the visible layers of which a row of data lacks entries, (rows, visible layers)."""
        states = self.split(v)
        return torch.stack([states[l].isnan().any(-1) for l in self.graph.visible], -1)

    def observe_only(self, layers: Collection[int], v: Tensor) -> Tensor:
        """Returns the data, (rows, visible_width), with NaN in all visible layers but these."""
        states = self.split(v)
        return self.visible_states(
            [x if l in layers else torch.full_like(x, torch.nan) for l, x in enumerate(states)]
        )

    def tempered(self, beta: float | Tensor) -> Hamiltonian:
        """Returns the Hamiltonian at an inverse temperature of its couplings: a number, or (batch, 1)."""
        # J is the same object, so that the rungs of a ladder share what was made of it.
        return replace(self, beta=beta if isinstance(beta, Tensor) else float(beta))

    def with_layers(self, layers: Sequence[Layer]) -> Hamiltonian:
        """Returns the Hamiltonian with the natural parameters of ``layers`` in place of its own."""
        return replace(self, thetas=tuple(layer.natural() for layer in layers))

    def clamp(self, held: ClampLike, rows: int, checked: bool = False) -> Hamiltonian:
        """Returns the Hamiltonian with entries of the state clamped; see ``Clamp``."""
        like = self.thetas[0][0]
        clamp = Clamp(self.layers, self.graph.visible, held, rows, like, checked)
        # What is faster without a clamp asks for ``held is None`` alone.
        return replace(self, held=None if clamp.empty else clamp)

    def without_cache(self) -> Hamiltonian:
        """Returns a copy without a history of products, as the last bits of later products depend on it."""
        # A product chooses its way by how many rows it has met, and other ways round otherwise: a run that is
        # resumed would differ from one that never stopped.
        same, J = copy(self), CouplingMatrices(self.J)
        J.spare, J.patterns = self.J.spare, self.J.patterns
        object.__setattr__(same, "J", J)
        return same

    def is_clamped(self, layer: int) -> bool:
        """Returns whether every entry of a layer is clamped."""
        return self.held is not None and self.held.is_clamped(layer)

    def mask(self, layer: int) -> Tensor | None:
        """Marks the clamped entries of a layer, (rows, width); None if there is none."""
        return None if self.held is None else self.held.mask(layer)

    def apply_clamp(self, layer: int, x: Tensor) -> Tensor:
        """Returns the state of a layer, (rows, width), with its clamped entries at their values."""
        return x if self.held is None else self.held.apply(layer, x)

    def clamp_states(self, states: Sequence[Tensor]) -> States:
        """Returns the states, for each layer (rows, width_l), with clamped entries at their values."""
        return [self.apply_clamp(l, x) for l, x in enumerate(states)]

    def select_rows(self, rows: Tensor | slice) -> Hamiltonian:
        """Returns the Hamiltonian for some of the rows of a batch, repetitions allowed.

        It is the present one unless β, natural parameters or clamped values differ by row.
        """
        # The same object where nothing differs by row: what was made of its couplings is used again.
        beta = self.beta if isinstance(self.beta, float) or self.beta.dim() == 0 else self.beta[rows]
        by_row = any(p.dim() == 2 for theta in self.thetas for p in theta)
        if beta is self.beta and self.held is None and not by_row:
            return self
        thetas = tuple(tuple(p[rows] if p.dim() == 2 else p for p in theta) for theta in self.thetas)
        held = None if self.held is None else self.held.select_rows(rows)
        return replace(self, thetas=thetas, beta=beta, held=held)

    def to(self, dtype: torch.dtype) -> Hamiltonian:
        """Returns the Hamiltonian in another floating type."""
        return replace(
            self,
            thetas=tuple(tuple(parameter.to(dtype) for parameter in theta) for theta in self.thetas),
            J=CouplingMatrices(J.to(dtype) for J in self.J),
        )

    def field(
        self,
        layer: int | Part,
        states: Sequence[Tensor],
        neighbours: Collection[int] | None = None,
        drawn: bool = False,
    ) -> Tensor:
        """Returns B_l = β Σ_m x_m J_ml over the layers joined to layer l, and within l over its other units.

        Args:
            layer: index of a layer, or a part: some of its units.
            states: for each layer (batch, width_m); entries of layers that are not joined are not read.
            neighbours: the layers whose states count; None for all.
            drawn: whether the states are drawn, or data within the support of the units, and no means. A GPU
                then needs fewer products for the same accuracy.

        Returns:
            (batch, width_l), or the part's columns.
        """
        if _checks.autocast():
            _checks.outside_autocast(self.device.type)
        if drawn and neighbours is None:
            return half_steps.field(self, layer, states)
        # θ is not in the field, as ψ(B, θ) takes both (FORMULAS §1); so β scales couplings alone.
        l, columns = (layer.layer, layer.columns) if isinstance(layer, Part) else (layer, None)
        field: Tensor | None = None
        for edge, other, above in self.graph.joints[l]:
            if neighbours is not None and other not in neighbours:
                continue
            if columns is not None:
                part = self.J.columns(edge, above, columns).times(states[other])
            elif self.held is None:
                part = self.J.factors[edge].times(states[other], above)
            else:  # what is held stays from sweep to sweep, and so does its product
                times = partial(self.J.factors[edge].times, states[other], above)
                part = self.held.product(other, states[other], edge, self.J[edge], times)
            # In place, as the product is nobody else's; but autograd keeps it for the way back.
            field = part if field is None else field + part if field.requires_grad else field.add_(part)
        if field is None:
            rows = max((len(x) for x in states if x is not None), default=1)
            width = self.layers[l].width if columns is None else len(columns)
            return torch.zeros(rows, width, dtype=self.dtype, device=self.device)
        return field if isinstance(self.beta, float) and self.beta == 1.0 else self.beta_times(field)

    def beta_times(self, x: Tensor, power: int = 1) -> Tensor:
        """Multiplies x, (batch,) or (batch, width), by β of its row to a power."""
        if isinstance(self.beta, float):
            return x if self.beta == 1.0 else x * self.beta**power
        beta = self.beta.squeeze(-1) if x.dim() == 1 and self.beta.dim() == 2 else self.beta
        return x * beta.to(x.dtype) ** power

    @property
    def offset(self) -> float | Tensor:
        """β c, which every energy has: a number, or (batch,) float64 where β differs by row."""
        if isinstance(self.beta, float):
            return self.beta * self.constant
        return self.beta.double().flatten() * self.constant

    def log_weight(self, layer: int, x: Tensor) -> Tensor:
        """Returns θ_l·t_l(x) plus ln of the base measure of x, (batch,)."""
        _checks.outside_autocast(x.device.type)
        kind = self.layers[layer]
        weight, measure = kind.log_weight(x, self.thetas[layer]), kind.log_measure(x)
        return weight if measure is None else weight + measure.sum(-1)

    def log_partition(self, layer: int | Part, field: Tensor) -> Tensor:
        """Returns Σ ψ over the units of a layer or part, summed in float64: (batch,)."""
        kind, theta = self.units(layer)
        return kind.log_partition(field, theta=theta).sum(-1, dtype=torch.float64)

    def summed_weight(self, layer: int, field: Tensor) -> Tensor:
        """Returns ln Σ exp(θ·t(x) + B x) over a layer's states that fit the clamp: (batch,) float64."""
        kind, theta, held = self.layers[layer], self.thetas[layer], self.mask(layer)
        weights = kind.log_partition(field, theta=theta)
        # A held unit has one state left: in place of ψ, ln of its sum is the weight of that state.
        if held is not None:
            x = self.apply_clamp(layer, torch.zeros_like(field))
            held_weights = kind.unit_log_weights(x, theta) + kind.by_unit(field * x).sum(-1)
            weights = _device.where(kind.by_unit(held)[..., 0], held_weights, weights)
        return weights.sum(-1, dtype=torch.float64)

    def coupling_energy(self, states: Sequence[Tensor], of_layers: Collection[int] | None = None) -> Tensor:
        """Returns Σ_{l<m} x_lᵀ J_lm x_m + ½ Σ_l x_lᵀ J_ll x_l without β, in float64: (batch,).

        Args:
            states: for each layer (batch, width_l).
            of_layers: only edges that join two of these layers; None for all.
        """
        _checks.outside_autocast(self.device.type)
        total: Tensor | None = None
        for edge, (l, m) in enumerate(self.graph.edges):
            if of_layers is not None and not (l in of_layers and m in of_layers):
                continue
            pair = half_steps.pair_energies(self, l, states[l]) if l == m else None
            if pair is not None:
                total = pair if total is None else total + pair
                continue
            sparse = self.graph.patterns[edge] is not None
            times = self.J.factors[edge].times if sparse else partial(product, y=self.J[edge])
            size = max(1, _BLOCK // max(states[l].shape[1], states[m].shape[1]))
            if len(states[l]) <= size or self.device.type != "cpu":
                pair = (times(states[l]) * states[m]).sum(-1, dtype=torch.float64)
            else:
                blocks = zip(torch.split(states[l], size), torch.split(states[m], size), strict=True)
                pair = torch.cat([(times(x) * y).sum(-1, dtype=torch.float64) for x, y in blocks])
            # Within a layer x J x has every pair twice, as x_i J_ij x_j and as x_j J_ji x_i.
            pair = pair / 2 if l == m else pair
            total = pair if total is None else total + pair
        if total is None:
            rows = max(len(x) for x in states)
            return torch.zeros(rows, dtype=torch.float64, device=self.device)
        return total

    def energy(self, states: Sequence[Tensor], of_layers: Collection[int] | None = None) -> Tensor:
        """Returns E(x) of states, for each layer (batch, width_l), in float64: (batch,).

        Args:
            states: for each layer (batch, width_l).
            of_layers: only terms of these layers and of edges that join two of them, without c; None: all.
        """
        layers = range(len(states)) if of_layers is None else of_layers
        # In float64 before the sum: layers of opposite signs cancel, and differences are asked for.
        weights = torch.stack([self.log_weight(l, states[l]).double() for l in layers]).sum(0)
        energy = -weights - self.beta_times(self.coupling_energy(states, of_layers))
        return energy + self.offset if of_layers is None else energy

    def free_energy(
        self,
        states: Sequence[Tensor],
        summed: Collection[int],
        fields: Mapping[int, Tensor] | None = None,
    ) -> Tensor:
        """Returns F = -ln Σ exp(-E) over the states of the layers in ``summed``, in float64: (batch,).

        Held units of these layers stay as they are.

        Args:
            states: one entry for each layer; entries of summed layers are not read.
            summed: layers to sum out, no two of them joined.
            fields: Fields of these layers, (batch, width_l), where they are already known.
        """
        unsummed = [l for l in range(len(self.layers)) if l not in summed]
        # F = -Σ_unsummed θ·t(x) - β C(unsummed) - Σ_summed ψ(B) (FORMULAS §1). The fields B of summed layers
        # have β already, so that it multiplies the couplings among the other layers alone.
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        if unsummed:
            total = torch.stack([self.log_weight(l, states[l]).double() for l in unsummed]).sum(0)
        for l in summed:
            field = self.field(l, states) if fields is None else fields[l]
            total = total + self.summed_weight(l, field)
        if any(l in unsummed and m in unsummed for l, m in self.graph.edges):
            total = total + self.beta_times(self.coupling_energy(states, unsummed))
        return self.offset - total

    def noise(self, layer: int | Part, rows: int, generator: torch.Generator) -> Tensor:
        """Draws noise for ``rows`` samples of a layer or part, in the machine's dtype: (rows, units).

        Args:
            layer: index of the layer, or a part.
            rows: how many.
            generator: source of it.
        """
        kind = self.units(layer)[0]
        # Apart from its use: two coupled chains share the noise, each with fields of its own.
        return kind.noise((rows, kind.width), generator=generator).to(self.dtype)

    def pure_noise(self, layer: int, rows: int, generator: torch.Generator) -> Tensor:
        """Draws uniform discrete units or standard normal real ones, whatever θ: (rows, width_l)."""
        kind = self.layers[layer]
        field = torch.zeros(rows, kind.width, dtype=self.dtype, device=self.device)
        return kind.sample(field, self.noise(layer, rows, generator), kind.reference())

    def draw_independent(self, rows: int, generator: torch.Generator) -> States:
        """Draws all units as if no edge joined them, for each layer (rows, width_l); clamped ones stay."""
        zeros = [self.thetas[l][0].new_zeros(rows, layer.width) for l, layer in enumerate(self.layers)]
        return self.clamp_states([self.sample(l, zero, generator) for l, zero in enumerate(zeros)])

    def log_partition_of_independent(self) -> float:
        """Returns ln Z of the units as if no edge joined them, with c."""
        zeros = [self.thetas[l][0].new_zeros(1, layer.width) for l, layer in enumerate(self.layers)]
        return sum(float(self.log_partition(l, zero)) for l, zero in enumerate(zeros)) - float(self.offset)

    def mean(self, layer: int, field: Tensor) -> Tensor:
        """Returns E[x_l | field], (batch, width_l)."""
        return self.layers[layer].moments(field, theta=self.thetas[layer]).mean

    def units(self, layer: int | Part) -> tuple[Layer, Theta]:
        """Returns the units of a layer or part, and their natural parameters, each (..., width)."""
        if not isinstance(layer, Part):
            return self.layers[layer], self.thetas[layer]
        l, columns, units = layer
        if columns is None:
            return units or self.layers[l], self.thetas[l]
        return units or self.layers[l], tuple(p[..., columns] for p in self.thetas[l])
