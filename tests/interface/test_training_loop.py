"""The training loop: batches, schedules, gradient terms, averaging, history, and what it refuses."""

from __future__ import annotations

import math
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.utils.data import DataLoader

import harmonium as hm
from harmonium.backends import OuterProductSum
from harmonium.learning import Estimate
from harmonium.training import SCHEDULES, TrainingRun, train
from harmonium.training.batch_source import RowBatches
from harmonium.training.optimizers import Ascent, global_norm
from harmonium.training.seeds import stream_seed

VISIBLE, HIDDEN = 6, 4
pytestmark = pytest.mark.usefixtures("one_thread")


def machine(seed: int = 0) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(HIDDEN)], seed=seed)


def data(rows: int = 23) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, (rows, VISIBLE)).astype(np.float32)


def run(**settings: Any) -> TrainingRun:
    """A short run of PCD, with other settings where given."""
    defaults = {"rule": hm.rules.pcd(1, 8), "updates": 20, "batch_size": 5}
    return train(machine(), data(), **{**defaults, **settings})


def same(a: hm.BoltzmannMachine, b: hm.BoltzmannMachine) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


class Fixed:
    """A rule whose gradient is one for every parameter, and which notes what it was given."""

    name = "fixed"

    def __init__(self, value: float = 1.0) -> None:
        self.value = value
        self.batches: list[torch.Tensor] = []
        self.seed = 0

    def __repr__(self) -> str:
        return f"fixed({self.value})"

    def gradient(
        self, machine: hm.BoltzmannMachine, v: torch.Tensor, state: Any = None, *, seed: torch.Generator
    ) -> Estimate:
        self.batches.append(v.clone())
        self.seed = seed.initial_seed()
        parameters = {name: torch.full_like(p, self.value) for name, p in machine.named_parameters()}
        calls = 1 if state is None else state + 1
        return Estimate(parameters, {"calls": float(calls)}, calls)


def distances(before: hm.BoltzmannMachine, after: hm.BoltzmannMachine) -> list[torch.Tensor]:
    return [(y - x).detach() for x, y in zip(before.parameters(), after.parameters(), strict=True)]


# Batches ---------------------------------------------------------------------------------------------------


def batches_of(rows: int, batch_size: int, seed: int, **settings: Any) -> RowBatches:
    return RowBatches(hm.data.Rows.of(torch.zeros(rows, 1)), batch_size, seed, **settings)


@pytest.mark.parametrize(("rows", "batch_size"), [(23, 5), (7, 6)])
def test_every_row_appears_once_an_epoch(rows: int, batch_size: int) -> None:
    batches = batches_of(rows, batch_size, seed=3)
    steps = batches.updates(epochs=4)
    shown = torch.cat([batches.indices(step) for step in range(steps)])
    assert len(shown) == steps * batch_size
    for epoch in range(4):
        assert sorted(shown[epoch * rows : (epoch + 1) * rows].tolist()) == list(range(rows))
    assert not torch.equal(shown[:rows], shown[rows : 2 * rows])
    weights = (torch.arange(rows + 7) >= 7).double()  # of which those without a weight are left out
    batches = batches_of(rows + 7, batch_size, seed=3, weights=weights)
    shown = torch.cat([batches.indices(step) for step in range(batches.updates(epochs=1))])
    assert sorted(shown[:rows].tolist()) == list(range(7, rows + 7))


def test_the_place_in_the_data_depends_on_the_step_alone() -> None:
    straight = batches_of(23, 5, seed=3)
    in_order = [straight.indices(step) for step in range(40)]
    for step in (39, 0, 17, 18):
        assert torch.equal(batches_of(23, 5, seed=3).indices(step), in_order[step])
    assert not torch.equal(batches_of(23, 5, seed=4).indices(0), in_order[0])


# Schedules and optimisers ----------------------------------------------------------------------------------


def test_schedules() -> None:
    assert [SCHEDULES["constant"](t, 10) for t in (0, 5, 10)] == [1, 1, 1]
    assert [SCHEDULES["linear"](t, 10) for t in (0, 5, 10)] == [1, 0.5, 0]
    assert [SCHEDULES["cosine"](t, 10) for t in (0, 5, 10)] == pytest.approx([1, 0.5, 0])
    assert [SCHEDULES["inverse_sqrt"](t, 10) for t in (0, 3000)] == [1, 0.5]
    risen = [SCHEDULES["warmup_cosine"](t, 100) for t in (0, 4, 50, 100)]
    assert risen == pytest.approx([0.2, SCHEDULES["cosine"](4, 100), 0.5, 0])


@pytest.mark.parametrize("schedule", [*SCHEDULES, lambda step, total: 2.0 * step / total])
def test_schedules_scale_the_learning_rate(schedule: Any) -> None:
    factor = SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    after = machine()
    outcome = train(
        after, data(), rule=Fixed(), updates=4, learning_rate=0.5, schedule=schedule, record_every=1
    )
    expected = [0.5 * factor(step, 4) for step in range(4)]
    assert [record["learning_rate"] for record in outcome.history] == pytest.approx(expected)
    for moved in distances(machine(), after):
        assert torch.allclose(moved, torch.full_like(moved, sum(expected)), atol=1e-6)


def test_schedules_scale_every_group_of_a_factory() -> None:
    def factory(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        slow, fast = parameters[:1], parameters[1:]
        return torch.optim.SGD([{"params": slow, "lr": 0.1}, {"params": fast, "lr": 1.0}])

    after = machine()
    train(after, data(), rule=Fixed(), updates=2, optimizer=factory, schedule="linear")
    first, *rest = distances(machine(), after)
    assert torch.allclose(first, torch.full_like(first, 0.15))
    assert all(torch.allclose(moved, torch.full_like(moved, 1.5)) for moved in rest)


def test_optimisers_that_cannot_maximise_are_handed_minus_the_gradient() -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, parameters: Any) -> None:
            super().__init__(parameters, {"lr": 0.25})

        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * group["lr"])

    after = machine()
    train(after, data(), rule=Fixed(), updates=2, optimizer=Plain)
    for moved in distances(machine(), after):
        assert torch.allclose(moved, torch.full_like(moved, 0.5))


# Gradient terms --------------------------------------------------------------------------------------------


def test_clipping_limits_the_global_norm() -> None:
    gradients = [torch.full((3,), 2.0), torch.full((2, 2), -1.0)]
    norm = global_norm(gradients)
    assert norm == pytest.approx(4.0)

    for limit in (None, 1e3):  # not reached
        free = machine()
        train(free, data(), rule=Fixed(), updates=1, learning_rate=1.0, clip_norm=limit)
        for moved in distances(machine(), free):
            assert torch.allclose(moved, torch.ones_like(moved))
    after = machine()
    outcome = train(after, data(), rule=Fixed(), updates=1, learning_rate=1.0, clip_norm=0.1)
    entries = sum(p.numel() for p in after.parameters())
    assert outcome.history[0]["gradient_norm"] == pytest.approx(math.sqrt(entries))
    assert global_norm(distances(machine(), after)) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("settings", [{}, {"optimizer": partial(torch.optim.SGD, lr=0.05)}])
def test_the_history_has_the_share_of_updates_that_were_clipped(settings: dict[str, Any]) -> None:
    """In compiled updates and in those made one by one."""
    told = {"rule": "pcd", "updates": 200, "progress": False, **settings}
    free = train(machine(), data(), **told)
    assert free.clipped is None and "clipped" not in free.history[0]
    limit = sorted(record["gradient_norm"] for record in free.history)[len(free.history) // 2]
    for every in (1, 7):
        run = train(machine(), data(), **told, clip_norm=limit, record_every=every)
        assert run.engine.startswith("torch" if settings else "compiled")
        if every == 1:
            clipped = [record["gradient_norm"] > limit for record in run.history]
            assert [record["clipped"] for record in run.history] == clipped
        assert run.clipped == pytest.approx(sum(clipped) / 200) and 0 < run.clipped < 1


@pytest.mark.parametrize("updates", [5, 300])  # long runs are compiled where nothing forbids it
@pytest.mark.parametrize("settings", [{}, {"optimizer": "adam"}, {"momentum": 0.5}])
def test_every_update_ends_in_the_ball(settings: dict[str, Any], updates: int) -> None:
    norms = []

    def note(update: Any) -> None:
        norms.append(float(torch.cat([x.detach().flatten() for x in update.machine.parameters()]).norm()))

    run(radius=0.2, updates=updates, learning_rate=0.3, callbacks=[note], **settings)
    assert len(norms) == updates
    assert max(norms) == pytest.approx(0.2, rel=1e-6)


def test_the_projection_is_to_the_nearest_point_of_the_ball() -> None:
    start, after = machine(), machine()
    train(after, data(), rule=Fixed(), updates=1, learning_rate=1.0, radius=2.0)
    moved = [x.detach().double().numpy() + 1.0 for x in start.parameters()]
    norm = np.sqrt(sum((x**2).sum() for x in moved))
    assert norm > 2
    for expected, x in zip(moved, after.parameters(), strict=True):
        np.testing.assert_allclose(x.detach().numpy(), expected * (2.0 / norm), rtol=1e-6)


def test_frozen_parameters_stay() -> None:
    after = machine()
    after.layers[0].bias.requires_grad_(False)
    train(after, data(), rule=hm.rules.cd(1), updates=5)
    assert bool((after.layers[0].bias == 0).all())
    assert not torch.equal(after.couplings[0].weight, machine().couplings[0].weight)


def test_training_leaves_no_gradient_behind() -> None:
    assert all(p.grad is None for p in run().machine.parameters())


# Averaging -------------------------------------------------------------------------------------------------


def test_the_average_starts_as_a_mean_and_then_forgets() -> None:
    seen: list[torch.Tensor] = []
    outcome = run(
        updates=30,
        averaging=0.9,
        callbacks=[lambda update: seen.append(update.machine.couplings[0].weight.detach().clone())],
    )
    expected = torch.zeros_like(seen[0])
    for step, W in enumerate(seen, start=1):
        expected = expected.lerp(W, max(0.1, 1 / step))
    assert outcome.averaged_machine is not None
    assert torch.allclose(outcome.averaged_machine.couplings[0].weight, expected, atol=1e-7)
    assert same(outcome.machine, run(updates=30).machine)  # the average does not disturb training
    assert run().averaged_machine is None


# Data ------------------------------------------------------------------------------------------------------


def test_every_kind_of_data_gives_the_same_bits(tmp_path: Path) -> None:
    X = data(40)
    np.save(tmp_path / "X.npy", X.astype(np.uint8))
    kinds = [
        torch.from_numpy(X),
        X.astype(bool),
        sparse.csr_matrix(X),
        mapped := np.load(tmp_path / "X.npy", mmap_mode="r"),
    ]
    reference = machine()
    train(reference, X, rule=hm.rules.pcd(1, 8), updates=12, batch_size=7)
    for kind in kinds:
        other = machine()
        train(other, kind, rule=hm.rules.pcd(1, 8), updates=12, batch_size=7)
        assert same(reference, other)
    settings = {"rule": hm.rules.pcd(1, 8), "batch_size": 7, "run_dir": tmp_path / "run"}
    train(machine(), mapped, updates=5, **settings)
    assert same(reference, train(machine(), mapped, updates=12, resume=True, **settings).machine)


def test_rows_of_a_file_are_read_ahead_by_one_thread_that_ends(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X := data(64))
    mapped = hm.data.Rows.of(np.load(tmp_path / "X.npy", mmap_mode="r"))
    source, memory = RowBatches(mapped, 10, seed=3), RowBatches(hm.data.Rows.of(X), 10, seed=3)
    for step in (0, 1, 2, 9, 4):  # also where a step is asked for that was not expected
        assert torch.equal(source.take(step).v, torch.from_numpy(X)[memory.indices(step)])
        assert any(thread.name.startswith("harmonium-rows") for thread in threading.enumerate())
    source.close()
    assert not any(thread.name.startswith("harmonium-rows") for thread in threading.enumerate())


def test_rows_out_of_support_are_named(tmp_path: Path) -> None:
    X = data(40)
    X[17, 2] = 0.37
    with pytest.raises(ValueError, match=r"X\[17\].*0\.37"):
        train(machine(), X, rule=Fixed(), updates=1)
    np.save(tmp_path / "X.npy", X)
    before = machine()
    with pytest.raises(ValueError, match=r"X\[17\].*0\.37"):
        train(before, np.load(tmp_path / "X.npy", mmap_mode="r"), rule=Fixed(), epochs=1, batch_size=8)
    with pytest.raises(ValueError, match=r"validation\[17\].*0\.37"):
        run(validation=X, metrics={"zero": lambda machine, X: 0.0})


# Randomness ------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_and_no_global_draw() -> None:
    state = torch.get_rng_state()
    rule = Fixed()
    train(machine(seed=0), data(), rule=rule, updates=1, seed=0)
    assert rule.seed != 0  # the noise of the rule is not that of the first couplings
    assert same(run(seed=5).machine, run(seed=5).machine)
    assert not same(run(seed=5).machine, run(seed=6).machine)
    assert torch.equal(torch.get_rng_state(), state)


def test_streams_of_one_seed_differ() -> None:
    seeds = [stream_seed(0, "rule"), *(stream_seed(0, "data", epoch) for epoch in range(100)), 0]
    assert len(set(seeds)) == len(seeds)
    assert stream_seed(1, "rule") not in seeds


# History, metrics, callbacks -------------------------------------------------------------------------------


def test_history_and_metrics() -> None:
    outcome = run(
        rule=Fixed(),
        updates=10,
        record_every=4,
        evaluate_every=3,
        validation=data(9),
        metrics={"rows": lambda machine, X: len(X), "bias": lambda machine, X: machine.layers[0].bias[0]},
    )
    assert [record["step"] for record in outcome.history] == [3, 4, 6, 8, 9, 10]
    assert [record["calls"] for record in outcome.history] == [2.0, 4.0, 5.5, 7.5, 9.0, 10.0]
    assert ["rows" in record for record in outcome.history] == [True, False, True, False, True, True]
    assert outcome.metrics == {"rows": 9.0, "bias": pytest.approx(0.5)}
    assert all(type(value) in (int, float) for record in outcome.history for value in record.values())
    seconds = [record["seconds"] for record in outcome.history]
    assert seconds == sorted(seconds) and outcome.seconds >= seconds[-1] > 0
    ends = (outcome.status, outcome.updates, outcome.run_dir, outcome.rule_state)
    assert ends == ("completed", 10, None, 10)


def test_metrics_are_evaluated_once_an_epoch_by_default() -> None:
    outcome = run(updates=12, record_every=100, validation=data(), metrics={"one": lambda machine, X: 1.0})
    assert [record["step"] for record in outcome.history] == [5, 10, 12]  # 23 rows, batches of 5


def test_rules_of_every_recipe_train() -> None:
    for recipe in hm.rules.RECIPES.values():
        assert run(rule=recipe(), updates=3).status == "completed"


# Refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"updates": None}, "updates, epochs"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"optimizer": "rmsprop"}, "optimizer.*adam.*sgd"),
        ({"schedule": "step"}, "schedule.*constant.*cosine.*inverse_sqrt.*linear"),
        ({"schedule": lambda step, total: -1.0}, "schedule"),
        ({"momentum": 1.0}, "momentum"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum"),
        ({"l1": -1.0}, "l1"),
        ({"averaging": 0.0}, "averaging"),
        ({"resume": True}, "run_dir"),
        ({"resume": True, "overwrite": True, "run_dir": "unused"}, "resume, overwrite"),
        ({"validation": data()}, "metrics"),
        ({"rule": 3}, "rule"),
        ({"optimizer": lambda parameters: None}, "optimizer"),
        ({"callbacks": print}, "callbacks: expected a list of callables"),
        ({"penalties": 0.01}, "penalties: expected some of l2, .*, received float"),
        ({"transform": lambda v, generator: v + 0.5}, "X.*expected values in {0, 1}"),
        ({"rates": {"variance": 0.1}}, "rates: expected names of learned parameters, bias, weight"),
        ({"rates": ["bias"]}, "rates: expected NAME=FACTOR"),
        ({"rates": {"bias": -1.0}}, "rates: expected NAME=FACTOR"),
        ({"rates": {"bias": 0.1}, "optimizer": torch.optim.SGD}, "rates: expected with optimizer="),
        ({"validation": data(), "metrics": {"one": 1.0}}, "metrics"),
        ({"validation": data(), "metrics": {"fit": lambda *_: "good"}}, "metrics.*expected a number or one"),
        ({"metrics": {"one": lambda machine, X: 1.0}}, "validation"),
        ({"validation": data(), "metrics": {"step": lambda machine, X: 1.0}}, "metrics"),
        ({"validation": data()[:, 1:], "metrics": {"one": lambda machine, X: 1.0}}, "validation"),
        (
            {"validation": data(), "metrics": {"calls": lambda machine, X: 1.0}, "rule": Fixed()},
            "metrics.*calls",
        ),
    ],
)
def test_malformed_arguments_are_named(settings: dict[str, Any], name: str, tmp_path: Path) -> None:
    if "run_dir" in settings:
        settings = {**settings, "run_dir": tmp_path / "run"}
    with pytest.raises((TypeError, ValueError), match=f"(?s)^{name}"):
        run(**settings)


def test_malformed_data_are_named() -> None:
    with pytest.raises(ValueError, match=r"^X: expected 6 columns.*received 5"):
        train(machine(), data()[:, 1:], rule=Fixed(), updates=1)
    for batches in ((x for x in ()), DataLoader(data())):
        with pytest.raises(TypeError, match=r"X: expected a numpy array, .* or h5py dataset, received"):
            train(machine(), batches, rule=Fixed(), updates=1)
    with pytest.raises(TypeError, match=r"^machine"):
        train(torch.nn.Linear(2, 2), data(), rule=Fixed(), updates=1)  # type: ignore[arg-type]
    frozen = machine().requires_grad_(False)
    with pytest.raises(ValueError, match=r"^machine.*requires_grad"):
        train(frozen, data(), rule=Fixed(), updates=1)


def test_gradients_that_do_not_fit_are_named() -> None:
    class Partial(Fixed):
        def gradient(self, *arguments: Any, **named: Any) -> Estimate:
            estimate = super().gradient(*arguments, **named)
            del estimate.parameters["couplings.0.weight"]
            if self.value:
                estimate.parameters["couplings.0.weight"] = torch.zeros(2, 2)
            return estimate

    for value, said in ((0.0, ""), (1.0, r"\.weight of shape \(6, 4\), received \(2, 2\)")):
        with pytest.raises(ValueError, match=rf"^rule.*couplings\.0{said}"):
            run(rule=Partial(value))


def test_a_transform_makes_fresh_states_at_every_update_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    X = np.random.Generator(np.random.PCG64(0)).random((30, VISIBLE), dtype=np.float32)
    seen: list[torch.Tensor] = []

    def draw(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        seen.append(hm.data.bernoulli_binarise(batch, generator))
        return seen[-1]

    def drawn(updates: int, **more: Any) -> hm.BoltzmannMachine:
        settings = {"rule": hm.rules.pcd(1, 10), "updates": updates, "batch_size": 30, "transform": draw}
        return train(machine(), X, **settings, **more).machine

    whole = drawn(20)
    assert len(seen) == 20 and not torch.equal(seen[0], seen[1])
    assert all(bool(((states == 0) | (states == 1)).all()) for states in seen)
    drawn(7, run_dir=tmp_path / "run")
    assert same(whole, drawn(20, run_dir=tmp_path / "run", resume=True))


def test_a_run_goes_on_with_the_chains_of_another(tmp_path: Path) -> None:
    assert run(rule=Fixed(), updates=3, rule_state=4).rule_state == 7
    stopped = run(rule=Fixed(), updates=3, rule_state=4, run_dir=tmp_path / "run")
    resumed = run(rule=Fixed(), updates=5, rule_state=0, run_dir=tmp_path / "run", resume=True)
    assert (stopped.rule_state, resumed.rule_state) == (7, 9)

    first = run()
    second = run(rule=hm.rules.ucd(start="persistent"), updates=2, rule_state=first.rule_state)
    assert [tuple(x.shape) for x in second.rule_state.states] == [(8, VISIBLE), (8, HIDDEN)]


def test_chains_that_a_rule_cannot_take_are_named() -> None:
    chains = run().rule_state
    with pytest.raises(ValueError, match=r"^state.*start='data'"):
        run(rule=hm.rules.ucd(), rule_state=chains)
    for rule in (hm.rules.ucd(start="persistent"), hm.rules.pcd()):
        with pytest.raises(ValueError, match=r"^state: expected chains of width \[\(6,\), \(4,\)\]"):
            run(rule=rule, rule_state=chains.states[:1])


@pytest.mark.parametrize(("optimizer", "momentum"), [("sgd", 0.0), ("sgd", 0.5), ("adam", 0.0)])
def test_gradients_may_stand_in_memory_as_they_like(optimizer: str, momentum: float) -> None:
    """Fused optimisers of torch take the numbers in the order of memory, without an error."""
    rows = torch.arange(12.0).view(4, 3)
    ends = []
    for gradient in (rows, rows.t().contiguous().t()):
        parameter = torch.nn.Parameter(torch.zeros(4, 3))
        climber = Ascent(optimizer, [parameter], 0.1, momentum)
        for _ in range(3):
            climber.step([gradient.clone(memory_format=torch.preserve_format)])
        ends.append(parameter.detach())
    assert torch.equal(*ends) and float(ends[0][0, 1]) > 0


def test_a_sum_of_products_has_contiguous_rows() -> None:
    sums = OuterProductSum(torch.zeros(4, 3))
    term = torch.arange(12.0).view(3, 4).t()
    sums.grow(term)
    assert torch.equal(sums.total, term) and sums.total.is_contiguous()


def _moves(updates: int = 1, **options: Any) -> dict[str, torch.Tensor]:
    """How far each parameter goes in some updates of a small machine."""
    machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)])
    torch.nn.init.normal_(machine.couplings[0].weight, generator=torch.Generator().manual_seed(1))
    before = {name: value.detach().clone() for name, value in machine.named_parameters()}
    X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    settings: dict[str, Any] = {"updates": updates, "learning_rate": 0.1, "progress": False} | options
    hm.train(machine, X, rule="cd", **settings)
    return {name: value.detach() - before[name] for name, value in machine.named_parameters()}


@pytest.mark.parametrize("name", ["log_variance", "layers.0.log_variance"])
def test_a_rate_of_its_own_scales_the_step_of_a_parameter(name):
    plain, slow = _moves(), _moves(rates={name: 0.25})
    for key, move in plain.items():
        factor = 0.25 if key == "layers.0.log_variance" else 1.0
        torch.testing.assert_close(slow[key], factor * move)
        assert move.any()


def test_rates_hold_for_momentum_adam_and_long_runs_and_are_read_as_the_command_gives_them():
    for options in ({"momentum": 0.5}, {"optimizer": "adam"}, {"updates": 250}):
        held = _moves(**options, rates=["log_variance=0"])
        assert not held["layers.0.log_variance"].any() and held["couplings.0.weight"].any()
