"""A machine in natural parameters: what every sampler, solver and estimator works on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, final

import torch
from torch import Tensor

from harmonium._products import product
from harmonium.layers import Layer, Theta

States = list[Tensor]
Parity = Literal["even", "odd"]


@final
@dataclass(frozen=True)
class Hamiltonian:
    """-E(x) = Σ_l θ_l·t_l(x_l) + β Σ_l x_lᵀ J_l x_{l+1} (FORMULAS §1).

    A machine's learnable parameters map to one of these (``BoltzmannMachine.hamiltonian``); tempering and
    annealing make others from it without touching the machine.

    Attributes:
        layers: the kinds of units; their own parameters are not used here.
        thetas: natural parameters of each layer, each (width_l,); mean-field solvers also take one for each
            row of a batch, (batch, width_l).
        couplings: J_l, (width_l, width_{l+1}).
        beta: inverse temperature of the couplings; a number, or one for each chain as (batch, 1).
    """

    layers: tuple[Layer, ...]
    thetas: tuple[Theta, ...]
    couplings: tuple[Tensor, ...]
    beta: float | Tensor = 1.0

    @property
    def dtype(self) -> torch.dtype:
        return self.couplings[0].dtype

    @property
    def device(self) -> torch.device:
        return self.couplings[0].device

    @cached_property
    def transposed(self) -> tuple[Tensor, ...]:
        """J_lᵀ of every coupling, rows contiguous; made at first use."""
        return tuple(J.t().contiguous() for J in self.couplings)

    def parity(self, parity: Parity) -> tuple[int, ...]:
        """The indices of the even layers (the visible one among them) or of the odd layers."""
        return tuple(range(1 if parity == "odd" else 0, len(self.layers), 2))

    def tempered(self, beta: float | Tensor) -> Hamiltonian:
        """The same layers with all couplings multiplied by beta."""
        return replace(self, beta=beta)

    def with_layers(self, layers: Sequence[Layer]) -> Hamiltonian:
        """The same couplings between layers with other natural parameters, taken from ``layers``."""
        return replace(self, thetas=tuple(layer.natural() for layer in layers))

    def lowest(self, layers: int) -> Hamiltonian:
        """The machine of the lowest layers alone."""
        return replace(
            self,
            layers=self.layers[:layers],
            thetas=self.thetas[:layers],
            couplings=self.couplings[: layers - 1],
        )

    def take(self, rows: Tensor | slice) -> Hamiltonian:
        """The same for some of the rows of a batch: matters where β or natural parameters differ by row."""
        beta = self.beta if isinstance(self.beta, float) or self.beta.dim() == 0 else self.beta[rows]
        thetas = tuple(tuple(p[rows] if p.dim() == 2 else p for p in theta) for theta in self.thetas)
        return replace(self, thetas=thetas, beta=beta)

    def to(self, dtype: torch.dtype) -> Hamiltonian:
        """The same in another floating type."""
        return replace(
            self,
            thetas=tuple(tuple(parameter.to(dtype) for parameter in theta) for theta in self.thetas),
            couplings=tuple(J.to(dtype) for J in self.couplings),
        )

    def field(self, layer: int, states: Sequence[Tensor]) -> Tensor:
        """B_l = β (x_{l-1} J_{l-1} + x_{l+1} J_lᵀ), (batch, width_l)."""
        field: Tensor | None = None
        if layer > 0:
            field = product(states[layer - 1], self.couplings[layer - 1])
        if layer < len(self.couplings):
            above = product(states[layer + 1], self.couplings[layer].t())
            field = (
                above if field is None else field.add_(above) if not field.requires_grad else field + above
            )
        assert field is not None
        return self.beta_times(field)

    def beta_times(self, x: Tensor, power: int = 1) -> Tensor:
        """β to a power times x, which has a row for each of the batch: (batch,) or (batch, width)."""
        if isinstance(self.beta, float):
            return x if self.beta == 1.0 else x * self.beta**power
        beta = self.beta.squeeze(-1) if x.dim() == 1 and self.beta.dim() == 2 else self.beta
        return x * beta.to(x.dtype) ** power

    def log_weight(self, layer: int, x: Tensor) -> Tensor:
        """θ_l·t_l(x) and ln of the base measure of x, (batch,)."""
        weight, measure = (
            self.layers[layer].log_weight(x, self.thetas[layer]),
            self.layers[layer].log_measure(x),
        )
        return weight if measure is None else weight + measure.sum(-1)

    def log_partition(self, layer: int, field: Tensor) -> Tensor:
        """Σ ψ over the units of a layer, summed in float64: (batch,)."""
        return self.layers[layer].log_partition(field, theta=self.thetas[layer]).sum(-1, dtype=torch.float64)

    def coupling_energy(self, states: Sequence[Tensor]) -> Tensor:
        """Σ_l x_lᵀ J_l x_{l+1} without β, in float64: (batch,)."""
        pairs = (
            (product(x, J) * y).sum(-1, dtype=torch.float64)
            for x, J, y in zip(states, self.couplings, states[1:], strict=False)
        )
        return torch.stack(list(pairs)).sum(0)

    def energy(self, states: Sequence[Tensor]) -> Tensor:
        """E(x) in float64: (batch,)."""
        weights = torch.stack([self.log_weight(l, x).double() for l, x in enumerate(states)]).sum(0)
        return -weights - self.beta_times(self.coupling_energy(states))

    def free_energy(self, states: Sequence[Tensor], summed: Collection[int]) -> Tensor:
        """F = -ln Σ exp(-E) over the states of the layers in ``summed``, in float64: (batch,).

        Args:
            states: one entry for each layer; entries of summed layers are not read.
            summed: layers to sum out, no two of them neighbours.
        """
        given = [l for l in range(len(self.layers)) if l not in summed]
        total = torch.stack([self.log_weight(l, states[l]).double() for l in given]).sum(0)
        for l in summed:
            total = total + self.log_partition(l, self.field(l, states))
        # Couplings between two given layers (a visible layer clamped beside a given one).
        for l, J in enumerate(self.couplings):
            if l in given and l + 1 in given:
                total = total + self.beta_times(
                    (product(states[l], J) * states[l + 1]).sum(-1, dtype=torch.float64)
                )
        return -total

    def noise(self, layer: int, rows: int, generator: torch.Generator, antithetic: bool = False) -> Tensor:
        """Noise for ``rows`` samples of a layer, in the machine's dtype.

        Args:
            layer: index of the layer.
            rows: how many; even with antithetic noise.
            generator: source of it.
            antithetic: whether the second half of the rows mirrors the first.
        """
        kind = self.layers[layer]
        drawn = rows // 2 if antithetic else rows
        noise = kind.noise((drawn, kind.width), generator=generator).to(self.dtype)
        return torch.cat((noise, kind.mirrored(noise))) if antithetic else noise

    def sample(
        self, layer: int, field: Tensor, generator: torch.Generator, antithetic: bool = False
    ) -> Tensor:
        """A draw of a layer given its field, (batch, width_l)."""
        noise = self.noise(layer, len(field), generator, antithetic)
        return self.layers[layer].sample(field, noise, self.thetas[layer])

    def mean(self, layer: int, field: Tensor) -> Tensor:
        """E[x_l | field], (batch, width_l)."""
        return self.layers[layer].moments(field, theta=self.thetas[layer]).mean
