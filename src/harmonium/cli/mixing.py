"""The speed of mixing of a machine, and the course of its chains from noise."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, log10
from typing import Any

import torch
from torch import Tensor

from harmonium._random import as_generator, permutation
from harmonium.chains import Diagnosis, diagnose
from harmonium.coupled import Gibbs, Meetings, meet, mixing_bound, mixing_limit
from harmonium.machine import BoltzmannMachine
from harmonium.report import MomentErrors, Resampling, moment_errors, resampling
from harmonium.report.page import verdict

PAIRS = 400  # enough for a confidence limit below the least of the distances
CONFIDENCE = 0.95  # of the limit beside the bound, as usual
_DISTANCES = (0.5, 0.1, 0.01)  # total variation; 0.01 is the least that 400 pairs can tell from 0
_PATIENCE = 10  # times as many sweeps as were made; more are no advice
CHAINS, SWEEPS = 1000, 1000  # from noise
_PRODUCTS = 2e12  # multiplications of these chains: half a minute or so
# Chains of R̂ and their sweeps at most: 50 chains show a mode that a tenth of the starts fall into.
CONVERGENCE_CHAINS, _CONVERGENCE_SWEEPS = 50, 2000
_FEWEST_SWEEPS = 40  # of a diagnosis


def mixing(
    machine: BoltzmannMachine, max_sweeps: int, seed: int
) -> tuple[dict[str, Any], list[str], Meetings]:
    """Meeting times of pairs of Gibbs chains from noise, and sweeps until chains are near their distribution.

    A first run with lag 1 tells the lag of the second, which bounds the total variation distance (Biswas et
    al. 2019): by the estimate, and by its upper confidence limit, null where so many pairs cannot tell.

    Args:
        machine: any machine.
        max_sweeps: sweeps after which a pair is given up; with such pairs nothing is bounded.
        seed: Seed of starts and chains.

    Returns:
        A table, notes on it, and the meetings that bound the mixing, or else the capped ones.
    """
    generator = as_generator(seed, machine.device)
    start = machine.random_states(PAIRS, seed=generator)
    first = meet(machine, Gibbs(), start, max_sweeps=max_sweeps, seed=generator)
    table: dict[str, Any] = {
        "start": "noise",
        "pairs": PAIRS,
        "mean_meeting_time": float(first.times.double().mean()),
        "longest_meeting_time": int(first.times.max()),
        "given_up": float(first.capped.double().mean()),
        "flip_rate": first.flip_rate,
    }
    if bool(first.capped.any()):
        table["sweeps_until_all_meet"] = until_all_meet(first)
        remark = (
            f"mixing: {int(first.capped.sum())} of {PAIRS} pairs had not met after {max_sweeps} sweeps: the "
            f"mean is too small, and nothing is bounded; {_advise(table['sweeps_until_all_meet'])}"
        )
        return table, [remark], first
    lag = int(first.times.max())
    second = meet(machine, Gibbs(), start, lag=lag, seed=generator)
    sweeps = range(int(second.times.max()) + 1)
    curves = {"": mixing_bound(second, sweeps), "_with_confidence": mixing_limit(second, sweeps, CONFIDENCE)}
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


def until_all_meet(meetings: Meetings) -> int | None:
    """Estimates how many sweeps it takes until capped pairs have met too, at the pace of the second half.

    Returns:
        A number with two digits; None: so few met in the second half that it would be over ten times the cap.
    """
    cap = int(meetings.times.max())
    left = int(meetings.capped.sum())
    before = left + int((~meetings.capped & (meetings.times > cap / 2)).sum())
    if before == left:
        return None
    sweeps = cap + cap / 2 * log(2 * left) / log(before / left)  # until half a pair is expected to be left
    step = 10 ** max(0, int(log10(sweeps)) - 1)
    return ceil(sweeps / step) * step if sweeps <= _PATIENCE * cap else None


def _advise(sweeps: int | None) -> str:
    """Returns what to do about capped pairs, by the sweeps until all meet."""
    if sweeps is not None:
        return f"at the pace of their second half all would have met after about {sweeps} (--mixing-sweeps)"
    return (
        "hardly any met in the second half, so that more sweeps would most likely not help: chains from "
        "noise do not mix. Start chains at data or temper them (hm.chains.Tempering)"
    )


def equilibrium(
    machine: BoltzmannMachine, rows: Tensor, weights: Tensor | None, most: int, seed: int
) -> tuple[dict[str, Any], Resampling]:
    """Chains from noise, and how the correlation of their pair statistics with those of data goes.

    ``weights`` are those of the rows, (rows,), as in training; None means uniform.

    Raises:
        ValueError: data without pairs to compare.
    """
    couplings = sum(J.numel() for _, _, J in machine.hamiltonian().edges)
    affordable = int(_PRODUCTS / (2 * CHAINS * max(couplings, 1)))
    sweeps = max(1, min(most, SWEEPS, affordable))
    found = resampling(machine, rows, weights=weights, chains=CHAINS, sweeps=sweeps, seed=seed)
    place = int(found.correlation.argmax())
    table = {
        "start": "noise",
        "chains": CHAINS,
        "sweeps": found.sweeps.tolist(),
        "correlation": found.correlation.tolist(),
        "correlation_of_data": found.data,
        "peak": found.peak,
        "drop": float(found.drop[place]),
        "drop_standard_error": float(found.drop_error[place]),
        "falls": found.falls,
        "rises": found.rises,
    }
    return table, found


Weighted = tuple[Tensor, Tensor | None]
"""Rows, (rows, visible_width), and their weights, (rows,); None means uniform."""


def moments(
    machine: BoltzmannMachine,
    resampled: Resampling,
    rows: Weighted,
    training: Weighted | None,
    seed: int,
) -> tuple[MomentErrors, str]:
    """Scaled errors of the moments of chains from noise, and in words what they were compared with."""
    about = "held-out rows; 0: as the training data, 1: shuffled"
    if training is None:
        order = permutation(len(rows[0]), as_generator(seed, rows[0].device))
        rows, training = (_take(rows, part) for part in order.tensor_split(2))
        about = "a half of the rows; 0: as the other half, 1: shuffled"
    samples = machine.hamiltonian().visible_states(resampled.states)
    weights = (rows[1], training[1])
    return moment_errors(machine, samples, rows[0], training[0], weights=weights, seed=seed), about


def _take(rows: Weighted, index: Tensor) -> Weighted:
    """Returns some of the rows."""
    states, weights = rows
    return states[index], None if weights is None else weights[index.to(weights.device)]


def convergence(machine: BoltzmannMachine, most: int, seed: int) -> tuple[dict[str, Any], Diagnosis]:
    """R̂ and effective sample sizes of chains from noise: the worst of all quantities, and each of them."""
    sweeps = max(_FEWEST_SWEEPS, min(2 * most, _CONVERGENCE_SWEEPS))
    found = diagnose(machine, chains=CONVERGENCE_CHAINS, sweeps=sweeps, seed=seed)
    known = {name: getattr(found, name) for name in ("draws", "r_hat", "ess", "passed")}
    return {"chains": CONVERGENCE_CHAINS, "sweeps": sweeps, **known}, found


def chains_from_noise(
    machine: BoltzmannMachine, rows: Sequence[Weighted | None], most: int, seed: int, notes: list[str]
) -> dict[str, Any]:
    """Returns the part of ``harmonium evaluate --mixing`` beside meeting times, and adds notes to it."""
    converged, _ = convergence(machine, most, seed)
    notes.append(f"convergence: {verdict.convergence_remark(converged).text}")
    result: dict[str, Any] = {"convergence": converged}
    training, held_out = (*rows, None)[:2]
    try:
        if training is None:
            raise ValueError("it needs DATA with whole rows")
        result["equilibrium"], found = equilibrium(machine, *training, most, seed)
    except ValueError as error:
        notes.append(f"equilibrium: not available, {error}")
        return result
    notes.append(f"equilibrium: {verdict.equilibrium_remark(result['equilibrium']).text}")
    rows_of, base = (training, None) if held_out is None else (held_out, training)
    errors, about = moments(machine, found, rows_of, base, seed)
    result["moments"] = {**errors._asdict(), "beside": about}
    return result
