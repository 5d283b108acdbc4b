"""Updates made many at once: against those made one by one with the same noise, and against enumeration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium import _random
from harmonium.compiled import dispatch
from harmonium.machine import Hamiltonian
from harmonium.training import compiled_updates, trainer

pytestmark = pytest.mark.skipif(not dispatch.COMPILED, reason="needs numba")

UNITS = {"bernoulli": hm.Bernoulli, "spin": hm.Spin}
FAILURES = 1e-3  # of each statistical test, over all its comparisons


@pytest.fixture(autouse=True)
def from_the_first(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Serves runs of any length."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(dispatch, "LEAST_UPDATES", 1)
    yield
    torch.set_num_threads(before)


def machine_of(kinds: tuple[str, str], n: int, m: int, dtype: torch.dtype = torch.float64) -> Any:
    machine = hm.BoltzmannMachine([UNITS[kinds[0]](n), UNITS[kinds[1]](m)], seed=3).to(dtype)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in machine.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype) * 0.4)
    return machine


def rows_of(kind: str, rows: int, n: int, seed: int) -> Any:
    x = (np.random.default_rng(seed).random((rows, n)) < 0.4).astype(np.float64)
    return 2 * x - 1 if kind == "spin" else x


class Noise:
    """The noise of compiled updates, for those made one by one: each row has a stream of the update's key."""

    GAMMA, FAR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1342543DE82EF95)

    def __init__(self, draws: int) -> None:
        self._draws, self._number = draws, 0
        self._words: Any = None

    def next(self, rows: int, width: int, generator: torch.Generator) -> Tensor:
        if self._number % self._draws == 0:
            self._words = _random.key(generator) + np.arange(rows, dtype=np.uint64) * self.FAR
        self._number += 1
        half = (width + 1) // 2
        words = self._words[:, None] + np.arange(1, half + 1, dtype=np.uint64) * self.GAMMA
        self._words = words[:, -1]
        x = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        whole = np.concatenate([x >> np.uint64(41), (x >> np.uint64(18)) & np.uint64(0x7FFFFF)], axis=1)
        return torch.from_numpy((whole[:, :width].astype(np.float64) + 0.5) * 2.0**-23)


def one_by_one(monkeypatch: pytest.MonkeyPatch, noise: Noise, begun: int) -> None:
    """Lets updates be made one by one, with this noise after the first ``begun`` draws."""
    drawn = [0]
    usual = Hamiltonian.sample

    def sample(law: Hamiltonian, layer: Any, field: Tensor, generator: torch.Generator, *more: Any) -> Tensor:
        drawn[0] += 1
        if drawn[0] <= begun:
            return usual(law, layer, field, generator, *more)
        kind, theta = law.units(layer)
        return kind.sample(field, noise.next(*field.shape, generator), theta)

    monkeypatch.setattr(trainer, "served", lambda *_: False)
    monkeypatch.setattr(Hamiltonian, "sample", sample)


@pytest.mark.parametrize("case", range(20))
def test_settings_of_the_optimiser_as_one_by_one_with_the_same_noise(
    case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = np.random.default_rng(100 + case)
    kinds = str(choose.choice(list(UNITS))), str(choose.choice(list(UNITS)))
    n, m, rows, size = (int(choose.integers(*span)) for span in ((2, 9), (2, 9), (15, 40), (3, 20)))
    sweeps, persistent = int(choose.integers(1, 4)), bool(choose.integers(2))
    chains = [None, 7, 12][choose.integers(3)]
    rule = hm.rules.pcd(sweeps, chains) if persistent else hm.rules.cd(sweeps)
    settings = {
        "rule": hm.rules.centred(rule) if choose.integers(2) else rule,
        "sample_weight": choose.choice([0.0, 0.5, 1.0, 3.0], rows) if choose.integers(2) else None,
        "momentum": float(choose.choice([0.0, 0.5, 0.9])),
        "weight_decay": float(choose.choice([0.0, 0.01])),
        "l1": float(choose.choice([0.0, 0.02])),
        "clip_norm": [None, 0.3][choose.integers(2)],
        "schedule": str(choose.choice(["constant", "cosine", "linear", "inverse_sqrt"])),
        "learning_rate": float(choose.choice([0.01, 0.3])),
        "batch_size": size,
        "updates": 40,
        "seed": case,
        "progress": False,
    }
    X = rows_of(kinds[0], rows, n, case)
    fast = machine_of(kinds, n, m)
    run = hm.train(fast, X, **settings)
    slow = machine_of(kinds, n, m)
    one_by_one(monkeypatch, Noise(2 * sweeps + (not persistent)), 2 if persistent else 0)
    expected = hm.train(slow, X, **settings)
    for (name, x), y in zip(fast.named_parameters(), slow.parameters(), strict=True):
        assert float((x - y).detach().abs().max()) < 1e-10, name
    for mine, theirs in zip(run.history, expected.history, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine.keys() - {"seconds"}:
            assert mine[name] == pytest.approx(theirs[name], rel=1e-9), name
    if persistent:
        assert run.rule_state["sweeps"] == expected.rule_state["sweeps"]
        for x, y in zip(run.rule_state["chains"], expected.rule_state["chains"], strict=True):
            assert torch.equal(x, y)


def all_states(layers: Any) -> list[Tensor]:
    """All joint states, one a row: a tensor for every layer."""
    values = [layer.two_values for layer in layers for _ in range(layer.width)]
    states = torch.tensor(list(product(*values)), dtype=torch.float64)
    return list(states.split([layer.width for layer in layers], 1))


def place_of(states: list[Tensor]) -> Any:
    """The row of ``all_states`` that each row is."""
    up = torch.cat(states, 1) > 0
    return (up.long() * 2 ** torch.arange(up.shape[1] - 1, -1, -1)).sum(1).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kinds", list(product(UNITS, UNITS)), ids="-".join)
def test_chains_follow_the_law_of_a_sweep_from_one_state(kinds: tuple[str, str], dtype: torch.dtype) -> None:
    n, m, chains = 3, 2, 40_000
    machine = machine_of(kinds, n, m, dtype)
    generator = torch.Generator().manual_seed(1)
    one = [layer.mode(torch.tensor([[1.0, -1, 1][: layer.width]], dtype=dtype)) for layer in machine.layers]
    start = [x.repeat(chains, 1) for x in one]
    X = rows_of(kinds[0], 4, n, 0)
    rule = hm.rules.pcd(1, chains)
    run = hm.train(
        machine, X, rule=rule, updates=1, learning_rate=0.0, rule_state=start, seed=generator, progress=False
    )
    law, states = machine.hamiltonian(), all_states(machine.layers)
    states = [x.to(dtype) for x in states]
    given_h = law.layers[0].log_conditional(
        states[0], law.field(0, [states[0], one[1].expand(len(states[0]), -1)]), law.thetas[0]
    )
    given_v = law.layers[1].log_conditional(states[1], law.field(1, states), law.thetas[1])
    probability = (given_h.sum(1) + given_v.sum(1)).double().exp().detach().numpy()
    assert probability.sum() == pytest.approx(1.0, abs=1e-5)
    counts = np.bincount(place_of(run.rule_state["chains"]), minlength=len(probability))
    expected = chains * probability / probability.sum()
    assert stats.chisquare(counts, expected).pvalue > FAILURES / 8


@pytest.mark.parametrize("kinds", list(product(UNITS, UNITS)), ids="-".join)
@pytest.mark.parametrize("sweeps", [1, 2])
def test_the_mean_gradient_of_contrastive_divergence_by_enumeration(
    kinds: tuple[str, str], sweeps: int
) -> None:
    n, m, copies = 3, 2, 2_000
    machine, before = machine_of(kinds, n, m), machine_of(kinds, n, m)
    X = rows_of(kinds[0], 5, n, 1)
    many = np.tile(X, (copies, 1))
    batches = 20
    moved = []
    for seed in range(batches):
        machine.load_state_dict(before.state_dict())
        hm.train(
            machine, many, rule=hm.rules.cd(sweeps), updates=1, batch_size=len(many), learning_rate=1.0,
            seed=seed, progress=False,
        )  # fmt: skip
        pairs = zip(machine.parameters(), before.parameters(), strict=True)
        moved.append(torch.cat([(x - y).detach().flatten() for x, y in pairs]))
    found = torch.stack(moved)
    law = before.hamiltonian()
    # The law of the visible units after so many sweeps, by powers of the transition matrix of v.
    alone = all_states(before.layers[:1])[0]
    hidden = all_states(before.layers[1:])[0]
    up = conditional(law, 1, alone, hidden)  # (v, h)
    down = conditional(law, 0, alone, hidden).T  # (h, v)
    law_of_v = torch.zeros(len(alone), dtype=torch.float64)
    for row in torch.from_numpy(X):
        law_of_v[(alone == row).all(1)] += 1 / len(X)
    end = law_of_v @ torch.linalg.matrix_power(up @ down, sweeps)
    change = law_of_v - end
    mean = before.layers[1].moments(alone @ before.couplings[0].weight).mean
    exact = {
        "couplings.0.weight": (alone * change[:, None]).T @ mean,
        "layers.0.bias": change @ alone,
        "layers.1.bias": change @ mean,
    }
    expected = torch.cat([exact[name].detach().flatten() for name, _ in before.named_parameters()])
    z = (found.mean(0) - expected) / (found.std(0) / batches**0.5)
    assert float(z.abs().max()) < stats.t(batches - 1).isf(FAILURES / 8 / 2 / len(z))


def conditional(law: Hamiltonian, layer: int, alone: Tensor, hidden: Tensor) -> Tensor:
    """p(h | v) of layer 1 or p(v | h) of layer 0, for all (v, h)."""
    v, h = (
        x.flatten(0, 1)
        for x in (alone[:, None].expand(-1, len(hidden), -1), hidden.expand(len(alone), -1, -1))
    )
    states = [v.contiguous(), h.contiguous()]
    log = law.layers[layer].log_conditional(states[layer], law.field(layer, states), law.thetas[layer])
    return log.sum(1).exp().view(len(alone), len(hidden)).detach()


def test_persistent_chains_keep_the_law_and_give_the_gradient() -> None:
    """From an exact start, at a rate of 0: no drift; and the mean gradient is that of the log-likelihood."""
    kinds, chains, updates = ("bernoulli", "spin"), 20_000, 5
    machine = machine_of(kinds, 3, 3)
    law, states = machine.hamiltonian(), all_states(machine.layers)
    probability = torch.softmax(-law.energy(states), 0).detach()
    generator = torch.Generator().manual_seed(2)
    drawn = torch.multinomial(probability, chains, replacement=True, generator=generator)
    start = [x[drawn] for x in states]
    X = rows_of(kinds[0], 6, 3, 1)
    rule = hm.rules.pcd(2, chains)
    run = hm.train(
        machine, X, rule=rule, updates=updates, learning_rate=0.0, rule_state=start, progress=False
    )
    assert run.rule_state["sweeps"] == 2 * updates
    counts = np.bincount(place_of(run.rule_state["chains"]), minlength=len(probability))
    assert stats.chisquare(counts, chains * probability.numpy()).pvalue > FAILURES
    before = {name: x.detach().clone() for name, x in machine.named_parameters()}
    hm.train(machine, X, rule=rule, updates=1, learning_rate=1.0, rule_state=start, progress=False)
    fresh = machine_of(kinds, 3, 3)
    exact = hm.rules.exact().gradient(fresh, X, seed=0).parameters
    for name, parameter in machine.named_parameters():
        error = (parameter.detach() - before[name] - exact[name]).abs().max()
        assert float(error) < 4.5 / chains**0.5, name  # a state's statistic deviates by 1 at most


DATA = rows_of("bernoulli", 60, 8, 4)


def trained(updates: int = 90, **settings: Any) -> Any:
    machine = machine_of(("bernoulli", "bernoulli"), 8, 5, torch.float32)
    options = {
        "rule": hm.rules.centred(hm.rules.pcd(2)), "batch_size": 7, "momentum": 0.5,
        "schedule": "inverse_sqrt", "weight_decay": 0.01, "progress": False, **settings,
    }  # fmt: skip
    return hm.train(machine, DATA, updates=updates, **options)


class Seldom:
    """A callback that wants to see every eleventh update."""

    def wants(self, step: int, total: int) -> bool:
        return step % 11 == 0

    def __call__(self, update: hm.training.Update) -> None:
        assert update.step % 11 == 0 or update.step in (1, 2, 4, 8, 16, 32, 64, 90)


def bits(run: Any) -> list[bytes]:
    return [x.detach().numpy().tobytes() for x in (*run.machine.parameters(), *run.rule_state["chains"])]


@pytest.mark.parametrize(
    "cut",
    [
        {"record_every": 1},
        {"record_every": 17},
        {"callbacks": [lambda update: None]},
        {"callbacks": [Seldom()], "record_every": 90},
        {"averaging": 0.9},
        {"metrics": {"one": lambda machine, rows: 1.0}, "validation": DATA, "evaluate_every": 7},
    ],
    ids=lambda cut: next(iter(cut)),
)
def test_the_bits_do_not_depend_on_how_updates_are_dealt_into_calls(cut: dict[str, Any]) -> None:
    assert bits(trained(**cut)) == bits(trained(record_every=90))


def test_a_small_call_has_the_bits_of_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bits(trained())
    monkeypatch.setattr(compiled_updates, "_NUMBERS", 3 * 7 * 8)
    assert bits(trained()) == whole


def test_a_run_that_goes_on_has_the_bits_of_one_that_never_stopped(tmp_path: Path) -> None:
    whole = trained(schedule="constant")
    for updates in (13, 50, 90):
        run = trained(updates, schedule="constant", run_dir=tmp_path, resume=True, checkpoint_every=11)
    assert bits(run) == bits(whole)
    assert json.loads((tmp_path / "config.json").read_text())["engine"] == "compiled"


def test_a_run_goes_on_without_numba_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(30, schedule="constant", run_dir=tmp_path)
    monkeypatch.setattr(dispatch, "COMPILED", False)
    with pytest.warns(
        RuntimeWarning, match="engine: the run to resume was on compiled and goes on, on torch"
    ):
        run = trained(60, schedule="constant", run_dir=tmp_path, resume=True)
    assert run.updates == 60
    assert run.rule_state["sweeps"] == 120


def test_momentum_is_that_of_updates_made_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A run may go from one way to the other: what the optimiser remembers means the same."""
    monkeypatch.setattr(dispatch, "LEAST_UPDATES", 10**9)
    trained(1, rule=hm.rules.cd(1), schedule="constant", learning_rate=0.0, run_dir=tmp_path)
    before = machine_of(("bernoulli", "bernoulli"), 8, 5, torch.float32)
    monkeypatch.setattr(dispatch, "LEAST_UPDATES", 1)
    with pytest.warns(RuntimeWarning, match="engine"):
        run = trained(
            2, rule=hm.rules.cd(1), schedule="constant", learning_rate=0.0, run_dir=tmp_path, resume=True
        )
    for x, y in zip(run.machine.parameters(), before.parameters(), strict=True):
        assert torch.equal(x, y)
    kept = [state["momentum_buffer"] for state in optimizer_of(tmp_path)["state"].values()]
    assert len(kept) == 3


def optimizer_of(folder: Path) -> Any:
    from harmonium.training.checkpoint import read_checkpoint

    return read_checkpoint(folder / "checkpoint.safetensors")["optimizer"]


@pytest.mark.parametrize("served", [True, False])
def test_what_is_not_finite_stops_the_run_at_its_update(
    served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "LEAST_UPDATES", 1 if served else 10**9)
    with pytest.raises(hm.training.TrainingDiverged, match=r"run away|not finite") as caught:
        trained(learning_rate=1e30, schedule=lambda step, total: 1e-30 if step < 21 else 1.0)
    assert 21 <= caught.value.step <= 23
    assert caught.value.learning_rate == pytest.approx(1e30)


def test_keys_are_those_drawn_one_by_one() -> None:
    one, many = (torch.Generator().manual_seed(4) for _ in range(2))
    assert [_random.key(one) for _ in range(9)] == [*_random.keys(4, many), *_random.keys(5, many)]


NOT_SERVED: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "momentum": 0.0},
    "a factory": {"optimizer": lambda ps: torch.optim.SGD(ps, lr=0.1), "momentum": 0.0},
    "kernel": {"rule": hm.rules.pcd(kernel=hm.chains.Metropolis())},
    "noise": {"rule": hm.rules.noise_cd(3)},
    "coupled": {"rule": hm.rules.ucd(max_steps=10)},
    "transform": {"transform": lambda rows, generator: rows},
    "precision": {"precision": "bf16"},
}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_other_runs_are_made_one_by_one(name: str, tmp_path: Path) -> None:
    trained(3, run_dir=tmp_path, **NOT_SERVED[name])
    assert json.loads((tmp_path / "config.json").read_text())["engine"] == "torch"


@pytest.mark.parametrize(
    "layers",
    [
        [hm.Gaussian(8), hm.Bernoulli(5)],
        [hm.Bernoulli(8), hm.Gaussian(5)],
        [hm.Bernoulli(8), hm.Bernoulli(5), hm.Bernoulli(3)],
    ],
    ids=["real data", "real hidden units", "deep"],
)
def test_other_machines_are_made_one_by_one(layers: Any, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine(layers, seed=0)
    hm.train(
        machine, DATA, rule=hm.rules.pcd(), updates=3, batch_size=7, run_dir=tmp_path, learning_rate=1e-3,
        progress=False,
    )  # fmt: skip
    assert json.loads((tmp_path / "config.json").read_text())["engine"] == "torch"


def test_a_frozen_parameter_and_rows_with_holes_are_left_to_updates_one_by_one(tmp_path: Path) -> None:
    for name, frozen, holes in (("frozen", True, False), ("holes", False, True)):
        machine = machine_of(("bernoulli", "bernoulli"), 8, 5, torch.float32)
        machine.layers[0].bias.requires_grad_(not frozen)
        X = DATA.copy()
        X[0, 0] = np.nan if holes else X[0, 0]
        hm.train(machine, X, rule=hm.rules.pcd(), updates=3, run_dir=tmp_path / name, progress=False)
        assert json.loads((tmp_path / name / "config.json").read_text())["engine"] == "torch"
