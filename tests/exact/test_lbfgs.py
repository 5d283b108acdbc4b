"""L-BFGS on the penalised pseudo-likelihood: scipy's optimum of the enumerated one, and exact resume."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import harmonium as hm
from harmonium.learning import ClampedChains, Enumeration, Rule

SITES, STATES, DECAY = 3, 3, 0.02


def make_rows(count: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Codes of rows, (rows, sites), in which neighbours agree more often than not, and row weights."""
    random = np.random.default_rng(5)
    codes = random.integers(0, STATES, (count, SITES))
    codes[:, 1] = np.where(random.random(count) < 0.6, codes[:, 0], codes[:, 1])
    codes[:, 2] = np.where(random.random(count) < 0.5, (codes[:, 1] + 1) % STATES, codes[:, 2])
    return codes, random.uniform(0.2, 2.0, count)


def enumerated(parameters: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> float:
    """Minus the penalised mean pseudo-likelihood, by loops over rows, sites and states."""
    fields = parameters[: SITES * STATES].reshape(SITES, STATES)
    pairs = parameters[SITES * STATES :].reshape(3, STATES, STATES)
    couplings = {(0, 1): pairs[0], (0, 2): pairs[1], (1, 2): pairs[2]}
    total = 0.0
    for row, weight in zip(codes, weights, strict=True):
        for i in range(SITES):
            logits = fields[i].copy()
            for j in range(SITES):
                if i != j:
                    logits += couplings[i, j][:, row[j]] if i < j else couplings[j, i][row[j]]
            total += weight * (logits[row[i]] - np.log(np.exp(logits).sum()))
    return -total / weights.sum() + DECAY / 2 * (pairs**2).sum()


def make_machine(dtype: torch.dtype = torch.float64) -> hm.BoltzmannMachine:
    sites = hm.Categorical(SITES, STATES)
    return hm.BoltzmannMachine([sites], edges={(0, 0): hm.Dense()}, seed=1).to(dtype)


def one_hot(codes: np.ndarray) -> torch.Tensor:
    return torch.eye(STATES, dtype=torch.float64)[torch.from_numpy(codes)].flatten(1)


def fit(machine: hm.BoltzmannMachine, tolerance: float = 1e-9, **options: object) -> hm.training.TrainingRun:
    codes, weights = make_rows()
    options = {"updates": 300, "weight_decay": DECAY, "weights": torch.from_numpy(weights)} | options
    return hm.train(
        machine,
        one_hot(codes).to(machine.dtype),
        rule="pseudo_likelihood",
        optimizer=lambda parameters: hm.training.LBFGS(parameters, tolerance=tolerance),
        progress=False,
        **options,
    )


@pytest.mark.nightly
def test_the_optimum_is_that_of_scipy() -> None:
    machine, (codes, weights) = make_machine(), make_rows()
    run = fit(machine)
    assert run.status == "stopped" and run.updates < 100
    found = minimize(
        enumerated,
        np.zeros(SITES * STATES + 3 * STATES**2),
        (codes, weights),
        method="BFGS",
        options={"gtol": 1e-7},
    )
    W = machine.couplings[0].matrix().detach().numpy().reshape(SITES, STATES, SITES, STATES)
    ours = np.stack([W[i, :, j] for i, j in ((0, 1), (0, 2), (1, 2))])
    fields = machine.layers[0].bias.detach().numpy().reshape(SITES, STATES)
    value = enumerated(np.concatenate([fields.ravel(), ours.ravel()]), codes, weights)
    assert value <= found.fun + 1e-9
    np.testing.assert_allclose(ours.ravel(), found.x[SITES * STATES :], atol=2e-5)


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("rate", [1e-4, 0.1, 50.0])
def test_the_first_step_does_not_matter_to_the_optimum(rate: float) -> None:
    machines = [make_machine(), make_machine()]
    fit(machines[0])
    codes, weights = make_rows()
    hm.train(
        machines[1],
        one_hot(codes),
        rule="pseudo_likelihood",
        optimizer=lambda parameters: hm.training.LBFGS(parameters, lr=rate, tolerance=1e-9),
        updates=300,
        weight_decay=DECAY,
        weights=torch.from_numpy(weights),
        progress=False,
    )
    W = [machine.couplings[0].matrix() for machine in machines]
    torch.testing.assert_close(*W, atol=1e-6, rtol=0)


def test_by_name_it_reads_all_rows_and_ends_at_the_tolerance() -> None:
    codes, _ = make_rows(250)  # more than a batch
    machine = make_machine(torch.float32)
    run = hm.train(
        machine, one_hot(codes).float(), rule="pseudo_likelihood", optimizer="lbfgs", updates=200,
        weight_decay=DECAY, progress=False,
    )  # fmt: skip
    assert run.status == "stopped"
    gradient = hm.rules.pseudo_likelihood().gradient(machine, one_hot(codes).float(), seed=0).parameters
    W = machine.couplings[0].weight.detach()
    size = torch.cat(
        [(gradient["couplings.0.weight"] - DECAY * W).flatten(), gradient["layers.0.bias"].flatten()]
    )
    length = torch.cat([W.flatten(), machine.layers[0].bias.detach().flatten()])
    assert float(size.norm()) <= 1.01e-4 * max(1.0, float(length.norm()))


def test_a_resumed_fit_has_the_bits_of_one_that_went_through(tmp_path) -> None:
    whole, halves = make_machine(torch.float32), make_machine(torch.float32)
    with pytest.warns(RuntimeWarning, match="tolerance"):
        fit(whole, 0.0, updates=14)
        fit(halves, 0.0, updates=6, run_dir=tmp_path / "run")
        run = fit(halves, 0.0, updates=14, run_dir=tmp_path / "run", resume=True)
    assert run.updates == 14
    for one, other in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_fit_that_ends_too_early_warns() -> None:
    with pytest.warns(RuntimeWarning, match="more updates"):
        fit(make_machine(), updates=3)


# Enumerates one side of the gradient and draws the other.
NOISY_SIDE = Rule("half", ClampedChains(3), Enumeration(clamped=False), "biased")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "pcd"}, "without noise"),
        ({"rule": NOISY_SIDE}, "without noise"),
        ({"rule": hm.rules.centred(hm.rules.exact())}, "centred"),
        ({"schedule": "linear"}, "schedule"),
        ({"clip_norm": 1.0}, "clip_norm"),
        ({"radius": 1.0}, "radius"),
        ({"momentum": 0.5}, "momentum"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict, message: str) -> None:
    codes, _ = make_rows()
    with pytest.raises(ValueError, match=message):
        hm.train(
            make_machine(), one_hot(codes), optimizer="lbfgs", updates=5, progress=False,
            **{"rule": "pseudo_likelihood", **options},
        )  # fmt: skip


def test_exact_gradients_of_a_machine_with_hidden_units_go_down_too() -> None:
    X = hm.data.bars_and_stripes(3)
    machine = hm.BoltzmannMachine([hm.Bernoulli(9), hm.Bernoulli(3)], seed=0)
    before = float(hm.likelihood.exact_log_likelihood(machine, X).mean())
    with pytest.warns(RuntimeWarning, match="tolerance"):
        hm.train(machine, X, rule="exact", optimizer="lbfgs", updates=60, weight_decay=1e-3, progress=False)
    assert float(hm.likelihood.exact_log_likelihood(machine, X).mean()) > before + 1.0
