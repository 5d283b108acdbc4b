"""What calls the kernels for matrix units: with the same kernels written in torch, numbers are those without.

The kernels themselves need a GPU: ``experiments/gpu_kernels.py`` holds them against float64 there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.backends import choice
from harmonium.backends.cuda import tensor_core_sums, tensor_cores
from harmonium.backends.cuda.tensor_core_sums import Pair, Sums
from harmonium.backends.cuda.tensor_cores import Couplings, Drawn
from harmonium.machine import Statistics
from harmonium.sums import expect

BITS = (torch.rand(60, 12, generator=torch.Generator().manual_seed(1)) < 0.3).float()
USED: list[str] = []


def field_of(
    x: Tensor, W: Couplings, transposed: bool, beta: Any, addend: Tensor | None, exact: bool
) -> Tensor:
    if exact:
        assert torch.equal(x, x.bfloat16().float())
    made = x @ (W.W.t() if transposed else W.W)
    made = made if addend is None else made + addend
    return made * (beta.float() if isinstance(beta, Tensor) else beta)


def half_step(
    x: Tensor, W: Couplings, theta: Tensor, values: Any, key: Tensor, *, transposed: bool = False,
    beta: Any = 1.0, addend: Tensor | None = None, exact: bool = True, field: bool = False,
) -> Drawn:  # fmt: skip
    USED.append("half_step")
    made = field_of(x, W, transposed, beta, addend, exact)
    state = draw(made, theta, values, key).state
    return Drawn(state, None, made if field else None)


def mean(
    x: Tensor, W: Couplings, theta: Tensor, values: Any, *, transposed: bool = False,
    beta: Any = 1.0, addend: Tensor | None = None, exact: bool = True,
) -> Tensor:  # fmt: skip
    return mean_of_field(field_of(x, W, transposed, beta, addend, exact), theta, values)


def field(
    x: Tensor, W: Couplings, *, transposed: bool = False,
    beta: Any = 1.0, addend: Tensor | None = None, exact: bool = True,
) -> Tensor:  # fmt: skip
    USED.append("field")
    return field_of(x, W, transposed, beta, addend, exact)


def mean_of_field(field: Tensor, theta: Tensor, values: Any) -> Tensor:
    low, high = values
    return low + (high - low) * torch.sigmoid((high - low) * (field + theta))


def draw(field: Tensor, theta: Tensor, values: Any, key: Tensor) -> Drawn:
    low, high = values
    noise = torch.rand(field.shape, generator=torch.Generator().manual_seed(int(key)))
    return Drawn(torch.where(noise < torch.sigmoid((high - low) * (field + theta)), high, low), None, field)


def probabilities(field: Tensor, theta: Tensor, n_states: int) -> Tensor:
    return (field + theta).view(len(field), -1, n_states).softmax(-1).flatten(1)


def draw_one_hot(field: Tensor, theta: Tensor, n_states: int, key: Tensor) -> Drawn:
    shares = probabilities(field, theta, n_states).view(-1, n_states)
    chosen = torch.multinomial(shares, 1, generator=torch.Generator().manual_seed(int(key)))
    return Drawn(torch.zeros_like(shares).scatter_(1, chosen, 1.0).view_as(field), None, field)


def statistics(pairs: Sequence[Pair]) -> Sums:
    USED.append("statistics")
    total: list[Any] = [0.0, 0.0, 0.0]
    for pair in pairs:
        for exact, x in ((pair.x_exact, pair.x), (pair.y_exact, pair.y)):
            assert not exact or torch.equal(x, x.bfloat16().float())
        weight = pair.weight.unsqueeze(-1) if isinstance(pair.weight, Tensor) else pair.weight
        terms = pair.x.t() @ (weight * pair.y), (weight * pair.x).sum(0), (weight * pair.y).sum(0)
        total = [whole + term for whole, term in zip(total, terms, strict=True)]
    return Sums(*total)


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    USED.clear()
    for function in (half_step, mean, field, mean_of_field, draw, probabilities, draw_one_hot):
        monkeypatch.setattr(tensor_cores, function.__name__, function)
    monkeypatch.setattr(tensor_core_sums, "statistics", statistics)
    monkeypatch.setattr(choice, "HALF_STEP", 1)
    monkeypatch.setattr(choice, "COMPILED", False)
    monkeypatch.setattr(choice, "WORTHWHILE", 1)
    monkeypatch.setattr(choice, "UNITS", frozenset(("cpu",)))
    monkeypatch.setattr(choice, "matrix_units", lambda device: True)
    yield monkeypatch


LAYERS: dict[str, Any] = {
    "shallow": lambda: [hm.Bernoulli(12), hm.Bernoulli(5)],
    "spins": lambda: [hm.Bernoulli(12), hm.Spin(5)],
    "deep": lambda: [hm.Bernoulli(12), hm.Bernoulli(5), hm.Spin(4), hm.Bernoulli(3)],
    "categorical": lambda: [hm.Categorical(4, 3), hm.Bernoulli(5)],
    "gaussian": lambda: [hm.Gaussian(12), hm.Bernoulli(5)],
}


def machine(name: str) -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine(LAYERS[name](), seed=2)
    hm.machine.normal_(made, 0.4, seed=1)
    return made


def rows(name: str) -> Tensor:
    return machine(name).random_states(60, seed=4)[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_statistics_are_those_without_matrix_units(
    name: str, weighted: bool, units: pytest.MonkeyPatch
) -> None:
    made, hamiltonian = machine(name), machine(name).hamiltonian()
    weights: Any = torch.rand(60, generator=torch.Generator().manual_seed(2)) if weighted else 0.3
    lots = [made.random_states(60, seed=seed) for seed in range(3)]
    found = []
    for there in (True, False):
        units.setattr(choice, "matrix_units", lambda device, there=there: there)
        sums = Statistics(hamiltonian)
        with torch.no_grad():
            for lot in lots:
                sums.add(hamiltonian, lot, weights, summed=hamiltonian.graph.summed)
        found.append([x for theta in sums.thetas for x in theta] + sums.products)
    # Lots of one weight are one product; lots with weights of rows are two and one.
    assert USED.count("statistics") == (2 if weighted else 1) * len(hamiltonian.graph.edges)
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("waiting", [1 << 24, 3000])
def test_lots_that_wait_for_others_are_all_counted(waiting: int, units: pytest.MonkeyPatch) -> None:
    made, hamiltonian = machine("shallow"), machine("shallow").hamiltonian()
    units.setattr("harmonium.backends.products._WAITING", waiting)
    sums, total = Statistics(hamiltonian), 0.0
    with torch.no_grad():
        for seed, weight in enumerate((0.5, -0.1, -0.1, -0.1, 0.5, -0.1, 0.2, -0.1, -0.1)):
            v, h = made.random_states(60, seed=seed)
            sums.add(hamiltonian, (v, h), weight)
            total = total + weight * (v.t() @ h)
        assert torch.allclose(sums.products[0], total, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize("name", ["shallow", "spins", "deep", "categorical"])
def test_chains_follow_the_distribution(name: str) -> None:
    made = machine(name)
    chains = hm.chains.run(made, hm.chains.Gibbs(), made.random_states(20_000, seed=1), 20, seed=2)
    assert {"half_step", "field"} & {*USED}
    exact = Statistics(made.hamiltonian())
    expect(made.hamiltonian(), exact, 1.0)
    for l, x in enumerate(chains):
        error = x.double().std(0) / len(x) ** 0.5
        z = (x.double().mean(0) - exact.thetas[l][0].double()) / error.clamp(min=1e-3)
        assert float(z.abs().max()) < 5


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize("name", ["shallow", "spins", "categorical"])
def test_a_gradient_is_right_on_average(name: str) -> None:
    """Over many chains that have come to the machine's distribution, the gradient is that of enumeration."""
    made, v, generator, state = machine(name), rows(name), torch.Generator().manual_seed(3), None
    wanted = hm.rules.exact().gradient(made, v, seed=0).parameters
    for _ in range(10):
        estimate = hm.rules.pcd(2, chains=20_000).gradient(made, v, state, seed=generator)
        state = estimate.state
    assert {"half_step", "statistics"} <= {*USED}
    assert max(float((estimate.parameters[x] - wanted[x]).abs().max()) for x in wanted) < 0.03


@pytest.mark.parametrize(
    ("name", "recorded"), [("shallow", False), ("spins", True), ("deep", True), ("categorical", False)]
)
def test_annealing_finds_ln_z(name: str, recorded: bool, units: pytest.MonkeyPatch) -> None:
    """Five standard errors on either side, recorded in blocks of temperatures or not."""
    units.setattr(choice, "RECORDS", frozenset(("cpu",)) if recorded else frozenset())
    units.setattr(choice, "LEAST_UPDATES", 20)
    made = machine(name)
    found = hm.likelihood.ais(made, 500, 61, data=rows(name), seed=4)
    assert {"half_step", "field"} & {*USED}
    exact = hm.likelihood.exact_log_partition(made)
    assert abs(found.value - exact) < 5 * found.standard_error
    assert exact < found.upper
