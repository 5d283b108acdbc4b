"""Gradients from shards: the same statistics, added elsewhere."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.distributed import Group, Shards, pairwise
from harmonium.learning.sharded import Sharded, _together

RULES = {
    "exact": hm.rules.exact(),
    "centred": hm.rules.centred(hm.rules.exact()),
    "conditional": hm.rules.conditional(hm.rules.exact(), condition_on=[0]),
}


def machine(name: str) -> hm.BoltzmannMachine:
    if name == "conditional":
        layers = [hm.Bernoulli(3), hm.Categorical(1, 3), hm.Bernoulli(4)]
        made = hm.BoltzmannMachine(layers, edges=[(0, 2), (1, 2)], visible=[0, 1])
    else:
        made = hm.BoltzmannMachine([hm.Bernoulli(5), hm.Spin(3), hm.Bernoulli(2)])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.double().parameters():
            parameter.normal_(0, 0.5, generator=generator)
    return made


def gradient(sharded, made, v, state=None, *, seed, weights=None):
    """As ``Rule.gradient``, of shards."""
    v, row_weights, observed = sharded.rule.checked(made, v, weights)
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    parametrisation = hm.learning.Parametrisation(made)
    return sharded.estimate(parametrisation, v, state, generator, row_weights, observed)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("weighted", [False, True], ids=["alike", "weighted"])
@pytest.mark.parametrize("name", RULES)
def test_shards_add_up_to_the_whole(name: str, weighted: bool, shards: int) -> None:
    made, rule = machine(name), RULES[name]
    v = made.visible_rows(made.random_states(30, seed=2)[0] if name != "conditional" else _labelled(), "v")
    weights = torch.rand(len(v), generator=torch.Generator().manual_seed(3)) if weighted else None
    if weights is not None:
        weights[3] = 0.0
    sharded = Sharded(rule, Shards(Group(), shards))
    expected = rule.gradient(made, v, seed=0, weights=weights)
    actual = gradient(sharded, made, v, seed=0, weights=weights)
    for parameter, whole in expected.parameters.items():
        torch.testing.assert_close(actual.parameters[parameter], whole, atol=1e-12, rtol=1e-10)
    if actual.state is not None and not weighted:  # else each shard's means count by what its rows weigh
        sharded.check_state(made, actual.state)
        other = v.flip(-1)
        expected = rule.gradient(made, other, expected.state, seed=0)
        actual = gradient(sharded, made, other, actual.state, seed=0)
        for parameter, whole in expected.parameters.items():
            torch.testing.assert_close(actual.parameters[parameter], whole, atol=1e-12, rtol=1e-10)


def _labelled() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    pixels = torch.rand(30, 3, generator=generator).round()
    labels = torch.nn.functional.one_hot(torch.randint(3, (30,), generator=generator), 3)
    return torch.cat([pixels, labels], 1).double()


def test_chains_are_dealt_out() -> None:
    made = machine("exact")
    v = made.random_states(8, seed=2)[0]
    rule = Sharded(hm.rules.pcd(1, 12), Shards(Group(), 4))
    estimate = gradient(rule, made, v, seed=0)
    assert [len(state.states[0]) for state in estimate.state] == [3, 3, 3, 3]
    again = gradient(rule, made, v, estimate.state, seed=1)
    assert len({part.states[1].sum().item() for part in again.state}) > 1  # noise of their own
    rule.check_state(made, again.state)
    with pytest.raises(ValueError, match="state: expected that of 4 shards, received 3"):
        rule.check_state(made, again.state[:3])


@pytest.mark.parametrize(
    ("rule", "rows", "shards", "message"),
    [
        (hm.rules.pcd(1, 10), 8, 4, "chains: expected a multiple of the 4 shards, received 10"),
        (hm.rules.ucd(chains=6), 8, 4, "chains: expected a multiple of the 4 shards, received 6"),
        (hm.rules.ucd_lmi(chains=6), 8, 4, "chains: expected a multiple of the 4 shards, received 6"),
        (hm.rules.pcd(1, 8), 3, 4, "batch_size: expected at least one for each of 4 shards, received 3"),
        (
            hm.rules.pcd(1, 8),
            8,
            3,
            "shards: expected a power of two that the number of",
        ),
    ],
    ids=["pcd", "ucd", "ucd_lmi", "rows", "three"],
)
def test_what_cannot_be_dealt_out_is_refused(rule, rows: int, shards: int, message: str) -> None:
    made = machine("exact")
    v = made.random_states(rows, seed=2)[0]
    with pytest.raises(ValueError, match=message):
        gradient(Sharded(rule, Shards(Group(), shards)), made, v, seed=0)


@pytest.mark.slow
def test_coupled_chains_in_shards_are_unbiased() -> None:
    """|z| of every entry below 4.5: fails by chance less than once in 3,000 seeds."""
    made = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Spin(3)], seed=0)
    hm.machine.normal_(made, 0.7, torch.Generator().manual_seed(1))
    v = made.random_states(8, seed=2)[0]
    expected = hm.rules.exact().gradient(made, v, seed=0).parameters
    rule = Sharded(hm.rules.ucd(chains=200), Shards(Group(), 4))
    generator = torch.Generator().manual_seed(5)
    draws = [gradient(rule, made, v, seed=generator).parameters for _ in range(30)]
    for name, truth in expected.items():
        values = torch.stack([each[name] for each in draws])
        z = (values.mean(0) - truth) / (values.std(0) / len(values) ** 0.5)
        assert float(z.abs().max()) < 4.5


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_terms_are_added_neighbours_first_and_each_when_it_is_made(count: int) -> None:
    made: list[str] = []

    def terms():
        for number in range(count):
            made.append(str(number))
            yield made[-1]

    def add(x: str, y: str) -> str:
        made.append("+")
        return f"({x}+{y})"

    expected = [str(number) for number in range(count)]
    while len(expected) > 1:
        expected = [f"({x}+{y})" for x, y in zip(expected[::2], expected[1::2], strict=True)]
    assert pairwise(terms(), add) == expected[0]
    if count == 4:
        assert made == ["0", "1", "+", "2", "3", "+", "+"]


def test_bits_of_a_shard_do_not_depend_on_shards_before_it() -> None:
    """There are rows enough for products by bits, but too few in one shard for either side of J."""
    hamiltonian = hm.BoltzmannMachine([hm.Bernoulli(120), hm.Bernoulli(100)], seed=0).hamiltonian()
    generator = torch.Generator().manual_seed(1)
    states = [(torch.rand(128, width, generator=generator) < 0.3).float() for width in (120, 100)]
    with torch.no_grad():
        whole = hamiltonian.without_cache()
        parts = [whole.of_shard(4) for _ in range(3)]
        fields = [[part.field(l, states).clone() for l in (1, 0, 0, 0)] for part in parts]
        alone = [hamiltonian.without_cache().of_shard(4).field(l, states) for l in (1, 0)]
    for made in fields:
        assert all(torch.equal(x, y) for x, y in zip(made, [alone[0], *3 * [alone[1]]], strict=True))
    assert len({id(part.J.factors[0]._fixed) for part in parts}) == 1


def test_every_diagnostic_of_a_shard_is_told() -> None:
    notes = [{"flip_rate": 1.0}, {"flip_rate": 2.0, "clamped_longest": 3.0}, {"clamped_longest": 7.0}]
    assert _together(notes) == {"flip_rate": 1.5, "clamped_longest": 7.0}


def test_annealing_in_shards() -> None:
    made = machine("exact")
    truth = hm.likelihood.exact_log_partition(made)
    for chains, shards in ((400, 4), (390, 8)):  # of 390, six shards have 49 and two 48
        estimate = hm.likelihood.ais(made, chains, 50, seed=1, distributed="auto", shards=shards)
        assert abs(estimate.value - float(truth)) < 4 * estimate.standard_error
    with pytest.raises(ValueError, match="chains: expected at least one for each of 8 shards, received 6"):
        hm.likelihood.ais(made, 6, 5, distributed="auto")
