"""A score of a machine's predictions of hidden cells, for any units and depth."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import naive

_TOLERANCE, _SWEEPS = 1e-3, 30
_ROWS = 4096


@torch.no_grad()
def predictive_log_score(
    machine: BoltzmannMachine, X: Numbers, *, share: float = 0.1, seed: int | torch.Generator = 0
) -> Tensor:
    """Σ ln q(v_i | cells that are not hidden) over the cells of a row that are hidden at random.

    q is the factorised law of naive mean field given the rest of the row. It is a law of its own, so that the
    score is a proper one (no machine does better than the one whose q is right on average), but not the
    machine's p. Beside other scores of one machine along its training, or of machines on the same rows, it
    needs no ln Z, and takes real units, deep machines and rows that were observed in part.

    Args:
        machine: on any graph.
        X: visible states, (batch, visible_width); NaN is not observed, and not asked for.
        share: of the units that are hidden, in (0, 1).
        seed: draws which; the same int hides the same units of as many rows.

    Returns:
        (batch,), float64, in nats (a density for real units); 0 where nothing is hidden.

    Raises:
        ValueError: X that does not fit, or a share out of range.
    """
    if not 0 < _checks.real(share, "share") < 1:
        raise ValueError(f"share: expected a number in (0, 1), received {share}")
    v = machine.visible_rows(X, "X", missing=True)
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = machine.hamiltonian()
    parts = []
    for rows in torch.split(v, _ROWS):
        states, asked = hamiltonian.split(rows), {}
        held = list(states)
        for l in machine.visible:
            layer, x = machine.layers[l], states[l]
            drawn = _random.uniform((len(x), layer.n_units), generator, torch.float64) < share
            seen = ~layer.by_unit(x)[..., 0].isnan()
            asked[l] = drawn.to(seen.device) & seen
            free = (asked[l] | ~seen).repeat_interleave(layer.width // layer.n_units, 1)
            held[l] = x.masked_fill(free, torch.nan)
        known = hamiltonian.seen(held)
        solution = naive(machine, known, known, tolerance=_TOLERANCE, max_sweeps=_SWEEPS)
        total = rows.new_zeros(len(rows), dtype=torch.float64)
        for l, units in asked.items():
            x = machine.layers[l].observed(states[l], "X")[1]
            terms = machine.layers[l].log_conditional(x, solution.fields[l], hamiltonian.thetas[l]).double()
            total += torch.where(units, terms, 0.0).sum(1)
        parts.append(total)
    return torch.cat(parts)
