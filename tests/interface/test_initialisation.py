"""Where machines start: distributions of the initialisers, visible parameters from data, starts by name."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.data import Rows
from harmonium.layers import Layer
from harmonium.machine import (
    init_by_name_,
    init_from_data_,
    init_visible_biases_,
    logistic_biases_,
    normal_,
    orthogonal_,
)

from .command_line import TINY, CommandLine

FAILURE_RATE = 1e-3  # of every statistical test here, on a fresh seed


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def machine(seed: int | torch.Generator = 0) -> hm.BoltzmannMachine:
    """Every kind, wide and tall couplings."""
    return hm.BoltzmannMachine(
        [hm.Gaussian(9), hm.Spin(5), hm.Categorical(4, 3), hm.Bernoulli(12)], seed=seed
    )


def parameters(made: hm.BoltzmannMachine) -> dict[str, torch.Tensor]:
    return {name: x.detach().clone() for name, x in made.named_parameters()}


def ks(sample: torch.Tensor, distribution: stats.rv_frozen) -> float:
    return float(stats.kstest(sample.detach().double().flatten().numpy(), distribution.cdf).pvalue)


# Seeds -----------------------------------------------------------------------------------------------------


def test_a_new_machine_has_no_biases_and_unit_variances() -> None:
    for layer in machine().layers:
        for parameter in layer.parameters():
            assert not bool(parameter.any())


# Initialisers ----------------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("std", [0.3, 2.0])
def test_normal(std: float) -> None:
    """Each coupling by Kolmogorov and Smirnov; the failure rate is shared between three."""
    made = hm.BoltzmannMachine([hm.Bernoulli(80), hm.Gaussian(60), hm.Spin(70)], seed=11)
    assert ks(made.couplings[0].weight, stats.norm(scale=0.01)) > FAILURE_RATE / 3  # as it is made
    normal_(made, std, generator(1))
    for W in (coupling.weight for coupling in made.couplings):
        assert ks(W, stats.norm(scale=std)) > FAILURE_RATE / 3
    assert not any(bool(p.any()) for layer in made.layers for p in layer.parameters())


@pytest.mark.parametrize(
    ("gain", "dtype"), [(1.0, torch.float32), (0.25, torch.float64), (0.0, torch.float32)]
)
def test_orthogonal(gain: float, dtype: torch.dtype) -> None:
    """The shorter side is an orthogonal family of norm `gain`; nothing else moves; the draw is the seed's."""
    made = machine().to(dtype)
    before = parameters(made)
    orthogonal_(made, gain, generator(2))
    shapes = [tuple(coupling.weight.shape) for coupling in made.couplings]
    assert any(a > b for a, b in shapes) and any(a < b for a, b in shapes) and any(a == b for a, b in shapes)
    for W in (coupling.weight for coupling in made.couplings):
        short = W.detach().t() if W.shape[0] >= W.shape[1] else W.detach()
        expected = gain**2 * torch.eye(len(short), dtype=dtype)
        torch.testing.assert_close(short @ short.t(), expected, rtol=0, atol=1e-5)
        assert W.dtype == dtype and W.requires_grad
    for name, x in parameters(made).items():
        if not name.startswith("couplings"):
            assert torch.equal(x, before[name])
    twin, third = machine().to(dtype), machine().to(dtype)
    orthogonal_(twin, gain, generator(2))
    orthogonal_(third, gain, generator(3))
    assert torch.equal(twin.couplings[0].weight, made.couplings[0].weight)
    assert gain == 0 or not torch.equal(third.couplings[0].weight, made.couplings[0].weight)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("location", "scale", "dtype"), [(0.0, 0.5, torch.float32), (-1.5, 2.0, torch.float64)]
)
def test_logistic_biases(location: float, scale: float, dtype: torch.dtype) -> None:
    """All kinds, by Kolmogorov and Smirnov; the failure rate is shared between four layers."""
    wide = [hm.Gaussian(9000), hm.Categorical(1500, 3), hm.Bernoulli(3000), hm.Spin(4000)]
    # A unit between two layers, as couplings of thousands with thousands would take the time.
    layers = [layer for each in wide for layer in (each, hm.Spin(1))]
    made = hm.BoltzmannMachine(layers).to(dtype)
    before = parameters(made)
    if (location, scale) == (0.0, 0.5):
        logistic_biases_(made, generator(3))
    else:
        logistic_biases_(made, generator(3), location=location, scale=scale)
    distribution = stats.logistic(loc=location, scale=scale)
    for l, parameter in ((0, made.layers[0].mean), *((l, made.layers[l].bias) for l in (2, 4, 6))):
        assert ks(parameter, distribution) > FAILURE_RATE / 4, l
        assert bool(torch.isfinite(parameter).all())
        assert parameter.dtype == dtype
    assert torch.equal(made.layers[0].log_variance, before["layers.0.log_variance"])
    assert all(
        torch.equal(each.weight, before[f"couplings.{l}.weight"]) for l, each in enumerate(made.couplings)
    )


# Visible parameters from data ------------------------------------------------------------------------------

ROWS = 200


def digits(states: int) -> np.ndarray:
    """Integers of uneven frequencies; column 0 always the lowest, column 1 always the highest."""
    rng = np.random.default_rng(4)
    X = rng.binomial(states - 1, [0.5, 0.5, 0.1, 0.5, 0.8], size=(ROWS, 5))
    X[:, 0], X[:, 1] = 0, states - 1
    return X


def encoded(kind: str) -> np.ndarray:
    if kind == "bernoulli":
        return digits(2).astype(float)
    if kind == "spin":
        return 2.0 * digits(2) - 1
    if kind == "categorical":
        return np.eye(3)[digits(3)].reshape(ROWS, -1)
    if kind.startswith("truncated"):
        X = np.random.default_rng(5).beta(0.4, 0.7, size=(ROWS, 5)).astype(np.float32)
        X[:, 0], X[:, 1], X[:120, 2], X[:, 3] = 0.0, 1.0, 0.0, X[:, 3] > 0.3
        return X.astype(float)
    X = np.random.default_rng(5).normal([0, 0, 3, -1e4, 0.1], [1, 1, 0.01, 50, 1e-3], size=(ROWS, 5))
    X[:, 0], X[:, 1] = 0.0, 2.5
    return X


LAYERS = {
    "bernoulli": lambda: hm.Bernoulli(5),
    "spin": lambda: hm.Spin(5),
    "categorical": lambda: hm.Categorical(5, 3),
    "gaussian": lambda: hm.Gaussian(5),
    "truncated_gaussian": lambda: hm.TruncatedGaussian(5, 0.0, 1.0),
    "truncated_gauss_bernoulli": lambda: hm.TruncatedGaussBernoulli(5, 0.0, 1.0),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_visible_units_alone_have_the_moments_of_the_data(kind: str) -> None:
    """Discrete units as if one row of noise had been seen too; real units that never change: variance 1."""
    X = encoded(kind)
    layer = LAYERS[kind]()
    made = hm.BoltzmannMachine([layer, hm.Bernoulli(4)]).double()
    before = parameters(made)
    init_visible_biases_(made, Rows.of(X, torch.float64))
    mean, variance = layer.moments(torch.zeros(1, layer.width, dtype=torch.float64))
    if kind.startswith("truncated"):
        zero = torch.zeros(1, layer.width, dtype=torch.float64)
        noise = layer.expected_statistics(zero, theta=layer.reference())
        seen = layer.statistics(torch.from_numpy(X))
        for t, x, u in zip(layer.expected_statistics(zero), seen, noise, strict=True):
            wanted = (x.sum(0) + u[0]) / (ROWS + 1)
            np.testing.assert_allclose(t[0].detach(), wanted, rtol=1e-5)
        return
    if kind == "gaussian":
        expected = X.mean(0)
        spread = np.where(X.var(0) > 0, X.var(0), 1.0)
    else:
        noise = {"bernoulli": 0.5, "spin": 0.0, "categorical": 1 / 3}[kind]
        expected = (X.sum(0) + noise) / (ROWS + 1)
        spread = 1 - expected**2 if kind == "spin" else expected * (1 - expected)
    np.testing.assert_allclose(mean[0].detach(), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(variance[0].detach(), spread, rtol=1e-6, atol=1e-12)
    for name, x in parameters(made).items():
        assert bool(torch.isfinite(x).all()), name
        if not name.startswith("layers.0"):
            assert torch.equal(x, before[name]), name


# Off the saddle --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hidden", [lambda: hm.Bernoulli(40), lambda: hm.Spin(40), lambda: hm.Categorical(20, 3)]
)
def test_gaussian_units_start_off_their_saddle(hidden) -> None:
    """Every hidden unit is undecided at a row, and the visible units keep a quarter of their variance."""
    X = encoded("gaussian") * 3 + 5
    made = hm.BoltzmannMachine([hm.Gaussian(5), hidden(), hm.Bernoulli(3)]).double()
    above = {name: x for name, x in parameters(made).items() if name[:8] in ("layers.2", "coupling")}
    init_from_data_(made, Rows.of(X, torch.float64), generator(1))
    assert torch.equal(parameters(made)["couplings.1.weight"], above["couplings.1.weight"])
    assert torch.equal(parameters(made)["layers.2.bias"], above["layers.2.bias"])
    rows = torch.from_numpy(X)
    machine = made.hamiltonian()
    J, bias = machine.J[0].detach(), machine.thetas[1][0].detach()
    local = made.layers[1].by_unit(rows @ J + bias)
    size = made.layers[1].by_unit(rows @ J).std(0).mean(-1)
    spread = local[..., 0].abs() if local.shape[-1] == 1 else (local.amax(-1) - local.amin(-1))
    assert bool((spread.min(0).values < 1e-9).all())  # of each unit, over the rows
    variance = torch.where(rows.var(0, correction=0) > 0, rows.var(0, correction=0), 1.0)
    torch.testing.assert_close(1 / machine.thetas[0][1].detach(), variance / 4)
    assert bool((size > 0.05).all()) and bool((size < 2).all())
    # The visible means given what the hidden units answer to the data are the data's.
    h = made.layers[1].moments(rows @ J, theta=machine.thetas[1]).mean.mean(0).detach()
    mean = (machine.thetas[0][0].detach() + J @ h) * variance / 4
    assert float(((mean - rows.mean(0)) / variance.sqrt()).abs().max()) < 0.1  # seen by 1024 draws of rows


def test_many_hidden_units_do_not_explain_more_than_there_is() -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    made = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(2000)]).double()
    init_from_data_(made, Rows.of(X, torch.float64), generator())
    assert float((made.couplings[0].weight.detach().square().sum(1) / 4).mean()) <= 0.25 * 1.1


def test_off_the_saddle_from_one_row_and_above_a_variance_floor() -> None:
    made = hm.BoltzmannMachine([hm.Gaussian(5), hm.Bernoulli(4)])
    init_from_data_(made, Rows.of(encoded("gaussian")[:1]), generator())
    assert all(bool(torch.isfinite(x).all()) for x in parameters(made).values())
    floored = hm.BoltzmannMachine([hm.Gaussian(2, variance_floor=0.9), hm.Bernoulli(4)])
    init_from_data_(floored, Rows.of(np.random.default_rng(0).normal(size=(5000, 2)) * 1.1), generator())
    assert float((1 / floored.layers[0].natural()[1].detach()).min()) > 0.9


def test_gaussian_units_start_off_their_saddle_beside_other_kinds() -> None:
    """Two Gaussian layers of a table start as one layer does alone; the others are as the data say."""
    random = np.random.default_rng(0)
    X, coins = random.normal(size=(300, 3)) * [1.0, 2.0, 3.0] + 5, random.random((300, 2)) < 0.3
    alone = hm.machine.join_layers([hm.Gaussian(3)], [hm.Bernoulli(4), hm.Bernoulli(2)])
    table = hm.machine.join_layers(
        [hm.Gaussian(2), hm.Bernoulli(2), hm.Gaussian(1)], [hm.Bernoulli(4), hm.Bernoulli(2)]
    )
    above = parameters(table)
    init_from_data_(alone, Rows.of(X), generator())
    init_from_data_(table, Rows.of(np.column_stack([X[:, :2], coins, X[:, 2:]])), generator())
    made, expected = parameters(table), parameters(alone)
    for name in ("mean", "log_variance"):
        side_by_side = torch.cat([made[f"layers.0.{name}"], made[f"layers.2.{name}"]])
        torch.testing.assert_close(side_by_side, expected[f"layers.0.{name}"])
    weights = torch.cat([made["couplings.0.weight"], made["couplings.2.weight"]])
    torch.testing.assert_close(weights, expected["couplings.0.weight"])
    torch.testing.assert_close(made["layers.3.bias"], expected["layers.1.bias"])
    assert torch.equal(made["couplings.1.weight"], above["couplings.1.weight"])
    assert torch.equal(made["couplings.3.weight"], above["couplings.3.weight"])
    rate = torch.sigmoid(made["layers.1.bias"])
    assert float((rate - torch.from_numpy(coins.mean(0))).abs().max()) < 0.01


BARS = "bars-and-stripes"
X = hm.data.bars_and_stripes()
DEEP = ("--hidden", "8,4", "--updates", "20", "--threads", "1", "--batch-size", "8")


def machine_bytes(run: Path) -> bytes:
    return (run / "machine.safetensors").read_bytes()


def begun(start: str, *, rows: Any = X, **settings: Any) -> hm.BoltzmannMachine:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Spin(300), hm.Spin(300)], seed=None)
    init_by_name_(machine, start, rows, 5, **settings)
    return machine


def are_orthogonal(machine: hm.BoltzmannMachine) -> bool:
    """Returns whether the shorter side of every coupling has orthogonal vectors of norm 1."""
    weights = [coupling.weight.detach() for coupling in machine.couplings]
    short = [W if W.shape[0] <= W.shape[1] else W.t() for W in weights]
    return all(torch.allclose(W @ W.t(), torch.eye(len(W)), atol=1e-5) for W in short)


@pytest.mark.parametrize(
    "start", ["normal", "orthogonal", "logistic", "data", "orthogonal,logistic", " logistic, data,orthogonal"]
)
def test_every_start_is_what_it_names(start: str) -> None:
    """Biases by a Kolmogorov-Smirnov test at 1e-4, couplings by their moments (6 standard errors)."""
    machine, names = begun(start, std=0.2), {name.strip() for name in start.split(",")}
    assert are_orthogonal(machine) == ("orthogonal" in names)
    if "orthogonal" not in names:
        W = machine.couplings[1].weight.detach()
        assert float(W.std()) == pytest.approx(0.2, rel=6 / (2 * W.numel()) ** 0.5)
    fitted = deepcopy(machine)
    hm.machine.init_visible_biases_(fitted, X)
    by_data = torch.equal(machine.layers[0].bias, fitted.layers[0].bias)
    assert by_data == ("data" in names or "logistic" not in names)
    hidden = torch.cat([machine.layers[l].bias.detach() for l in (1, 2)]).numpy()
    if "logistic" in names:
        assert stats.kstest(hidden, stats.logistic(0, 0.5).cdf).pvalue > 1e-4
    else:
        assert (hidden == 0).all()


@pytest.mark.parametrize("kind", sorted(Layer.registry))
def test_units_of_every_kind_take_every_start(kind: str) -> None:
    layer = Layer.registry[kind].plain(3, 3)
    machine = hm.BoltzmannMachine([layer, hm.Bernoulli(4)], seed=None)
    rows = machine.hamiltonian().visible_states(machine.random_states(12, seed=1)).detach()
    init_by_name_(machine, "orthogonal,logistic", rows, 0)
    assert not bool((getattr(layer, layer.location) == 0).any())
    assert all(bool(p.isfinite().all()) for p in machine.parameters())


def test_a_start_by_default_is_normal_with_the_data() -> None:
    plain, named = (hm.RBM(5, max_updates=3, random_state=0, init=init) for init in (None, "data,normal"))
    first, second = (rbm.fit(X).machine_ for rbm in (plain, named))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    labels, own_std = X[:, 0], hm.RBMClassifier(5, method="chains", max_updates=1, init="orthogonal")
    assert own_std.fit(X, labels).n_updates_ == 1  # a default of its own is not asked for


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"init": "orthogonal,magic"},
            "init: expected one of data, logistic, normal, orthogonal; received 'magic'",
        ),
        ({"init": "data,data"}, "init: expected every name once, received 'data,data'"),
        ({"init": "normal,orthogonal"}, "init: expected either normal or orthogonal"),
        ({"init": "orthogonal", "initial_std": 0.1}, "initial_std: expected none with init 'orthogonal'"),
    ],
)
def test_starts_that_mean_nothing_are_refused(
    cli: CommandLine, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        hm.RBM(5, method="chains", **settings).fit(X)
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
    refused = cli.refuse("train", BARS, tmp_path / "run", *TINY, *options)
    name, _, rest = message.partition(":")
    assert refused.startswith(f"--{name.replace('_', '-')}:") and rest.strip() in refused
    assert not (tmp_path / "run").exists()


def test_units_of_one_layer_have_no_orthogonal_couplings(cli: CommandLine, tmp_path: Path) -> None:
    refused = cli.refuse("train", BARS, tmp_path / "run", "--hidden", 0, "--init", "orthogonal")
    assert "--init: expected normal couplings between units of one layer" in refused


def test_couplings_stored_by_pair_are_no_matrix() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(4)], edges={(0, 1): hm.Sparse([(0, 1)])})
    with pytest.raises(ValueError, match="machine: expected couplings stored as matrices, received Sparse"):
        hm.machine.orthogonal_(machine, 1.0, 0)


def test_the_command_starts_as_the_estimator_and_keeps_it(cli: CommandLine, tmp_path: Path) -> None:
    """run.toml has the start, --config repeats it, and a resumed run is the uninterrupted one."""
    spins = ("--hidden", "spin:8,spin:4", "--visible", "spin", *DEEP[2:])
    own = (*spins, "--init", "orthogonal,logistic", "--seed", 3)
    run = tmp_path / "run"
    cli.succeed("train", BARS, run, *own, "--schedule", "constant")
    assert tomllib.loads((run / "run.toml").read_text("utf-8"))["init"] == "orthogonal,logistic"
    cli.succeed("train", "--config", run / "run.toml", tmp_path / "again", "--threads", 1)
    assert machine_bytes(tmp_path / "again") == machine_bytes(run)
    parts = tmp_path / "parts"
    cli.succeed("train", BARS, parts, *own, "--schedule", "constant", "--updates", 7)
    assert "--init: expected orthogonal,logistic as in the run to resume" in cli.refuse(
        "train", "--resume", parts, "--updates", 20, "--init", "data"
    )
    cli.succeed("train", "--resume", parts, "--updates", 20)
    assert machine_bytes(parts) == machine_bytes(run)
    dbm = hm.DBM(
        (8, 4), init="orthogonal,logistic", random_state=3, hidden_kind="spin", visible="spin",
        max_updates=20, batch_size=8, schedule="constant",
    ).fit(X)  # fmt: skip
    found = hm.load(run / "machine.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), dbm.machine_.parameters(), strict=True))
