"""Numbers that are not finite and machines that run away stop training and reach neither machine nor file."""

from __future__ import annotations

import math
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium._states import leaves
from harmonium.distributed import Group
from harmonium.learning import Estimate
from harmonium.training import STOP, TrainingDiverged, Update, train
from harmonium.training.checkpoint import read_checkpoint
from harmonium.training.divergence import DivergenceMonitor

VISIBLE, HIDDEN = 6, 4
X = torch.eye(VISIBLE)
pytestmark = pytest.mark.usefixtures("one_thread")


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(VISIBLE), hm.Bernoulli(HIDDEN)])


class Failing:
    """A rule with a gradient of ones that goes wrong in one place at its ninth call."""

    name = "failing"

    def __init__(self, where: str, value: float) -> None:
        self.where = where
        self.value = value

    def __repr__(self) -> str:
        return f"failing({self.where}, {self.value})"

    def gradient(
        self, machine: hm.BoltzmannMachine, v: torch.Tensor, state: Any = None, *, seed: torch.Generator
    ) -> Estimate:
        calls = 1 if state is None else state[0] + 1
        parameters = {name: torch.ones_like(p) for name, p in machine.named_parameters()}
        values = {"calls": float(calls), "residual": 0.5}
        chains = torch.zeros(2)
        if calls == 9:
            if self.where in parameters:
                parameters[self.where].view(-1)[-1] = self.value
            elif self.where in values:
                values[self.where] = self.value
            else:
                chains[1] = self.value
        return Estimate(parameters, values, [calls, chains])


def finite(value: Any) -> bool:
    tensors = (leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor))
    return all(bool(torch.isfinite(leaf).all()) for leaf in tensors)


@pytest.mark.parametrize(
    ("where", "value"),
    [("couplings.0.weight", math.nan), ("layers.1.bias", math.inf), ("residual", math.nan)],
)
def test_an_update_that_is_not_finite_is_not_made(where: str, value: float, tmp_path: Path) -> None:
    broken, whole = machine(), machine()
    with pytest.raises(TrainingDiverged) as caught:
        train(broken, X, rule=Failing(where, value), updates=20, run_dir=tmp_path, checkpoint_every=3)
    train(whole, X, rule=Failing(where, value), updates=8)
    assert all(torch.equal(p, q) for p, q in zip(broken.parameters(), whole.parameters(), strict=True))
    error = caught.value
    assert (error.step, error.cause, error.learning_rate) == (8, f"the update's {where} is not finite", 0.05)
    assert error.checkpoint == tmp_path / "checkpoint.safetensors"
    for part in ("after 8 updates", where, "0.05", str(error.checkpoint)):
        assert part in str(error)
    kept = read_checkpoint(tmp_path / "checkpoint.safetensors")
    assert kept["step"] == 6 and finite(kept)
    assert not (tmp_path / "machine.safetensors").exists()


def test_an_overflowing_norm_names_the_largest_gradient() -> None:
    with pytest.raises(TrainingDiverged, match=r"layers\.0\.bias.*last good checkpoint: none") as caught:
        train(machine(), X, rule=Failing("layers.0.bias", 1e30), updates=20)
    assert caught.value.checkpoint is None


@pytest.mark.parametrize("record_every", [1, 100])
def test_parameters_that_overflow_are_put_back(record_every: int) -> None:
    def explode(step: int, total: int) -> float:
        return 1e300 if step == 12 else 1.0

    broken = machine()
    with pytest.raises(TrainingDiverged, match=r"values of layers\.0\.bias .* put back"):
        train(broken, X, rule=Failing("none", 0.0), updates=200, schedule=explode, record_every=record_every)
    assert finite(dict(broken.state_dict()))
    # After 4 updates: those after 8 are already worse than uniform noise.
    assert torch.allclose(broken.layers[0].bias, torch.full((VISIBLE,), 4 * 0.05))


def test_a_rule_state_that_is_not_finite_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged, match=r"\['rule'\]\[1\]") as caught:
        train(machine(), X, rule=Failing("chains", math.nan), updates=9, run_dir=tmp_path, checkpoint_every=4)
    assert caught.value.checkpoint == tmp_path / "checkpoint.safetensors"
    assert read_checkpoint(tmp_path / "checkpoint.safetensors")["step"] == 8


def test_a_real_divergence_is_caught() -> None:
    wild = hm.BoltzmannMachine([hm.Gaussian(VISIBLE), hm.Bernoulli(HIDDEN)])
    with pytest.raises(TrainingDiverged, match=r"learning_rate or a smaller clip_norm") as ended:
        train(wild, 100 * torch.randn(50, VISIBLE, generator=torch.Generator().manual_seed(0)),
              rule=hm.rules.cd(1), updates=2000, learning_rate=1e3)  # fmt: skip
    assert finite(dict(wild.state_dict()))
    assert str(pickle.loads(pickle.dumps(ended.value))) == str(ended.value)  # from a pool of processes


# Finite, but far away ---------------------------------------------------------------------------------------

PICTURES = torch.from_numpy(hm.data.bars_and_stripes(4)).float()
SPINS = 2 * PICTURES - 1
ONE_HOT = torch.stack([1 - PICTURES, PICTURES], -1).flatten(1)
RUNS: dict[str, Any] = {
    "bernoulli": ([hm.Bernoulli, hm.Bernoulli], PICTURES, hm.rules.pcd()),
    "bernoulli, tap": ([hm.Bernoulli, hm.Bernoulli], PICTURES, hm.rules.tap()),
    "categorical": ([lambda n: hm.Categorical(n, 2), hm.Bernoulli], ONE_HOT, hm.rules.pcd()),
    "deep": ([hm.Bernoulli] * 3, PICTURES, hm.rules.mean_field_pcd()),
    "deep spin": ([hm.Spin] * 3, SPINS, hm.rules.ucd_lmi(pair_kernel=None)),
}


def start(run: str) -> tuple[hm.BoltzmannMachine, dict[str, Any]]:
    layers, X, rule = RUNS[run]
    made = hm.BoltzmannMachine([layer(n) for layer, n in zip(layers, (16, 10, 6), strict=False)])
    return made, {"X": X, "rule": rule, "batch_size": 32, "progress": False}


@pytest.mark.parametrize(("optimizer", "rate"), [("sgd", 1e2), ("sgd", 1e9), ("adam", 1e2)])
@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_runs_away_is_no_success(run: str, rate: float, optimizer: str) -> None:
    made, settings = start(run)
    with pytest.raises(TrainingDiverged, match=r"has run away .* put back to those after \d+ updates"):
        train(made, updates=100, learning_rate=rate, optimizer=optimizer, **settings)
    assert finite(dict(made.state_dict()))
    if len(made.layers) == 2:  # what was put back; runaway ones reach -1e9
        v = settings["X"].double()
        noise = made.layers[0].n_units * math.log(made.layers[0].n_states)
        assert float(hm.likelihood.exact_log_likelihood(made.double(), v).mean()) > -20 * noise


@pytest.mark.mostly_nightly(4)
@pytest.mark.parametrize("run", RUNS)
def test_a_healthy_run_is_not_blamed(run: str) -> None:
    made, settings = start(run)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(made, updates=80, learning_rate=0.15, **settings)


@pytest.mark.parametrize("record_every", [7, 1000])
def test_the_last_good_parameters_are_put_back_not_the_first(record_every: int, tmp_path: Path) -> None:
    def explode(step: int, total: int) -> float:
        return 1e6 if step >= 150 else 1.0

    broken, whole = start("bernoulli")[0], start("bernoulli")[0]
    settings = start("bernoulli")[1] | {"updates": 300, "schedule": explode, "record_every": record_every}
    with pytest.raises(TrainingDiverged, match="run away") as caught:
        train(broken, **settings, run_dir=tmp_path, checkpoint_every=140)
    kept = 140  # what was looked at before the checkpoint; a record looks whether numbers are finite
    assert f"put back to those after {kept} updates" in str(caught.value)

    def stop(update: Update) -> Any:
        return STOP if update.step == kept else None

    train(whole, **settings, callbacks=[stop])
    assert all(torch.equal(p, q) for p, q in zip(broken.parameters(), whole.parameters(), strict=True))
    assert read_checkpoint(tmp_path / "checkpoint.safetensors")["step"] == 140
    assert not (tmp_path / "machine.safetensors").exists()


def test_a_machine_that_begins_far_away_is_not_blamed_for_it() -> None:
    made, settings = start("bernoulli")
    with torch.no_grad():
        made.couplings[0].weight.normal_(0, 300, generator=torch.Generator().manual_seed(0))
    train(made, updates=20, learning_rate=0.01, **settings)


def test_a_run_that_ends_below_uniform_noise_warns() -> None:
    made, settings = start("bernoulli")

    def drift(update: Any) -> None:
        with torch.no_grad():
            update.machine.layers[0].bias.fill_(2.5)

    with pytest.warns(RuntimeWarning, match="less likely under the machine than under uniform noise"):
        train(made, updates=20, learning_rate=0.01, callbacks=[drift], **settings)


@pytest.mark.parametrize(("slack", "short", "blamed"), [(1, 16, True), (10, 16, False), (10, 320, True)])
def test_a_density_that_is_a_share_of_what_is_learned_may_be_as_many_times_worse(
    slack: float, short: float, blamed: bool
) -> None:
    """Half of the units, 0 in all rows, have a bias towards 1: ``short`` times what noise lacks in all."""
    made = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)])
    state: Any = SimpleNamespace(
        machine=made, learned=dict(made.named_parameters()), step=0, limit=math.nan, group=Group()
    )
    monitor = DivergenceMonitor(state, slack)
    monitor.watch(torch.zeros(10, 16))
    assert monitor.check(0, gap=True) is None
    with torch.no_grad():
        made.layers[0].bias[::2] = 2 * math.log(2) * short
    assert (monitor.check(1, gap=True) is not None) is blamed
    state.limit = math.nan
    monitor = DivergenceMonitor(state, math.inf)
    monitor.watch(torch.zeros(10, 16))
    assert monitor.check(1, gap=True) is None


def test_a_rule_of_ones_own_that_learns_no_density_is_not_judged_by_it() -> None:
    downwards = Growing(1.0, start=-1.0)
    run = train(machine(), X, rule=downwards, updates=50, learning_rate=30.0, progress=False)
    assert run.status == "completed"
    downwards.generative = True
    with pytest.raises(TrainingDiverged, match="run away"):
        train(machine(), X, rule=downwards, updates=50, learning_rate=30.0, progress=False)


def train_hot(temperature: float, updates: int) -> hm.training.TrainingRun:
    """Chains of a temperature, from a machine that fits those of temperature 100 to data of variance 1."""
    X = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    machine = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(3)], seed=0)
    machine.layers[0].fit_((torch.zeros(2),), torch.ones(2))
    kernel = hm.chains.GibbsLangevin(1.0, 1, "exact", temperature=temperature)
    return hm.train(
        machine, X, rule=hm.rules.noise_cd(5, kernel=kernel), updates=updates, batch_size=100,
        optimizer="adam", learning_rate=0.05, progress=False,
    )  # fmt: skip


def test_a_machine_of_hot_chains_that_fits_the_data_is_not_taken_for_one_that_ran_away():
    """Its variances are those of the data over the temperature: cold, its data would be far out."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="training ended")
        run = train_hot(1e5, 400)
    variance = 1 / run.machine.layers[0].natural()[1].detach()
    assert run.status == "completed" and float(variance.max()) < 1e-3
    assert hm.rules.noise_cd(5).temperature == 1


class Growing:
    """A rule of one's own, of no density, whose gradient grows by a factor at every update."""

    name, generative = "growing", False

    def __init__(self, factor: float, start: float = 1e-4) -> None:
        self.factor, self.start = factor, start

    def __repr__(self) -> str:
        return f"growing({self.factor})"

    def gradient(
        self, machine: hm.BoltzmannMachine, v: torch.Tensor, state: Any = None, *, seed: torch.Generator
    ) -> Estimate:
        norm = self.start if state is None else state * self.factor
        return Estimate({name: torch.full_like(p, norm) for name, p in machine.named_parameters()}, {}, norm)


@pytest.mark.parametrize("record_every", [1, 150])
def test_a_gradient_that_grows_by_orders_stops_a_run(record_every: int, tmp_path: Path) -> None:
    """A thousand times what is usual; from near 0, as at a saddle, it may grow by more."""
    settings: dict[str, Any] = {
        "rule": Growing(1.05), "updates": 600, "learning_rate": 1e-9, "record_every": record_every,
        "progress": False,
    }  # fmt: skip
    made = machine()
    assert train(made, X, **{**settings, "updates": 300}).history[-1]["gradient_norm"] > 100
    with pytest.raises(TrainingDiverged, match=r"gradient's norm has grown to .* put back") as caught:
        train(made, X, **settings, run_dir=tmp_path, checkpoint_every=100)
    assert caught.value.step == 400
    with pytest.raises(TrainingDiverged, match="gradient's norm") as again:
        train(machine(), X, **settings, run_dir=tmp_path, checkpoint_every=100, resume=True)
    assert again.value.step == caught.value.step
    assert train(made, X, **{**settings, "rule": Growing(1.0)}).status == "completed"
