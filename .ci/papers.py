"""The table of docs/experiments.md with every table and figure of the four papers, from the records.

    python .ci/papers.py            # prints the table
    python .ci/papers.py --write    # puts it into docs/experiments.md
    python .ci/papers.py --check    # ends with 1 where the page, a record or a script does not fit

Every figure of ours is read from a record of experiments/results, so that none stands there without one. A row
names its size: "full" is the paper's own, "reduced" and "in part" say how it differs, "not run" what it costs.
"""

from __future__ import annotations

# ruff: noqa: E501 (a row of the table is a line)
import argparse
import json
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parents[1] / "experiments"
PAGE = HERE.parent / "docs" / "experiments.md"
KINDS = ("isotropic", "anisotropic")
BEGIN, END = "<!-- the table of .ci/papers.py begins -->\n", "<!-- and ends -->\n"


class Row(NamedTuple):
    """A table or figure of a paper beside what was measured here."""

    figure: str
    published: str
    ours: Callable[[], str]
    size: str
    records: tuple[str, ...] = ()
    command: str = ""


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
    return f"{median(values):.1f} ({min(values):.0f} to {max(values):.0f})"


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


def known(recipe: str, key: str, at: int = -1) -> float:
    """Mean over seeds of a number of a known machine's training, at one of its points."""
    return mean(seed[at][key] for seed in read("simulated_rbm_paper.json")["results"][recipe])


def best(recipe: str) -> float:
    return mean(
        max(point["test"] for point in seed) for seed in read("simulated_rbm_paper.json")["results"][recipe]
    )


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
    values = [row["gap"] for row in where("gaussian_mixtures.jsonl", kind=kind, method=method, hidden=64)]
    return f"{median(values):.2f}"


def ends(method: str) -> str:
    """Updates after which the runs of the published settings diverged."""
    rows = [where("gaussian_mixtures.jsonl", kind=kind, method=method, hidden=256)[0] for kind in KINDS]
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


CONSTANT = "bars_and_stripes_constant.jsonl"
KNOWN, LMI, GPU_LMI = "simulated_rbm_paper.json", "mnist_ucd_lmi.jsonl", "mnist_ucd_lmi_h200.jsonl"
FASHION_LMI = "mnist_ucd_lmi_fashion.jsonl"
KNOWN_COMMAND = "simulated_rbm.py --budget paper"
FASHION_COMMAND = "mnist_ucd.py --budget paper --data fashion-mnist --device cuda --seconds 150"
TAP_COMMAND = "tap_mnist.py --budget paper --only sizes --hidden 500 --max-sweeps 10 --device cuda"
FASHION_CPU_COMMAND = "mnist_ucd.py --budget paper --data fashion-mnist --only ucd --updates 3200"
SMALL_TAP_COMMAND = (
    "tap_mnist.py --budget paper --only sizes --hidden 100 --max-sweeps 10 --starts 1000 --temperatures 3000"
)
WIDE_COMMAND = "mnist_ucd_lmi.py run --budget wide --updates 10000 --batch 1000 --seconds 45 --device cuda"
GRBM_COMMAND = "mnist_grbm.py --budget paper --start published --updates 2500 --device cuda"
CPU = read("fashion_ucd.json")["ucd_on_a_cpu"]
NONE = lambda: "–"  # noqa: E731

PAPERS: dict[str, list[Row]] = {
    "Qiu, Zhang & Wang 2020, unbiased contrastive divergence": [
        Row(
            "Fig. 2, bars and stripes", "UCD above CD-1 and PCD-1; program, one seed: -119, -195, -138",
            lambda: f"rates that decay: UCD {bars('ucd-capped')}, CD-1 {bars('cd-1')}, PCD-1 {bars('pcd-1')}; UCD is "
            f"above CD-1 with {beaten('cd-1')}, above PCD-1 with {beaten('pcd-1')}; with jumps {bars('ucd-jumps')}",
            "full, 100 seeds, with rates that decay; with jumps 20 seeds",
            ("bars_and_stripes.jsonl",),
            "bars_and_stripes.py --only ucd-capped --only pcd-1 --only cd-1 --seeds 100",
        ),
        Row(
            "Fig. 2, at the constant rate 0.1", "as above; mean τ 2.4 ± 0.3",
            lambda: f"above both in {ahead()}; median (range): UCD {constant('paper ucd')}, "
            f"{swing('paper ucd')} over the last half; CD-1 {constant('paper cd-1')}; PCD-1 "
            f"{constant('paper pcd-1')}; mean τ "
            f"{mean(row['meeting_time'] for row in where(CONSTANT, recipe='paper ucd')):.2f}",
            "full, 100 seeds", (CONSTANT,), "bars_and_stripes.py --budget paper",
        ),
        Row(
            "Fig. 3, simulated machine", "CD and PCD turn down, UCD does not",
            lambda: f"best of ten points, then the end: CD-1 {best('cd-1 0.2'):.1f}, {known('cd-1 0.2', 'test'):.1f}; "
            f"PCD-1 {best('pcd-1 0.2'):.1f}, {known('pcd-1 0.2', 'test'):.1f}; UCD {best('ucd 0.2'):.1f}, "
            f"{known('ucd 0.2', 'test'):.1f}, which swings",
            "full, five seeds", (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 4, Fashion-MNIST", "CD falls, PCD jumps between three paths, UCD rises",
            lambda: f"ln p of test images, of points with sample sizes of 20 and more: CD-1 {fashion('cd-1')}; PCD-1 "
            f"{fashion('pcd-1')}; UCD {fashion('ucd')}; UCD on a CPU {counted_points(CPU['points'])}",
            "CD-1 and PCD-1 full, one seed; UCD in part: 1,224 updates on an H200, 3,200 on a CPU, of 10,000; full: near "
            "three hours of a thread",
            ("fashion_ucd.json",), FASHION_COMMAND,
        ),
        Row(
            "Fig. 5, meeting times", "P(τ ≤ 10) 0.017, 0.69 and 0.83",
            lambda: ", ".join(
                f"{each['mean']:.3f} ({each['smallest']:.3f} to {each['largest']:.3f})"
                for each in (read("meeting_times.json")["results"][n] for n in ("Alg. 1", "Alg. 3", "default"))
            ),
            "full, 20 draws of the machine", ("meeting_times.json",), "meeting_times.py",
        ),
        Row(
            "Fig. 6, CD-k on bars and stripes", "larger k is better",
            lambda: f"CD-1 {bars('cd-1')}, CD-5 {bars('cd-5')}, CD-10 {bars('cd-10')}",
            "CD-1 full, 100 seeds; CD-5 and CD-10 reduced to 10; decayed rates", ("bars_and_stripes.jsonl",),
            "bars_and_stripes.py",
        ),
        Row(
            "Fig. 7, CD-k on the simulated machine", "all turn down, later the larger k",
            lambda: "best, then the end: "
            + "; ".join(f"CD-{k} {best(f'cd-{k} 0.2'):.1f}, {known(f'cd-{k} 0.2', 'test'):.1f}" for k in (1, 2, 5, 10)),
            "full, five seeds", (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 8, meeting times along training", "both rise slowly",
            lambda: f"mean meeting time {known('ucd 0.2', 'meeting_time', 0):.1f} after 1,000 updates, "
            f"{known('ucd 0.2', 'meeting_time'):.1f} at the end; {known('ucd 0.2', 'rejected', 0):.1f} and "
            f"{known('ucd 0.2', 'rejected'):.1f} proposals rejected",
            "full, five seeds", (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 9, PCD and then UCD", "UCD adds to PCD",
            lambda: f"{best('pcd then ucd'):.1f} at best, {known('pcd then ucd', 'test'):.1f} at the end",
            "full, five seeds", (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Fig. 10, CD-k on Fashion-MNIST", "none converges", NONE,
            "not run: 84 ms of CPU time an update of CD-10, a quarter of an hour to three quarters for k of 10 to 30",
            (), "mnist_ucd.py --data fashion-mnist",
        ),
        Row(
            "Fig. 11, meeting times on Fashion-MNIST", "27 on average, near 30 after 2,000 updates",
            lambda: "; ".join(
                f"updates {each['updates']}: {each['mean_meeting_time']:.1f}, {100 * each['given_up']:.1f} % given up"
                for each in CPU["by_hundred_updates"][::10]
            ),
            "in part: 3,200 updates, capped at 100 sweeps", ("fashion_ucd.json",), FASHION_CPU_COMMAND,
        ),
        Row(
            "Fig. 12, variance of the gradient", "UCD comparable to CD and PCD",
            lambda: f"mean over points and seeds: UCD {spread('ucd 0.2'):.1f}, CD-1 {spread('cd-1 0.2'):.1f}, PCD-1 "
            f"{spread('pcd-1 0.2'):.1f}",
            "full, five seeds", (KNOWN,), KNOWN_COMMAND,
        ),
        Row(
            "Table 2, running times", "CD-1 16.5 s, CD-2 24.4 s, CD-5 48.5 s, PCD 16.2 s (24 threads)",
            lambda: ", ".join(
                f"{name} {known(f'{name.lower()} 0.2', 'cpu_seconds'):.0f} s" for name in ("CD-1", "CD-2", "CD-5", "PCD-1")
            ),
            "full, one thread of another processor", (KNOWN,), KNOWN_COMMAND,
        ),
        Row("Tables 1 and 3, running times", "of another computer", NONE, "not run as tables", (), ""),
    ],
    "Liao et al. 2022, Gaussian-Bernoulli machines": [
        Row(
            "Fig. 1, mixtures", "Gibbs sampling loses the anisotropic one, unadjusted kernels collapse",
            lambda: "median gap to the truth, isotropic and anisotropic: "
            + "; ".join(
                f"{title} {mixture('isotropic', name)}, {mixture('anisotropic', name)}"
                for title, name in (
                    ("Gibbs", "gibbs"), ("Langevin, adjusted", "langevin-adjusted"),
                    ("Gibbs-Langevin, adjusted", "gibbs-langevin-metropolis"),
                )
            ),
            "reduced to 64 hidden units, 50 sweeps, 800 updates; full: 17 hours of CPU time a seed",
            ("gaussian_mixtures.jsonl",), "gaussian_mixtures.py",
        ),
        Row(
            "Fig. 1, the published settings", "stable with every sampler",
            lambda: "isotropic and anisotropic: Gibbs-Langevin, adjusted, diverged after "
            + ends("gibbs-langevin-metropolis") + " updates; Langevin, adjusted, after " + ends("langevin-adjusted")
            + "; exact negative phase, gap after 5,000 updates: "
            + ", ".join(f"{row['gap']:.2f}" for row in where("gaussian_mixtures.jsonl", method="quadrature", hidden=256)),
            "in part: one seed, a hundredth of the updates; [why chains run away](experiments_methods.md#gaussian-units)",
            ("gaussian_mixtures.jsonl",), "gaussian_mixtures.py --budget paper --only langevin-adjusted --compare --updates 3000",
        ),
        Row("Figs. 2, 3, 5, 6, samples, variances, filters", "pictures", NONE, "reduced: pictures and variances of the runs of Table 1",
            ("mnist_grbm_h200.json",), GRBM_COMMAND),
        Row(
            "Table 1, MNIST, 784×4096, 100 sweeps", "FID: Gibbs 47.5, Langevin 43.8, Gibbs-Langevin 17.5",
            lambda: f"FID* at temperature 1: Gibbs {grbm('gibbs')}, Langevin {grbm('langevin')}, Gibbs-Langevin "
            f"{grbm('gibbs-langevin')}",
            "reduced: 21 of 3,000 epochs, Adam, one seed, other features; 354,000 updates take 1.6 hours of an H200 "
            "a sampler. At temperature B, as published, training ended at its first update",
            ("mnist_grbm_h200.json",), GRBM_COMMAND,
        ),
        Row(
            "Table 1, at 784×512 and 20 sweeps", "as above",
            lambda: f"FID* of two seeds: Gibbs {grbm_seeds('gibbs')}; Langevin, adjusted "
            f"{grbm_seeds('langevin-adjusted')}; Gibbs-Langevin {grbm_seeds('gibbs-langevin')}",
            "reduced: 500 updates", ("mnist_grbm_500_updates.json",), "mnist_grbm.py --updates 500",
        ),
        Row("Tables 2 and 3, sweeps, hidden units, inner steps", "FID 17.5 to 35.1", NONE,
            "not run: some 1.6 hours of an H200 a line", (), "mnist_grbm.py --budget paper --inner 5"),
        Row("Figs. 4a and 7, Fashion-MNIST, 784×10,000", "pictures", NONE,
            "not run: some 4 hours of an H200", (), "mnist_grbm.py --budget paper --data fashion-mnist --hidden 10000"),
        Row("Figs. 4b, 4c, 8, 9, CelebA", "pictures", NONE, "not run: its files are not here", (), "mnist_grbm.py --data FOLDER"),
    ],
    "Taniguchi et al. 2023, deep machines from local modes": [
        Row(
            "Fig. 1, Metropolis pairs from a local mode", "meet in one step from d = 25 on",
            lambda: f"P(τ = 1) at d = 5, 20, 25: {one_step(5, True):.3f}, {one_step(20, True):.3f}, "
            f"{one_step(25, True):.3f}, all of them from {always_from(True)} on; without biases "
            f"{one_step(5, False):.3f}, {one_step(20, False):.3f}, {one_step(25, False):.3f}, all from "
            f"{always_from(False)} on",
            "full: every d from 1 to 200, 1,000 pairs each", ("local_modes_one_step.json",),
            "local_modes.py --budget paper --part one_step",
        ),
        Row(
            "Fig. 1, other pairs", "Gibbs pairs take exponentially many sweeps",
            lambda: "Gibbs pairs at d = 50, 100, 200: "
            + ", ".join(
                f"{row['steps']:,.0f}"
                for row in read("local_modes_cost.json")["rows"]
                if row["curve"] == "Gibbs" and row["dimension"] in (50, 100, 200)
            ),
            "reduced to 15 of 200 dimensions, 1,000 pairs each", ("local_modes_cost.json",),
            "local_modes.py --budget paper --part cost",
        ),
        Row(
            "Table 1, MNIST, 6272-6272-6272", "FID 10.33",
            lambda: f"FID* of modes, 784-256-256: {modes('centred-none', start='data'):.1f} (floor "
            f"{floor(LMI):.1f}); 784-784-784: {modes('centred-none', GPU_LMI):.1f} after "
            f"{where(GPU_LMI, row='centred-none')[0]['updates']} updates of 1,000 rows; with Metropolis pairs "
            f"{modes('centred-metropolis', GPU_LMI):.1f} after {where(GPU_LMI, row='centred-metropolis')[0]['updates']}",
            "reduced: one bit a pixel, other features, a hundredth of the updates; full: not known, days of an H200",
            (LMI, GPU_LMI), WIDE_COMMAND,
        ),
        Row(
            "Table 1, Fashion-MNIST", "pictures and FID",
            lambda: f"FID* of modes, 784-256-256: {modes('centred-none', FASHION_LMI):.1f} (floor {floor(FASHION_LMI):.1f}), "
            f"{read(FASHION_LMI)[0]['local_modes']['distinct']} of 2,000 distinct",
            "reduced, as Table 1: 1,300 updates", (FASHION_LMI,), "mnist_ucd_lmi.py run --data fashion-mnist",
        ),
        Row(
            "Table 1, CIFAR-10", "FID 36.58",
            lambda: f"no figure: {read('cifar_ucd_lmi.json')['distinct_modes']} distinct modes of "
            f"{read('cifar_ucd_lmi.json')['settings']['samples']}, blurs",
            "reduced: 16×16 pixels of 4,000 images, hidden layers of 256, 200 updates", ("cifar_ucd_lmi.json",),
            "cifar_ucd_lmi.py",
        ),
        Row(
            "Table 2, without the unbiased gradient; Fig. 2", "FID 112.1",
            lambda: f"mean field and PCD, FID* of modes: 784-256-256 {modes('centred-mean-field-pcd'):.0f}; 784-784-784 "
            f"{modes('centred-mean-field-pcd', GPU_LMI):.0f} after "
            f"{where(GPU_LMI, row='centred-mean-field-pcd')[0]['updates']:,} updates",
            "reduced, as Table 1", (LMI, GPU_LMI), WIDE_COMMAND,
        ),
        Row(
            "Table 2, without ±1 units", "FID 30.27",
            lambda: f"FID* {modes('centred-zero-one'):.1f} beside {modes('centred-none', start='data'):.1f}",
            "reduced, as Table 1; at a rate that is not tuned to 0/1 units", (LMI,),
            "mnist_ucd_lmi.py run --rule centred-zero-one",
        ),
        Row(
            "Table 2, without marginalisation, orthogonal couplings", "FID 13.70, 18.20",
            lambda: f"FID* {modes('centred-not-marginalised', 'mnist_ucd_lmi_xeon.jsonl'):.1f}, "
            f"{modes('centred-not-orthogonal', 'mnist_ucd_lmi_xeon.jsonl'):.1f} beside "
            f"{modes('centred-none', 'mnist_ucd_lmi_xeon.jsonl'):.1f}",
            "reduced, as Table 1", ("mnist_ucd_lmi_xeon.jsonl",), "mnist_ucd_lmi.py ablation",
        ),
        Row(
            "Fig. 3, completion", "pictures",
            lambda: "correlation of the completed half by Gibbs chains "
            f"{read('imputation_local_modes.json')['results']['local modes, gibbs']['matthews_correlation']:.2f}, by local modes "
            f"{read('imputation_local_modes.json')['results']['local modes, local_search']['matthews_correlation']:.2f}",
            "reduced: one bit a pixel", ("imputation_local_modes.json",), "imputation.py",
        ),
    ],
    "Tramel et al. 2018, TAP machines": [
        Row(
            "Fig. 3, training at 500 hidden units", "rises fast to epoch 20, then slowly",
            lambda: "TAP log-likelihood of 10,000 training rows after 3, 12, 25, 50, 100 epochs: "
            + ", ".join(f"{tap('tap_train', at):.1f}" for at in (1, 3, 4, 5, 7)),
            "full, but for solutions after at most ten sweeps and not to convergence; one seed",
            ("tap_mnist_500.json",), TAP_COMMAND,
        ),
        Row(
            "Fig. 3, at 25, 50 and 100", "as above",
            lambda: "TAP log-likelihood of 10,000 training rows after 3, 12, 25, 50, 100 epochs: "
            + "; ".join(
                f"{n} units " + ", ".join(f"{small_tap(n, 'tap_train', at):.1f}" for at in (1, 3, 4, 5, 7))
                for n in (25, 50, 100)
            ),
            "full, but for solutions after at most ten sweeps and not to convergence; one seed",
            ("tap_mnist_small.json",), SMALL_TAP_COMMAND,
        ),
        Row("Fig. 4, receptive fields", "pictures, ranked by ℓ₀.₁ norm", NONE,
            "full at 100 units: a picture after 100 epochs, ranked by `report.field_norms`",
            ("tap_mnist_small.json",), SMALL_TAP_COMMAND),
        Row(
            "Figs. 5 and 6, free energies and map of solutions", "two bands, one solution at first",
            lambda: "one band; mean free energy at update 1, after 3, 25, 100 epochs: "
            + ", ".join(f"{small_tap(100, 'mean_free_energy', at):.0f}" for at in (0, 1, 4, 7)),
            "reduced: 1,000 starts at 100 units; a map of 500 updates; at 500 units no landscape was kept",
            ("tap_mnist_small.json", "tap_mnist.json"), SMALL_TAP_COMMAND,
        ),
        Row(
            "Fig. 7, starts and solutions", "one at first, below a tenth of 10,000 starts at 100 units",
            lambda: f"500 units, 10,000 starts: {tap('solutions', 0):.0f} solution at update 1, "
            f"{100 * tap('solutions_fraction', 3):.0f} % after 12 epochs, {100 * tap('solutions_fraction', 5):.0f} % after 50, "
            f"{100 * tap('solutions_fraction'):.0f} % after 100; {100 * tap('converged'):.0f} % of the starts converged. "
            "100 units: "
            f"{small_tap(100, 'solutions'):.0f} solutions of 1,000 starts after 100 epochs, "
            f"{100 * small_tap(100, 'admissible'):.0f} % admissible; "
            f"{100 * read('tap_mnist_small.json')['landscape_of_10000_starts']['100']['solutions_fraction']:.0f} % of 10,000",
            "full at 500 and 100 units, one seed", ("tap_mnist_500.json", "tap_mnist_small.json"), TAP_COMMAND,
        ),
        Row(
            "Fig. 12, TAP, AIS and pseudo-likelihood", "rise together",
            lambda: f"nats, update 1, half, end: TAP {tap('tap', 0):.0f}, {tap('tap', 5):.1f}, {tap('tap'):.1f}; AIS "
            f"{tap('ais', 0):.0f}, {tap('ais', 5):.1f}, {tap('ais'):.1f}; pseudo {tap('pseudo', 0):.0f}, "
            f"{tap('pseudo', 5):.1f}, {tap('pseudo'):.1f}; AIS after 25 epochs {tap('ais', 4):.1f}",
            "full, 784×500, 14,500 temperatures, one seed", ("tap_mnist_500.json",), TAP_COMMAND,
        ),
        Row(
            "Fig. 8, denoising at 500 units", "best at small p, worse at large p",
            lambda: "at p = 0, 0.1, 0.25, 0.35, 0.45: "
            + ", ".join(f"{denoised('denoising_tap_500.json', 'TAP, 500 hidden', k):.3f}" for k in (0, 2, 5, 7, 9))
            + "; pointwise "
            + ", ".join(f"{denoised('denoising_tap_500.json', 'pointwise', k):.3f}" for k in (0, 2, 5, 7, 9)),
            "full, the machine of Fig. 3", ("denoising_tap_500.json",), "denoising.py --budget paper --rule tap --hidden 500",
        ),
        Row(
            "Figs. 8 and 9, denoising at 25, 50 and 100 units", "correlation 1 at p = 0, above the pointwise estimate",
            lambda: "at p = 0, 0.1, 0.25, 0.45: "
            + "; ".join(
                f"{name} " + ", ".join(f"{denoised('denoising_tap_small.json', name, k):.3f}" for k in (0, 2, 5, 9))
                for name in ("TAP, 25 hidden", "TAP, 50 hidden", "TAP, 100 hidden", "pointwise")
            ),
            "full, the machines of Fig. 3", ("denoising_tap_small.json",),
            "denoising.py --budget paper --rule tap --hidden 25 50 100",
        ),
        Row(
            "Fig. 10, adaptive TAP", "as good, a thousand times slower",
            lambda: ", ".join(
                f"{name} {1e3 * each['cpu_an_update']:.0f} ms, {each['curve'][-1][1]:.1f}"
                for name, each in read("tap_mnist.json")["adatap_digits_64x32"].items()
            ),
            "reduced to the 8×8 digits", ("tap_mnist.json",), "tap_mnist.py --only adatap",
        ),
        Row(
            "Fig. 11, deep machines", "rises on both sets",
            lambda: "; ".join(
                f"{name}: {points[0]['tap']:.1f} to {points[-1]['tap']:.1f}"
                for name, points in read("tap_mnist.json")["deep"].items()
            ),
            "reduced: 300 updates of pretraining and 300 of all layers", ("tap_mnist.json",), "tap_mnist.py --only deep",
        ),
        Row(
            "Real MNIST", "fields like strokes",
            lambda: f"100 units by TAP, rows of training after 3, 6, 12, 25, 50, 75, 100 epochs: "
            f"{', '.join(map('{:.1f}'.format, (point['tap_train'] for point in grey()[1:])))}; test {grey()[-1]['tap']:.1f}, by AIS "
            f"{grey()[-1]['ais']:.1f} (sample size {grey()[-1]['ais_ess']:.0f}); {grey()[-1]['solutions']} solutions of "
            f"500 starts, {100 * grey()[-1]['admissible']:.0f} % admissible; by PCD, test rows {read('real_mnist_quick.json')['log_likelihood_before']['test']:.0f} to "
            f"{read('real_mnist_quick.json')['log_likelihood_after']['test']:.0f}",
            "full at 100 units: 100 epochs, one seed, solutions after at most ten sweeps, 500 starts; 500 units not run",
            ("tap_mnist_grey.json", "real_mnist_quick.json"),
            "tap_mnist.py --budget paper --only sizes --units grey --hidden 100 --max-sweeps 10",
        ),
        Row("CBCL faces", "fields like parts of faces", NONE, "reduced: 90 faces of `lfw_subset` in their place",
            ("tap_faces.json",), "tap_mnist.py --only sizes --data FOLDER"),
    ],
}  # fmt: skip


def spread(recipe: str) -> float:
    """Mean variance of the gradient of the couplings over points and seeds."""
    return mean(point["variance"]["couplings"] for seed in read(KNOWN)["results"][recipe] for point in seed)


def table() -> str:
    parts = []
    for paper, rows in PAPERS.items():
        lines = [
            f"**{paper}.**",
            "",
            "| | published | here | size | record | command |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            records = ", ".join(f"`{name}`" for name in row.records) or "–"
            command = f"`{row.command}`" if row.command else "–"
            lines.append(
                f"| {row.figure} | {row.published} | {row.ours()} | {row.size} | {records} | {command} |"
            )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def put(page: str) -> str:
    """The page with the table between its marks."""
    return page[: page.index(BEGIN) + len(BEGIN)] + "\n" + table() + "\n" + page[page.index(END) :]


def problems() -> list[str]:
    """What does not fit: the page, records that are not there, scripts and options that are not."""
    found = []
    index = tomllib.loads((HERE / "index.toml").read_text("utf-8"))
    listed = {name for entry in index.values() for name in entry["records"]}
    for row in (row for rows in PAPERS.values() for row in rows):
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
    page = PAGE.read_text("utf-8")
    if put(page) != page:
        found.append("docs/experiments.md: expected the table of `python .ci/papers.py --write`")
    for heading, section in re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", page, re.MULTILINE):
        scripts = {
            name for name in re.findall(r"`(?:python experiments/)?(\w+)\.py", section) if name in index
        }
        if re.search(r"^\|.*\d.*\|$", section, re.MULTILINE) and not any(
            index[s]["records"] for s in scripts
        ):
            found.append(
                f"docs/experiments.md, {heading}: expected a script that has records, beside its table"
            )
    return found


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(put(PAGE.read_text("utf-8")), "utf-8")
    if arguments.check:
        found = problems()
        print("\n".join(found) or "every figure of the papers' table has its record")
        raise SystemExit(bool(found))
    if not arguments.write:
        print(table())


if __name__ == "__main__":
    main()
