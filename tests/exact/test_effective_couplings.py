"""Effective couplings beside the expansion of -F over all visible states, term by term."""

from __future__ import annotations

import warnings
from itertools import combinations, product

import pytest
import torch

import harmonium as hm
from harmonium.machine import init_from_data_, normal_
from harmonium.sums import log_weights
from harmonium.tasks import effective_couplings, interactions


def made(layers, edges=None, visible=None, std=0.6, seed=0):
    machine = hm.BoltzmannMachine(layers, edges=edges, visible=visible, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    for parameter in machine.parameters():
        with torch.no_grad():
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return machine


MACHINES = {
    "spins": lambda: made([hm.Spin(6), hm.Spin(4)]),
    "bits": lambda: made([hm.Bernoulli(6), hm.Bernoulli(4)]),
    "bits beside real": lambda: made([hm.Bernoulli(5), hm.Gaussian(3)]),
    "deep": lambda: made([hm.Spin(5), hm.Bernoulli(3), hm.Bernoulli(2)]),
    "potts": lambda: made([hm.Categorical(4, 3), hm.Bernoulli(3)]),
    "mixed": lambda: made(
        [hm.Spin(3), hm.Categorical(2, 3), hm.Bernoulli(4)], edges=[(0, 2), (1, 2)], visible=[0, 1]
    ),
    "joined": lambda: made(
        [hm.Bernoulli(4), hm.Spin(2), hm.Bernoulli(3)],
        edges=[(0, 0), (0, 1), (0, 2), (1, 2)],
        visible=[0, 1],
    ),
}


def units_of(machine):
    """Every visible unit as its states, each (columns,) in the order of ``Layer.values``."""
    return [
        layer.values().double()
        for layer in (machine.layers[l] for l in machine.visible)
        for _ in range(layer.n_units)
    ]


def expansion(machine, S):
    """The component of -F on the units S: alternating means over all states of the others."""
    units = units_of(machine)
    digits = list(product(*[range(len(values)) for values in units]))
    rows = torch.stack([torch.cat([u[d] for u, d in zip(units, state, strict=True)]) for state in digits])
    f = log_weights(machine.hamiltonian(), rows)
    found = torch.zeros([len(units[i]) for i in S], dtype=torch.float64)
    for there in product(*[range(n) for n in found.shape]):
        for size in range(len(S) + 1):
            for kept in combinations(range(len(S)), size):
                agree = [all(state[S[a]] == there[a] for a in kept) for state in digits]
                found[there] += (-1) ** (len(S) - size) * f[torch.tensor(agree)].mean()
    return found


def as_columns(machine, S, component):
    """A component by columns: of a unit with two values the part that goes with its sign."""
    for axis, i in enumerate(S):
        if units_of(machine)[i].shape[1] == 1:
            component = component.movedim(axis, -1)[..., 1:].movedim(-1, axis)
    return component


def places_of(machine):
    ends = torch.tensor([len(values[0]) for values in units_of(machine)]).cumsum(0).tolist()
    return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("name", MACHINES)
def test_enumeration_equals_the_definition(name):
    machine = MACHINES[name]()
    found, places = effective_couplings(machine, order=3), places_of(machine)
    assert found.method == "exact"
    for i, here in enumerate(places):
        torch.testing.assert_close(
            found.fields[here], as_columns(machine, (i,), expansion(machine, (i,))), atol=1e-8, rtol=0
        )
    for i, j in combinations(range(len(places)), 2):
        own = as_columns(machine, (i, j), expansion(machine, (i, j)))
        torch.testing.assert_close(found.pairs[places[i], places[j]], own, atol=1e-8, rtol=0)
    for i, j, k in list(combinations(range(len(places)), 3))[::3]:
        own = as_columns(machine, (i, j, k), expansion(machine, (i, j, k)))
        there = found.triples[places[i], places[j], places[k]]
        torch.testing.assert_close(there, own, atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", ["exact", "gaussian"])
@pytest.mark.parametrize("name", ["mixed", "joined", "potts"])
def test_the_order_of_units_does_not_matter_and_none_is_coupled_to_itself(name, method):
    machine = MACHINES[name]()
    found, places = effective_couplings(machine, order=3, method=method), places_of(machine)
    torch.testing.assert_close(found.pairs, found.pairs.t())
    for axes in ((1, 0, 2), (2, 1, 0), (1, 2, 0)):
        torch.testing.assert_close(found.triples, found.triples.permute(axes))
    for here in places:
        assert not found.pairs[here, here].any()
        assert not found.triples[here, here].any()


@pytest.mark.parametrize("name", ["spins", "bits", "bits beside real", "potts", "mixed", "joined"])
def test_the_gaussian_average_becomes_exact_as_weights_shrink(name):
    errors = []
    for scale in (0.5, 0.25):
        machine = MACHINES[name]()
        with torch.no_grad():
            for (l, m), coupling in zip(machine.edges, machine.couplings, strict=True):
                if {l, m} & set(machine.hidden):
                    coupling.weight.mul_(scale)
        exact = effective_couplings(machine, order=2, method="exact")
        near = effective_couplings(machine, order=2, method="gaussian")
        errors.append(float((exact.pairs - near.pairs).norm() / exact.pairs.norm()))
    assert errors[0] < 0.05
    assert errors[1] < max(errors[0] / 2.5, 1e-9)


@pytest.mark.parametrize(("spread", "error"), [(0.5, 1e-7), (1.5, 1e-7), (3.0, 1e-4)])
def test_points_of_the_average_are_as_many_as_it_needs(spread, error, monkeypatch):
    """Beside ten times as many, for fields spread over hidden spins as said."""
    machine = made([hm.Spin(12), hm.Spin(5)], std=0.3)
    machine.couplings[0].fill_(machine.couplings[0].matrix().sign() * spread / 12**0.5)
    found = effective_couplings(machine, method="gaussian").pairs
    monkeypatch.setattr(interactions, "_DISTANCES", (0.03, 0.03))
    finer = effective_couplings(machine, method="gaussian").pairs
    assert float(finer.abs().max()) > 0.01 and float((found - finer).abs().max()) < error


def test_fully_visible_machines_are_their_own_couplings():
    machine = made([hm.Spin(5)], edges=[(0, 0)], visible=[0])
    found = effective_couplings(machine, order=3)
    hamiltonian = machine.hamiltonian()
    torch.testing.assert_close(found.pairs, hamiltonian.J[0])
    torch.testing.assert_close(found.fields, hamiltonian.thetas[0][0].double())
    assert float(found.triples.abs().max()) < 1e-12
    near = effective_couplings(machine, method="gaussian")
    torch.testing.assert_close(near.pairs, found.pairs)
    torch.testing.assert_close(near.fields, found.fields)


def test_a_trained_machine_within_five_percent():
    images, _ = hm.data.digits()
    rows = torch.as_tensor(hm.data.threshold(images)).double()
    varied = [i for i in range(64) if 0.2 < float(rows[:, i].mean()) < 0.8]
    rows = rows[:, varied[::2][:14]]
    machine = hm.BoltzmannMachine([hm.Bernoulli(14), hm.Bernoulli(20)]).double()
    normal_(machine, 0.05, torch.Generator().manual_seed(0))
    init_from_data_(machine, rows, torch.Generator().manual_seed(1))
    hm.train(
        machine, rows, rule=hm.rules.pcd(1, 100), updates=2000, batch_size=100, learning_rate=0.3,
        progress=False,
    )  # fmt: skip
    assert float(machine.couplings[0].weight.detach().abs().max()) > 2
    exact = effective_couplings(machine, method="exact")
    near = effective_couplings(machine, method="gaussian")
    assert float((exact.pairs - near.pairs).norm() / exact.pairs.norm()) < 0.05
    assert float((exact.fields - near.fields).norm() / exact.fields.norm()) < 0.05


def test_a_planted_model_with_three_spins_is_recovered():
    states = torch.tensor(list(product([-1.0, 1.0], repeat=6)), dtype=torch.float64)
    planted = {(0, 1, 2): 0.7, (2, 3, 4): -0.6, (0, 5): 0.5}
    energy = sum(J * states[:, list(S)].prod(1) for S, J in planted.items())
    weights = energy.exp()
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Spin(10)]).double()
    result = hm.training.train_exact_until_best(
        machine, states, weights, validation=states, validation_weights=weights,
        weight_decay=0.0, initial_std=0.3, max_updates=2000, seed=1,
    )  # fmt: skip
    distribution = weights / weights.sum()
    assert result.score > float(distribution @ distribution.log()) - 5e-3
    found = effective_couplings(machine, order=3)
    expected = torch.zeros(6, 6, 6, dtype=torch.float64)
    for S, J in planted.items():
        if len(S) == 3:
            for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
                expected[S[a], S[b], S[c]] = J
    assert float((found.triples - expected).abs().max()) < 0.15
    assert float(found.pairs[0, 5] - 0.5) == pytest.approx(0, abs=0.15)


@pytest.mark.parametrize(
    ("machine", "settings", "message"),
    [
        (lambda: made([hm.Gaussian(3), hm.Bernoulli(2)]), {}, "discrete|two values"),
        (lambda: made([hm.Binomial(3, 4), hm.Bernoulli(2)]), {}, "two values"),
        (lambda: made([hm.Spin(4), hm.Bernoulli(3), hm.Bernoulli(2)]), {"method": "gaussian"}, "hidden"),
        (lambda: made([hm.Spin(30), hm.Bernoulli(2)]), {"method": "exact"}, "2\\^"),
        (MACHINES["spins"], {"order": 4}, "order"),
        (MACHINES["spins"], {"method": "guess"}, "method"),
    ],
)
def test_refused(machine, settings, message):
    with pytest.raises(ValueError, match=message):
        effective_couplings(machine(), **settings)


def _switching_far_out(far: float, seed: int) -> hm.BoltzmannMachine:
    """Hidden units whose fields are 0 so many standard deviations above their mean."""
    machine = hm.BoltzmannMachine([hm.Spin(12), hm.Bernoulli(9)]).double()
    generator = torch.Generator().manual_seed(seed)
    W = 3 * torch.randn(12, 9, generator=generator, dtype=torch.float64)
    machine.couplings[0].fill_(W)
    machine.layers[1].set_finite_(bias=-far * W.square().sum(0).sqrt())
    return machine


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_gaussian_couplings_that_cannot_be_right_are_told(seed: int) -> None:
    """Beside exact ones: 4 deviations out their error is most of their size, at 0 below a seventh."""
    for far in (0.0, 4.0):
        machine = _switching_far_out(far, seed)
        exact = hm.tasks.effective_couplings(machine, method="exact").pairs
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = hm.tasks.effective_couplings(machine, method="gaussian").pairs
        error = float((found - exact).norm() / found.norm())
        texts = [str(each.message) for each in caught]
        if far:
            assert error > 0.3 and len(texts) == 1
            assert "gaussian couplings are off by" in texts[0] and "method='exact'" in texts[0]
        else:
            assert error < 0.15 and not texts


def test_two_weights_a_hidden_unit_are_exact_however_strong() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(6), hm.Spin(3)]).double()
    W = torch.zeros(6, 3, dtype=torch.float64)
    W[[0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2]] = 3.0
    machine.couplings[0].fill_(W)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = hm.tasks.effective_couplings(machine, method="gaussian").pairs
    exact = hm.tasks.effective_couplings(machine, method="exact").pairs
    assert float((found - exact).abs().max()) < 1e-6
