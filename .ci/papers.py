"""The page docs/experiments_papers.md, with every table and figure of the four papers, from the records.

    python .ci/papers.py            # prints the page
    python .ci/papers.py --write    # writes it
    python .ci/papers.py --check    # ends with 1 where the page, a record or a script does not fit

Every figure of ours is read from a record of experiments/results, so that none stands there without one. What a
row claims, and the paper's settings beside ours, stand in experiments/papers.toml: the verdict follows from what
differs there, and is typed nowhere.
"""

from __future__ import annotations

# ruff: noqa: E501 (a row of the table is a line)
import argparse
import json
import re
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1] / "experiments"
PAGE = HERE.parent / "docs" / "experiments_papers.md"
MEASURED = HERE / "papers.md"
KINDS = ("isotropic", "anisotropic")
KINDS_OF_CHANGE = ("method", "size", "data", "measure")
WIDTH = 118  # of a line of the page


class Row(NamedTuple):
    """A table or figure of a paper: what was measured here, with its records, command and picture."""

    figure: str
    ours: Callable[[], str]
    records: tuple[str, ...] = ()
    command: str = ""
    picture: str = ""


@cache
def settings_of() -> dict[str, Any]:
    """By figure: the claim, the objection, and for each setting the paper's, ours and what the change is."""
    return tomllib.loads((HERE / "papers.toml").read_text("utf-8"))


def verdict(figure: str) -> str:
    """What a run is beside the paper's, by what differs."""
    found = settings_of()[figure]["settings"]
    if all(ours.startswith("not run") for _, ours, _ in found.values()):
        return "not run"
    kinds = {kind for *_, kind in found.values()}
    if "method" in kinds:
        return "another method"
    if kinds & {"size", "data"}:
        return "reduced"
    return "the paper's method at its size"


def changed(figure: str, *kinds: str) -> dict[str, tuple[str, str]]:
    """The settings that differ in one of these ways: the paper's and ours."""
    found = settings_of()[figure]["settings"]
    return {name: (paper, ours) for name, (paper, ours, kind) in found.items() if kind in kinds}


@cache
def read(name: str) -> Any:
    text = (HERE / "results" / name).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def where(name: str, **wanted: Any) -> list[dict[str, Any]]:
    """The lines of a record that have these values."""
    return [row for row in read(name) if all(row.get(key) == value for key, value in wanted.items())]


def bars(recipe: str, name: str = "bars_and_stripes.jsonl") -> str:
    values = [row["total_log_likelihood"] for row in where(name, recipe=recipe, seconds=None)]
    return f"{median(values):.1f} ({len(values)} seeds)"


def beaten(other: str) -> str:
    """With how many seeds UCD ends above another, at rates that decay."""
    ends = [
        {
            row["seed"]: row["total_log_likelihood"]
            for row in where("bars_and_stripes.jsonl", recipe=each, seconds=None)
        }
        for each in ("ucd-capped", other)
    ]
    seeds = [ends[0][seed] > ends[1][seed] for seed in ends[0]]
    return f"{sum(seeds)} of {len(seeds)} seeds"


def grey() -> list[dict[str, Any]]:
    """Points of the machine of grey digits: update 1, after 3, 6, 12, 25, 50, 75 and 100 epochs."""
    return list(read("tap_mnist_grey.json")["results"]["100"])


def constant(recipe: str) -> str:
    values = [row["total_log_likelihood"] for row in where(CONSTANT, recipe=recipe)]
    return f"{median(values):.1f} ({min(values):.0f} to {max(values):.0f}, {len(values)} seeds)"


def ahead() -> str:
    """In how many seeds UCD ends above both others."""
    recipes = ("paper ucd", "paper cd-1", "paper pcd-1")
    ends = zip(
        *([row["total_log_likelihood"] for row in where(CONSTANT, recipe=each)] for each in recipes),
        strict=True,
    )
    seeds = [ucd > max(others) for ucd, *others in ends]
    return f"{sum(seeds)} of {len(seeds)} seeds"


def swing(recipe: str) -> str:
    """Lowest and highest over the last half of all runs."""
    values = [x[2] for row in where(CONSTANT, recipe=recipe) for x in row["curve"][len(row["curve"]) // 2 :]]
    return f"{min(values):.0f} to {max(values):.0f}"


def peaks(recipe: str) -> list[float]:
    """Rejections of a pair where they are most frequent, of every run."""
    return [max(row["rejected_curve"]) for row in where(CONSTANT, recipe=recipe)]


def known(recipe: str, key: str, at: int = -1) -> float:
    """Mean over seeds of a number of a known machine's training, at one of its points."""
    return mean(seed[at][key] for seed in read(KNOWN)["results"][recipe])


def best(recipe: str, rows: str = "test") -> float:
    """Mean over seeds of the best point, of test rows or those of training."""
    return mean(max(point[rows] for point in seed) for seed in read(KNOWN)["results"][recipe])


def along(recipe: str, key: str) -> float:
    """Mean over runs at the constant rate of a number that is averaged along each."""
    return mean(row[key] for row in where(CONSTANT, recipe=recipe))


def seconds(recipe: str) -> str:
    """CPU time of a training at the constant rate."""
    return f"{mean(row['cpu_seconds'] for row in where(CONSTANT, recipe=recipe)):.1f} s"


def over(recipe: str, key: str) -> float:
    """Mean over seeds and points of a number of a known machine's training."""
    return mean(point[key] for seed in read(KNOWN)["results"][recipe] for point in seed)


def fashion(rule: str) -> str:
    return counted_points(read("fashion_ucd.json")["results"][rule])


def counted_points(points: list[dict[str, Any]], least: float = 20) -> str:
    """Log-likelihoods of test images along training, of points with enough annealing runs that count."""
    counted = [(p["updates"], p["test_log_likelihood"]) for p in points if p["sample_size"] >= least]
    (first, low), (last, high) = min(counted, key=lambda p: p[1]), max(counted, key=lambda p: p[1])
    return (
        f"from {low:.0f} (update {first:,}) to {high:.0f} ({last:,}), at the last that counts "
        f"{counted[-1][1]:.0f} ({counted[-1][0]:,}); {len(counted)} of {len(points)} points count"
    )


def mixture(kind: str, method: str) -> str:
    values = [row["gap"] for row in where(MIXTURES, kind=kind, method=method, hidden=64)]
    return f"{median(values):.2f}"


def runs_of(recipe: str, updates: int) -> str:
    """Of every sampler and mixture by "slow" or "joint": seeds, gap, worst weight, least share near a mode, last variances."""
    told = []
    for method, title in SAMPLERS.items():
        for kind in KINDS:
            rows = where(MIXTURES, kind=kind, method=method, updates=updates, **{recipe: True})
            if not rows:
                continue
            variances = ", ".join(f"{median(row['variances'][i] for row in rows):.2f}" for i in (0, 1))
            diverged = sum(bool(row["diverged"]) for row in rows)
            told.append(
                f"{title}, {kind} ({len(rows)} seed{'s' * (len(rows) > 1)}): gap "
                f"{median(row['gap'] for row in rows):.2f}, weights off by at most "
                f"{max(row['weight_error'] for row in rows):.2f}, near a mode "
                f"{min(row['near_a_mode'] for row in rows):.2f}, σ² {variances}"
                + (f", {diverged} diverged" if diverged else "")
            )
    return "; ".join(told)


def ends(method: str) -> str:
    """Updates after which the runs of the published settings diverged."""
    found = [row for row in where(MIXTURES, method=method, hidden=256) if not row.get("slow")]
    rows = [next(row for row in found if row["kind"] == kind) for kind in KINDS]
    return ", ".join(re.search(r"diverged after (\d+)", row["diverged"])[1] for row in rows)  # type: ignore[index]


def grbm(sampler: str) -> str:
    found = read("mnist_grbm_h200.json")["samplers"][sampler]
    return f"{found['fid_classifier_features']:.0f} ({found['updates']:,} updates)"


def grbm_seeds(sampler: str) -> str:
    runs = read("mnist_grbm_500_updates.json")
    return ", ".join(f"{run['samplers'][sampler]['fid_classifier_features']:.0f}" for run in runs)


def modes(row: str, name: str = "mnist_ucd_lmi.jsonl", **wanted: Any) -> float:
    """FID of local modes of the first line of a row."""
    found = [
        line
        for line in where(name, row=row, seed=0)
        if all(line["settings"][k] == v for k, v in wanted.items())
    ]
    return float(found[0]["local_modes"]["fid"])


def floor(name: str) -> float:
    return float(read(name)[0]["floor"]["fid"])


def tap(key: str, at: int = -1) -> float:
    return float(read("tap_mnist_500.json")["results"]["500"][at][key])


def small_tap(hidden: int, key: str, at: int = -1) -> float:
    return float(read("tap_mnist_small.json")["results"][str(hidden)][at][key])


def one_step(dimension: int, biases: bool) -> float:
    (found,) = [
        row["met_in_one_step"] for row in read("local_modes_one_step.json")["rows"]
        if row["dimension"] == dimension and row["biases"] == biases
    ]  # fmt: skip
    return float(found)


def always_from(biases: bool) -> int:
    """The dimension from which on every pair met in one step."""
    rows = [row for row in read("local_modes_one_step.json")["rows"] if row["biases"] == biases]
    return 1 + max(row["dimension"] for row in rows if row["met_in_one_step"] < 1)


def denoised(name: str, method: str, flip: int) -> float:
    return float(read(name)["mcc"][method][flip])


CONSTANT, MIXTURES = "bars_and_stripes_constant.jsonl", "gaussian_mixtures.jsonl"
SAMPLERS = {
    "gibbs": "Gibbs", "langevin": "Langevin", "langevin-adjusted": "Langevin, adjusted",
    "gibbs-langevin": "Gibbs-Langevin", "gibbs-langevin-metropolis": "Gibbs-Langevin, adjusted",
    "gibbs-langevin-hot-proposals": "Gibbs-Langevin, proposals at temperature B, test at 1",
}  # fmt: skip
KNOWN, LMI, GPU_LMI = "simulated_rbm_paper.json", "mnist_ucd_lmi.jsonl", "mnist_ucd_lmi_h200.jsonl"
FASHION_LMI = "mnist_ucd_lmi_fashion.jsonl"
ALG_3, BARS_ALG_3 = "ucd alg. 3, capped 0.2", "paper ucd alg. 3"
PCD_FROM_ROWS, FINE_TUNED = "pcd-1 from rows 0.2", "pcd from rows, then ucd alg. 3, capped"
BARS_TIMES = {
    **{f"CD-{k}": f"paper cd-{k}" for k in (1, 2, 5, 10, 20)},
    "PCD-1": "paper pcd-1", "UCD by Algorithm 3": BARS_ALG_3, "UCD by its default": "paper ucd",
}  # fmt: skip
KNOWN_COMMAND = "simulated_rbm.py --budget paper"
VARIANCE, PARTS = "simulated_rbm_variance.json", ("couplings", "visible_biases", "hidden_biases")
FASHION_COMMAND = "mnist_ucd.py --budget paper --data fashion-mnist --device cuda --seconds 150"
TAP_COMMAND = "tap_mnist.py --budget paper --only sizes --hidden 500 --max-sweeps 10 --device cuda"
FASHION_CPU_COMMAND = "mnist_ucd.py --budget paper --data fashion-mnist --only ucd --updates 3200"
SMALL_TAP_COMMAND = (
    "tap_mnist.py --budget paper --only sizes --hidden 100 --max-sweeps 10 --starts 1000 --temperatures 3000"
)
WIDE_COMMAND = "mnist_ucd_lmi.py run --budget wide --updates 10000 --batch 1000 --seconds 45 --device cuda"
GRBM_COMMAND = "mnist_grbm.py --budget paper --start published --updates 2500 --optimizer adam --seconds 45 --device cuda"
CPU = read("fashion_ucd.json")["ucd_on_a_cpu"]
NONE = lambda: "–"  # noqa: E731

PAPERS: dict[str, list[Row]] = {
    "Qiu, Zhang & Wang 2020, unbiased contrastive divergence": [
        Row(
            "Fig. 2, bars and stripes",
            lambda: f"Rates that decay: UCD {bars('ucd-capped')}, CD-1 {bars('cd-1')}, PCD-1 {bars('pcd-1')}; UCD is "
            f"above CD-1 with {beaten('cd-1')}, above PCD-1 with {beaten('pcd-1')}; with jumps {bars('ucd-jumps')}",
            ("bars_and_stripes.jsonl",), "bars_and_stripes.py --only ucd-capped --only pcd-1 --only cd-1 --seeds 100",
            "bars_and_stripes.png",
        ),
        Row(
            "Fig. 2, at the constant rate 0.1",
            lambda: f"UCD is above both in {ahead()}; median (range): UCD {constant('paper ucd')}, "
            f"{swing('paper ucd')} over the last half; CD-1 {constant('paper cd-1')}; PCD-1 "
            f"{constant('paper pcd-1')}; mean τ {along('paper ucd', 'meeting_time'):.2f}, rejections "
            f"{along('paper ucd', 'rejected'):.1f}",
            (CONSTANT,), "bars_and_stripes.py --budget paper",
        ),
        Row(
            "Fig. 2, UCD by Algorithm 3",
            lambda: f"Median (range): {constant(BARS_ALG_3)}, {swing(BARS_ALG_3)} over the last half; mean τ "
            f"{along(BARS_ALG_3, 'meeting_time'):.2f}, rejections {along(BARS_ALG_3, 'rejected'):.1f} (by the maximal "
            f"coupling of both half-steps {along('paper ucd', 'meeting_time'):.2f} and "
            f"{along('paper ucd', 'rejected'):.1f}); at the peak of a run rejections are "
            f"{min(peaks(BARS_ALG_3)):.0f} to {max(peaks(BARS_ALG_3)):.0f}",
            (CONSTANT,), 'bars_and_stripes.py --budget paper --only "paper ucd alg. 3"',
        ),
        Row(
            "Fig. 3, simulated machine",
            lambda: ". ".join(
                f"{title}, best of ten points, then the end: "
                + "; ".join(
                    f"{rule} {best(recipe, rows):.1f}, {known(recipe, rows):.1f}"
                    for rule, recipe in (("CD-1", "cd-1 0.2"), ("PCD-1", PCD_FROM_ROWS), ("UCD", ALG_3))
                )
                for title, rows in (("Rows of training", "train"), ("Other draws", "test"))
            )
            + f". So CD and PCD overfit here and do not diverge; UCD swings. Mean τ {over(ALG_3, 'meeting_time'):.1f}, "
            f"rejections {over(ALG_3, 'rejected'):.1f}. By the maximal coupling of both half-steps, without a cap, UCD "
            f"ends at {known('ucd 0.2', 'train'):.1f} and {known('ucd 0.2', 'test'):.1f}",
            (KNOWN,), KNOWN_COMMAND, "simulated_rbm_paper.png",
        ),
        Row(
            "Fig. 4, Fashion-MNIST",
            lambda: f"ln p of test images, of points with sample sizes of 20 and more: CD-1 {fashion('cd-1')}; PCD-1 "
            f"{fashion('pcd-1')}; UCD {fashion('ucd')}; UCD on a CPU {counted_points(CPU['points'])}",
            ("fashion_ucd.json",), FASHION_COMMAND,
        ),
        Row(
            "Fig. 5, meeting times",
            lambda: "P(τ ≤ 10), mean and range over machines: "
            + ", ".join(
                f"{n} {each['mean']:.3f} ({each['smallest']:.3f} to {each['largest']:.3f})"
                for n, each in ((n, read("meeting_times.json")["results"][n]) for n in ("Alg. 1", "Alg. 3", "default"))
            ),
            ("meeting_times.json",), "meeting_times.py", "meeting_times.png",
        ),
        Row(
            "Fig. 6, CD-k on bars and stripes",
            lambda: "Median (range): "
            + "; ".join(f"CD-{k} {constant(f'paper cd-{k}, 1000 chains')}" for k in (1, 2, 5, 10, 20))
            + f"; UCD {constant('paper ucd alg. 3')}",
            (CONSTANT,), 'bars_and_stripes.py --budget paper --only "paper cd-20, 1000 chains" --seeds 5',
        ),
        Row(
            "Fig. 7, CD-k on the simulated machine",
            lambda: "Rows of training at the end, other draws at their best and at the end: "
            + "; ".join(
                f"CD-{k} {known(f'cd-{k} 0.2', 'train'):.1f}, {best(f'cd-{k} 0.2'):.1f}, {known(f'cd-{k} 0.2', 'test'):.1f}"
                for k in (1, 2, 5, 10)
            ),
            (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 8, meeting times along training",
            lambda: f"Mean meeting time {known(ALG_3, 'meeting_time', 0):.1f} after 1,000 updates, "
            f"{known(ALG_3, 'meeting_time'):.1f} at the end; {known(ALG_3, 'rejected', 0):.1f} and "
            f"{known(ALG_3, 'rejected'):.1f} proposals rejected; by the maximal coupling of both half-steps "
            f"{known('ucd 0.2', 'meeting_time', 0):.1f} and {known('ucd 0.2', 'meeting_time'):.1f}",
            (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 9, PCD and then UCD",
            lambda: f"Other draws: {known(FINE_TUNED, 'test', 1):.1f} after 500 updates of PCD, "
            f"{best(FINE_TUNED):.1f} at best, {known(FINE_TUNED, 'test'):.1f} after 1,000 of UCD; PCD alone "
            f"{best(PCD_FROM_ROWS):.1f} at best",
            (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 10, CD-k on Fashion-MNIST",
            lambda: "ln p of test images, of points with sample sizes of 20 and more: "
            + "; ".join(
                f"{name.upper()} {counted_points(points)}"
                for name, points in read("fashion_cd.json")["results"].items()
            ),
            ("fashion_cd.json",),
            "mnist_ucd.py --budget longer --data fashion-mnist --only cd-30 --updates 2000",
        ),
        Row(
            "Fig. 11, meeting times on Fashion-MNIST",
            lambda: "; ".join(
                f"Updates {each['updates']}: {each['mean_meeting_time']:.1f}, {100 * each['given_up']:.1f} % given up"
                for each in CPU["by_hundred_updates"][::10]
            ),
            ("fashion_ucd.json",), FASHION_CPU_COMMAND,
        ),
        Row(
            "Fig. 12, variance of the gradient",
            lambda: "Mean over ten points and all seeds, of W, b and c: "
            + "; ".join(
                f"{title} {', '.join(f'{spread(recipe, part):.2g}' for part in PARTS)}"
                for title, recipe in (("UCD", ALG_3), ("CD-1", "cd-1 0.2"), ("PCD-1", PCD_FROM_ROWS))
            )
            + f". The largest of UCD, of W: {largest(ALG_3):.0f}",
            (VARIANCE,), 'simulated_rbm.py --budget paper --only "ucd alg. 3, capped 0.2" --seeds 3',
        ),
        Row(
            "Table 2, running times",
            lambda: ", ".join(
                f"{name} {known(recipe, 'cpu_seconds'):.0f} s"
                for name, recipe in (
                    *((f"CD-{k}", f"cd-{k} 0.2") for k in (1, 2, 5, 10)), ("PCD-1", PCD_FROM_ROWS), ("UCD", ALG_3)
                )
            )
            + ". UCD costs a multiple of CD-1 on one thread, where the paper has less than two",
            (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Table 1, running times on bars and stripes",
            lambda: "10,000 updates: "
            + ", ".join(f"{title} {seconds(recipe)}" for title, recipe in BARS_TIMES.items()),
            (CONSTANT,), "bars_and_stripes.py --budget paper",
        ),
        Row("Table 3, running times on Fashion-MNIST", NONE, (), "mnist_ucd.py --budget longer --data fashion-mnist"),
    ],
    "Liao et al. 2022, Gaussian-Bernoulli machines": [
        Row(
            "Fig. 1(f), the isotropic mixture by Algorithm 3",
            lambda: runs_of("joint", 500_000),
            (MIXTURES,),
            "gaussian_mixtures.py --budget paper --joint --only gibbs-langevin-hot-proposals --seeds 1",
        ),
        Row(
            "Fig. 1, the paper's recipe, ln σ² at a hundredth of the rate",
            lambda: f"{runs_of('slow', 15_000)}. Over the paper's 500,000 updates: {runs_of('slow', 500_000)}. "
            "None diverged but where it is said. With ln σ² at the rate of W, and proposals "
            "that are not hot, σ² falls to a thousandth in some hundred updates",
            (MIXTURES,), "gaussian_mixtures.py --budget paper --slow --updates 15000 --seeds 5", "gaussian_mixtures_slow.png",
        ),
        Row(
            "Fig. 1, the published settings",
            lambda: "Isotropic and anisotropic, steps of each unit's own variance: Gibbs-Langevin, adjusted, diverged after "
            + ends("gibbs-langevin-metropolis") + " updates; Langevin, adjusted, after " + ends("langevin-adjusted")
            + "; exact negative phase, gap after 5,000 updates: "
            + ", ".join(f"{row['gap']:.2f}" for row in where(MIXTURES, method="quadrature", hidden=256)),
            (MIXTURES,), "gaussian_mixtures.py --budget paper --only langevin-adjusted --compare --updates 3000",
        ),
        Row(
            "Fig. 1, mixtures",
            lambda: "Another recipe for a quarter of an hour. Median gap to the truth, isotropic and anisotropic: "
            + "; ".join(
                f"{title} {mixture('isotropic', name)}, {mixture('anisotropic', name)}"
                for title, name in (
                    ("Gibbs", "gibbs"), ("Langevin, adjusted", "langevin-adjusted"),
                    ("Gibbs-Langevin, adjusted", "gibbs-langevin-metropolis"),
                )
            )
            + ". All keep three modes",
            (MIXTURES,), "gaussian_mixtures.py",
        ),
        Row(
            "Figs. 2, 3, 5, 6, samples, variances, filters",
            lambda: "Pictures and variances of the runs of Table 1; variances had come to 0.2",
            ("mnist_grbm_h200.json",), GRBM_COMMAND,
        ),
        Row(
            "Table 1, MNIST, 784×4096, 100 sweeps",
            lambda: f"FID* at temperature 1: Gibbs {grbm('gibbs')}, Langevin {grbm('langevin')}, Gibbs-Langevin "
            f"{grbm('gibbs-langevin')}",
            ("mnist_grbm_h200.json",), GRBM_COMMAND,
        ),
        Row(
            "Table 1, at 784×512 and 20 sweeps",
            lambda: f"FID* of two seeds: Gibbs {grbm_seeds('gibbs')}; Langevin, adjusted "
            f"{grbm_seeds('langevin-adjusted')}; Gibbs-Langevin {grbm_seeds('gibbs-langevin')}",
            ("mnist_grbm_500_updates.json",), "mnist_grbm.py --updates 500", "mnist_grbm_samples.png",
        ),
        Row("Tables 2 and 3, sweeps, hidden units, inner steps", NONE, (), "mnist_grbm.py --budget paper --inner 5"),
        Row(
            "Figs. 4a and 7, Fashion-MNIST, 784×10,000", NONE, (),
            "mnist_grbm.py --budget paper --data fashion-mnist --hidden 10000",
        ),
        Row("Figs. 4b, 4c, 8, 9, CelebA", NONE, (), "mnist_grbm.py --data FOLDER"),
    ],
    "Taniguchi et al. 2023, deep machines from local modes": [
        Row(
            "Fig. 1, Metropolis pairs from a local mode",
            lambda: f"P(τ = 1) at d = 5, 20, 25: {one_step(5, True):.3f}, {one_step(20, True):.3f}, "
            f"{one_step(25, True):.3f}, all of them from {always_from(True)} on; without biases "
            f"{one_step(5, False):.3f}, {one_step(20, False):.3f}, {one_step(25, False):.3f}, all from "
            f"{always_from(False)} on",
            ("local_modes_one_step.json",), "local_modes.py --budget paper --part one_step",
        ),
        Row(
            "Fig. 1, other pairs",
            lambda: "Gibbs pairs at d = 50, 100, 200: "
            + ", ".join(
                f"{row['steps']:,.0f}"
                for row in read("local_modes_cost.json")["rows"]
                if row["curve"] == "Gibbs" and row["dimension"] in (50, 100, 200)
            ),
            ("local_modes_cost.json",), "local_modes.py --budget paper --part cost",
        ),
        Row(
            "Table 1, MNIST, 6272-6272-6272",
            lambda: f"FID* of modes, 784-256-256: {modes('centred-none', start='data'):.1f} (floor "
            f"{floor(LMI):.1f}); 784-784-784: {modes('centred-none', GPU_LMI):.1f} after "
            f"{where(GPU_LMI, row='centred-none')[0]['updates']} updates of 1,000 rows; with Metropolis pairs "
            f"{modes('centred-metropolis', GPU_LMI):.1f} after {where(GPU_LMI, row='centred-metropolis')[0]['updates']}",
            (LMI, GPU_LMI), WIDE_COMMAND,
        ),
        Row(
            "Figs. 2 and 3, Fashion-MNIST",
            lambda: f"FID* of modes, 784-256-256: {modes('centred-none', FASHION_LMI):.1f} (floor {floor(FASHION_LMI):.1f}), "
            f"{read(FASHION_LMI)[0]['local_modes']['distinct']} of 2,000 distinct",
            (FASHION_LMI,), "mnist_ucd_lmi.py run --data fashion-mnist",
        ),
        Row(
            "Table 1, CIFAR-10",
            lambda: f"No figure: {read('cifar_ucd_lmi.json')['distinct_modes']} distinct modes of "
            f"{read('cifar_ucd_lmi.json')['settings']['samples']}, blurs",
            ("cifar_ucd_lmi.json",), "cifar_ucd_lmi.py",
        ),
        Row(
            "Table 2, without the unbiased gradient; Fig. 2",
            lambda: f"Mean field and PCD, FID* of modes: 784-256-256 {modes('centred-mean-field-pcd'):.0f}; 784-784-784 "
            f"{modes('centred-mean-field-pcd', GPU_LMI):.0f} after "
            f"{where(GPU_LMI, row='centred-mean-field-pcd')[0]['updates']:,} updates",
            (LMI, GPU_LMI), WIDE_COMMAND,
        ),
        Row(
            "Table 2, without ±1 units",
            lambda: f"FID* {modes('centred-zero-one'):.1f} beside {modes('centred-none', start='data'):.1f}",
            (LMI,), "mnist_ucd_lmi.py run --rule centred-zero-one",
        ),
        Row(
            "Table 2, without marginalisation, orthogonal couplings",
            lambda: f"FID* {modes('centred-not-marginalised', 'mnist_ucd_lmi_xeon.jsonl'):.1f}, "
            f"{modes('centred-not-orthogonal', 'mnist_ucd_lmi_xeon.jsonl'):.1f} beside "
            f"{modes('centred-none', 'mnist_ucd_lmi_xeon.jsonl'):.1f}",
            ("mnist_ucd_lmi_xeon.jsonl",), "mnist_ucd_lmi.py ablation",
        ),
        Row(
            "Fig. 3, completion",
            lambda: "Correlation of the completed half by Gibbs chains "
            f"{read('imputation_local_modes.json')['results']['local modes, gibbs']['matthews_correlation']:.2f}, by local modes "
            f"{read('imputation_local_modes.json')['results']['local modes, local_search']['matthews_correlation']:.2f}",
            ("imputation_local_modes.json",), "imputation.py",
        ),
    ],
    "Tramel et al. 2018, TAP machines": [
        Row(
            "Fig. 3, training at 500 hidden units",
            lambda: "TAP log-likelihood of 10,000 training rows after 3, 12, 25, 50, 100 epochs, nats an image: "
            + ", ".join(f"{tap('tap_train', at):.1f}" for at in (1, 3, 4, 5, 7)),
            ("tap_mnist_500.json",), TAP_COMMAND,
        ),
        Row(
            "Fig. 3, at 25, 50 and 100",
            lambda: "TAP log-likelihood of 10,000 training rows after 3, 12, 25, 50, 100 epochs, nats an image: "
            + "; ".join(
                f"{n} units " + ", ".join(f"{small_tap(n, 'tap_train', at):.1f}" for at in (1, 3, 4, 5, 7))
                for n in (25, 50, 100)
            )
            + ". The curve of 25 units turns down",
            ("tap_mnist_small.json",), SMALL_TAP_COMMAND,
        ),
        Row(
            "Fig. 4, receptive fields",
            lambda: "A picture of 100 units after 100 epochs, ranked by their norm",
            ("tap_mnist_small.json",), SMALL_TAP_COMMAND,
        ),
        Row(
            "Figs. 5 and 6, free energies and map of solutions",
            lambda: "One band; mean free energy at update 1, after 3, 25, 100 epochs: "
            + ", ".join(f"{small_tap(100, 'mean_free_energy', at):.0f}" for at in (0, 1, 4, 7)),
            ("tap_mnist_small.json", "tap_mnist.json"), SMALL_TAP_COMMAND,
        ),
        Row(
            "Fig. 5, starts and solutions",
            lambda: "100 units: "
            f"{small_tap(100, 'solutions'):.0f} solutions of 1,000 starts after 100 epochs, "
            f"{100 * small_tap(100, 'admissible'):.0f} % admissible; "
            f"{100 * read('tap_mnist_small.json')['landscape_of_10000_starts']['100']['solutions_fraction']:.0f} % of 10,000 starts. "
            f"500 units, which the paper does not show, 10,000 starts: {tap('solutions', 0):.0f} solution at update 1, "
            f"{100 * tap('solutions_fraction', 3):.0f} % after 12 epochs, {100 * tap('solutions_fraction', 5):.0f} % after 50, "
            f"{100 * tap('solutions_fraction'):.0f} % after 100; {100 * tap('converged'):.0f} % of the starts converged",
            ("tap_mnist_500.json", "tap_mnist_small.json"), SMALL_TAP_COMMAND,
        ),
        Row(
            "Fig. 12, TAP, AIS and pseudo-likelihood",
            lambda: f"Nats, update 1, half, end: TAP {tap('tap', 0):.0f}, {tap('tap', 5):.1f}, {tap('tap'):.1f}; AIS "
            f"{tap('ais', 0):.0f}, {tap('ais', 5):.1f}, {tap('ais'):.1f}; pseudo {tap('pseudo', 0):.0f}, "
            f"{tap('pseudo', 5):.1f}, {tap('pseudo'):.1f}; AIS after 25 epochs {tap('ais', 4):.1f}",
            ("tap_mnist_500.json",), TAP_COMMAND,
        ),
        Row(
            "Fig. 8, denoising at 500 units",
            lambda: "Correlation at p = 0, 0.1, 0.25, 0.35, 0.45: "
            + ", ".join(f"{denoised('denoising_tap_500.json', 'TAP, 500 hidden', k):.3f}" for k in (0, 2, 5, 7, 9))
            + "; pointwise "
            + ", ".join(f"{denoised('denoising_tap_500.json', 'pointwise', k):.3f}" for k in (0, 2, 5, 7, 9))
            + ". At p = 0 the input is returned",
            ("denoising_tap_500.json",), "denoising.py --budget paper --rule tap --hidden 500",
        ),
        Row(
            "Figs. 8 and 9, denoising at 25, 50 and 100 units",
            lambda: "Correlation at p = 0, 0.1, 0.25, 0.45: "
            + "; ".join(
                f"{name} " + ", ".join(f"{denoised('denoising_tap_small.json', name, k):.3f}" for k in (0, 2, 5, 9))
                for name in ("TAP, 25 hidden", "TAP, 50 hidden", "TAP, 100 hidden", "pointwise")
            )
            + ". At p = 0 the input is returned",
            ("denoising_tap_small.json",), "denoising.py --budget paper --rule tap --hidden 25 50 100",
        ),
        Row(
            "Fig. 10, adaptive TAP",
            lambda: "Milliseconds an update, and pseudo-likelihood at the end: "
            + ", ".join(
                f"{name} {1e3 * each['cpu_an_update']:.0f} ms, {each['curve'][-1][1]:.1f}"
                for name, each in read("tap_mnist.json")["adatap_digits_64x32"].items()
            ),
            ("tap_mnist.json",), "tap_mnist.py --only adatap",
        ),
        Row(
            "Fig. 11, deep machines",
            lambda: "; ".join(
                f"{name}: {points[0]['tap']:.1f} to {points[-1]['tap']:.1f}"
                for name, points in read("tap_mnist.json")["deep"].items()
            ),
            ("tap_mnist.json",), "tap_mnist.py --only deep",
        ),
        Row(
            "Real MNIST",
            lambda: f"100 units by TAP, rows of training after 3, 6, 12, 25, 50, 75, 100 epochs: "
            f"{', '.join(map('{:.1f}'.format, (point['tap_train'] for point in grey()[1:])))}; test {grey()[-1]['tap']:.1f}, by AIS "
            f"{grey()[-1]['ais']:.1f} (sample size {grey()[-1]['ais_ess']:.0f}); {grey()[-1]['solutions']} solutions of "
            f"500 starts, {100 * grey()[-1]['admissible']:.0f} % admissible; by PCD, test rows {read('real_mnist_quick.json')['log_likelihood_before']['test']:.0f} to "
            f"{read('real_mnist_quick.json')['log_likelihood_after']['test']:.0f}",
            ("tap_mnist_grey.json", "real_mnist_quick.json"),
            "tap_mnist.py --budget paper --only sizes --units grey --hidden 100 --max-sweeps 10",
        ),
        Row(
            "CBCL faces", lambda: "90 faces of `lfw_subset` in their place, a picture",
            ("tap_faces.json",), "tap_mnist.py --only sizes --data FOLDER",
        ),
    ],
}  # fmt: skip


def spread(recipe: str, part: str) -> float:
    """Mean variance of the gradient of some parameters over points and seeds."""
    return mean(point["variance"][part] for seed in read(VARIANCE)["results"][recipe] for point in seed)


def largest(recipe: str) -> float:
    """The largest variance of the gradient of the couplings."""
    return max(p["variance"]["couplings"] for seed in read(VARIANCE)["results"][recipe] for p in seed)


def section(row: Row) -> str:
    """A figure: the claim, what was seen, how the runs differ, and what its author would say."""
    told = settings_of()[row.figure]
    parts = [f"**Claim.** {told['claim']}."]
    if row.ours is not NONE:
        parts.append(f"**Here.** {row.ours()}.")
    if row.picture:
        parts.append(f"![{row.figure}](images/{row.picture})")
    for kinds, title in ((("method",), "Another method"), (KINDS_OF_CHANGE[1:], "Smaller or other")):
        found = changed(row.figure, *kinds)
        if found and verdict(row.figure) != "not run":
            listed = "; ".join(f"{name}: {paper} → **{ours}**" for name, (paper, ours) in found.items())
            parts.append(f"*{title}.* {listed}.")
    if told["objection"]:
        parts.append(f"*An author would object:* {told['objection']}")
    if row.records:
        parts.append("Records: " + ", ".join(f"`{name}`" for name in row.records) + ".")
    filled = [
        part if part[0] == "!" else textwrap.fill(part, WIDTH, break_long_words=False, break_on_hyphens=False)
        for part in parts
    ]
    command = f"\n\n    python experiments/{row.command}" if row.command else ""
    return f"### {row.figure}\n\n" + "\n\n".join(filled) + command + "\n"


def page() -> str:
    """The whole page: a section a figure, and one table."""
    rows = [row for rows in PAPERS.values() for row in rows]
    verdicts = Counter(verdict(row.figure) for row in rows)
    counted = ", ".join(f"{count} {name}" for name, count in verdicts.most_common())
    head, text = INTRODUCTION.format(count=len(rows), counted=counted).split("\n\n")
    lines = [f"{head}\n\n{textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)}\n"]
    for paper, found in PAPERS.items():
        lines += [f"## {paper}\n", *map(section, found)]
    lines += [
        "## All rows\n",
        "| figure | run here | what differs in method | in size or data |",
        "|---|---|---|---|",
    ]
    for paper, found in PAPERS.items():
        lines.append(f"| **{paper.split(',')[0]}** | | | |")
        for row in found:
            cells = (", ".join(changed(row.figure, *kinds)) for kinds in (("method",), ("size", "data")))
            cells = ("", "") if verdict(row.figure) == "not run" else cells
            lines.append(f"| {row.figure} | {verdict(row.figure)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


INTRODUCTION = """# The four papers, figure by figure

Every table and figure of the papers that this library puts into one design, beside what was run here. Each row says what
the paper claims, what was seen, and every setting in which our run is not the paper's. Of {count} rows: {counted}.
"The paper's method at its size" differs in nothing but how it is judged. "Another method" has at least one setting
that changes what is tested, whatever its size. What a paper leaves open counts as the same. FID* is by the features of a
small classifier and cannot be set beside a published FID. No package was found that has CelebA, CBCL or more than the
first 4,000 images of CIFAR-10. The page is made from the records and `experiments/papers.toml` by
`python .ci/papers.py --write`, and `make lint` checks it. More of each run: `experiments/papers.md`.
"""


def problems() -> list[str]:
    """What does not fit: the page, records that are not there, scripts and options that are not."""
    found = []
    index = tomllib.loads((HERE / "index.toml").read_text("utf-8"))
    listed = {name for entry in index.values() for name in entry["records"]}
    for row in (row for rows in PAPERS.values() for row in rows):
        if row.figure not in settings_of():
            found.append(f"{row.figure}: expected its settings in experiments/papers.toml")
            continue
        for name, (*_, kind) in settings_of()[row.figure]["settings"].items():
            if kind not in ("same", *KINDS_OF_CHANGE):
                found.append(f"{row.figure}, {name}: expected a kind of change, received {kind}")
        if row.picture and not (PAGE.parent / "images" / row.picture).is_file():
            found.append(f"{row.figure}: expected a picture, received {row.picture}")
        if row.ours is not NONE and not row.records:
            found.append(f"{row.figure}: expected a record of its figures")
        for name in row.records:
            if name not in listed:
                found.append(f"{row.figure}: expected a record of experiments/index.toml, received {name}")
        script, *words = row.command.split() or [""]
        if script and not (HERE / script).is_file():
            found.append(f"{row.figure}: expected a script, received {script}")
            continue
        known_words = (
            (HERE / script).read_text("utf-8") + (HERE / "ucd_common.py").read_text() if script else ""
        )
        for word in words:
            if word.startswith("--") and f'"{word}"' not in known_words and word[2:] not in known_words:
                found.append(f"{row.figure}: {script} has no option {word}")
    if not found and PAGE.read_text("utf-8") != page():
        found.append(f"{PAGE.name}: expected the page of `python .ci/papers.py --write`")
    text = MEASURED.read_text("utf-8")
    for heading, part in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE):
        scripts = {name for name in re.findall(r"`(?:python experiments/)?(\w+)\.py", part) if name in index}
        if re.search(r"^\|.*\d.*\|$", part, re.MULTILINE) and not any(index[s]["records"] for s in scripts):
            found.append(f"{MEASURED.name}, {heading}: expected a script that has records, beside its table")
    return found


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page(), "utf-8")
    if arguments.check:
        found = problems()
        print("\n".join(found) or "every figure of the papers has its record")
        raise SystemExit(bool(found))
    if not arguments.write:
        print(page())


if __name__ == "__main__":
    main()
