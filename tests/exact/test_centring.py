"""The enhanced gradient: its definition, its symmetry under flips of units, and that it climbs.

With x = c + D x', D = -1 and c = 1 for flipped Bernoulli units (D = -1 and c = 0 for flipped spins), the same
distribution has W' = D W D and, for the location a of a layer, a' = D (a + sum of W c over the neighbouring
layers); variances stay. The map is linear, so an update u maps to u' by the same formula.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from machines import request_of

import harmonium as hm

from . import oracle
from .machines import array, build, describe, exact_gradient, fill, named_gradient
from .oracle import Array, Learnable, LearnableLayer
from .specifications import SPECIFICATIONS, Specification, learnable, random_states

F64 = torch.float64
DEEP = Specification("bernoulli deep", (("bernoulli", 3), ("bernoulli", 3), ("bernoulli", 2)))
TINY = Specification("bernoulli tiny", (("bernoulli", 3), ("bernoulli", 2)), 1.0)
EVERY = [*(s for s in SPECIFICATIONS if s.name != "strong"), DEEP, TINY]
FLIPPED = [s for s in EVERY if "bernoulli" in s.kinds]
REAL = [s for s in EVERY if not {"gaussian", *oracle.TRUNCATED}.isdisjoint(s.kinds)]
SHAPES = ("log_variance", "quadratic", "logit_rate")
"""Parameters that centring leaves alone."""

Flips = list[tuple[Array, Array]]  # (c, D) of every layer


def of(specifications: list[Specification]) -> pytest.MarkDecorator:
    """One test a machine."""
    return pytest.mark.parametrize("specification", specifications, ids=lambda s: s.name)


def centred(machine: hm.BoltzmannMachine, visible: Array) -> dict[str, Array]:
    rule = hm.rules.centred(hm.rules.exact())
    estimate = rule.gradient(machine, torch.from_numpy(visible), seed=torch.Generator())
    return {name: array(value) for name, value in estimate.parameters.items()}


def plain(machine: hm.BoltzmannMachine, visible: Array) -> dict[str, Array]:
    return {name: array(g) for name, g in exact_gradient(machine, torch.from_numpy(visible)).items()}


def location(kind: str) -> str:
    return {"gaussian": "mean", **dict.fromkeys(oracle.TRUNCATED, "linear")}.get(kind, "bias")


def data(specification: Specification, rows: int = 3) -> Array:
    return random_states(specification, rows, layer=0)[0]


def random_flips(specification: Specification, seed: int) -> Flips:
    rng = np.random.default_rng(seed)
    flips = []
    for layer in random_states(specification, 1):
        chosen = rng.integers(0, 2, layer.shape[1]).astype(float)
        flips.append((chosen, 1 - 2 * chosen))
    return with_kinds(specification, flips)


def with_kinds(specification: Specification, flips: Flips) -> Flips:
    """No shift for spins; nothing at all for categorical and Gaussian units."""
    result = []
    for kind, (c, D) in zip(specification.kinds, flips, strict=True):
        still = np.zeros_like(c), np.ones_like(D)
        result.append({"bernoulli": (c, D), "spin": (0 * c, D)}.get(kind, still))
    return result


def mapped(values: dict[str, Array], kinds: list[str], flips: Flips) -> dict[str, Array]:
    """Parameters or updates of the machine in flipped units."""
    result = dict(values)
    for l in range(len(kinds) - 1):
        result[f"couplings.{l}.weight"] = (
            flips[l][1][:, None] * values[f"couplings.{l}.weight"] * flips[l + 1][1][None, :]
        )
    for l, kind in enumerate(kinds):
        name = f"layers.{l}.{location(kind)}"
        total = values[name].ravel().copy()
        if l > 0:
            total += flips[l - 1][0] @ values[f"couplings.{l - 1}.weight"]
        if l < len(kinds) - 1:
            total += values[f"couplings.{l}.weight"] @ flips[l + 1][0]
        result[name] = (flips[l][1] * total).reshape(values[name].shape)
    return result


def flipped_machine(specification: Specification, flips: Flips) -> hm.BoltzmannMachine:
    values = mapped(oracle.parameters(learnable(specification)), specification.kinds, flips)
    layers = tuple(
        LearnableLayer(
            kind,
            {name.split(".")[-1]: x for name, x in values.items() if name.startswith(f"layers.{l}.")},
        )
        for l, kind in enumerate(specification.kinds)
    )
    couplings = tuple(values[f"couplings.{l}.weight"] for l in range(len(specification.kinds) - 1))
    return fill(build(specification), Learnable(layers, couplings))


def both(specification: Specification, flips: Flips) -> tuple[hm.BoltzmannMachine, Array, Array]:
    """The flipped machine, the data and the flipped data."""
    v = data(specification)
    c, D = flips[0]
    return flipped_machine(specification, flips), v, c + D * v


def assert_close(actual: dict[str, Array], expected: dict[str, Array]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-8, atol=1e-9, err_msg=name)


def named(machine: hm.BoltzmannMachine, values: dict[str, Array]) -> dict[str, Array]:
    """Under the oracle's names, which are the machine's own here."""
    assert named_gradient(machine, values).keys() == values.keys()
    return values


@pytest.mark.parametrize("specification", FLIPPED, ids=lambda s: s.name)
@pytest.mark.parametrize("seed", range(3))
def test_flipped_units_describe_the_same_distribution(specification: Specification, seed: int) -> None:
    """The map of these tests itself: no probability changes."""
    flips = random_flips(specification, seed)
    machine, v, flipped = both(specification, flips)
    np.testing.assert_allclose(
        oracle.log_probability(oracle.natural(describe(machine)), flipped),
        oracle.log_probability(oracle.natural(learnable(specification)), v),
        rtol=1e-9,
        atol=1e-9,
    )


@of(FLIPPED)
def test_the_centred_gradient_follows_the_flips(specification: Specification) -> None:
    for seed in range(3):
        flips = random_flips(specification, seed)
        machine, v, flipped = both(specification, flips)
        original = build(specification)
        expected = mapped(named(original, centred(original, v)), specification.kinds, flips)
        assert_close(centred(machine, flipped), expected)


def test_every_set_of_flips_of_a_tiny_machine() -> None:
    """All 32; and for each that flips anything, the plain gradient does not follow."""
    original = build(TINY)
    v = data(TINY)
    for bits in itertools.product([0.0, 1.0], repeat=5):
        chosen = np.array(bits)
        flips = [(part, 1 - 2 * part) for part in (chosen[:3], chosen[3:])]
        machine, _, flipped = both(TINY, flips)
        assert_close(centred(machine, flipped), mapped(centred(original, v), TINY.kinds, flips))
        expected, actual = mapped(plain(original, v), TINY.kinds, flips), plain(machine, flipped)
        gap = max(np.abs(actual[name] - expected[name]).max() for name in expected)
        assert gap > 0.01 if chosen.any() else gap < 1e-12


def test_the_plain_gradient_of_spins_follows_their_flips() -> None:
    """Spins need no centring for that: c = 0."""
    specification = Specification("spin-spin", (("spin", 4), ("spin", 3)))
    flips = random_flips(specification, 1)
    machine, v, flipped = both(specification, flips)
    expected = mapped(plain(build(specification), v), specification.kinds, flips)
    assert_close(plain(machine, flipped), expected)


def scaled_offsets(specification: Specification, v: Array) -> list[Array]:
    """Offsets times 1 / sigma^2 of Gaussian layers."""
    parameters = learnable(specification)
    description = oracle.natural(parameters)
    if len(description.layers) == 2:
        phases = [oracle.expectations(description, {0: row}) for row in v]
        offsets = [np.mean([phase.statistics[l][0] for phase in phases], axis=0).ravel() for l in (0, 1)]
    else:
        offsets = mean_field_offsets(description, v)
    scales = [np.exp(-layer.values.get("log_variance", np.zeros(1))) for layer in parameters.layers]
    return [scale * offset for scale, offset in zip(scales, offsets, strict=True)]


def mean_field_offsets(description: oracle.Description, v: Array) -> list[Array]:
    """Two sweeps of mean field upwards, from hidden units that are pure noise."""
    states = [v, *(np.tile(uniform_mean(layer), (len(v), 1)) for layer in description.layers[1:])]
    for _ in range(2):
        for l in range(1, len(states)):
            layer = description.layers[l]
            field = states[l - 1] @ description.couplings[l - 1]
            if l < len(description.couplings):
                field = field + states[l + 1] @ description.couplings[l].T
            states[l] = means(layer, field)
    return [state.mean(0) for state in states]


def means(layer: oracle.Layer, field: Array) -> Array:
    """E[x | field], (rows, width)."""
    columns = layer.width // layer.n_units
    parts = [field[:, u * columns : (u + 1) * columns] for u in range(layer.n_units)]
    return np.hstack([oracle.unit_truth(layer, u, B, 0 * B).mean for u, B in enumerate(parts)])


def uniform_mean(layer: oracle.Layer) -> Array:
    """Of pure noise: a sparse unit is 0 half of the time."""
    if layer.kind == "categorical":
        return np.full(layer.width, layer.n_units / layer.width)
    if layer.bounds is not None:
        middle: Array = sum(layer.bounds) / 2
        return middle / 2 if layer.kind == "truncated_gauss_bernoulli" else middle
    return np.full(layer.width, {"bernoulli": 0.5, "spin": 0.0, "gaussian": 0.0}[layer.kind])


@pytest.mark.parametrize("specification", EVERY, ids=lambda s: s.name)
def test_the_definition(specification: Specification) -> None:
    """Cho et al. (2011), Melchior et al. (2016): with offsets m, the means given the data,

    dW = r r' D<(x - m)(x' - m')>,   da = r D<x> - (sum of dW r m over the neighbouring layers),

    with D = clamped - free, and r = 1 / sigma^2 for Gaussian layers, 1 for others.
    """
    machine = build(specification)
    parameters = learnable(specification)
    description = oracle.natural(parameters)
    v = data(specification)
    free = oracle.expectations(description)
    clamped = [oracle.expectations(description, {0: row}) for row in v]
    layers = range(len(description.layers))
    seen = [np.mean([phase.statistics[l][0] for phase in clamped], axis=0).ravel() for l in layers]
    own = [free.statistics[l][0].ravel() for l in layers]
    offsets = [v.mean(0), seen[1]] if len(layers) == 2 else mean_field_offsets(description, v)
    scales = [np.exp(-layer.values.get("log_variance", np.zeros(1))) for layer in parameters.layers]
    expected: dict[str, Array] = {}
    for l in layers[:-1]:
        # <(x - m)(x' - m')> = <x x'> - <x> m' - m <x'> + m m', in which the last term cancels.
        change = np.mean([phase.products[l] for phase in clamped], axis=0) - free.products[l]
        change = change - np.outer(seen[l] - own[l], offsets[l + 1])
        change = change - np.outer(offsets[l], seen[l + 1] - own[l + 1])
        expected[f"couplings.{l}.weight"] = scales[l][:, None] * change * scales[l + 1][None, :]
    for l in layers:
        total = (seen[l] - own[l]) * scales[l]
        if l > 0:
            total = total - (offsets[l - 1] * scales[l - 1]) @ expected[f"couplings.{l - 1}.weight"]
        if l < layers[-1]:
            total = total - expected[f"couplings.{l}.weight"] @ (offsets[l + 1] * scales[l + 1])
        name = f"layers.{l}.{location(description.layers[l].kind)}"
        expected[name] = total.reshape(description.layers[l].natural[0].shape)
    actual = centred(machine, v)
    variances = {name for name in actual if name.endswith(SHAPES)}
    assert_close({name: value for name, value in actual.items() if name not in variances}, expected)


@of(REAL)
def test_variances_keep_their_gradient(specification: Specification) -> None:
    """The map above is linear and leaves them out, so that the whole direction climbs."""
    machine = build(specification)
    v = data(specification)
    actual, expected = centred(machine, v), plain(machine, v)
    for name in actual:
        if name.endswith(SHAPES):
            np.testing.assert_allclose(actual[name], expected[name], rtol=1e-8, atol=1e-9)


@of(EVERY)
@pytest.mark.parametrize("seed", range(3))
def test_frozen_parameters_are_no_coordinates(specification: Specification, seed: int) -> None:
    """In the coordinates b'_l = b_l + sum of W m of what is learned, for any set of it.

    With A = dp/dp', the direction is A Aᵀ ∇, restricted to what is learned: here A is made entry by entry, by
    differences of a map that is linear.
    """
    machine = build(specification)
    names = [name for name, _ in machine.named_parameters()]
    rng = np.random.default_rng([seed, *specification.name.encode()])
    learned = [name for name in names if rng.random() < 0.6] or names[-1:]
    v = data(specification)
    gradient = plain(machine, v)
    for name, parameter in machine.named_parameters():
        parameter.requires_grad_(name in learned)
    actual = centred(machine, v)
    assert list(actual) == learned
    offsets = scaled_offsets(specification, v)
    shapes = {name: gradient[name].shape for name in learned}
    cuts = np.cumsum([0, *(gradient[name].size for name in learned)])

    def old(values: Array) -> Array:
        """p of p': b_l = b'_l - sum of W m, of learned W and b alone."""
        parts = {
            name: values[i:j].reshape(shapes[name])
            for name, i, j in zip(learned, cuts[:-1], cuts[1:], strict=True)
        }
        result = {name: part.copy() for name, part in parts.items()}
        for l, kind in enumerate(specification.kinds):
            name = f"layers.{l}.{location(kind)}"
            if name not in parts:
                continue
            for edge, m in ((l - 1, l - 1), (l, l + 1)):
                W = parts.get(f"couplings.{edge}.weight")
                if W is not None:
                    moved = W @ offsets[m] if m > l else offsets[m] @ W
                    result[name] -= moved.reshape(result[name].shape)
        return np.concatenate([result[name].ravel() for name in learned])

    A = np.stack([old(unit) for unit in np.eye(cuts[-1])], axis=1)
    expected = A @ A.T @ np.concatenate([gradient[name].ravel() for name in learned])
    np.testing.assert_allclose(
        np.concatenate([actual[name].ravel() for name in learned]), expected, rtol=1e-8, atol=1e-9
    )


# Climbing --------------------------------------------------------------------------------------------------


def mean_log_likelihood(machine: hm.BoltzmannMachine, v: Array) -> float:
    return float(oracle.log_probability(oracle.natural(describe(machine)), v).mean())


def stepped(machine: hm.BoltzmannMachine, direction: dict[str, Array], step: float) -> None:
    with torch.no_grad():
        for name, parameter in machine.named_parameters():
            parameter.add_(torch.from_numpy(direction[name]), alpha=step)


@of(EVERY)
def test_a_small_step_along_it_raises_the_log_likelihood(specification: Specification) -> None:
    """To first order by the inner product with the exact gradient, which is positive."""
    machine = build(specification)
    v = data(specification)
    direction = centred(machine, v)
    gradient = oracle.gradient(describe(machine), v)
    slope = sum(float((gradient[name] * direction[name]).sum()) for name in gradient)
    assert slope > 0
    step = 1e-4 / max(1.0, slope**0.5)
    before = mean_log_likelihood(machine, v)
    stepped(machine, direction, step)
    above = mean_log_likelihood(machine, v)
    stepped(machine, direction, -2 * step)
    below = mean_log_likelihood(machine, v)
    assert above > before > below
    assert (above - below) / (2 * step) == pytest.approx(slope, rel=1e-4)


def drawn(specification: Specification, seed: int) -> tuple[hm.BoltzmannMachine, Array]:
    """The machine with larger parameters, means far from zero, and data off its distribution."""
    machine = build(specification)
    rng = np.random.default_rng([seed, *specification.name.encode()])
    with torch.no_grad():
        for name, parameter in machine.named_parameters():
            scale = 4.0 if name.endswith("mean") else 1.0
            parameter.copy_(torch.from_numpy(rng.normal(0, scale, tuple(parameter.shape))))
    v = data(specification, 2)
    return machine, v + rng.normal(0, 3) if specification.kinds[0] == "gaussian" else v


FAR = [
    Specification("bernoulli-spin", (("bernoulli", 3), ("spin", 2))),
    Specification("categorical-bernoulli-spin", (("categorical", 1, 3), ("bernoulli", 2), ("spin", 2))),
    Specification("gaussian-bernoulli", (("gaussian", 2), ("bernoulli", 3))),
    Specification("bernoulli-gaussian", (("bernoulli", 3), ("gaussian", 2))),
    Specification("gaussian-spin-gaussian", (("gaussian", 2), ("spin", 2), ("gaussian", 1))),
]


@of(FAR)
def test_the_inner_product_with_the_gradient_is_never_negative(specification: Specification) -> None:
    """On 20 machines far from their data. It is a gradient times a positive semi-definite matrix."""
    for seed in range(20):
        machine, v = drawn(specification, seed)
        direction, gradient = centred(machine, v), plain(machine, v)
        slope = sum(float((gradient[name] * direction[name]).sum()) for name in gradient)
        assert slope > 0, seed


@pytest.mark.parametrize("specification", EVERY, ids=lambda s: s.name)
def test_the_machine_is_not_changed(specification: Specification) -> None:
    machine = build(specification)
    before = oracle.parameters(describe(machine))
    v = data(specification)
    kept = v.copy()
    first = centred(machine, v)
    for name, value in oracle.parameters(describe(machine)).items():
        np.testing.assert_array_equal(value, before[name])
    assert all(parameter.grad is None for parameter in machine.parameters())
    np.testing.assert_array_equal(v, kept)
    second = centred(machine, v)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_centring_keeps_what_the_rule_is() -> None:
    rule = hm.rules.pcd(2, 7)
    twin = hm.rules.centred(rule)
    assert (twin.clamped, twin.free, twin.bias) == (rule.clamped, rule.free, rule.bias)
    assert twin.centred and not rule.centred
    assert "centred" in twin.name and rule.name in twin.name


def test_centring_twice_is_centring_once() -> None:
    once = hm.rules.centred(hm.rules.ucd())
    assert hm.rules.centred(once) == once
    assert once.name.count("centred") == 1


@pytest.mark.parametrize(
    "rule", [hm.rules.cd(2), hm.rules.pcd(2, 5), hm.rules.mean_field_pcd(1, 5)], ids=repr
)
def test_centring_moves_the_chains_as_the_rule_does(rule: hm.learning.Rule) -> None:
    """The same noise, the same chains: only the gradient is transformed."""
    machine = build(DEEP)
    v = torch.from_numpy(data(DEEP))
    left, right = (
        r.gradient(machine, v, seed=torch.Generator().manual_seed(3)) for r in (rule, hm.rules.centred(rule))
    )
    assert (left.state is None) == (right.state is None)
    if left.state is not None:
        for a, b in zip(left.state.states, right.state.states, strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(left.parameters["couplings.0.weight"], right.parameters["couplings.0.weight"])


def means_given(machine: hm.BoltzmannMachine, v: torch.Tensor) -> list[torch.Tensor]:
    """Of both layers of a machine with one hidden layer."""
    hamiltonian = machine.hamiltonian()
    return [v.mean(0), hamiltonian.mean(1, hamiltonian.field(1, [v, v])).mean(0).detach()]


@pytest.mark.nightly
def test_offsets_are_means_of_the_rows_before_under_the_machine_of_now() -> None:
    """The first batch has no rows before it and takes its own."""
    machine, plain = build(TINY), hm.rules.exact()
    rule, state = hm.rules.centred(plain), None
    before = torch.from_numpy(data(TINY))
    for _ in range(3):
        v = torch.from_numpy(data(TINY) if state is None else random_states(TINY, 3, layer=0)[0])
        request = request_of(machine, v, 0)
        plain.add(request, None)
        offsets = means_given(machine, before)
        expected = hm.learning.centred_pullback(machine, request.into, offsets)
        estimate = rule.gradient(machine, v, state, seed=0)
        for name, direction in estimate.parameters.items():
            torch.testing.assert_close(direction, expected[name], atol=1e-12, rtol=1e-10)
        before, state = v.clone(), estimate.state
        rule.check_state(machine, state)
        v.zero_()  # a loop may use its buffer again
        with torch.no_grad():
            machine.couplings[0].weight.add_(0.5)


@pytest.mark.nightly
def test_where_means_are_far_apart_biases_move_and_couplings_do_not() -> None:
    """Of units that are independent there is no covariance to be learned.

    What is left is the noise of 2,000 chains, with a deviation of about 0.06; differences of means, 1.6 each,
    would bring 2.6.
    """
    machine = hm.BoltzmannMachine([hm.Spin(4), hm.Spin(3)], visible=[0, 1], seed=0).double()
    with torch.no_grad():
        machine.couplings[0].weight.zero_()
        for layer in machine.layers:
            layer.bias.fill_(-0.7)
    v, state = torch.ones(20, 7, dtype=F64), None
    rule = hm.rules.centred(hm.rules.ucd_lmi(chains=2000))
    for seed in range(2):
        direction, _, state, _ = rule.gradient(machine, v, state, seed=seed)
        assert float(direction["layers.0.bias"].min()) > 1
        assert float(direction["couplings.0.weight"].abs().max()) < 0.3


@pytest.mark.nightly
def test_weights_of_rows_count_in_the_next_offsets() -> None:
    machine, rule = build(TINY), hm.rules.centred(hm.rules.exact())
    v, weights = torch.from_numpy(data(TINY)), torch.tensor([1.0, 0.0, 3.0])
    repeated = v[[0, 2, 2, 2]]
    state = rule.gradient(machine, v, seed=0, weights=weights).state
    rule.check_state(machine, state)
    other = v.flip(-1)
    found = rule.gradient(machine, other, state, seed=0)
    expected = rule.gradient(machine, other, rule.gradient(machine, repeated, seed=0).state, seed=0)
    for name, direction in expected.parameters.items():
        torch.testing.assert_close(found.parameters[name], direction)


def test_rows_with_holes_are_kept_filled_in() -> None:
    machine, rule = build(DEEP), hm.rules.centred(hm.rules.exact())
    v = torch.from_numpy(data(DEEP))
    v[1, 0] = v[2] = torch.nan
    state = rule.gradient(machine, v, seed=0).state
    assert bool(state.rows.isfinite().all())
    torch.testing.assert_close(state.rows[~v.isnan()], v[~v.isnan()])
    rule.check_state(machine, state)
    assert rule.gradient(machine, v, state, seed=0).parameters["couplings.0.weight"].isfinite().all()


def test_a_rule_that_is_centred_goes_on_from_one_that_is_not() -> None:
    machine, chains = build(TINY), build(TINY).random_states(6, seed=1)
    v = torch.from_numpy(data(TINY))
    plain = hm.rules.ucd(start="persistent", chains=6)
    left, right = (r.gradient(machine, v, chains, seed=2).state for r in (plain, hm.rules.centred(plain)))
    for a, b in zip(left.states, right.free.states, strict=True):
        assert torch.equal(a, b)
    back = plain.gradient(machine, v, right, seed=4).state
    for a, b in zip(plain.gradient(machine, v, left, seed=4).state.states, back.states, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": torch.zeros(3, 4, dtype=F64)}, r"rows.*expected rows of width and type.*received .*\(4,\)"),
        ({"rows": torch.zeros(0, 3, dtype=F64)}, "rows.*expected rows"),
        ({"rows": torch.zeros(3, 3)}, "rows.*float64.*received.*float32"),
        ({"rows": 3.0}, "rows.*received"),
        ({"weights": torch.ones(2, dtype=F64)}, "weights.*expected one for each of 3 rows"),
    ],
    ids=["another width", "no rows", "single precision", "a number", "other weights"],
)
def test_rows_of_another_machine_are_refused(change: dict[str, object], message: str) -> None:
    machine, rule = build(TINY), hm.rules.centred(hm.rules.exact())
    state = rule.gradient(machine, torch.from_numpy(data(TINY)), seed=0).state
    rule.check_state(machine, state)
    with pytest.raises((TypeError, ValueError), match=message):
        rule.check_state(machine, replace(state, **change))


def test_a_gradient_refuses_rows_of_another_machine() -> None:
    rule = hm.rules.centred(hm.rules.exact())
    state = rule.gradient(build(TINY), torch.from_numpy(data(TINY)), seed=0).state
    wider = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)]).double()
    with pytest.raises(ValueError, match=r"state.rows.*expected rows of width and type"):
        rule.gradient(wider, torch.zeros(2, 4, dtype=F64), state, seed=0)


@pytest.mark.parametrize(
    ("rule", "sampled"),
    [
        (hm.rules.cd(2), True),
        (hm.rules.pcd(2, 7), True),
        (hm.rules.noise_cd(4, burn_in=3, chains=6), True),
        (hm.rules.noise_cd(4, chains=6), False),
        (hm.rules.tempered_pcd(2, 7, replicas=3), True),
        (hm.rules.ucd_lmi(chains=7, pair_kernel=None), True),
        (hm.rules.ucd_lmi(chains=7), False),
        (hm.rules.ucd(chains=7, max_sweeps=50), False),
        (hm.rules.mean_field_pcd(2, 7), True),
        (hm.rules.mean_field(), False),
        (hm.rules.tap(), False),
        (hm.rules.exact(), False),
    ],
    ids=repr,
)
def test_what_an_estimate_is_the_mean_of(rule: hm.learning.Rule, sampled: bool) -> None:
    machine, v = build(TINY), torch.from_numpy(data(TINY, 5))
    request = request_of(machine, v, 0)
    assert rule.free.add(request).is_plain_mean is sampled
    kept = hm.rules.centred(rule).gradient(machine, v, seed=0).state
    assert hasattr(kept, "rows") == (not sampled)


def test_offsets_are_the_midpoint_of_rows_and_chains() -> None:
    machine, v = build(TINY), torch.from_numpy(data(TINY, 5))
    weights = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    hamiltonian, plain = machine.hamiltonian(), hm.rules.pcd(2, 7)
    request = request_of(machine, v, 3, weights)
    x, _ = plain.add(request, None)[2].states
    w = weights.double() / weights.sum()
    rows = [w @ v, (w @ hamiltonian.mean(1, hamiltonian.field(1, [v, v]))).detach()]
    chains = [x.mean(0), hamiltonian.mean(1, hamiltonian.field(1, [x, x])).mean(0).detach()]
    offsets = [(a + b) / 2 for a, b in zip(rows, chains, strict=True)]
    expected = hm.learning.centred_pullback(machine, request.into, offsets)
    found = hm.rules.centred(plain).gradient(machine, v, seed=3, weights=weights)
    for name, direction in found.parameters.items():
        torch.testing.assert_close(direction, expected[name], atol=1e-12, rtol=1e-10)
