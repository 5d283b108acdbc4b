"""Rejection sampling for maximal couplings, by rounds of one shape and by doubling (GPU and CPU)."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm
from harmonium.coupled import Block, Maximal
from harmonium.machine import Part

ROWS = 1 << 15
STATES = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)


@pytest.mark.parametrize("apart", [3.0, 0.3])
@pytest.mark.parametrize("common_noise", [False, True])
@pytest.mark.parametrize("behind", [False, True])
def test_the_coupling_is_maximal(
    apart: float, common_noise: bool, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x ~ p, y ~ q and P(x = y) = 1 - TV(p, q), by enumeration.

    17 frequencies of 32768 rows in eight cases, each beyond 4.6 standard errors with probability 4e-6: a
    correct program fails with probability 6e-4.
    """
    monkeypatch.setattr("harmonium._device.is_async", lambda device: behind)
    monkeypatch.setattr("harmonium.backends.choice.COMPILED", False)
    hamiltonian = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0).hamiltonian()
    generator = torch.Generator().manual_seed(5)
    fields = torch.tensor([[0.5, -1.0, 0.2]]), torch.tensor([[0.5 + apart, -1.0 - apart, 0.2]])
    p, q = (Block(hamiltonian, (Part(0),), (field.expand(ROWS, 3).contiguous(),)) for field in fields)
    coupling = Maximal(common_noise=common_noise)
    drawn = coupling.draw(p, q, generator)
    one, other = ((STATES @ field[0]).softmax(0).double() for field in fields)
    expected = torch.cat((one, other, torch.minimum(one, other).sum().view(1)))
    x, y = ((z[0].unsqueeze(1) == STATES).all(-1).double() for z in (drawn.x, drawn.y))
    found = torch.cat((x.mean(0), y.mean(0), (x == y).all(-1).double().mean().view(1)))
    z = (found - expected) / (expected * (1 - expected) / ROWS).sqrt()
    assert float(z.abs().max()) < 4.6
    proposals = drawn.tries[drawn.tries > 0]
    assert len(proposals) == pytest.approx(ROWS * float(1 - expected[-1]), rel=0.1)
    if behind:  # all that wait get as many in the first round
        assert int(proposals.min()) == 4 * ROWS // len(proposals)


def test_rows_that_wait_for_long_are_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep whose first colour was not done in its rounds goes on from there: pairs that met stay met."""
    monkeypatch.setattr("harmonium.coupled.block._PROPOSALS", 1)
    monkeypatch.setattr("harmonium.coupled.block._SLOTS", 1)
    monkeypatch.setattr("harmonium._device.is_async", lambda device: True)
    monkeypatch.setattr("harmonium.backends.choice.COMPILED", False)
    finished: list[int] = []
    finish = Maximal.finish
    monkeypatch.setattr(Maximal, "finish", lambda *given: (finished.append(1), finish(*given))[1])
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)], seed=1)
    hm.machine.normal_(machine, 1.0, seed=1)
    met = hm.coupled.meet(machine, hm.coupled.Gibbs(), machine.random_states(40, seed=2)[0], lag=20, seed=3)
    assert finished and not bool(met.capped.any())
