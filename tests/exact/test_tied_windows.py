"""Filters of ``Local``: as windows whose weights were tied by hand, and a picture moved along."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm

from .graphs import mean_over_copies

LAYERS = {
    "spins": lambda: [hm.Spin(12), hm.Bernoulli(12)],
    "real": lambda: [hm.Gaussian(12), hm.Bernoulli(12)],
    "labels": lambda: [hm.Categorical(12, 3), hm.Categorical(12, 2)],
}
SHAPE, WINDOW, FILTERS = (3, 4), (2, 3), 3  # four windows, three maps


def pair(kind: str) -> tuple[hm.BoltzmannMachine, hm.BoltzmannMachine]:
    """A machine with filters, and one with windows of equal weights."""
    tied, free = (
        hm.BoltzmannMachine(LAYERS[kind](), edges={(0, 1): hm.Local(SHAPE, WINDOW, *filters)}).double()
        for filters in ([FILTERS], [])
    )
    generator = torch.Generator().manual_seed(3)
    W = torch.randn(tied.couplings[0].weight.shape, generator=generator).double()
    tied.couplings[0].fill_(W)
    local = tied.couplings[0]
    assert isinstance(local, hm.Local) and local.copies == 4
    free.couplings[0].fill_(mean_over_copies(W, local))
    for layer, like in zip(free.layers, tied.layers, strict=True):
        for p, q in zip(layer.parameters(), like.parameters(), strict=True):
            with torch.no_grad():
                q.copy_(0.3 * torch.randn(q.shape, generator=generator))
                p.copy_(q)
    return tied, free


@pytest.mark.parametrize("kind", LAYERS)
def test_filters_are_windows_tied_by_hand(kind: str) -> None:
    tied, free = pair(kind)
    torch.testing.assert_close(tied.couplings[0].matrix(), free.couplings[0].matrix(), rtol=0, atol=1e-14)
    states = free.random_states(20, seed=1)
    torch.testing.assert_close(tied.energy(states), free.energy(states))
    for l in (0, 1):
        torch.testing.assert_close(tied.hamiltonian().field(l, states), free.hamiltonian().field(l, states))
    rule = hm.rules.cd(1)
    found, loose = (rule.gradient(machine, states[0], seed=2).parameters for machine in (tied, free))
    local = tied.couplings[0]
    assert isinstance(local, hm.Local)
    by_hand = mean_over_copies(loose["couplings.0.weight"], local)
    torch.testing.assert_close(found.pop("couplings.0.weight"), by_hand)
    assert not torch.allclose(by_hand, loose.pop("couplings.0.weight"))
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, loose[name])


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_every_update_keeps_the_copies_equal(optimiser: str, tmp_path) -> None:
    machine, _ = pair("real")
    rows = torch.randn(40, 12, generator=torch.Generator().manual_seed(0)).double()
    hm.train(
        machine, rows, rule=hm.rules.centred(hm.rules.pcd(2)), updates=12, learning_rate=0.05, seed=4,
        optimizer=optimiser, weight_decay=0.01, batch_size=10, progress=False,
    )  # fmt: skip
    local = machine.couplings[0]
    assert isinstance(local, hm.Local)
    W = local.weight.detach()
    torch.testing.assert_close(W, mean_over_copies(W, local))
    machine.save(tmp_path / "machine.safetensors")
    read = hm.load(tmp_path / "machine.safetensors").couplings[0]
    assert isinstance(read, hm.Local) and read.filters == FILTERS
    assert torch.equal(read.matrix(), local.matrix())


def test_a_picture_that_moves_by_a_pixel_moves_its_fields() -> None:
    machine = hm.BoltzmannMachine(
        [hm.Gaussian(36), hm.Bernoulli(32)], edges={(0, 1): hm.Local((6, 6), 3, filters=2)}
    )
    hm.machine.normal_(machine, 1.0, 0)
    image = torch.zeros(2, 6, 6)
    image[0, 1:4, 1:4] = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    image[1] = image[0].roll((1, 1), (0, 1))
    states = [image.flatten(1), torch.zeros(2, 32)]
    here, there = machine.hamiltonian().field(1, states).view(2, 2, 4, 4)
    torch.testing.assert_close(there[:, 1:, 1:], here[:, :-1, :-1])
    filters = machine.couplings[0].matrix().view(36, 2, 4, 4)[:, :, 0, 0].view(6, 6, 2)[:3, :3]
    by_torch = torch.nn.functional.conv2d(image.unsqueeze(1), filters.permute(2, 0, 1).unsqueeze(1))
    torch.testing.assert_close(by_torch, machine.hamiltonian().field(1, states).view(2, 2, 4, 4))


def test_weights_are_drawn_and_counted_as_filters() -> None:
    layers = [hm.Bernoulli(400), hm.Bernoulli(30 * 256)]
    machine = hm.BoltzmannMachine(layers, edges={(0, 1): hm.Local((20, 20), 5, filters=30)})
    assert machine.couplings[0].copies == 256
    hm.machine.normal_(machine, 0.5, 1)
    filters = machine.couplings[0].weight[machine.couplings[0].joined]
    assert abs(float(filters.detach().std()) / 0.5 - 1) < 4 / (2 * 750) ** 0.5
    assert "750 of 3,072,000 weights" in str(machine.describe())


@pytest.mark.parametrize(("filters", "units"), [(3, 8), (16, 8)])
def test_maps_of_unlike_size_are_refused(filters: int, units: int) -> None:
    with pytest.raises(ValueError, match=f"^filters: expected a divisor of the {units} units .* {filters};"):
        hm.BoltzmannMachine(
            [hm.Spin(9), hm.Spin(units)], edges={(0, 1): hm.Local((3, 3), 2, filters=filters)}
        )
    with pytest.raises(ValueError, match=r"^filters: expected .*in another layer"):
        hm.BoltzmannMachine([hm.Spin(9)], edges={(0, 0): hm.Local((3, 3), 2, filters=3)})
