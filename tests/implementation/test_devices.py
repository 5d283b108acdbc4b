"""Everything on a device that is not the CPU: no mixed devices, the CPU's bits, and few waits.

Nobody needs a GPU for it: ``tests/pretend_device.py`` says what the pretend device does. What takes longest
runs with ``HARMONIUM_TEST_DEVICE=pretend`` alone. ``HARMONIUM_TEST_DEVICE=cuda`` runs every call on a GPU,
where noise has other bits: what a second run makes of the same noise is compared, and its form with here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium import _device, backends
from harmonium.backends import choice
from harmonium.machine import Statistics
from harmonium.sums.elimination import Elimination
from harmonium.sums.plan import _order_of

ELSEWHERE = os.environ.get("HARMONIUM_TEST_DEVICE")
if ELSEWHERE in (None, "pretend"):
    from pretend_device import DEVICE, pretend_device
else:  # torch's backend for devices of one's own breaks autograd on CUDA in the same process
    DEVICE = torch.device(ELSEWHERE)

    def pretend_device() -> Any:
        pytest.skip("a process that uses a real device has no pretend one")


GENERATOR = torch.Generator().manual_seed(0)
BITS = torch.randint(0, 2, (12, 6), generator=GENERATOR).float()
REAL = torch.randn(12, 6, generator=GENERATOR)
HOLES = torch.where(torch.rand(12, 6, generator=GENERATOR) < 0.2, torch.nan, BITS)
MIXED = torch.cat(
    (REAL[:, :2], torch.eye(3)[torch.arange(12) % 3], BITS[:, :2], torch.rand(12, 1, generator=GENERATOR)), 1
)
GIVEN = torch.where(torch.rand(12, 8, generator=GENERATOR) < 0.2, torch.nan, MIXED)
GIVEN[:, 2:5] = torch.where(GIVEN[:, 2:5].isnan().any(1, keepdim=True), torch.nan, GIVEN[:, 2:5])


def binary(device: Any) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=3).to(device)


def real(device: Any) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(6), hm.Bernoulli(4)], seed=3).to(device)


def deep(device: Any) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4), hm.Spin(3)], seed=3).to(device)


def lattice(device: Any) -> hm.BoltzmannMachine:
    return masked(np.roll(np.eye(6), 1, 0)).to(device)


def by_pair(device: Any) -> hm.BoltzmannMachine:
    pairs = hm.Sparse([(i, (i + step) % 6) for i in range(6) for step in (1, 2)])
    return hm.BoltzmannMachine([hm.Bernoulli(6)], edges={(0, 0): pairs}, seed=3).to(device)


def columns(device: Any) -> hm.BoltzmannMachine:
    visible = [hm.Gaussian(2), hm.Categorical(1, 3), hm.Spin(2)]
    return hm.machine.join_layers(visible, [hm.Bernoulli(4)], seed=3).to(device)


def table(device: Any) -> hm.BoltzmannMachine:
    visible = [hm.Gaussian(2), hm.Categorical(1, 3), hm.Spin(2), hm.TruncatedGaussian(1, 0.0, 1.0)]
    return hm.machine.join_layers(visible, [hm.Bernoulli(4)], seed=3).to(device)


MIXED[:, 5:7] = 2 * MIXED[:, 5:7] - 1
GIVEN[:, 5:7] = 2 * GIVEN[:, 5:7] - 1
GIVEN = GIVEN[:, :7]
MACHINES = {"binary": (binary, BITS), "real": (real, REAL), "deep": (deep, BITS), "table": (table, MIXED)}
GAPS = {"binary": (binary, HOLES), "deep": (deep, HOLES), "columns": (columns, GIVEN)}
Gibbs, Langevin = hm.chains.Gibbs, hm.chains.Langevin


def gradient(rule: hm.learning.Rule, build: Any, X: Tensor) -> Callable[[Any], Any]:
    """Two updates of a rule, the second from the state of the first."""

    def call(device: Any) -> Any:
        machine, generator = build(device), torch.Generator(device).manual_seed(5)
        first = rule.gradient(machine, X, seed=generator)
        second = rule.gradient(machine, X, first.state, seed=generator)
        return [first.parameters, second.parameters, second.diagnostics, second.state]

    return call


def rules() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    plain = {
        name: recipe()
        for name, recipe in hm.rules.RECIPES.items()
        if name not in ("ucd_lmi", "noise_cd", "adatap")
    }
    plain["noise_cd"] = hm.rules.noise_cd(5, burn_in=2)
    plain["ucd persistent"] = hm.rules.ucd(2, 4, chains=6, start="persistent")
    plain["pcd metropolis"] = hm.rules.pcd(2, kernel=hm.chains.Metropolis())
    for name, (build, X) in MACHINES.items():
        for rule_name, rule in plain.items():
            if not (rule_name == "exact" and name in ("real", "table")) and not (
                name == "table" and rule_name in ("mean_field", "tap")
            ):
                yield f"{rule_name} {name}", gradient(rule, build, X)
    for name, rule in plain.items():
        if name not in ("mean_field", "tap", "mean_field_pcd"):
            yield f"centred {name}", gradient(hm.rules.centred(rule), binary, BITS)
    for name, (build, X) in GAPS.items():
        for rule_name in ("cd", "pcd", "ucd"):
            yield f"{rule_name} {name} with gaps", gradient(plain[rule_name], build, X)
    lmi, langevin = hm.rules.ucd_lmi(), Langevin(0.1)
    yield "ucd_lmi", gradient(lmi, binary, BITS)
    yield "ucd_lmi deep", gradient(lmi, deep, BITS)
    yield "ucd_lmi uncorrected", gradient(hm.rules.ucd_lmi(pair_kernel=None), real, REAL)
    yield "adatap", gradient(hm.rules.adatap(), binary, BITS)
    yield "tap noise", gradient(hm.rules.tap(4, start="noise"), deep, BITS)
    yield "tap persistent", gradient(hm.rules.tap(4, start="persistent"), binary, BITS)
    yield "langevin", gradient(hm.rules.noise_cd(5, kernel=langevin), real, REAL)
    kernel = hm.chains.GibbsLangevin(0.1, correction="metropolis", adjust=1)
    yield "gibbs langevin", gradient(hm.rules.pcd(3, kernel=kernel), real, REAL)
    yield (
        "quadrature",
        gradient(
            hm.rules.quadrature(),
            lambda device: hm.BoltzmannMachine([hm.Gaussian(1), hm.Bernoulli(4)], seed=3).to(device),
            REAL[:, :1],
        ),
    )
    yield "pseudo_likelihood", gradient(hm.rules.pseudo_likelihood(), lattice, BITS)
    yield "pcd lattice", gradient(plain["pcd"], lattice, BITS)
    yield "pseudo_likelihood by pair", gradient(hm.rules.pseudo_likelihood(), by_pair, BITS)
    for name in ("pcd", "tap", "tempered_pcd"):
        yield f"{name} by pair", gradient(plain[name], by_pair, BITS)
    yield (
        "conditional",
        gradient(hm.rules.conditional(plain["pcd"], condition_on=[0, 2]), columns, MIXED[:, :7]),
    )
    yield "hybrid", gradient(hm.rules.hybrid(plain["pcd"], condition_on=[0, 2], joint=0.5), columns, GIVEN)


def sampled(kernel: hm.chains.Kernel, build: Any, X: Tensor, clamp: Any = None) -> Callable[[Any], Any]:
    return lambda device: hm.chains.run(build(device), kernel, X, 4, clamp, seed=5)


def calls() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    yield from rules()
    for name, (build, X) in MACHINES.items():
        yield f"Gibbs {name}", sampled(Gibbs(), build, X)
        yield f"Tempering {name}", sampled(hm.chains.Tempering(3), build, X)
        yield f"Metropolis {name}", sampled(hm.chains.Metropolis(), build, X)
        yield (
            f"free_energy {name}",
            lambda device, build=build, X=X: build(device).energy(build(device).random_states(5, seed=2)),
        )
        if name != "table":  # truncated units are slow
            yield (
                f"ais {name}",
                lambda device, build=build, X=X: hm.likelihood.ais(
                    build(device), 4, 5, data=X, reverse=build is binary, seed=1
                ),
            )
        for coupling in (hm.coupled.Gibbs(), hm.coupled.Metropolis()):
            if name in ("binary", "deep") or isinstance(coupling, hm.coupled.Gibbs):
                yield (
                    f"meet {name} {type(coupling).__name__}",
                    lambda device, build=build, X=X, coupling=coupling: hm.coupled.meet(
                        build(device), coupling, X, lag=2, max_sweeps=9, seed=1
                    ),
                )
    for name, (build, X) in GAPS.items():
        yield (
            f"Gibbs {name} held",
            sampled(Gibbs(), build, X.where(~X.isnan(), 0.0) if build is not columns else MIXED[:, :7], X),
        )
    yield "Langevin", sampled(Langevin(0.1), real, REAL)
    yield "Langevin annealed", sampled(Langevin(0.1, adjust=2, anneal=True), real, REAL)
    yield "GibbsLangevin", sampled(hm.chains.GibbsLangevin(0.2), real, REAL)
    yield "Gibbs lattice", sampled(Gibbs(), lattice, BITS)
    yield "Gibbs by pair", sampled(Gibbs(), by_pair, BITS)
    yield "ais by pair", lambda device: hm.likelihood.ais(by_pair(device), 4, 5, seed=1)
    for coupling in (
        hm.coupled.Gibbs(hm.coupled.Maximal(), hm.coupled.Independent()),
        hm.coupled.Gibbs(hm.coupled.Maximal(common_noise=True), hm.coupled.CommonNoise()),
    ):
        yield (
            f"meet {coupling}",
            lambda device, coupling=coupling: hm.coupled.meet(binary(device), coupling, BITS, seed=1),
        )
    yield (
        "local_search",
        lambda device: hm.chains.local_search(binary(device), binary("cpu").random_states(9, seed=2), seed=1),
    )
    solvers = {name: partial(hm.meanfield.tap, solver=name) for name in hm.meanfield.SOLVERS}
    for name, solver in {"naive": hm.meanfield.naive, **solvers}.items():
        yield name, lambda device, solver=solver: solver(binary(device), BITS)
        yield f"{name} held", lambda device, solver=solver: solver(deep(device), BITS, BITS)
    yield "landscape", lambda device: hm.meanfield.landscape(binary(device), BITS)
    likelihood, tasks = hm.likelihood, hm.tasks
    yield "exact_log_partition", lambda device: likelihood.exact_log_partition(table_of_states(device))
    yield "exact_log_likelihood", lambda device: likelihood.exact_log_likelihood(binary(device), HOLES)
    yield "log_likelihood", lambda device: likelihood.log_likelihood(real(device), REAL, 1.0)
    yield "variational_bound", lambda device: likelihood.variational_bound(deep(device), BITS, 1.0)
    yield "annealed_bound", lambda device: likelihood.annealed_bound(deep(device), BITS, 1.0, seed=1)
    yield (
        "pseudo_log_likelihood",
        lambda device: likelihood.pseudo_log_likelihood(binary(device), BITS, seed=1),
    )
    yield "tap_log_partition", lambda device: likelihood.tap_log_partition(binary(device), BITS)
    yield (
        "predictive_log_score",
        lambda device: likelihood.predictive_log_score(binary(device), HOLES, seed=1),
    )
    yield (
        "conditional_log_likelihood",
        lambda device: likelihood.conditional_log_likelihood(table(device), MIXED, condition_on=[0, 2, 3]),
    )
    for name, machine in {"lattice": lattice, "windows": windows}.items():  # units are summed out one by one
        yield (
            f"impute {name}",
            lambda device, machine=machine: tasks.impute(
                machine(device), BITS, HOLES.isnan(), "exact", seed=1
            ),
        )
        yield f"sums {name}", lambda device, machine=machine: summed_out(machine(device))
    for method in tasks.MINIMISE_METHODS:
        yield (
            f"minimise {method}",
            lambda device, method=method: tasks.minimise(lattice(device), 9, sweeps=3, method=method, seed=1),
        )
    for method in tasks.IMPUTE_METHODS:
        yield (
            f"impute {method}",
            lambda device, method=method: tasks.impute(
                binary(device), BITS, HOLES.isnan(), method, sweeps=4, seed=1
            ),
        )
    for method in tasks.DENOISE_METHODS:
        yield (
            f"denoise {method}",
            lambda device, method=method: tasks.denoise(
                binary(device), BITS, 0.1, method=method, clean=BITS, sweeps=4, seed=1
            ),
        )
    for method in tasks.PREDICT_METHODS:
        yield (
            f"predict {method}",
            lambda device, method=method: tasks.predict(table(device), MIXED, 1, method, sweeps=4, seed=1),
        )
    yield (
        "mask",
        lambda device: masked(torch.eye(6, device=device).roll(1, 0)).to(device).couplings[0].matrix(),
    )
    yield "classifier with gaps", classified
    for name, settings in TRAINED.items():
        yield f"train {name}", lambda device, settings=settings: trained(device, **settings)


def windows(device: Any) -> hm.BoltzmannMachine:
    """ReLU units beside pairs of visible ones that edges join, by pair."""
    pairs = [(i, i + 1) for i in range(5)]
    edges = {(0, 0): hm.Sparse(pairs), (0, 1): hm.Sparse([(i, k) for k in range(5) for i in (k, k + 1)])}
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.ReLU(5)], edges, seed=3).to(device)


def summed_out(machine: hm.BoltzmannMachine) -> Any:
    """ln Z and E[S] of rows that lack the same cells, by tables over neighbours."""
    v = HOLES[:1].to(machine.device)
    hamiltonian = machine.hamiltonian().clamp(v, 1)
    order = _order_of(hamiltonian, 1, inf)
    assert order is not None
    into = Statistics(hamiltonian)
    with torch.no_grad():
        sums = Elimination(hamiltonian, 1, order)
        sums.expect(into, 0.5)
        return sums.log_weights, into.thetas, into.products


def filtered(device: Any) -> hm.BoltzmannMachine:
    """Filters over the pixels of a picture."""
    edges = {(0, 1): hm.Local((2, 3), 2, filters=2)}
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], edges, seed=3).to(device)


def masked(mask: Any) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6)], edges={(0, 0): hm.Masked(mask)}, seed=3)


def classified(device: Any) -> Any:
    X, y = REAL.where(BITS > 0, torch.nan).numpy(), np.arange(12) % 2
    model = hm.RBMClassifier(3, visible="gaussian", max_updates=1, device=device, random_state=0)
    return model.fit(X, y).predict_proba(X).tolist()


def table_of_states(device: Any) -> hm.BoltzmannMachine:
    return hm.machine.join_layers([hm.Categorical(1, 3), hm.Spin(2)], [hm.Bernoulli(4)], seed=3).to(device)


TRAINED: dict[str, dict[str, Any]] = {
    "pcd": {"rule": "pcd"},
    "with gaps": {"rule": "cd", "X": HOLES},
    "columns with gaps": {"rule": "cd", "build": columns, "X": GIVEN, "updates": 3},
    "filters": {"rule": hm.rules.centred(hm.rules.pcd()), "build": filtered},
    "weighted": {"rule": "cd", "weights": np.arange(12.0)},
    "clipped": {"rule": "pcd", "clip_norm": 0.01, "averaging": 0.9, "optimizer": "adam", "l1": 0.1},
    "validated": {
        "rule": "pcd",
        "validation": BITS,
        "metrics": {"pl": lambda machine, X: hm.likelihood.pseudo_log_likelihood(machine, X, seed=0)},
    },
}


def trained(device: Any, build: Any = binary, X: Any = BITS, **settings: Any) -> Any:
    machine = build("cpu")
    settings = {"batch_size": 5, "updates": 6, **settings}
    run = hm.train(machine, X, progress=False, device=device, **settings)
    return [dict(machine.state_dict()), run.metrics, run.rule_state]


CALLS = dict(calls())
LONG = (
    "persistent", "table", "ucd columns", "ucd deep", "centred", "ucd_lmi deep", "landscape", "adatap",
    "annealed_bound", "classifier", "train columns", "train validated", "cd deep", "meet deep",
    "mean_field deep",
)  # fmt: skip
BRIEF = [name for name in CALLS if ELSEWHERE or not any(word in name for word in LONG)]
BRIEF += [name for name in ("pcd table", "centred pcd", "Gibbs table") if name not in BRIEF]


def flat(value: Any) -> list[Any]:
    """The numbers and tensors of anything that a function returns."""
    if isinstance(value, Mapping):
        return [x for each in value.values() for x in flat(each)]
    if is_dataclass(value) and not isinstance(value, type):
        return [x for each in fields(value) for x in flat(getattr(value, each.name))]
    if isinstance(value, (list, tuple)):
        return [x for each in value for x in flat(each)]
    return [value.detach().cpu() if isinstance(value, Tensor) else value]


UPDATES = {  # machine, data, rule
    **{f"{k}": (binary, BITS, hm.rules.pcd(k)) for k in (1, 10)},
    "centred": (binary, BITS, hm.rules.centred(hm.rules.pcd())),
    "deep": (deep, BITS, hm.rules.pcd()),
    "by pair": (by_pair, BITS, hm.rules.pcd(2)),
    "cd": (binary, BITS, hm.rules.cd(3)),
    "exact": (binary, BITS, hm.rules.exact()),
    "tempered": (binary, BITS, hm.rules.tempered_pcd(3)),
    "gaussian": (real, REAL, hm.rules.noise_cd(5, burn_in=2)),
    "langevin": (real, REAL, hm.rules.noise_cd(5, kernel=Langevin(0.1))),
    "gibbs langevin": (real, REAL, hm.rules.pcd(5, kernel=hm.chains.GibbsLangevin(0.1))),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_waits_for_the_device_once(name: str) -> None:
    """For the norm and all diagnostics together."""
    build, X, rule = UPDATES[name]
    seen: list[tuple[int, int]] = []
    with pretend_device() as counts, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        hm.train(
            build("cpu"), X, rule=rule, updates=8, batch_size=5, record_every=100, device=DEVICE,
            progress=False,
            callbacks=[lambda update: seen.append((counts.waits.total(), counts.sent))],
        )  # fmt: skip
    waits = [after[0] - before[0] for before, after in pairwise(seen[4:7])]
    assert waits == [1, 1]
    if name != "exact":  # which sends what it enumerates
        assert seen[6][1] - seen[5][1] == 1  # the batch


SWEEPS = {
    "Gibbs": (binary, Gibbs()),
    "Gibbs of a deep machine": (deep, Gibbs()),
    "Gibbs on a lattice": (lattice, Gibbs()),
    "Langevin": (real, Langevin(0.1)),
    "GibbsLangevin": (real, hm.chains.GibbsLangevin(0.1, correction="metropolis")),
    "Tempering": (binary, hm.chains.Tempering(4)),
    "Metropolis": (binary, hm.chains.Metropolis()),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_waits_for_nothing(name: str) -> None:
    build, kernel = SWEEPS[name]
    with pretend_device() as counts, torch.no_grad():
        machine = build(DEVICE)
        hamiltonian, generator = machine.hamiltonian(), torch.Generator(DEVICE).manual_seed(1)
        state = kernel.init(hamiltonian, machine.random_states(6, seed=2), generator)
        state = hm.chains.run_kernel(hamiltonian, kernel, state, 1, generator)  # the first may make constants
        counts.clear()
        hm.chains.run_kernel(hamiltonian, kernel, state, 3, generator)
    assert counts.launches.total() > 0 and counts.waits.total() == counts.sent == 0


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("build", [binary, real, deep])
def test_pairs_wait_at_looks(build: Any, records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every sweep, or every eighth where these are recorded; and where a draw was not done."""
    monkeypatch.setattr(choice, "RECORDS", frozenset((DEVICE.type,) if records else ()))
    with pretend_device() as counts, torch.no_grad():
        machine = build(DEVICE)
        machine.couplings[0].weight *= 150
        hamiltonian, generator = machine.hamiltonian(), torch.Generator(DEVICE).manual_seed(1)
        waits = sweeps = looks = 0
        for seed in range(4):
            start = machine.random_states(60, seed=seed)
            counts.clear()
            pairs = hm.coupled.run_pairs(
                hamiltonian, hm.coupled.Gibbs(), start, k=1, m=1, lag=1, max_sweeps=17, generator=generator
            )
            waits += counts.waits.total() - 1  # what the pairs have flipped is asked for at the end
            last = int(pairs.times.max())
            sweeps, looks = sweeps + last, looks + (1 + -(-(last - 1) // 8) if records else last)
    assert sweeps >= 10 and looks <= waits <= 2 * looks


@pytest.mark.parametrize("order", [1, 2])
def test_a_sweep_of_a_solver_waits_once(order: int) -> None:
    with pretend_device() as counts, torch.no_grad():
        machine = binary(DEVICE)
        machine.couplings[0].weight *= 100
        scheme = hm.meanfield.Plefka(machine.hamiltonian(), order=order)
        start = machine.visible_rows(BITS, "X")
        counts.clear()
        _, _, sweeps = hm.meanfield.iterate(scheme, start, tolerance=1e-4, damping=0.5, max_sweeps=60)
        waits = counts.waits.total()
        assert len(sweeps.unique()) > 2  # rows that have converged leave the batch
        assert waits == int(sweeps.max())


def test_a_half_step_of_a_search_waits_once_and_for_what_changed() -> None:
    with pretend_device() as counts, torch.no_grad():
        machine = binary(DEVICE)
        start, generator = machine.random_states(40, seed=2), torch.Generator(DEVICE).manual_seed(1)
        counts.clear()
        _, sweeps = hm.chains.search(machine.hamiltonian(), start, generator)
        waits = counts.waits.total()
        assert waits <= 2 * (2 * int(sweeps.max()) + 1)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU goes the ways of other devices: no compiled code, and none but work of one shape."""
    monkeypatch.setattr(_device, "is_async", lambda device: True)
    monkeypatch.setattr(choice, "COMPILED", False)
    before = backends.backend_name()
    backends.set_backend("torch")
    yield
    backends.set_backend(before)


@pytest.mark.parametrize("name", BRIEF)
@pytest.mark.usefixtures("uncompiled")
def test_the_bits_are_those_of_the_cpu(name: str) -> None:
    """No operation mixes devices, and the same noise gives the same numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of few annealing runs, of pairs given up
        here = flat(CALLS[name]("cpu"))
        with pretend_device():
            there = flat(CALLS[name](DEVICE))
    assert len(here) == len(there) > 0
    for x, y in zip(here, there, strict=True):
        if name == "quadrature":  # one product, of memory that lies differently
            torch.testing.assert_close(x, y)
        else:
            assert torch.equal(x, y) if isinstance(x, Tensor) else x == y or x != x


@pytest.mark.parametrize("name", CALLS if ELSEWHERE not in (None, "pretend") else [])
def test_a_real_device_repeats_itself(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        here, *there = (flat(CALLS[name](device)) for device in ("cpu", ELSEWHERE, ELSEWHERE))
    for x, y, z in zip(here, *there, strict=True):
        if isinstance(x, Tensor):
            assert x.shape[1:] == y.shape[1:] and bool((y.isfinite() | ~x.isfinite().any()).all())
            torch.testing.assert_close(y, z, equal_nan=True)
        else:
            assert type(x) is type(y) and (y == z or y != y)


@pytest.mark.usefixtures("uncompiled")
def test_a_run_goes_from_device_to_device(tmp_path: Path) -> None:
    """Noise is keyed by the update: a run that moves twice ends with the bits of one that stays."""

    def go_on(updates: int, device: Any, path: Path) -> Tensor:
        machine = binary("cpu")
        run = hm.train(
            machine, BITS, rule=hm.rules.pcd(2), updates=updates, batch_size=5, device=device,
            run_dir=path, resume=True, progress=False, seed=7,
        )  # fmt: skip
        assert run.status == "completed"
        return machine.couplings[0].weight.detach().cpu()

    stayed = go_on(9, "cpu", tmp_path / "stayed")
    moves = "device: the run to resume was on .*, in the same distribution but not in the same bits"
    with pretend_device():
        go_on(3, DEVICE, tmp_path / "moved")
    with pytest.warns(RuntimeWarning, match=moves):
        go_on(6, "cpu", tmp_path / "moved")
    with pretend_device(), pytest.warns(RuntimeWarning, match=moves):
        moved = go_on(9, DEVICE, tmp_path / "moved")
    assert torch.equal(stayed, moved)


def test_a_run_of_the_cpu_goes_on_elsewhere_and_comes_back(tmp_path: Path) -> None:
    """Its one stream of noise ends where it left; from there on noise is keyed."""
    ends = []
    for path in (tmp_path / "a", tmp_path / "b"):
        for updates in (3, 6, 9):
            machine = binary("cpu")
            with pretend_device(), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                hm.train(
                    machine, BITS, rule="pcd", updates=updates, batch_size=5, run_dir=path, resume=True,
                    device=DEVICE if updates == 6 else "cpu", progress=False,
                )  # fmt: skip
        ends.append(machine.couplings[0].weight.detach())
    assert torch.equal(*ends)


def test_a_tensor_that_changes_its_shape_in_place_has_the_new_one() -> None:
    with pretend_device():  # x @ y ends with such a change
        x, y = torch.ones(3, device=DEVICE), torch.ones(3, 2, device=DEVICE)
        assert (x @ y).shape == (2,)
        assert (x @ y @ torch.ones(2, device=DEVICE)).item() == 6
