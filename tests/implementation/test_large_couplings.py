"""Large couplings within a layer: what a fit by pseudo-likelihood holds, and ways that are for them alone."""

from __future__ import annotations

import gc

import pytest
import torch

import harmonium as hm
from harmonium.backends import bits, products
from harmonium.learning import conditionals


def potts(sites: int = 60, states: int = 21) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Categorical(sites, states)], edges={(0, 0): hm.Dense()}, seed=0)


def one_hot(rows: int, sites: int = 60, states: int = 21) -> torch.Tensor:
    codes = torch.randint(0, states, (rows, sites), generator=torch.Generator().manual_seed(1))
    return torch.eye(states)[codes].flatten(1)


def large_tensors(least: int) -> int:
    """Counts the memory blocks of at least so many bytes that tensors have now."""
    found = {}
    for each in gc.get_objects():
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout is torch.strided:
            storage = each.untyped_storage()
            if storage.nbytes() >= least:
                found[storage.data_ptr()] = storage.nbytes()
    return len(found)


def test_an_update_holds_two_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights, and one that is J while fields are asked for and the gradient from then on."""
    machine, X, seen = potts(), one_hot(50), []
    size = machine.couplings[0].weight.untyped_storage().nbytes()
    before = large_tensors(size)

    inner = conditionals.Conditionals.add

    def add(self, request):
        outcome = inner(self, request)
        seen.append(large_tensors(size))
        return outcome

    monkeypatch.setattr(conditionals.Conditionals, "add", add)
    hm.train(
        machine, X, rule="pseudo_likelihood", updates=3, batch_size=50, learning_rate=0.1, progress=False
    )
    assert [count - before for count in seen] == [1, 1, 1]


@pytest.mark.parametrize("transposed", [False, True])
def test_products_by_parts_have_the_bits_of_the_whole(
    transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = torch.randn(700, 700, generator=torch.Generator().manual_seed(2))
    x = (torch.rand(400, 700, generator=torch.Generator().manual_seed(3)) < 0.1).float()
    whole = bits.Fixed(y.t() if transposed else y).times(bits.bits(x))
    monkeypatch.setattr(products, "_LARGE", 1000)
    monkeypatch.setattr(products, "_PART", 100)
    prepared = products.PreparedMatrix(y)
    parts = [prepared.times(x, transposed) for _ in range(4)][-1]
    torch.testing.assert_close(parts, x @ (y.t() if transposed else y), rtol=1e-5, atol=1e-5)
    if not torch.equal(parts, x @ (y.t() if transposed else y)):  # by bits on this processor
        assert torch.equal(parts, whole)


def test_the_gradient_is_the_same_where_it_takes_the_place_of_the_couplings() -> None:
    """A run of one update moves by what the rule alone returns, to the last bit."""
    machine, X = potts(12, 5), one_hot(40, 12, 5)
    gradient = hm.rules.pseudo_likelihood().gradient(machine, X, seed=0).parameters
    wanted = {name: p.detach() + gradient[name] for name, p in machine.named_parameters()}
    hm.train(
        machine, X, rule="pseudo_likelihood", updates=1, batch_size=40, learning_rate=1.0, progress=False
    )
    for name, parameter in machine.named_parameters():
        assert torch.equal(parameter.detach(), wanted[name])


def test_the_matrix_of_a_layer_can_be_differentiated_twice() -> None:
    masked = hm.BoltzmannMachine(
        [hm.Categorical(4, 3)], edges={(0, 0): hm.Masked(torch.ones(4, 4).triu(2))}, seed=0
    )
    for machine in (potts(4, 3), masked):
        coupling = machine.double().couplings[0]
        W = coupling.weight
        inside = coupling.within(torch.ones_like(W.detach()))
        assert torch.equal(coupling.matrix().detach(), W.detach() * inside + (W.detach() * inside).t())
        (first,) = torch.autograd.grad(coupling.matrix().pow(3).sum(), W, create_graph=True)
        torch.testing.assert_close(first, inside * 6 * W.square())
        (second,) = torch.autograd.grad(first.sum(), W)
        torch.testing.assert_close(second, inside * 12 * W)


def test_couplings_within_a_layer_go_back_to_the_last_good_check() -> None:
    machine, kept = potts(6, 3), {}

    def callback(update: hm.training.Update) -> None:
        if update.step == 16:
            kept.update({name: p.detach().clone() for name, p in update.machine.named_parameters()})
        if update.step == 17:
            with torch.no_grad():
                update.machine.layers[0].bias.fill_(torch.nan)

    with pytest.raises(hm.training.TrainingDiverged, match=r"17|18"):
        hm.train(
            machine, one_hot(40, 6, 3), rule="pseudo_likelihood", updates=40, batch_size=40, record_every=100,
            callbacks=[callback], progress=False,
        )  # fmt: skip
    for name, parameter in machine.named_parameters():
        assert torch.equal(parameter.detach(), kept[name])


def test_a_rule_of_conditionals_is_not_made_conditional() -> None:
    with pytest.raises(ValueError, match="one of the likelihood"):
        hm.rules.conditional(hm.rules.pseudo_likelihood(), [0])


def test_a_masked_coupling_keeps_its_mask_where_its_matrix_is_projected() -> None:
    coupling = hm.BoltzmannMachine(
        [hm.Spin(3)], edges={(0, 0): hm.Masked(torch.eye(3).roll(1, 0))}
    ).couplings[0]
    before = coupling.config()
    coupling.within(torch.ones(3, 3, requires_grad=True)).sum().backward()
    assert coupling.config() == before
