"""Two mixtures of three Gaussians in the plane, by every sampler and by exact likelihood.

    python experiments/gaussian_mixtures.py --budget quick    # 10 seeds of everything, a quarter of an hour
    python experiments/gaussian_mixtures.py --budget paper    # the paper's settings: hours of CPU time a run
    python experiments/gaussian_mixtures.py --only quadrature --seeds 3

The data of Liao et al. 2022, Fig. 1: 1000 draws, standardised but with --budget paper. A machine that
learned by noise-started contrastive divergence is then sampled from noise with its own kernel and number of
sweeps: do the samples fall on the three modes with the right weights? Beside that stands the exact mean
log-likelihood of 10,000 fresh draws, by quadrature in the plane, minus that of the true density. "quadrature"
climbs the exact gradient and "pcd" that of persistent chains, in place of the published rule. The paper
prints no numbers for these data, only pictures; it reports that Gibbs sampling loses the anisotropic mixture
and that the uncorrected kernels collapse.

Hidden units start with their thresholds at data points and small weights, visible units with a small
variance (docs/decisions/0003 has what happens otherwise).

Every run goes to --out as a line of results.jsonl as soon as it is done; a repeated command runs what is
missing. With --budget paper a run also goes on from its last checkpoint: 256 hidden units, 100 sweeps and
500,000 updates by SGD at 0.01, decayed by a cosine, on the draws as they are, by steps of 0.1 with 10 inner
ones, from the published program's start: variances of 1, W from N(0, 1/(N+M)), all else 0. --updates N ends
a run early; --compare records the gradient by chains beside the exact one, and --only quadrature takes the
exact one in the same recipe (experiments/README.md).

--slow is the recipe that learns both mixtures: ln σ² at a hundredth of the rate (Melchior et al. 2017), steps
of the mean variance, a cosine over all --updates, and else as published. It has a sixth sampler, whose
proposals are as hot as in the first public program and whose test is at temperature 1.

--joint is that without the rate of its own, and Alg. 3 to the letter: hidden units are drawn on both sides,
but for Langevin's chains of visible units alone (Alg. 4).
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

import harmonium as hm
from harmonium.chains import Gibbs, GibbsLangevin, Kernel, Langevin, fill_hidden
from harmonium.data import toy
from harmonium.learning import Expectation, ExpectationRequest, Outcome
from harmonium.report.plots import new_figure, save_figure

KINDS = ("isotropic", "anisotropic")
MEANS = torch.tensor([(-5.0, -5.0), (5.0, -5.0), (0.0, 5.0)])
WEIGHTS = torch.tensor([0.33, 0.33, 0.34])
KERNELS: dict[str, Kernel] = {
    "gibbs": Gibbs(),
    "langevin-adjusted": Langevin(0.3),
    "gibbs-langevin-metropolis": GibbsLangevin(0.3, 5, "metropolis"),
    "gibbs-langevin-exact": GibbsLangevin(0.3, 5, "exact"),
    "langevin": Langevin(0.3, adjust=None, anneal=True),
    "gibbs-langevin": GibbsLangevin(0.3, 5, "none"),
}
BATCH = 100
SLOW = 0.01  # of the rate, for variances


def suffix(settings: argparse.Namespace) -> str:
    """What a record's method is called beside that of another recipe."""
    return "".join(f"_{name}" for name in ("slow", "joint") if getattr(settings, name, False))


def paper_kernels(mean: bool) -> dict[str, Kernel]:
    """The paper's samplers, by the mean variance or each unit's own: α₀ is 10 over the batch size."""
    unit: dict[str, Any] = {"variance": "mean" if mean else "own"}
    step = 10 / BATCH
    return {
        HOT_PROPOSALS: GibbsLangevin(step, 10, "metropolis", proposal_temperature=float(BATCH), **unit),
        "gibbs": Gibbs(),
        "langevin": Langevin(step, adjust=None, anneal=True, **unit),
        "langevin-adjusted": Langevin(step, anneal=True, **unit),
        "gibbs-langevin": GibbsLangevin(step, 10, "none", **unit),
        "gibbs-langevin-metropolis": GibbsLangevin(step, 10, "metropolis", **unit),
    }


HOT_PROPOSALS = "gibbs-langevin-hot-proposals"
METHODS = ("quadrature", *KERNELS, "pcd", HOT_PROPOSALS)
PUBLISHED = ("gibbs", "langevin", "langevin-adjusted", "gibbs-langevin", "gibbs-langevin-metropolis")
BUDGETS = {
    "quick": {"hidden": 64, "sweeps": 50, "updates": 800, "likelihood_updates": 5000},
    "paper": {"hidden": 256, "sweeps": 100, "updates": 500_000, "likelihood_updates": 10_000},
}
OPTIMISERS = {"quick": {"optimizer": "adam", "averaging": 0.99}, "paper": {"optimizer": "sgd"}}


class DrawnGivenData(Expectation):
    """Rows and one draw of the hidden units given each (Alg. 3, lines 3 to 5)."""

    def add(self, request: ExpectationRequest) -> Outcome:
        states = fill_hidden(request.hamiltonian, request.v, request.generator, observed=True).states
        request.into.add(request.hamiltonian, states, request.row_weight)
        return Outcome(None, {})


class Drawn(Expectation):
    """Chains whose hidden units count as they were drawn (Alg. 3, lines 6 to 8)."""

    def __init__(self, chains: Expectation) -> None:
        self.chains = chains

    def add(self, request: ExpectationRequest) -> Outcome:
        return self.chains.add(replace(request, into=request.into.in_readings([()])))


def start(hidden: int, X: torch.Tensor, seed: int, variance: float) -> hm.BoltzmannMachine:
    """A machine whose hidden units switch at data points."""
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(hidden)])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        W = machine.couplings[0].weight
        W.copy_(0.1 * torch.randn(W.shape, generator=generator))
        machine.layers[0].fit_((-0.5 * W.sum(1),), torch.full((2,), variance))
        rows = X[torch.randint(len(X), (hidden,), generator=generator)]
        machine.layers[1].bias.copy_(-(rows / variance * W.t()).sum(1))
    return machine


def published_start(hidden: int, seed: int) -> hm.BoltzmannMachine:
    """The start of the published program."""
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(hidden)])
    hm.machine.normal_(machine, (2 + hidden) ** -0.5, seed)
    with torch.no_grad():
        machine.layers[0].fit_((torch.zeros(2),), torch.ones(2))
        machine.layers[1].bias.zero_()
    return machine


class Clock:
    """Counts a run's CPU seconds and notes its variances, also across a kill and a resume."""

    def __init__(self) -> None:
        self.started = time.process_time()
        self.curve: list[list[float]] = []

    @property
    def seconds(self) -> float:
        return time.process_time() - self.started

    def needs_update(self, step: int, total: int) -> bool:
        return False

    def __call__(self, update: hm.training.Update) -> None:
        if update.step % 500 == 0:
            variances = update.machine.layers[0].natural()[1].detach().reciprocal().tolist()
            self.curve.append([update.step, *variances])

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "curve": self.curve}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.started = time.process_time() - state["seconds"]
        self.curve = state["curve"]


class Compared:
    """Records a rule's mean gradient in ln σ² beside the exact one, every 100 updates."""

    def __init__(self, rule: hm.learning.Rule, X: torch.Tensor) -> None:
        self.rule, self.X = rule, X
        self.rows: list[dict[str, object]] = []

    def needs_update(self, step: int, total: int) -> bool:
        return False

    def __call__(self, update: hm.training.Update) -> None:
        if update.step % 100:
            return
        machine, name = update.machine, "layers.0.log_variance"
        exact = hm.rules.quadrature().gradient(machine, self.X, seed=0).parameters
        found = [self.rule.gradient(machine, self.X, seed=seed).parameters for seed in range(10)]
        W = torch.stack([each["couplings.0.weight"] for each in found]).mean(0)
        self.rows.append(
            {
                "update": update.step,
                "variances": machine.layers[0].natural()[1].detach().reciprocal().tolist(),
                "by_chains": torch.stack([each[name] for each in found]).mean(0).tolist(),
                "exact": exact[name].tolist(),
                "norm_of_W_by_chains": float(W.norm()),
                "norm_of_W_exact": float(exact["couplings.0.weight"].norm()),
            }
        )


def run(
    kind: str, method: str, seed: int, arguments: argparse.Namespace
) -> tuple[dict[str, object], hm.BoltzmannMachine]:
    """Trains one machine and returns its record."""
    size, out = arguments.budget, arguments.out
    budget = dict(BUDGETS[size])
    budget["updates"] = arguments.updates or budget["updates"]
    mean_variance = arguments.slow or arguments.joint
    kernels = KERNELS if size == "quick" else paper_kernels(mean_variance)
    raw = torch.from_numpy(toy.gaussian_mixture(1000, kind, seed))
    mean, deviation = raw.mean(0), raw.std(0)
    if size == "paper":
        mean, deviation = torch.zeros(2), torch.ones(2)
    X = (raw - mean) / deviation
    kernel, sweeps = kernels.get(method, Gibbs()), budget["sweeps"]
    settings: dict[str, Any] = {"updates": budget["updates"], "batch_size": BATCH, "clip_norm": 10.0}
    settings |= OPTIMISERS[size]
    if size == "paper":
        settings |= {"run_dir": out / f"{kind}_{method}{suffix(arguments)}_{seed}", "resume": True}
        settings |= {"rates": {"log_variance": SLOW}} if arguments.slow else {}
    if method == "quadrature":
        rule = hm.rules.quadrature()
        if size == "quick":
            settings |= {"batch_size": 1000, "clip_norm": None}
        settings["updates"] = budget["updates"] = arguments.updates or budget["likelihood_updates"]
    elif method == "pcd":
        rule = hm.rules.pcd(10, 100)
        settings |= {"updates": budget["likelihood_updates"]}
    else:
        rule = hm.rules.noise_cd(sweeps, kernel=kernel, chains=BATCH)
        if arguments.joint and not isinstance(kernel, Langevin):
            rule = replace(rule, clamped=DrawnGivenData(), free=Drawn(rule.free))
    variance = 1.0 if size == "paper" else 0.06 if method in KERNELS else 0.015
    # A cosine over all updates hardly falls until a run that is ended early.
    early = arguments.updates and method != "quadrature" and not mean_variance
    schedule = "constant" if early else "cosine"
    hidden = budget["hidden"]
    machine = published_start(hidden, seed) if size == "paper" else start(hidden, X, seed, variance)
    clock, diverged, callbacks = Clock(), "", []
    if arguments.compare:
        callbacks.append(Compared(rule, X))
    acceptance = None
    try:
        training = hm.train(
            machine, X, rule=rule, learning_rate=0.01, schedule=schedule, seed=seed, progress=False,
            callbacks=[clock, *callbacks], **settings,
        ).whole()  # fmt: skip
        machine = training.averaged_machine or training.machine
        acceptance = training.history[-1].get("acceptance")
    except hm.training.TrainingDiverged as error:
        diverged = str(error).split(";")[0]
    seconds = clock.seconds
    generator = torch.Generator().manual_seed(1000 + seed)
    noise = machine.random_states(10_000, seed=generator)[0]
    drawn = hm.chains.run(machine, kernel, noise, sweeps, seed=generator)[0] * deviation + mean
    near = (drawn.unsqueeze(1) - MEANS).norm(dim=-1)
    weights = torch.bincount(near.argmin(1), minlength=3) / len(drawn)
    fresh = toy.gaussian_mixture(10_000, kind, 10_000 + seed)
    truth = float(toy.gaussian_mixture_log_density(fresh, kind).mean())
    states = (torch.from_numpy(fresh) - mean) / deviation
    log_partition = hm.likelihood.quadrature_log_partition(machine)
    value = float(hm.likelihood.log_likelihood(machine, states, log_partition).mean() - deviation.log().sum())
    machine.metadata = {"mean": mean.tolist(), "deviation": deviation.tolist()}
    variance = (deviation**2 / machine.layers[0].natural()[1]).tolist()
    return {
        "kind": kind, "method": method, "rule": rule.name, "bias": rule.bias, "seed": seed, **budget,
        "start": "published" if size == "paper" else "data", "slow": arguments.slow,
        "joint": arguments.joint,
        "kernel": repr(kernel),
        "diverged": diverged, "log_likelihood": value, "truth": truth, "gap": value - truth,
        "weights": weights.tolist(), "weight_error": float((weights - WEIGHTS).abs().max()),
        "near_a_mode": float((near.min(1).values < 4).float().mean()), "variances": variance,
        "acceptance": acceptance, "cpu_seconds": seconds, "curve": clock.curve,
        **({"gradients": callbacks[0].rows} if callbacks else {}),
    }, machine  # fmt: skip


def picture(folder: Path, budget: dict[str, int], names: list[str], kernels: dict[str, Kernel]) -> None:
    """Densities and samples of seed 0, a file for each mixture."""
    for kind in KINDS:
        panels = {"truth": lambda v, k=kind: torch.from_numpy(toy.gaussian_mixture_log_density(v.numpy(), k))}
        samples = {"truth": toy.gaussian_mixture(2000, kind, 1)}
        for name in names:
            path = folder / f"{kind}_{name}.safetensors"
            if not path.exists():
                continue
            machine = hm.load(path)
            mean, deviation = (torch.tensor(machine.metadata[key]) for key in ("mean", "deviation"))
            panels[name] = lambda v, m=machine, a=mean, b=deviation: -m.free_energy((v - a) / b)
            generator = torch.Generator().manual_seed(1)
            noise = machine.random_states(2000, seed=generator)[0]
            kernel = kernels.get(name, Gibbs())
            drawn = hm.chains.run(machine, kernel, noise, budget["sweeps"], seed=generator)[0]
            samples[name] = drawn * deviation + mean
        draw_planes(panels, samples, folder / f"{kind}.png")


def draw_planes(panels: dict[str, Any], samples: dict[str, Any], path: Path) -> None:
    """Draws log-densities below their maxima in the square of ±10, above samples of the same names."""
    axis = torch.linspace(-10, 10, 150)
    grid = torch.stack([x.flatten() for x in torch.meshgrid(axis, axis, indexing="xy")], -1)
    figure = new_figure("draw_planes", (2.1 * len(panels), 4.4))
    rows = figure.subplots(2, len(panels), squeeze=False)
    for (name, density), upper, lower in zip(panels.items(), *rows, strict=True):
        with torch.no_grad():
            values = density(grid).cpu().double().reshape(len(axis), len(axis))
        below = (values - values.max()).clamp(min=-8.0)  # nats at which the colours end
        upper.imshow(below.numpy(), origin="lower", extent=(-10, 10, -10, 10), aspect="auto")
        upper.set_title(name, fontsize=8)
        lower.plot(*torch.as_tensor(samples[name]).T, ".", markersize=1, color="0.2")
        lower.set(xlim=(-10, 10), ylim=(-10, 10))
        for each in (upper, lower):
            each.tick_params(labelsize=6)
    save_figure(figure, path, dpi=90)


def main() -> None:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--budget", choices=sorted(BUDGETS), default="quick")
    parser.add_argument("--only", action="append", choices=METHODS, help="repeatable")
    parser.add_argument(
        "--slow", action="store_true", help="variances at a hundredth of the rate, at full size"
    )
    parser.add_argument("--joint", action="store_true", help="Alg. 3 at one rate, likewise")
    parser.add_argument("--updates", type=int, help="ends runs early, at a constant rate")
    parser.add_argument("--compare", action="store_true", help="records gradients beside the exact ones")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/gaussian_mixtures"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    budget = BUDGETS[arguments.budget]
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "results.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    done = {
        (r["kind"], r["method"] + suffix(argparse.Namespace(**r)), r["seed"], r["hidden"]): r
        for r in map(json.loads, lines)
    }
    recipe = suffix(arguments)
    mean_variance = arguments.slow or arguments.joint
    some = (*PUBLISHED, HOT_PROPOSALS) if mean_variance else PUBLISHED
    names = arguments.only or list(some if arguments.budget == "paper" else METHODS[:-1])
    for seed in range(arguments.seeds):
        for name in names:
            for kind in KINDS:
                key = (kind, name + recipe, seed, budget["hidden"])
                if key in done:
                    continue
                done[key], machine = run(kind, name, seed, arguments)
                with path.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
                if seed == 0:
                    machine.save(arguments.out / f"{kind}_{name}.safetensors", overwrite=True)
    kernels = KERNELS if arguments.budget == "quick" else paper_kernels(mean_variance)
    picture(arguments.out, budget, names, kernels)
    print(
        "medians over seeds; gap: mean log-likelihood of fresh draws minus that of the true density, in nats"
    )
    print(
        f"{'mixture':12} {'method':26} {'seeds':>5} {'gap':>8} {'worst':>8} {'weights off':>11} {'worst':>7}",
        end="",
    )
    print(f" {'near':>6} {'CPU s':>6} {'diverged':>8}")
    for kind in KINDS:
        for name in names:
            hidden = budget["hidden"]
            rows = [r for key, r in done.items() if key[:2] == (kind, name + recipe) and key[3] == hidden]
            gaps, errors = [r["gap"] for r in rows], [r["weight_error"] for r in rows]
            print(
                f"{kind:12} {name:26} {len(rows):5} {median(gaps):8.3f} {min(gaps):8.3f} "
                f"{median(errors):11.3f} {max(errors):7.3f} {median(r['near_a_mode'] for r in rows):6.3f} "
                f"{median(r['cpu_seconds'] for r in rows):6.1f} {sum(bool(r['diverged']) for r in rows):8}"
            )
    if arguments.budget == "quick":
        print("a reduced experiment: the paper has 256 hidden units, 100 sweeps and 500,000 updates")


if __name__ == "__main__":
    main()
