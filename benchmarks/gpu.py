"""``python -m benchmarks --device cuda``: what a GPU takes for an update and for annealing.

Every contestant works on the device alone, in float32 without tf32, after a warm-up of its own. Times are by
the wall clock, from a wait for the device to the next. "plain loop" is the update as one writes it down in
torch, and "as a graph" the same as a CUDA graph. rbms is timed as its ``train`` makes an update, but for
files and centring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

import harmonium as hm
from benchmarks import peers, system
from benchmarks.race import markdown
from harmonium.backends import choice

FOLDER = Path(__file__).parent / "records" / "gpu"
VISIBLE = 784
SIZES = ((500, 100, 8000), (500, 1000, 4000), (500, 10_000, 1200), (4096, 512, 2000))  # hidden, rows, updates
ROUNDS = 3  # of which the median counts
_ONES = 0.13  # the share of ones, as handwritten digits have


def main(device: str, quick: bool, keep: bool) -> None:
    """Times everything, prints the table, and keeps it in the record of this card."""
    card = torch.cuda.get_device_name(device)
    record: dict[str, Any] = {
        "card": card,
        "torch": torch.__version__,
        "commit": system.describe()["commit"],
        "quick": quick,
        "rows": {},
    }
    begun = perf_counter()
    for name, unit, contestants in tables(torch.device(device), quick):
        row = record["rows"][name] = {"unit": unit}
        for contestant, run in contestants.items():
            try:
                run()  # untimed: libraries load, kernels are compiled and the card's clock rises
                times = sorted(run() for _ in range(1 if quick else ROUNDS))
                row[contestant] = times[len(times) // 2]
            except Exception as error:  # a peer that this torch or card does not suit
                row[contestant] = f"{type(error).__name__}: {error}"[:120]
        print(name, row, flush=True)
    record["seconds"] = round(perf_counter() - begun)
    print(f"{card}: {record['seconds']} s")
    if keep:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{card.replace(' ', '-')}.json").write_text(json.dumps(record, indent=1) + "\n")


def text() -> str:
    """Returns the section of docs/benchmarks.md with the record of every card; "" where there is none."""
    parts = []
    for path in sorted(FOLDER.glob("*.json")):
        record = json.loads(path.read_text())
        contestants = list(dict.fromkeys(name for row in record["rows"].values() for name in row))[1:]
        rows = [
            [f"{name}, {row['unit']}", *(_cell(row.get(each)) for each in contestants)]
            for name, row in record["rows"].items()
        ]
        table = markdown(["", *contestants], rows)
        parts.append(f"{record['card']}, torch {record['torch']}:\n\n{table}")
    if not parts:
        return ""
    head = """\
## On a GPU

The median of three runs on the card alone, in float32 without tf32, by the wall clock. "one by one" is
harmonium without its recording, "plain loop" the update as one writes it down in torch, "as a graph" the same
as a CUDA graph. `python -m benchmarks --device cuda` measures it again.
"""
    return "\n".join([head, *parts])


def _cell(value: float | str | None) -> str:
    return "" if value is None else value if isinstance(value, str) else f"{value:.3g}"


def tables(device: torch.device, quick: bool) -> Iterator[tuple[str, str, dict[str, Callable[[], float]]]]:
    """Yields the name of a row, its unit, and the contestants."""
    X = binary(20_000, device)
    pcd, Gaussian = hm.rules.pcd, hm.rules.noise_cd(100, kernel=hm.chains.GibbsLangevin(0.1))
    for hidden, rows, updates in SIZES:
        updates = 600 if quick else updates
        contestants = {
            "harmonium": training(
                lambda h=hidden: [hm.Bernoulli(VISIBLE), hm.Bernoulli(h)], X, pcd(1), rows, updates
            ),
            "one by one": training(
                lambda h=hidden: [hm.Bernoulli(VISIBLE), hm.Bernoulli(h)],
                X,
                pcd(1),
                rows,
                300,
                recorded=False,
            ),
            "plain loop": plain(X, hidden, rows, graph=False),
            "as a graph": plain(X, hidden, rows, graph=True),
        }
        if peers.has_rbms():
            contestants["rbms"] = rbms(X, hidden, rows, 1)
        yield f"PCD-1, {VISIBLE} × {hidden}, {rows} rows", "ms an update", contestants
    contestants = {
        "harmonium": training(lambda: [hm.Bernoulli(VISIBLE), hm.Bernoulli(500)], X, pcd(10), 100, 2000)
    }
    if peers.has_rbms():
        contestants["rbms"] = rbms(X, 500, 100, 10)
    yield f"PCD-10, {VISIBLE} × 500, 100 rows", "ms an update", contestants
    real = torch.randn(5000, VISIBLE, generator=torch.Generator().manual_seed(1)).to(device)
    yield (
        f"Gibbs-Langevin, 100 sweeps, {VISIBLE} × 4096, 512 rows",
        "ms an update",
        {
            "harmonium": training(
                lambda: [hm.Gaussian(VISIBLE), hm.Bernoulli(4096)], real, Gaussian, 512, 205, rate=1e-4
            )
        },
    )
    letters = torch.randint(5, (20_000, 136), generator=torch.Generator().manual_seed(1))
    potts = torch.nn.functional.one_hot(letters, 5).float().flatten(1).to(device)
    yield (
        "PCD-1, 136 sites of 5 states × 100, 1,000 rows",
        "ms an update",
        {
            "harmonium": training(
                lambda: [hm.Categorical(136, 5), hm.Bernoulli(100)], potts, pcd(1), 1000, 3000
            )
        },
    )
    looking = {
        f"UCD, {VISIBLE} × 500, 100 rows and chains": (hm.rules.ucd(chains=100), 40),
        f"TAP, {VISIBLE} × 500, 100 rows": (hm.rules.tap(), 1000),
        f"Tempered PCD-1, 10 temperatures, {VISIBLE} × 500, 100 rows": (hm.rules.tempered_pcd(1), 1000),
    }
    for name, (rule, updates) in looking.items():
        contestants = {
            who: training(
                lambda: [hm.Bernoulli(VISIBLE), hm.Bernoulli(500)], X, rule, 100, count, recorded=recorded
            )
            for who, count, recorded in (
                ("harmonium", updates, True),
                ("one by one", min(updates, 200), False),
            )
        }
        yield name, "ms an update", contestants
    contestants = {"harmonium": annealing(device)}
    if peers.has_rbms():
        contestants["rbms"] = rbms_annealing(device)
    yield f"AIS forward, {VISIBLE} × 500, 1,000 chains, 1,000 temperatures", "s", contestants


def binary(count: int, device: torch.device) -> Tensor:
    """Random rows of 0 and 1."""
    noise = torch.rand(count, VISIBLE, generator=torch.Generator().manual_seed(1))
    return (noise < _ONES).float().to(device)


def training(
    layers: Callable[[], list[hm.layers.Layer]],
    X: Tensor,
    rule: hm.learning.Rule,
    rows: int,
    updates: int,
    *,
    recorded: bool = True,
    rate: float = 0.01,
) -> Callable[[], float]:
    """Milliseconds of an update of ``hm.train`` in the last two thirds of a run, from its own history."""

    def run() -> float:
        machine, before = hm.BoltzmannMachine(layers(), seed=0), choice.RECORDS
        if not recorded:
            choice.RECORDS = frozenset()
        try:
            made = hm.train(
                machine, X, rule=rule, updates=updates, batch_size=rows, learning_rate=rate, seed=1,
                device=X.device, progress=False, record_every=max(1, min(100, updates // 8)),
            )  # fmt: skip
        finally:
            choice.RECORDS = before
        first, last = made.history[len(made.history) // 3], made.history[-1]
        return 1e3 * (last["seconds"] - first["seconds"]) / (last["step"] - first["step"])

    return run


def plain(X: Tensor, hidden: int, rows: int, *, graph: bool) -> Callable[[], float]:
    """Milliseconds of the update as one writes it down, with products that add to what is there."""
    device, generator = X.device, torch.Generator(X.device).manual_seed(1)
    W = 0.01 * torch.randn(VISIBLE, hidden, device=device)
    b, c = torch.zeros(VISIBLE, device=device), torch.zeros(hidden, device=device)
    chosen = torch.zeros(rows, dtype=torch.long, device=device)
    x, rate = X[:rows].clone(), 0.01 / rows

    def drawn(field: Tensor) -> Tensor:
        noise = torch.rand(field.shape, device=device, generator=generator)
        return (noise < torch.sigmoid(field)).float()

    @torch.no_grad()
    def update() -> None:
        v = X.index_select(0, chosen)
        mean = torch.sigmoid(torch.addmm(c, v, W))
        h = drawn(torch.addmm(c, x, W))
        x.copy_(drawn(torch.addmm(b, h, W.t())))
        free = torch.sigmoid(torch.addmm(c, x, W))
        W.addmm_(v.t(), mean, alpha=rate).addmm_(x.t(), free, alpha=-rate)
        b.add_(v.sum(0), alpha=rate).sub_(x.sum(0), alpha=rate)
        c.add_(mean.sum(0), alpha=rate).sub_(free.sum(0), alpha=rate)

    def run() -> float:
        step: Callable[[], Any] = update
        if graph:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                update()
            torch.cuda.current_stream().wait_stream(side)
            recording = torch.cuda.CUDAGraph()
            recording.register_generator_state(generator)
            with torch.cuda.graph(recording):
                update()
            step = recording.replay

        def once() -> None:
            torch.randint(len(X), (rows,), device=device, generator=None if graph else generator, out=chosen)
            step()

        return clocked(once, 300)

    return run


def clocked(step: Callable[[], Any], count: int) -> float:
    """Milliseconds of a step, over so many after ten."""
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return 1e3 * (perf_counter() - start) / count


def annealing(device: torch.device) -> Callable[[], float]:
    """Seconds of the forward run of ``likelihood.ais``."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(500)], seed=0).to(device)
    data = binary(1000, device)

    def run() -> float:
        torch.cuda.synchronize()
        start = perf_counter()
        hm.likelihood.ais(machine, chains=1000, temperatures=1000, data=data, reverse=False, seed=1)
        torch.cuda.synchronize()
        return perf_counter() - start

    return run


def rbms(X: Tensor, hidden: int, rows: int, k: int) -> Callable[[], float]:
    """Milliseconds of the body of ``rbms.training.pcd.train``, with torch's SGD."""
    from rbms.sampler.pcd import PCD

    model, weights = _rbms_model(X.device, hidden), torch.ones(len(X), device=X.device)
    sampler = PCD(model, model.init_chains(num_samples=rows), num_steps=k)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, maximize=True)

    @torch.no_grad()
    def update() -> None:
        chosen = torch.randint(len(X), (rows,), device=X.device)
        optimizer.zero_grad(set_to_none=False)
        batch = model.init_chains(num_samples=rows, weights=weights[chosen], start_v=X[chosen])
        model.compute_gradient(data=batch, chains=sampler.get_conf_grad(batch=X[chosen]), centered=False)
        optimizer.step()

    return lambda: clocked(update, 300)


def rbms_annealing(device: torch.device) -> Callable[[], float]:
    """Seconds of ``rbms.partition_function.ais``."""
    from rbms.partition_function.ais import compute_partition_function_ais

    model = _rbms_model(device, 500)

    def run() -> float:
        torch.cuda.synchronize()
        start = perf_counter()
        with torch.no_grad():
            compute_partition_function_ais(num_chains=1000, num_beta=1001, params=model)
        torch.cuda.synchronize()
        return perf_counter() - start

    return run


def _rbms_model(device: torch.device, hidden: int) -> Any:
    from rbms.bernoulli_bernoulli.classes import BBRBM

    return BBRBM(
        weight_matrix=0.01 * torch.randn(VISIBLE, hidden, device=device),
        vbias=torch.zeros(VISIBLE, device=device),
        hbias=torch.zeros(hidden, device=device),
    )
