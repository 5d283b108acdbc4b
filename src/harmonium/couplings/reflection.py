"""The reflection-maximal coupling of Gaussian layers."""

from __future__ import annotations

from typing import final

import torch

from harmonium.couplings.block import Block, BlockCoupling, Coupled, accept


@final
class Reflection(BlockCoupling):
    """Maximal, and where the draws differ they mirror each other, which brings the next means together.

    For two normal laws of equal variances: z ~ N(0, I), d the standardised difference of means; y = x with
    probability min(1, φ(z + d)/φ(z)), else y's noise is z reflected at the hyperplane orthogonal to d
    (Bou-Rabee, Eberle & Zimmer 2020; Jacob et al. 2020, §4.1).
    """

    def draw(self, p: Block, q: Block, generator: torch.Generator) -> Coupled:
        """As in the base class.

        Raises:
            TypeError: a layer that is not Gaussian.
        """
        for part in p.parts:
            if not p.hamiltonian.units(part)[0].gaussian:
                raise TypeError(
                    f"Reflection: expected Gaussian layers, received {p.hamiltonian.units(part)[0]}"
                )
        noise = p.noise(p.rows, generator)
        x = p.sample(noise)
        rows = p.rows
        deviations = [p.hamiltonian.units(part)[1][1].rsqrt() for part in p.parts]
        # field · σ is the standardised mean up to a part that both chains share.
        gaps = [(a - b) * s for a, b, s in zip(p.fields, q.fields, deviations, strict=True)]
        z, d = torch.cat(noise, -1).double(), torch.cat(gaps, -1).double()
        together = accept(-(z * d).sum(-1) - 0.5 * d.square().sum(-1), generator)
        length = d.square().sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        mirrored = z - 2 * (z * d).sum(-1, keepdim=True) / length * d
        widths = [field.shape[-1] for field in p.fields]
        reflected = [part.to(x[0].dtype) for part in torch.split(mirrored, widths, -1)]
        y = [
            torch.where(together.unsqueeze(-1), same, other)
            for same, other in zip(x, q.sample(reflected), strict=True)
        ]
        return Coupled(x, y, torch.zeros(rows, dtype=torch.int64, device=z.device))
