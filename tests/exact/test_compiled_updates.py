"""Updates made many at once: against those made one by one with the same noise, and against enumeration."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats
from torch import Tensor

import harmonium as hm
from harmonium import _random
from harmonium.backends import choice

from .compiled_updates import Noise, machine_of, one_by_one, rows_of, serve_from_the_first

pytestmark = pytest.mark.skipif(not choice.COMPILED, reason="needs numba")

TWO_VALUED = ("bernoulli", "spin")
SIDES: dict[str, tuple[str, ...]] = {
    "real": ("gaussian",),
    "floor": ("gaussian with a floor",),
    "one-hot": ("categorical",),
    "mixed": ("categorical", "gaussian", "spin"),
    "more": ("bernoulli", "gaussian with a floor", "gaussian", "categorical"),
}
PAIRS = [((v,), h) for v, h in product(TWO_VALUED, TWO_VALUED)]
KINDS = [*PAIRS, *((SIDES[side], h) for side, h in (("real", "spin"), ("floor", "bernoulli"),
        ("one-hot", "spin"), ("mixed", "bernoulli")))]  # fmt: skip
FAILURES = 1e-3  # of each statistical test, over all its comparisons
SIZE = {"gaussian": 2, "gaussian with a floor": 2, "categorical": 2}
Kinds = tuple[tuple[str, ...], str]


@pytest.fixture(autouse=True)
def from_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_from_the_first(monkeypatch)


def small(kinds: Kinds, m: int, dtype: torch.dtype = torch.float64) -> Any:
    """Returns a machine whose states can be listed."""
    visible, hidden = kinds
    sizes = [SIZE.get(visible[0], 3)] if len(visible) == 1 else [1] * len(visible)
    return machine_of(visible, hidden, sizes, m, dtype)


@pytest.mark.parametrize("case", range(45))
@pytest.mark.mostly_nightly(4)
def test_settings_of_the_optimiser_as_one_by_one_with_the_same_noise(
    case: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = np.random.default_rng(100 + case)
    visible, hidden = (str(choose.choice(TWO_VALUED)),), str(choose.choice(TWO_VALUED))
    n, m, rows, size = (int(choose.integers(*span)) for span in ((2, 9), (2, 9), (15, 40), (3, 20)))
    sweeps, persistent = int(choose.integers(1, 4)), bool(choose.integers(2))
    chains = [None, 7, 12][choose.integers(3)]
    rates = [0.01, 0.3]
    if case >= 20:
        visible, n, rates = list(SIDES.values())[case % len(SIDES)], int(choose.integers(1, 6)), [0.01, 0.1]
    rule = hm.rules.pcd(sweeps, chains) if persistent else hm.rules.cd(sweeps)
    settings = {
        "rule": hm.rules.centred(rule) if choose.integers(2) else rule,
        "weights": choose.choice([0.0, 0.5, 1.0, 3.0], rows) if choose.integers(2) else None,
        "weight_decay": float(choose.choice([0.0, 0.01])),
        "l1": [0.0, 0.02][case % 2],
        "momentum": [0.0, 0.0, 0.7][case % 3],
        "clip_norm": [None, 0.3][choose.integers(2)],
        "schedule": str(choose.choice(["constant", "cosine", "linear", "inverse_sqrt"])),
        "learning_rate": float(choose.choice(rates)),
        "averaging": [None, 0.9][choose.integers(2)],
        "batch_size": size,
        "updates": 40,
        "seed": case,
        "progress": False,
    }
    fast, slow = (machine_of(visible, hidden, n, m) for _ in range(2))
    X = rows_of(fast.layers[:-1], rows, case)
    run = hm.train(fast, X, **settings)
    layers = len(visible) + 1
    one_by_one(monkeypatch, Noise(layers * sweeps + (not persistent)), layers if persistent else 0)
    expected = hm.train(slow, X, **settings)
    pairs = [*zip(fast.named_parameters(), slow.parameters(), strict=True)]
    if settings["averaging"]:
        both = run.averaged_machine, expected.averaged_machine
        pairs += zip(both[0].named_parameters(), both[1].parameters(), strict=True)
    for (name, x), y in pairs:
        assert float((x - y).detach().abs().max()) < 1e-10, name
    for mine, theirs in zip(run.history, expected.history, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine.keys() - {"seconds"}:
            assert mine[name] == pytest.approx(theirs[name], rel=1e-9), name
    if persistent:
        assert run.rule_state.sweeps == expected.rule_state.sweeps
        for x, y in zip(run.rule_state.states, expected.rule_state.states, strict=True):
            assert float((x - y).detach().abs().max()) < 1e-10


# The distribution of a machine, written out


def variance_of(layer: Any) -> Tensor:
    return layer.variance_floor + layer.log_variance.exp()


def log_weight(machine: Any, v: Tensor, h: Tensor) -> Tensor:
    """Returns -E of rows of visible states and hidden states, or their means, as E is linear in h."""
    total = h @ machine.layers[-1].bias
    for coupling, layer, x in zip(machine.couplings, machine.layers, machine.split(v).values(), strict=False):
        if layer.gaussian:
            precision = 1 / variance_of(layer)
            total = total - 0.5 * (x - layer.mean).square() @ precision
            total = total + ((x * precision @ coupling.weight) * h).sum(1)
        else:
            total = total + x @ layer.bias.flatten() + ((x @ coupling.weight) * h).sum(1)
    return total


def probability_up(machine: Any, v: Tensor) -> Tensor:
    """Returns P(h = 1 | v), (rows, m), from the difference that a unit makes to -E."""
    layer = machine.layers[-1]
    low, one = layer.two_values[0], torch.eye(layer.width, dtype=v.dtype)
    none = log_weight(machine, v, torch.zeros_like(one[:1]).expand(len(v), -1))
    change = [log_weight(machine, v, h.expand(len(v), -1)) - none for h in one.split(1)]
    return torch.sigmoid((1 - low) * torch.stack(change, 1))


def mean_given(machine: Any, v: Tensor) -> Tensor:
    low = machine.layers[-1].two_values[0]
    return low + (1 - low) * probability_up(machine, v)


def nodes_given(machine: Any, h: Tensor, real: bool = True) -> tuple[Tensor, Tensor]:
    """Returns visible states, one a row, and their weights given one hidden state, (m,).

    Gaussian columns have 20 nodes of a quadrature each, or are at their mean where ``real`` is False.
    """
    units: list[list[tuple[list[float], float]]] = []
    for coupling, layer in zip(machine.couplings, machine.layers, strict=False):
        field = (coupling.weight @ h).detach().double()
        if layer.gaussian:
            mean, deviation = (layer.mean + field).tolist(), variance_of(layer).sqrt().tolist()
            t, w = hermegauss(20) if real else (np.zeros(1), np.ones(1))
            units += [
                [([a + s * x], y) for x, y in zip(t, w / w.sum(), strict=True)]
                for a, s in zip(mean, deviation, strict=True)
            ]
        elif layer.one_hot:
            probabilities = torch.softmax((layer.bias.flatten() + field).view(layer.n_units, -1), 1).tolist()
            units += [
                [(row.tolist(), p) for row, p in zip(np.eye(len(ps)), ps, strict=True)]
                for ps in probabilities
            ]
        else:
            low = layer.two_values[0]
            probabilities = torch.sigmoid((1 - low) * (layer.bias + field)).tolist()
            units += [[([low], 1 - p), ([1.0], p)] for p in probabilities]
    joint = [*product(*units)]
    states = torch.tensor([[x for part, _ in state for x in part] for state in joint], dtype=torch.float64)
    return states, torch.tensor([np.prod([p for _, p in state]) for state in joint], dtype=torch.float64)


def hidden_states(machine: Any) -> Tensor:
    layer = machine.layers[-1]
    return torch.tensor([*product(layer.two_values, repeat=layer.width)], dtype=torch.float64)


def given_visible(machine: Any, v: Tensor) -> Tensor:
    """Returns p(h | v) of all hidden states, (rows, states)."""
    up = probability_up(machine, v)
    return torch.stack([torch.where(h == 1, up, 1 - up).prod(1) for h in hidden_states(machine)], 1).detach()


def hidden_distribution(machine: Any) -> Tensor:
    """Returns p(h) of all hidden states: of each, -E at a visible state less ln p(v | h)."""
    logs = []
    for h in hidden_states(machine):
        v, weights = nodes_given(machine, h, real=False)
        total = log_weight(machine, v[:1], h[None])[0] - weights[0].log()
        for layer in machine.layers[:-1]:
            total = total + (0.5 * variance_of(layer).log().sum() if layer.gaussian else 0.0)
        logs.append(total.detach())
    return torch.softmax(torch.stack(logs), 0)


def expected_gradient(machine: Any, X: Tensor, hidden: Tensor) -> Tensor:
    """Returns the gradient of rows less that of visible states given hidden ones so distributed, flat."""
    value = log_weight(machine, X, mean_given(machine, X).detach()).mean()
    for h, p in zip(hidden_states(machine), hidden, strict=True):
        v, weights = nodes_given(machine, h)
        value = value - p * (weights @ log_weight(machine, v, mean_given(machine, v).detach()))
    return torch.cat([g.flatten() for g in torch.autograd.grad(value, [*machine.parameters()])])


def place_of(machine: Any, states: list[Tensor]) -> Any:
    """Returns the number of each row's state in the order of ``nodes_given``, the Gaussian columns aside."""
    place = torch.zeros(len(states[0]), dtype=torch.long)
    for layer, x in zip(machine.layers, states, strict=True):
        if layer.gaussian:
            continue
        digits = layer.by_unit(x).argmax(-1) if layer.one_hot else (x > 0).long()
        for digit in digits.unbind(1):
            place = place * (layer.n_states or 2) + digit
    return place.numpy()


def check_state(machine: Any, chains: list[Tensor], given: Tensor, probability: Tensor, share: float) -> None:
    """Tests chains: discrete units against their probabilities, Gaussian ones given hidden states."""
    if len(probability) > 1:
        counts = np.bincount(place_of(machine, chains), minlength=len(probability))
        assert stats.chisquare(counts, len(given) * probability.double().numpy()).pvalue > share
    for coupling, layer, x in zip(machine.couplings, machine.layers, chains, strict=False):
        if layer.gaussian:
            z = (x - layer.mean - given @ coupling.weight.T) * variance_of(layer).rsqrt()
            for column in z.detach().double().T:
                assert stats.kstest(column.numpy(), "norm").pvalue > share
            if layer.width > 1:
                assert stats.pearsonr(*z.detach().double().T[:2].numpy()).pvalue > share


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kinds", KINDS, ids=str)
@pytest.mark.mostly_nightly(2)
def test_chains_follow_the_distribution_of_a_sweep_from_one_state(kinds: Kinds, dtype: torch.dtype) -> None:
    m, chains = 2, 40_000
    machine = small(kinds, m, dtype)
    hidden = machine.layers[-1].mode(torch.tensor([[1.0, -1]], dtype=dtype))
    X = rows_of(machine.layers[:-1], 4, 0)
    start = [machine.split(torch.from_numpy(X).to(dtype))[l][:1] for l in machine.visible]
    start = [x.repeat(chains, 1) for x in (*start, hidden)]
    run = hm.train(
        machine, X, rule=hm.rules.pcd(1, chains), updates=1, learning_rate=0.0, rule_state=start,
        seed=torch.Generator().manual_seed(1), progress=False,
    )  # fmt: skip
    found = run.rule_state.states
    exact = machine.double()
    real = any(layer.gaussian for layer in exact.layers)
    v, weights = nodes_given(exact, hidden[0].double(), real=False)
    share = FAILURES / 2 / len(KINDS) / 12
    if real:  # the hidden units beside Gaussian columns are looked at below
        visible = [*found[:-1], found[-1][:, :0]]
        check_state(exact, visible, start[-1].double(), weights, share)
    else:
        joint = (weights[:, None] * given_visible(exact, v)).flatten()
        assert float(joint.sum()) == pytest.approx(1.0, abs=1e-6)
        check_state(exact, found, start[-1].double(), joint, share)
    rows = torch.cat(found[:-1], 1).double()
    up = probability_up(exact, rows).detach()
    off = (found[-1] > 0).double() - up
    beside = torch.cat([torch.ones(chains, 1), rows, off[:, 1:]], 1)
    terms = torch.cat([off[:, :1] * beside, off[:, 1:] * beside[:, :-1]], 1)
    assert float((terms.sum(0) / terms.square().sum(0).sqrt()).abs().max()) < stats.norm.isf(share)


@pytest.mark.parametrize("sweeps", [1, 2])
@pytest.mark.parametrize("kinds", KINDS, ids=str)
@pytest.mark.mostly_nightly(2)
def test_the_mean_gradient_of_contrastive_divergence_by_enumeration(kinds: Kinds, sweeps: int) -> None:
    machine, X, copies = small(kinds, 2), rows_of(small(kinds, 2).layers[:-1], 5, 1), 2_000
    rows = torch.from_numpy(X)
    transition = torch.stack([
        weights @ given_visible(machine, v)
        for v, weights in (nodes_given(machine, h) for h in hidden_states(machine))
    ])  # fmt: skip
    hidden = given_visible(machine, rows).mean(0) @ torch.linalg.matrix_power(transition, sweeps - 1)
    expected = expected_gradient(machine, rows, hidden)
    settings = {"rule": hm.rules.cd(sweeps), "batch_size": 5 * copies}
    check_mean(machine, np.tile(X, (copies, 1)), expected, 2 * len(KINDS), **settings)


def check_mean(machine: Any, X: Any, expected: Tensor, tests: int, **settings: Any) -> None:
    """Tests the mean of the gradients of 20 updates of their own against what is expected."""
    before = {name: x.clone() for name, x in machine.state_dict().items()}
    moved, updates = [], 20
    for seed in range(updates):
        machine.load_state_dict(before)
        hm.train(machine, X, updates=1, learning_rate=1.0, seed=seed, progress=False, **settings)
        moved.append(torch.cat([(x.detach() - before[n]).flatten() for n, x in machine.named_parameters()]))
    found = torch.stack(moved)
    z = (found.mean(0) - expected) / (found.std(0) / updates**0.5)
    assert float(z.abs().max()) < stats.t(updates - 1).isf(FAILURES / tests / 2 / len(z))


@pytest.mark.parametrize("kinds", [KINDS[1], *KINDS[4:]], ids=str)
@pytest.mark.mostly_nightly(2)
def test_persistent_chains_keep_the_distribution_and_give_the_gradient(kinds: Kinds) -> None:
    """From an exact start, at a rate of 0: no drift; and the mean gradient is that of the log-likelihood."""
    chains, updates = 20_000, 5
    machine, generator = small(kinds, 3), torch.Generator().manual_seed(2)
    hidden, probability = hidden_states(machine), hidden_distribution(machine)
    h = hidden[torch.multinomial(probability, chains, replacement=True, generator=generator)]
    start = []
    for coupling, layer in zip(machine.couplings, machine.layers, strict=False):
        field = (h @ coupling.weight.T).detach()
        start.append(layer.sample(field, layer.noise(field.shape, generator=generator)).detach())
    X = rows_of(machine.layers[:-1], 6, 1)
    rule, settings = hm.rules.pcd(2, chains), {"rule_state": [*start, h], "progress": False}
    run = hm.train(machine, X, rule=rule, updates=updates, learning_rate=0.0, **settings)
    assert run.rule_state.sweeps == 2 * updates
    joint = torch.cat([
        p * nodes_given(machine, h, real=False)[1][:, None] * torch.eye(len(hidden))[i].double()
        for i, (h, p) in enumerate(zip(hidden, probability, strict=True))
    ], 1).view(-1, len(hidden), len(hidden)).sum(1).flatten()  # fmt: skip
    check_state(machine, run.rule_state.states, run.rule_state.states[-1], joint, FAILURES / 30)
    expected = expected_gradient(machine, torch.from_numpy(X), probability)
    before = {name: x.detach().clone() for name, x in machine.named_parameters()}
    hm.train(machine, X, rule=rule, updates=1, learning_rate=1.0, **settings)
    moved = torch.cat([(x.detach() - before[name]).flatten() for name, x in machine.named_parameters()])
    spread = spread_of_gradient(machine, before, start)
    assert float(((moved - expected).abs() / spread).max()) < stats.norm.isf(FAILURES / 30 / len(spread))


def spread_of_gradient(machine: Any, parameters: dict[str, Tensor], v: list[Tensor]) -> Tensor:
    """Returns standard errors of the mean gradient over chains, a little more than those of 400 of them."""
    machine.load_state_dict(parameters)
    rows, each = torch.cat(v, 1), []
    for row in rows[:400].split(1):
        value = log_weight(machine, row, mean_given(machine, row).detach())[0]
        each.append(torch.cat([g.flatten() for g in torch.autograd.grad(value, [*machine.parameters()])]))
    return torch.stack(each).std(0) / len(rows) ** 0.5 * 1.15


def test_keys_are_those_drawn_one_by_one() -> None:
    one, many = (torch.Generator().manual_seed(4) for _ in range(2))
    assert [_random.key(one) for _ in range(9)] == [*_random.keys(4, many), *_random.keys(5, many)]
