"""The meeting loop ahead of the host, and noise of proposals, where no distribution would show a fault."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.coupled import Block, Maximal
from harmonium.machine import Part


@pytest.mark.parametrize("max_sweeps", [3, 6, 10])
def test_pairs_ahead_of_the_host_are_given_up_at_the_cap(
    max_sweeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it lies between two looks, eight sweeps apart."""
    monkeypatch.setattr("harmonium._device.is_async", lambda device: True)
    monkeypatch.setattr("harmonium.backends.choice.RECORDS", frozenset(("cpu",)))
    monkeypatch.setattr("harmonium.backends.choice.COMPILED", False)
    machine = hm.BoltzmannMachine([hm.Spin(8), hm.Spin(6)], seed=1)
    hm.machine.normal_(machine, 1.5, seed=1)
    start = machine.random_states(200, seed=2)[0]
    met = hm.coupled.meet(machine, hm.coupled.Gibbs(), start, 2, max_sweeps, seed=3)
    assert 0 < int(met.capped.sum()) < 200
    assert int(met.times.max()) == max_sweeps and set(met.times[met.capped].tolist()) == {max_sweeps}


@pytest.mark.parametrize("behind", [False, True])
def test_proposals_have_noise_of_their_own(behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose first draw was rejected would propose it again; other rows hide that in frequencies."""
    monkeypatch.setattr("harmonium._device.is_async", lambda device: behind)
    monkeypatch.setattr("harmonium.backends.choice.COMPILED", False)
    used: list[set[float]] = []
    sample = Block.sample

    def recorded(block: Block, noise: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        used.append(set(noise[0].flatten().tolist()))
        return sample(block, noise)

    monkeypatch.setattr(Block, "sample", recorded)
    hamiltonian = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0).double().hamiltonian()
    field = torch.tensor([[0.5, -1.0, 0.2]], dtype=torch.float64).expand(50, 3)
    p, q = (Block(hamiltonian, (Part(0),), (x.contiguous(),)) for x in (field, field + 0.3))
    drawn = Maximal(common_noise=True).draw(p, q, torch.Generator().manual_seed(1))
    assert bool((drawn.tries > 0).any())
    first, *rounds = used
    assert rounds and all(first.isdisjoint(noise) for noise in rounds)
