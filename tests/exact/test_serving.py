"""Programs of torch: means and free energies beside the machine's, and beside an enumeration."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import harmonium as hm

MACHINES: dict[str, Any] = {
    "rbm": lambda: hm.BoltzmannMachine([hm.Categorical(3, 3), hm.Bernoulli(4)], seed=0),
    "semi-restricted": lambda: hm.BoltzmannMachine(
        [hm.Categorical(3, 3), hm.Spin(4)], {(0, 0): hm.Dense(), (0, 1): hm.Dense()}, [0], seed=0
    ),
    "potts": lambda: hm.BoltzmannMachine([hm.Categorical(4, 3)], {(0, 0): hm.Dense()}, [0], seed=0),
    "mixed": lambda: hm.BoltzmannMachine(
        [hm.Bernoulli(3), hm.Gaussian(2), hm.Spin(2)],
        {(0, 1): hm.Dense(), (1, 2): hm.Dense(), (0, 2): hm.Dense()},
        [0, 2],
        seed=0,
    ),
}


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.mostly_nightly(2)
def test_a_saved_program_gives_what_the_machine_does(name: str) -> None:
    """On another number of rows than it was made with."""
    machine = MACHINES[name]()
    machine.constant = 2.5
    hm.machine.normal_(machine, 0.5, 1)
    buffer = io.BytesIO()
    torch.export.save(hm.exchange.to_program(machine), buffer)
    buffer.seek(0)
    hamiltonian = machine.hamiltonian()
    states = machine.random_states(7, seed=2)
    v = hamiltonian.visible_states(states)
    means, energies = torch.export.load(buffer).module()(v)
    expected = [hamiltonian.mean(l, hamiltonian.field(l, hamiltonian.split(v))) for l in machine.hidden]
    torch.testing.assert_close(means, torch.cat(expected, 1) if expected else v.new_zeros(7, 0))
    torch.testing.assert_close(energies, machine.free_energy(v) if expected else machine.energy(states))


def test_the_free_energy_is_that_of_an_enumeration() -> None:
    machine = MACHINES["semi-restricted"]()
    hm.machine.normal_(machine, 0.5, 1)
    v = machine.random_states(3, seed=2)[0]
    hidden = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 4)
    each = torch.stack([machine.energy([v, h.expand(3, 4)]) for h in hidden])
    _, found = hm.exchange.to_program(machine).module()(v)
    torch.testing.assert_close(found, -(-each).logsumexp(0), rtol=1e-6, atol=1e-6)


def test_machines_without_a_closed_form_are_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2), hm.Bernoulli(2)])
    with pytest.raises(ValueError, match="summed: expected layers of the machine, no two of them joined"):
        hm.exchange.to_program(machine)
