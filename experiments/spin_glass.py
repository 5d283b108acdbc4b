"""A 6x6x6 spin glass by temperature, beside a parallel tempering of its own at equal CPU time.

    python experiments/spin_glass.py                # 8 CPU seconds a run, ten seeds of each
    python experiments/spin_glass.py --seconds 20   # longer runs

Bonds of ±1 with periodic ends, at 19 inverse temperatures from 0.2 to 1.1. `chains.thermodynamics` runs
so many sweeps as fit into the CPU time. The other program is written here in plain loops, compiled by numba:
Metropolis sweeps over the spins in their order with local fields that are kept, swaps of neighbouring
temperatures after every sweep, as many chains, overlaps of one half with the other, the first half for a
warm-up, and errors of means over chains. It shares nothing with the library but the bonds. Compilation is not
counted.
The record has, for both programs and every seed, means with errors at all temperatures and P(q) at 1.1.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from numba import njit
from ucd_common import figure, parser, write

import harmonium as hm

SIDE, CHAINS = 6, 64
BETAS = np.linspace(1.1, 0.2, 19)
NAMES = ("energy", "heat capacity", "q²")
PROBE = 1000  # sweeps of the run that tells how many fit into the time


def glass() -> tuple[hm.BoltzmannMachine, np.ndarray, np.ndarray]:
    """The machine, and for every spin its neighbours and their bonds, each (spins, 6)."""
    place = np.arange(SIDE**3).reshape(SIDE, SIDE, SIDE)
    pairs = np.concatenate(
        [np.stack([place, np.roll(place, -1, axis)], -1).reshape(-1, 2) for axis in range(3)]
    )
    bonds = np.random.default_rng(0).choice([-1.0, 1.0], len(pairs))
    neighbours: list[list[int]] = [[] for _ in range(SIDE**3)]
    strengths: list[list[float]] = [[] for _ in range(SIDE**3)]
    J = torch.zeros(SIDE**3, SIDE**3)
    for (i, j), bond in zip(pairs.tolist(), bonds.tolist(), strict=True):
        J[i, j] = J[j, i] = bond
        for here, there in ((i, j), (j, i)):
            neighbours[here].append(there)
            strengths[here].append(bond)
    machine = hm.BoltzmannMachine([hm.Spin(SIDE**3)], {(0, 0): hm.Sparse(np.sort(pairs, 1))}, seed=None)
    machine.couplings[0].fill_(J)
    return machine, np.array(neighbours), np.array(strengths, np.int64)


@njit
def uniform(state: np.ndarray) -> float:
    """A number in [0, 1) by xorshift64* (Vigna 2016)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@njit
def temper(
    neighbours: np.ndarray, bonds: np.ndarray, betas: np.ndarray, chains: int, sweeps: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parallel tempering of plain loops.

    Returns:
        Means over the last half of the sweeps: E and E² of every chain, (2, temperatures, chains);
        q² of every pair, (temperatures, pairs); and shares of the values of q at the first temperature,
        (pairs, spins + 1).
    """
    n, degree, levels = len(neighbours), neighbours.shape[1], len(betas)
    noise = np.array([np.uint64(88172645463325252) + np.uint64(7919) * np.uint64(seed)])
    for _ in range(100):
        uniform(noise)
    s = np.empty((levels, chains, n), np.int8)  # a replica, which may be at any temperature
    h = np.empty((levels, chains, n), np.int8)  # Σ J s' of its neighbours
    energy = np.zeros((levels, chains), np.int64)
    at = np.empty((levels, chains), np.int64)  # the replica at a temperature
    accept = np.empty((levels, degree + 1))  # exp(-2 β s h) of s h = 0, 1, ...
    for t in range(levels):
        for k in range(degree + 1):
            accept[t, k] = np.exp(-2 * betas[t] * k)
        for c in range(chains):
            at[t, c] = t
            for i in range(n):
                s[t, c, i] = 1 if uniform(noise) < 0.5 else -1
            for i in range(n):
                total = 0
                for d in range(degree):
                    total += bonds[i, d] * s[t, c, neighbours[i, d]]
                h[t, c, i] = total
                energy[t, c] -= s[t, c, i] * total
            energy[t, c] //= 2
    moments = np.zeros((2, levels, chains))
    squares = np.zeros((levels, chains // 2))
    shares = np.zeros((chains // 2, n + 1))
    begin = sweeps // 2
    for sweep in range(sweeps):
        for c in range(chains):
            for t in range(levels):
                r = at[t, c]
                spins, fields = s[r, c], h[r, c]
                change = 0
                for i in range(n):
                    gain = spins[i] * fields[i]
                    if gain <= 0 or uniform(noise) < accept[t, gain]:
                        spins[i] = -spins[i]
                        change += 2 * gain
                        for d in range(degree):
                            fields[neighbours[i, d]] += 2 * bonds[i, d] * spins[i]
                energy[r, c] += change
            for t in range(levels - 1):
                a, b = at[t, c], at[t + 1, c]
                gain = (betas[t] - betas[t + 1]) * (energy[a, c] - energy[b, c])
                if gain >= 0 or uniform(noise) < np.exp(gain):
                    at[t, c], at[t + 1, c] = b, a
        if sweep >= begin:
            for t in range(levels):
                for c in range(chains):
                    e = float(energy[at[t, c], c])
                    moments[0, t, c] += e
                    moments[1, t, c] += e * e
                for p in range(chains // 2):
                    one, two = s[at[t, p], p], s[at[t, p + chains // 2], p + chains // 2]
                    same = 0
                    for i in range(n):
                        same += one[i] == two[i]
                    q = 2.0 * same / n - 1
                    squares[t, p] += q * q
                    if t == 0:
                        shares[p, same] += 1
    count = sweeps - begin
    return moments / count, squares / count, shares / count


def record(values: dict[str, tuple[Any, Any]], density: tuple[Any, Any], seconds: float, sweeps: int) -> Any:
    """What is kept of a run: means and errors, (temperatures,), and P(q) in bins, with its errors."""
    made = {name: np.round(np.array(pair, float), 6).tolist() for name, pair in values.items()}
    return made | {
        "P(q)": np.round(np.array(density, float), 5).tolist(), "seconds": round(seconds, 2), "sweeps": sweeps
    }  # fmt: skip


def ours(machine: hm.BoltzmannMachine, sweeps: int, seed: int) -> Any:
    start = time.process_time()
    found = hm.chains.thermodynamics(
        machine, BETAS.tolist(), chains=CHAINS, sweeps=sweeps, bins=31, seed=seed
    )
    seconds = time.process_time() - start
    density = [x[0] for x in found.overlap_density]
    return record({name: found.values[name] for name in NAMES}, density, seconds, sweeps) | {
        "doubts": list(found.doubts)
    }


def theirs(neighbours: np.ndarray, bonds: np.ndarray, sweeps: int, seed: int) -> Any:
    start = time.process_time()
    moments, squares, shares = temper(neighbours, bonds, BETAS, CHAINS, sweeps, seed)
    seconds = time.process_time() - start
    n, E = SIDE**3, moments[0]
    mean = E.mean(1, keepdims=True)
    capacity = BETAS[:, None] ** 2 * (moments[1] - 2 * E * mean + mean**2) / n  # ⟨(E - mean)²⟩ of every chain
    bins = shares.reshape(len(shares), 31, 7).sum(2) / (7 * 2 / n)
    values = {"energy": E / n, "heat capacity": capacity, "q²": squares}
    return record(
        {name: (x.mean(1), x.std(1, ddof=1) / x.shape[1] ** 0.5) for name, x in values.items()},
        (bins.mean(0), bins.std(0, ddof=1) / len(bins) ** 0.5), seconds, sweeps,
    )  # fmt: skip


def summary(runs: dict[str, list[Any]]) -> dict[str, Any]:
    """For every observable: means over seeds, their spread beside the errors that runs state, and z.

    "largest |z|" is of the differences of both programs' means over their stated errors, at all temperatures;
    "within" the share of runs and temperatures within one and two stated errors of the other program's mean,
    whose own error is a third of them.
    """
    made: dict[str, Any] = {}
    for name in (*NAMES, "P(q)"):
        x = {
            program: np.array([run[name] for run in each]) for program, each in runs.items()
        }  # (seeds, 2, …)
        mean = {program: values[:, 0].mean(0) for program, values in x.items()}
        error = {program: (values[:, 1] ** 2).sum(0) ** 0.5 / len(values) for program, values in x.items()}
        kept = np.minimum(*(values[:, 0].min(0) for values in x.values())) > (0.02 if name == "P(q)" else -9)
        z = (mean["ours"] - mean["theirs"]) / np.hypot(error["ours"], error["theirs"])
        row: dict[str, Any] = {"largest |z|": float(abs(z[kept]).max()), "comparisons": int(kept.sum())}
        for program, other in (("ours", "theirs"), ("theirs", "ours")):
            stated = np.hypot(x[program][:, 1], error[other])
            away = abs(x[program][:, 0] - mean[other])[:, kept] / stated[:, kept]
            row[program] = {
                "stated error": float(x[program][:, 1][:, kept].mean()),
                "spread of seeds": float(x[program][:, 0].std(0, ddof=1)[kept].mean()),
                "within 1, 2": [float((away < 1).mean()), float((away < 2).mean())],
            }
        made[name] = row
    for program, each in runs.items():
        capacity = np.array([run["heat capacity"][0] for run in each])
        q2 = np.array([run["q²"][0] for run in each])
        peak = int(capacity.mean(0).argmax())
        at, high = int(abs(BETAS - 1.0).argmin()), capacity[:, peak]
        made[program] = {
            "peak": [float(x) for x in (BETAS[peak], high.mean(), high.std(ddof=1))],
            "q² at 1": [float(q2[:, at].mean()), float(q2[:, at].std(ddof=1)),
                        float(np.mean([run["q²"][1][at] for run in each]))],
            "seconds": float(np.mean([run["seconds"] for run in each])),
            "sweeps": int(np.mean([run["sweeps"] for run in each])),
        }  # fmt: skip
    return made


def main() -> None:
    made = parser(__doc__, "spin_glass")
    made.add_argument("--seconds", type=float, default=8.0, help="CPU seconds of a run")
    made.add_argument("--seeds", type=int, default=10)
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    machine, neighbours, bonds = glass()
    runs: dict[str, list[Any]] = {"ours": [], "theirs": []}
    programs = {
        "ours": lambda sweeps, seed: ours(machine, sweeps, seed),
        "theirs": lambda sweeps, seed: theirs(neighbours, bonds, sweeps, seed),
    }
    for run in programs.values():
        run(200, 0)  # compiles
    speed = {name: run(PROBE, 0)["seconds"] / PROBE for name, run in programs.items()}
    for seed in range(arguments.seeds):
        for name, run in programs.items():
            runs[name].append(run(max(100, int(arguments.seconds / speed[name])), seed + 1))
    found = summary(runs)
    for name, row in found.items():
        print(name, row)
    picture, axes = figure(3)
    for axis, name in zip(axes[0], ("heat capacity", "q²", "P(q)"), strict=True):
        for program, marker in (("theirs", "-"), ("ours", ".")):
            mean, error = np.array([run[name] for run in runs[program]]).mean(0)
            x = (np.arange(31) * 7 + 3) * 2 / SIDE**3 - 1 if name == "P(q)" else BETAS
            axis.errorbar(
                x, mean, error, fmt=marker, label={"ours": "harmonium", "theirs": "plain loops"}[program]
            )
        axis.set(xlabel="q at β = 1.1" if name == "P(q)" else "β", title=name)
    axes[0][0].legend(fontsize="small")
    settings = {
        "side": SIDE,
        "betas": np.round(BETAS, 6).tolist(),
        "chains": CHAINS,
        "seconds": arguments.seconds,
    }
    write(arguments.out, settings | {"summary": found, "runs": runs}, picture)


if __name__ == "__main__":
    main()
