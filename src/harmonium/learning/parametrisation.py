"""From statistics to gradients of the learnable parameters."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import torch
from torch import Tensor

from harmonium.couplings import Coupling
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics


class _End(torch.autograd.Function):
    """A number whose gradients are what it was made with; given to ``grad``, they make torch import sympy."""

    @staticmethod
    def forward(ctx: Any, gradients: Sequence[Tensor], *values: Tensor) -> Tensor:
        ctx.gradients = gradients
        return values[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.gradients


def differentiable() -> AbstractContextManager[object]:
    """Inside, torch records what it is to differentiate, whatever the caller switched off."""
    return torch.inference_mode(False) if torch.is_inference_mode_enabled() else torch.enable_grad()


@final
class Parametrisation:
    """The map from a machine's learnable parameters to natural ones (θ, J), and back for gradients.

    Where the map is the identity, the natural parameters are the learnable ones: one Hamiltonian then serves
    as long as these are changed in place, and a gradient comes back as it is. Couplings within a layer are
    mirrored: on a CPU their J is written again where it stands, and their gradients are folded in place.

    Args:
        machine: the machine.

    Attributes:
        machine: the machine.
        parameters: those with ``requires_grad``, by name.
        identical: whether the map is the identity but for mirrored couplings.
        rewrites: whether ``hamiltonian`` writes mirrored couplings again where they stand.
    """

    def __init__(self, machine: BoltzmannMachine) -> None:
        self.machine = machine
        self.parameters = {name: p for name, p in machine.named_parameters() if p.requires_grad}
        self._hamiltonian = self._make_hamiltonian()
        learnable = {id(p) for p in machine.parameters()}
        outputs = [_source(x) for x in _outputs(self._hamiltonian)]
        names = {id(p): name for name, p in self.parameters.items()}
        self._names = [names.get(id(p), "") for p in outputs]
        first = len(outputs) - len(machine.couplings)
        self._mirrored: dict[int, Coupling] = {}  # by the number of the output
        if machine.device.type == "cpu":  # a recording of a GPU keeps its own tensors
            for number, ((l, _), coupling) in enumerate(
                zip(machine.edges, machine.couplings, strict=True), first
            ):
                if coupling.mirrored and machine.layers[l].scale is None:
                    self._mirrored[number] = coupling
                    self._names[number] = names.get(id(coupling.weight), "")
        self._hamiltonian.J.spare = [number - first for number in self._mirrored]
        self.identical = all(id(p) in learnable for n, p in enumerate(outputs) if n not in self._mirrored)
        self.rewrites = self.identical and bool(self._mirrored)

    def hamiltonian(self) -> Hamiltonian:
        """Returns the machine as it is now, in natural parameters; it knows no products of earlier ones."""
        if not self.identical:
            # Torch differentiates on the stream where it first met a parameter, and keeps it while any graph
            # lives: the old one goes first, so that a recording on another stream makes its own.
            del self._hamiltonian
            self._hamiltonian = self._make_hamiltonian()
        elif self._mirrored:
            outputs = _outputs(self._hamiltonian)
            for number, coupling in self._mirrored.items():
                coupling.mirror_into(outputs[number].detach())
        return self._hamiltonian.without_cache()

    def pullback(self, delta: Statistics) -> dict[str, Tensor]:
        """Returns the gradient of the mean log-likelihood at the last ``hamiltonian()``.

        Args:
            delta: E[S | v] - E[S]; its tensors belong to the gradient from now on.

        Returns:
            For the name of every learnable parameter, a tensor of its shape.

        Raises:
            ValueError: a learnable parameter that torch cannot differentiate by.
        """
        gradients = [*itertools.chain(*delta.thetas), *delta.products]
        for number, coupling in self._mirrored.items():
            if self._names[number]:
                coupling.fold_(gradients[number])
        pulled = {
            name: gradient.view_as(self.parameters[name])
            for name, gradient in zip(self._names, gradients, strict=True)
            if name
        }
        if not self.identical:
            self._differentiate(gradients, pulled)
        if len(pulled) < len(self.parameters):
            lost = next(name for name in self.parameters if name not in pulled)
            raise ValueError(
                f"machine: expected parameters that torch can differentiate by, received {lost}; "
                "a machine that is to learn has to be made outside torch.inference_mode"
            )
        return pulled if self.identical else {name: pulled[name] for name in self.parameters}

    def _differentiate(self, gradients: list[Tensor], pulled: dict[str, Tensor]) -> None:
        """Adds the gradients of parameters that are mapped to other numbers, by automatic differentiation."""
        outputs = zip(_outputs(self._hamiltonian), gradients, self._names, strict=True)
        mapped = [(p, g.detach()) for p, g, name in outputs if p.requires_grad and not name]
        rest = [name for name in self.parameters if name not in pulled]
        if not mapped or not rest:
            return
        values, mapped_gradients = zip(*mapped, strict=True)
        with differentiable():
            end = _End.apply(mapped_gradients, *values)  # type: ignore[no-untyped-call]
            more = torch.autograd.grad(end, [self.parameters[name] for name in rest], allow_unused=True)
        pulled |= {name: g for name, g in zip(rest, more, strict=True) if g is not None}

    def _make_hamiltonian(self) -> Hamiltonian:
        with differentiable():
            return self.machine.hamiltonian(checked=False)


def _source(x: Tensor) -> Tensor:
    """Returns the parameter that a natural parameter is, or of which it is all entries in their order."""
    base = x._base
    return x if base is None or base.numel() != x.numel() or not x.is_contiguous() else base


def _outputs(hamiltonian: Hamiltonian) -> list[Tensor]:
    return [*itertools.chain(*hamiltonian.thetas), *hamiltonian.J]


def pullback(machine: BoltzmannMachine, delta: Statistics) -> dict[str, Tensor]:
    """Returns the gradient of the mean log-likelihood from the difference of expected statistics.

    The map from learnable parameters to (θ, J) is differentiated by torch, so a new parametrisation needs no
    gradient of its own; where the map is the identity the difference itself comes back, without a copy
    (FORMULAS §2).

    Args:
        machine: the machine.
        delta: E[S | v] - E[S].

    Returns:
        For the name of every learnable parameter, a tensor of its shape. Frozen parameters are left out.

    Raises:
        ValueError: a learnable parameter that torch cannot differentiate by.
    """
    return Parametrisation(machine).pullback(delta)


def centred_pullback(
    machine: BoltzmannMachine | Parametrisation,
    delta: Statistics,
    offsets: Sequence[Tensor],
) -> dict[str, Tensor]:
    """The enhanced gradient, as of a machine in centred units (Cho et al. 2011; Melchior et al. 2016).

    With offsets μ_l the location parameters are written b_l = b'_l - Σ_neighbours W μ, a linear change of
    coordinates. This is the gradient in the new coordinates, brought back to the old ones: an ascent
    direction of the log-likelihood, not its gradient, and the same whichever of its two states a binary unit
    calls 1. It is linear in delta, and so unbiased where delta is, if the offsets do not depend on the noise
    of delta. The machine itself is not changed.

    A frozen location has no b'_l, and frozen couplings move no b_l: what is left is the gradient in the new
    coordinates of the parameters that are learned.

    Args:
        machine: the machine, or its parametrisation where there is one already.
        delta: E[S | v] - E[S].
        offsets: μ_l for every layer, (width_l,); ``rules.centred`` says which a rule takes.

    Returns:
        As ``pullback``.
    """
    known = machine if isinstance(machine, Parametrisation) else Parametrisation(machine)
    machine, direction = known.machine, known.pullback(delta)
    locations = [
        direction[f"layers.{l}.{layer.location}"]
        if getattr(layer, layer.location).requires_grad
        else torch.zeros_like(offset)
        for l, (layer, offset) in enumerate(zip(machine.layers, offsets, strict=True))
    ]
    scaled = [
        offset if layer.scale is None else offset * layer.scale.detach()
        for layer, offset in zip(machine.layers, offsets, strict=True)
    ]
    learned = [
        (f"couplings.{edge}.weight", coupling, *machine.edges[edge])
        for edge, coupling in enumerate(machine.couplings)
        if coupling.weight.requires_grad
    ]
    for name, coupling, l, m in learned:
        if coupling.sparsity is not None:
            places = coupling.sparsity.to(machine.device)
            outer = locations[l].flatten()[places.rows] * scaled[m][places.columns]
            outer += scaled[l][places.rows] * locations[m].flatten()[places.columns]
            direction[name] -= outer.view_as(direction[name])
            continue
        rows = torch.stack((locations[l].flatten(), scaled[l]), 1)
        columns = torch.stack((scaled[m], locations[m].flatten()))
        direction[name].addmm_(rows, columns, alpha=-1)
    for name, coupling, l, m in learned:
        if coupling.sparsity is not None:
            places, values = coupling.sparsity.to(machine.device), direction[name].flatten()
            for layer, other, transposed in ((l, m, True), (m, l, False))[: 1 if coupling.inner else 2]:
                moved = places.times(scaled[other].unsqueeze(0), values, transposed)
                locations[layer] -= moved.view_as(locations[layer])
            continue
        W = direction[name] = coupling.within(direction[name])
        locations[l] -= (W @ scaled[m]).view_as(locations[l])
        locations[m] -= (W.t() @ scaled[l]).view_as(locations[m])
    return direction
