"""How soon pairs of Gibbs chains meet under three couplings (Qiu et al. 2020, Fig. 5).

    python experiments/meeting_times.py --budget quick      # 20 draws of the model, minutes
    python experiments/meeting_times.py --budget paper      # 100 draws

A 500x100 machine of 0/1 units with all parameters from N(0, 0.1²), visible units started at fair coins, 1000
pairs, lag 1, given up after 1000 sweeps. Alg. 1 couples v | h maximally and h | v not at all; Alg. 3 couples
v | h maximally with common noise in the rejection loop and h | v by common noise; the default of harmonium
couples both half-steps maximally with common noise. The paper shows one draw of the model, and
prints P(τ ≤ 10) = 0.654 for Alg. 3; its program gives 0.69, 0.017 for Alg. 1, and 0.83 with both half-steps
coupled maximally. How much of a figure is the draw of the model is what this experiment adds.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from ucd_common import figure, normal_machine, parser, write

from harmonium.coupled import CommonNoise, Gibbs, Independent, Maximal, meet

PAIRS, CAP, SOON = 1000, 1000, 10
DRAWS = {"quick": 20, "paper": 100}
COUPLINGS = {
    "Alg. 1": Gibbs(Maximal(), Independent()),
    "Alg. 3": Gibbs(Maximal(common_noise=True), CommonNoise()),
    "default": Gibbs(),
}
PUBLISHED = {"Alg. 1": 0.017, "Alg. 3": 0.69, "default": 0.83}
PRINTED = 0.654  # Alg. 3, in the paper itself


def times_of(draw: int) -> dict[str, torch.Tensor]:
    """Meeting times under each coupling, for one draw of the model; CAP + 1 where a pair was given up."""
    generator = torch.Generator().manual_seed(draw)
    machine = normal_machine(500, 100, 0.1, generator)
    start = (torch.rand(PAIRS, 500, generator=generator) < 0.5).float()
    result = {}
    for name, coupling in COUPLINGS.items():
        meetings = meet(machine, coupling, start, max_sweeps=CAP, seed=generator)
        result[name] = meetings.times + meetings.capped.long()
    return result


def summary(draws: list[torch.Tensor], published: float) -> dict[str, Any]:
    """P(τ ≤ 10) over the draws, with the Monte-Carlo error within a draw and the spread over draws."""
    soon = torch.tensor([float((times <= SOON).double().mean()) for times in draws])
    within = float((soon * (1 - soon) / PAIRS).mean().sqrt())
    return {
        "published": published,
        "mean": float(soon.mean()),
        "smallest": float(soon.min()),
        "largest": float(soon.max()),
        "standard_error_within_a_draw": within,
        "standard_deviation_over_draws": float(soon.std()),
        "published_within_the_draws": bool(soon.min() - 2 * within <= published <= soon.max() + 2 * within),
        "draws_below_published": float((soon < published).double().mean()),
        "median_time": float(torch.cat(draws).double().median()),
        "given_up": float((torch.cat(draws) > CAP).double().mean()),
        "each_draw": [round(value, 4) for value in soon.tolist()],
    }


def main() -> None:
    made = parser(__doc__, "meeting_times")
    made.add_argument("--draws", type=int, help="draws of the model; overrides the budget's")
    arguments = made.parse_args()
    torch.set_num_threads(arguments.threads)
    draws = DRAWS[arguments.budget] if arguments.draws is None else arguments.draws
    if draws < 2:
        made.error(f"--draws: expected at least 2 to see a spread, received {draws}")
    started = time.process_time()
    drawn = [times_of(draw) for draw in range(draws)]
    times = {name: [each[name] for each in drawn] for name in COUPLINGS}
    results = {name: summary(times[name], PUBLISHED[name]) for name in COUPLINGS}

    print(f"P(τ ≤ {SOON}) over {draws} draws of the model, {PAIRS} pairs each")
    print(
        f"{'coupling':10} {'published':>9} {'mean':>7} {'range over draws':>17} {'error':>7} {'given up':>9}"
    )
    for name, row in results.items():
        span = f"{row['smallest']:.3f} to {row['largest']:.3f}"
        print(
            f"{name:10} {row['published']:9.3f} {row['mean']:7.3f} {span:>17} "
            f"{row['standard_error_within_a_draw']:7.3f} {row['given_up']:9.2%}"
        )
    print(f"the paper prints {PRINTED} for Alg. 3")

    picture, axes = figure(1)
    axis = axes[0][0]
    sweeps = torch.arange(1, CAP + 1)
    for name in COUPLINGS:
        survival = torch.stack([(t.unsqueeze(0) > sweeps.unsqueeze(1)).double().mean(1) for t in times[name]])
        (line,) = axis.plot(sweeps, survival.mean(0), label=name)
        axis.fill_between(sweeps, survival.amin(0), survival.amax(0), color=line.get_color(), alpha=0.2)
        axis.plot([SOON], [1 - PUBLISHED[name]], "x", color=line.get_color())
    axis.set(xscale="log", xlabel="sweeps t", ylabel="P(τ > t)", ylim=(0, 1.02))
    axis.set_title("mean and range over draws; × published", fontsize="small")
    axis.legend()
    settings = {"pairs": PAIRS, "cap": CAP, "draws": draws}
    write(
        arguments.out,
        {
            "experiment": "meeting times, 500x100, parameters N(0, 0.1²)",
            "settings": settings,
            "budget": arguments.budget,
            "printed_in_the_paper_for_alg_3": PRINTED,
            "cpu_seconds": time.process_time() - started,
            "results": results,
        },
        picture,
    )


if __name__ == "__main__":
    main()
