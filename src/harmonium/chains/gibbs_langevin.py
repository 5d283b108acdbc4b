"""Gibbs sampling with Langevin steps in place of the Gaussian draw."""

from __future__ import annotations

import math
from typing import Literal, final

import torch

from harmonium import _checks
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.chains.relaxation import Relaxation
from harmonium.machine import Hamiltonian

Correction = Literal["none", "metropolis", "exact"]


@final
class GibbsLangevin(Kernel):
    """Gibbs sampling in which a Gaussian layer makes ``inner`` Langevin steps instead of being drawn anew.

    With the neighbours fixed these steps are one Gaussian draw (Liao et al. 2022, Alg. 2, Eqs. 9-11), so the
    inner loop costs nothing: x' = m + β₀ (x - m) + s σ ξ with m the mean given the neighbours, β₀ = Π_j (1 -
    α₀ c_j), steps α₀ c_j σ_i² and c_j = ½ (1 + cos(π j / inner)) for j = 0 … inner-1. The chain remembers its
    place; β₀ = 0 is Gibbs sampling, which "exact" with ``step=1`` gives.

    Args:
        step: α₀ of the first inner step, above 0.
        inner: Langevin steps of a sweep, at least 1.
        correction: "metropolis": a Metropolis test of the whole sweep (Eq. 12); in wide layers it needs small
            steps. "exact": the noise has s² = 1 - β₀², which leaves the conditional law as it is, and so the
            machine's, with nothing to accept. "none": s² as in the paper; the law is not kept.
        adjust: first sweeps of a chain without the Metropolis test; of a persistent chain once, and not at
            every update.

    Raises:
        ValueError: |β₀| of 1 or more with "exact"; a step so large that the noise is not finite.
    """

    kind = "gibbs-langevin"

    def __init__(
        self, step: float = 0.1, inner: int = 10, correction: Correction = "exact", *, adjust: int = 0
    ) -> None:
        self.step_size = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)
        self.inner = _checks.positive_int(inner, "inner")
        _checks.one_of(correction, "correction", ("none", "metropolis", "exact"))
        self.correction = correction
        self.adjust = _checks.positive_int(adjust, "adjust", minimum=0)
        self._keep, self._spread = keep, spread = self._draw()
        if correction == "exact" and not abs(keep) < 1:
            raise ValueError(
                f"step: expected one with |β₀| below 1, such as less than 2, received {self.step_size:g}"
            )
        if not math.isfinite(keep + spread):
            raise ValueError(f"step: expected one that keeps the noise finite, received {self.step_size:g}")

    @property
    def invariant(self) -> bool:
        return self.correction != "none"

    def scaled(self, factor: float) -> GibbsLangevin:
        return GibbsLangevin(self.step_size * factor, self.inner, self.correction, adjust=self.adjust)

    def relaxation(self, state: KernelState) -> Relaxation:
        """Returns what the next sweep does."""
        adjusted = self.correction == "metropolis" and state.sweeps >= self.adjust
        return Relaxation(self._keep, self._spread, collapsed=False, adjusted=adjusted)

    def step(
        self, law: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        return self.relaxation(state).step(law, state, generator)

    def _draw(self) -> tuple[float, float]:
        """Returns β₀ and s of the inner steps together."""
        keep, variance = 1.0, 0.0
        for j in range(self.inner):
            size = self.step_size * 0.5 * (1 + math.cos(math.pi * j / self.inner))
            keep *= 1 - size
            variance = variance * ((1 - size) * (1 - size)) + 2 * size
        if self.correction == "exact":
            variance = 1 - keep * keep
        return keep, math.sqrt(max(variance, 0.0))

    def __repr__(self) -> str:
        return (
            f"GibbsLangevin(step={self.step_size:g}, inner={self.inner}, correction={self.correction!r}, "
            f"adjust={self.adjust})"
        )
