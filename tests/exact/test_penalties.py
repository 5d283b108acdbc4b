"""Penalties on couplings: their gradients, the fixed point of training with one, and their shorthands."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import harmonium as hm
from harmonium.training import L1, L2, FieldL2, GroupLasso, L1Squared, Penalty
from harmonium.training.penalties import pulls_of, read_penalties

KINDS = [L2(0.3), L1(0.2), GroupLasso(0.7), L1Squared(2.0)]


def value(penalty: Penalty, W: torch.Tensor, sides: tuple[hm.layers.Layer, hm.layers.Layer]) -> torch.Tensor:
    """R(W) as the documentation of each kind has it."""
    blocks = W.view(sides[0].n_units, -1, sides[1].n_units, W.shape[1] // sides[1].n_units)
    return (
        penalty.strength
        * {
            "l2": lambda: W.square().sum() / 2,
            "l1": lambda: W.abs().sum(),
            "group": lambda: blocks.square().sum((1, 3)).sqrt().sum(),
            "l1squared": lambda: blocks.abs().sum((0, 1, 3)).square().sum() / 2 / len(W),
        }[penalty.kind]()
    )


def machine() -> hm.BoltzmannMachine:
    """A layer with edges of its own, sparse ones among them, below categorical and two-valued units."""
    layers = [hm.Categorical(3, 3), hm.Bernoulli(4), hm.Categorical(2, 2)]
    edges = {(0, 0): hm.Dense(), (0, 1): hm.Masked(torch.arange(12).view(3, 4) % 3 > 0), (0, 2): hm.Dense()}
    made = hm.BoltzmannMachine(layers, edges, [0], seed=0).double()
    hm.machine.normal_(made, 0.5, 1)
    return made


@pytest.mark.parametrize("penalty", KINDS, ids=lambda each: each.kind)
@pytest.mark.parametrize("edge", [0, 1, 2])
def test_the_pull_is_the_gradient_of_the_value(penalty: Penalty, edge: int) -> None:
    made = machine()
    l, m = made.edges[edge]
    if l == m and isinstance(penalty, L1Squared):
        return
    W, sides = made.couplings[edge].weight, (made.layers[l], made.layers[m])
    given = torch.randn_like(W)
    # A root has no derivative at 0, as it is asked for where the mask and the diagonal leave blocks of zeros.
    (wanted,) = torch.autograd.grad(value(penalty, W + 1e-30, sides), W)
    (pull,) = pulls_of(made, [type(penalty)(penalty.strength, (edge,))]).popitem()[1]
    inside = W.detach() != 0
    found = given.clone()
    pull(found, W.detach())
    found = given - found
    torch.testing.assert_close(found[inside], wanted[inside], rtol=1e-9, atol=1e-9)
    assert bool((found[~inside] == 0).all())


def test_values_by_hand() -> None:
    W = torch.tensor([[3.0, 0.0], [4.0, 1.0], [0.0, -2.0], [0.0, 2.0]])
    sides = (hm.Categorical(2, 2), hm.Bernoulli(2))
    found = [float(value(type(each)(2.0), W, sides)) for each in KINDS]
    expected = [9 + 16 + 1 + 4 + 4, 2 * 12, 2 * (5 + 1 + 8**0.5), (7**2 + 5**2) / 4]
    assert found == pytest.approx(expected)


def test_fields_alone_are_pulled_and_those_of_discrete_units() -> None:
    made = hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Gaussian(2)], seed=0)
    pulls = pulls_of(made, read_penalties("fields=0.3"))
    assert [*pulls] == ["layers.0.bias"]
    b, gradient = torch.arange(6.0), torch.zeros(6)
    pulls["layers.0.bias"][0](gradient, b)
    torch.testing.assert_close(-gradient, 0.3 * b)
    with pytest.raises(ValueError, match="edges"):
        FieldL2(0.3, (0,))


def test_a_letter_that_no_row_has_gets_a_finite_field() -> None:
    """At the optimum p(letter) = -strength · field, summed over nothing else: found without the gradient."""
    rows = hm.Categorical(2, 3).from_digits(torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0]])).double()
    made = hm.BoltzmannMachine([hm.Categorical(2, 3)], {(0, 0): hm.Dense()}, [0], seed=0).double()
    run = hm.train(
        made, rows, rule="pseudo_likelihood", optimizer=lambda p: hm.training.LBFGS(p, tolerance=1e-9),
        updates=300, weight_decay=0.1, penalties="fields=0.1", progress=False,
    )  # fmt: skip
    assert run.status == "stopped"
    hamiltonian = made.hamiltonian()
    unseen = hamiltonian.mean(0, hamiltonian.field(0, [rows]))[:, 2].mean()
    torch.testing.assert_close(unseen, -0.1 * made.layers[0].bias.detach()[0, 2], rtol=1e-6, atol=0)


def test_training_ends_where_the_pull_of_the_data_is_that_of_the_penalty() -> None:
    """Exact gradients: at the end ∇ ln p = ∇R, found without what training computes."""
    rows = hm.Categorical(3, 3).from_digits(torch.tensor([[0, 1, 2], [0, 1, 1], [2, 2, 0], [1, 0, 0]]))
    made = hm.BoltzmannMachine([hm.Categorical(3, 3)], {(0, 0): hm.Dense()}, [0], seed=0).double()
    penalty = GroupLasso(0.05)
    hm.train(
        made, rows.double(), rule="exact", updates=300, learning_rate=1.0, penalties=penalty, progress=False
    )
    W = made.couplings[0].weight
    estimate = hm.rules.exact().gradient(made, rows.double(), seed=0)
    gradient = estimate.parameters["couplings.0.weight"]
    blocks = W.detach().view(3, 3, 3, 3).square().sum((1, 3))
    assert float(blocks[0, 1]) > 0.1
    (pulled,) = torch.autograd.grad(value(penalty, W[:3, 3:6], (hm.Categorical(1, 3),) * 2), W)
    torch.testing.assert_close(gradient[:3, 3:6], pulled[:3, 3:6], rtol=0, atol=5e-4)


@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("compiled", [False, True])
def test_shorthands_are_the_penalties(compiled: bool, l1: float) -> None:
    """Bit for bit, one by one and, without ℓ₁, in compiled calls."""
    rows = (torch.rand(50, 6, generator=torch.Generator().manual_seed(0)) < 0.4).float()
    ways: list[dict[str, Any]] = [
        {"weight_decay": 0.1, "l1": l1},
        {"penalties": [L2(0.1), f"l1={l1}"][: 1 + (l1 > 0)]},
    ]
    found = []
    for way in ways:
        made = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=0)
        updates = 200 if compiled else 20
        run = hm.train(made, rows, rule="pcd", updates=updates, batch_size=10, progress=False, **way)
        found.append(run.machine.couplings[0].weight)
    assert torch.equal(*found)


def test_what_is_no_penalty_is_refused() -> None:
    assert read_penalties(["group=0.5", L1(1)]) == (GroupLasso(0.5), L1(1.0))
    for wrong in ("group", "groups=1", "l1=x", "l1=-1"):
        with pytest.raises(ValueError, match="penalties: expected KIND=STRENGTH"):
            read_penalties(wrong)
    with pytest.raises(TypeError, match="penalties: expected some of l2, l1, group, l1squared"):
        read_penalties([1.0])
    with pytest.raises(ValueError, match="penalties: expected edges below 3, received 3"):
        pulls_of(machine(), [L2(1.0, (3,))])
    with pytest.raises(ValueError, match="between two layers for l1squared"):
        pulls_of(machine(), [L1Squared(1.0)])
