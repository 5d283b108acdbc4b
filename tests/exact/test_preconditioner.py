"""The preconditioner of L-BFGS: gauges by least squares over listed generators, optima, and updates saved."""

import itertools

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.training.preconditioner import Preconditioner

SITES, STATES = 4, 3
WIDTH = SITES * STATES


def make_parameters(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Fields, (sites, states), and couplings of sites i < j, (width, width)."""
    generator = torch.Generator().manual_seed(seed)
    fields = torch.randn(SITES, STATES, generator=generator, dtype=torch.float64)
    J = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
    site = torch.arange(WIDTH) // STATES
    return fields, J * (site[:, None] < site)


def energies(fields: torch.Tensor, J: torch.Tensor) -> torch.Tensor:
    """Energies of all states, less the first, by loops over sites."""
    values = [
        -sum(float(fields[i, x]) for i, x in enumerate(state))
        - sum(
            float(J[i * STATES + state[i], j * STATES + state[j]])
            for i, j in itertools.combinations(range(SITES), 2)
        )
        for state in itertools.product(range(STATES), repeat=SITES)
    ]
    return torch.tensor(values, dtype=torch.float64) - values[0]


def list_generators() -> np.ndarray:
    """Directions that change no probability: what all states of a site have, against its fields."""
    directions = []
    for i in range(SITES):
        constant = np.zeros((SITES, STATES)), np.zeros((WIDTH, WIDTH))
        constant[0][i] = 1.0
        directions.append(constant)
        for j, a in itertools.product(range(SITES), range(STATES)):
            if i != j:
                fields, J = np.zeros((SITES, STATES)), np.zeros((WIDTH, WIDTH))
                fields[i, a] = 1.0
                J[i * STATES + a, j * STATES : (j + 1) * STATES] -= 1.0
                directions.append((fields, np.triu(J) + np.tril(J).T))
    return np.stack([np.concatenate([fields.ravel(), J.ravel()]) for fields, J in directions])


@pytest.mark.parametrize("strengths", [(0.3, 0.3), (0.02, 0.7), (0.5, 0.0), (0.0, 0.4)])
def test_the_gauge_has_the_least_penalty_of_all_equivalent_parameters(strengths) -> None:
    fields, J = make_parameters()
    means = torch.full((WIDTH,), 1 / STATES, dtype=torch.float64)
    on_fields, on_couplings = strengths
    weights = np.sqrt(np.concatenate([np.full(WIDTH, on_fields), np.full(WIDTH**2, on_couplings)]))
    start = np.concatenate([fields.numpy().ravel(), J.numpy().ravel()])
    directions = list_generators()
    shares, *_ = np.linalg.lstsq((directions * weights).T, -start * weights, rcond=None)
    least = (weights * (start + shares @ directions)) ** 2
    before = energies(fields, J)
    made = Preconditioner(
        means, means * (1 - means), columns=STATES, fields=on_fields, couplings=on_couplings, rows=9
    )
    made.settle_(fields, J)
    torch.testing.assert_close(energies(fields, J), before)
    found = (weights * np.concatenate([fields.numpy().ravel(), J.numpy().ravel()])) ** 2
    assert found.sum() == pytest.approx(least.sum(), abs=1e-12)


def make_gradient(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A difference of mean products of pairs of sites, and of means, as gradients are."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.eye(STATES, dtype=torch.float64)[torch.randint(STATES, (2, 50, SITES), generator=generator)]
    one, other = (x.flatten(1) for x in rows)
    site = torch.arange(WIDTH) // STATES
    difference = (one.t() @ one - other.t() @ other) / 50 * (site[:, None] < site)
    return (one - other).mean(0).view(SITES, STATES), difference


@pytest.mark.parametrize(("columns", "make"), [(1, make_parameters), (STATES, make_gradient)])
def test_it_is_symmetric_and_positive_where_gradients_are(columns: int, make) -> None:
    means = torch.rand(WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = Preconditioner(means, means * (1 - means), columns=columns, fields=0.1, couplings=0.2, rows=7)
    vectors, images = [], []
    for seed in range(12):
        fields, J = make(seed)
        vectors.append(torch.cat([fields.flatten(), J.flatten()]))
        made.apply_(fields, J)
        images.append(torch.cat([fields.flatten(), J.flatten()]))
    products = torch.stack(vectors) @ torch.stack(images).t()
    torch.testing.assert_close(products, products.t())
    assert float(torch.linalg.eigvalsh(products).min()) > 0


def make_family(sites: int, states: int, rows: int) -> torch.Tensor:
    """Rows of a chain of sites in which letters have frequencies from one in two to one in a hundred."""
    random = np.random.default_rng(3)
    shares = 0.5 ** np.arange(states)
    codes = random.choice(states, (rows, sites), p=shares / shares.sum())
    for i in range(1, sites):
        codes[:, i] = np.where(random.random(rows) < 0.5, codes[:, i - 1], codes[:, i])
    return torch.eye(states, dtype=torch.float64)[torch.from_numpy(codes)].flatten(1)


def fit(layer: hm.layers.Layer, rows: torch.Tensor, decay: float) -> hm.training.TrainingRun:
    machine = hm.BoltzmannMachine([layer], edges=[(0, 0)], seed=0).double()
    hm.machine.init_visible_biases_(machine, rows)
    return hm.train(
        machine, rows, rule="pseudo_likelihood", updates=3000, weight_decay=decay, progress=False,
        penalties=f"fields={decay}", optimizer=lambda p: hm.training.LBFGS(p, tolerance=1e-6),
    )  # fmt: skip


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "spin"])
def test_fits_take_fewer_updates_to_the_same_optimum(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_family(10, 6, 400)
    layer = hm.Categorical(10, 6)
    if kind != "categorical":
        rows = rows[:, torch.arange(60) % 6 > 1]  # letters that are rare, each a unit
        layer = hm.Bernoulli(40) if kind == "bernoulli" else hm.Spin(40)
        rows = rows if kind == "bernoulli" else 2 * rows - 1
    run = fit(layer, rows, 1e-3)
    monkeypatch.setattr("harmonium.training.trainer.make_preconditioner", lambda *arguments: None)
    plain = fit(type(layer)(*((10, 6) if kind == "categorical" else (40,))), rows, 1e-3)
    assert run.status == plain.status == "stopped"
    assert run.updates * (3 if kind == "categorical" else 1) < plain.updates
    for one, other in zip(run.machine.parameters(), plain.machine.parameters(), strict=True):
        assert float((one - other).detach().norm()) <= 4e-3 * float(other.detach().norm())
