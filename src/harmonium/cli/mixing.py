"""How fast a machine mixes, by coupled chains."""

from __future__ import annotations

from typing import Any

import torch

from harmonium._random import as_generator
from harmonium.couplings import Gibbs, Meetings, meet, mixing_bound, mixing_limit
from harmonium.machine import BoltzmannMachine

PAIRS = 400  # enough for a confidence limit below the least of the distances
CONFIDENCE = 0.95
_DISTANCES = (0.5, 0.1, 0.01)


def mixing(
    machine: BoltzmannMachine, max_steps: int, seed: int
) -> tuple[dict[str, Any], list[str], Meetings]:
    """Meeting times of pairs of Gibbs chains from noise, and the sweeps that bring chains near their law.

    A first run with lag 1 tells the lag of the second, which bounds the total variation distance (Biswas et
    al. 2019): by the estimate, and by its upper confidence limit, null where so many pairs cannot tell.

    Args:
        machine: any machine.
        max_steps: sweeps after which a pair is given up; with such pairs nothing is bounded.
        seed: of starts and chains.

    Returns:
        A table, notes on it, and the meetings that bound the mixing, or else the capped ones.
    """
    generator = as_generator(seed, machine.device)
    start = machine.random_states(PAIRS, seed=generator)
    first = meet(machine, Gibbs(), start, max_steps=max_steps, seed=generator)
    table: dict[str, Any] = {
        "start": "noise",
        "pairs": PAIRS,
        "mean_meeting_time": float(first.times.double().mean()),
        "longest_meeting_time": int(first.times.max()),
        "given_up": float(first.capped.double().mean()),
        "flip_rate": first.flip_rate,
    }
    if bool(first.capped.any()):
        remarks = [
            f"mixing: {int(first.capped.sum())} of {PAIRS} pairs had not met after {max_steps} sweeps: the "
            "mean is too small, and nothing is bounded; raise --mixing-steps"
        ]
        return table, remarks, first
    lag = int(first.times.max())
    second = meet(machine, Gibbs(), start, lag=lag, seed=generator)
    steps = range(int(second.times.max()) + 1)
    curves = {"": mixing_bound(second, steps), "_with_confidence": mixing_limit(second, steps, CONFIDENCE)}
    table |= {"lag": lag, "confidence": CONFIDENCE}
    for name, curve in curves.items():
        for distance in _DISTANCES:
            reached = torch.nonzero(curve <= distance)
            table[f"sweeps_to_distance_{distance:g}{name}"] = int(reached[0]) if len(reached) else None
    remarks = [
        "mixing: the sweeps with confidence assume that pairs still apart never meet less readily than these "
        "did; a mode that no pair has found is not seen"
    ]
    return table, remarks, second
