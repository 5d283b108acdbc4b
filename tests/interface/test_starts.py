"""First parameters by name, and pairs of layers trained first: machine, estimator, command."""

from __future__ import annotations

import tomllib
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

import harmonium as hm
from harmonium.layers import Layer
from harmonium.machine import init_by_name_

from .command_line import TINY, CommandLine

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
