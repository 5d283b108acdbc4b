"""Convergence diagnostics of a machine's chains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._checks import Numbers
from harmonium.chains.convergence import Convergence, convergence
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.chains.run import run
from harmonium.machine import BoltzmannMachine, Hamiltonian, States

R_HAT, ESS = 1.01, 400  # the limits that Vehtari et al. (2021) recommend
_FEWEST = 40  # sweeps, of which half are the warm-up


class Diagnosis(NamedTuple):
    """Convergence diagnostics of some quantities along chains; printed as a table.

    Attributes:
        quantities: R̂ and effective sample sizes by the quantity's name: "free energy", and for every edge
            "edge (l, m), direction k", the projection of layer l on the coupling's k-th singular vector.
        draws: sweeps after the warm-up, of all chains together.
    """

    quantities: dict[str, Convergence]
    draws: int

    @property
    def r_hat(self) -> float:
        """Returns the largest R̂; NaN if a quantity never moved."""
        return float(np.max([each.r_hat for each in self.quantities.values()]))

    @property
    def ess(self) -> float:
        """Returns the smallest effective sample size, of bulk or tail; NaN if a quantity never moved."""
        return float(np.min([each[1:] for each in self.quantities.values()]))

    @property
    def passed(self) -> bool:
        """Returns True if every R̂ is at most 1.01 and every effective sample size at least 400."""
        return self.r_hat <= R_HAT and self.ess >= ESS

    def __repr__(self) -> str:
        width = max(len(name) for name in self.quantities)
        lines = [f"{'':{width}}  {'R̂':>6} {'bulk':>8} {'tail':>8}   of {self.draws} draws"]
        for name, each in self.quantities.items():
            lines.append(f"{name:{width}} {each.r_hat:>6.3f} {each.ess_bulk:>8.0f} {each.ess_tail:>8.0f}")
        return "\n".join(lines)


@torch.no_grad()
def diagnose(
    machine: BoltzmannMachine,
    kernel: Kernel | None = None,
    start: Sequence[Numbers] | Numbers | None = None,
    *,
    chains: int = 50,
    sweeps: int = 2000,
    directions: int = 3,
    seed: int | torch.Generator = 0,
) -> Diagnosis:
    """Runs chains and computes R̂ and effective sample sizes of what they have most trouble to mix.

    The quantities are the free energy of the layers that are not summed out, F(v) of a machine with one
    hidden layer, and projections on the leading singular directions of every coupling, along which modes lie
    apart. Good values are necessary, not sufficient: a mode that no chain has found is not seen.

    Args:
        machine: the machine.
        kernel: moves the chains; None: ``Gibbs()``.
        start: states as in ``chains.run``, a row (chains, width_l) for each chain; None: noise.
        chains: at least 1; ignored where ``start`` is given.
        sweeps: at least 40, of which the first half is a warm-up.
        directions: singular directions of each coupling, at least 0.
        seed: an int or a generator.

    Returns:
        The diagnostics by quantity.

    Raises:
        TypeError, ValueError: arguments out of range, or a start that does not fit.
    """
    kernel = Gibbs() if kernel is None else kernel
    _checks.instance(kernel, "kernel", Kernel, "a kernel")
    _checks.positive_int(sweeps, "sweeps", minimum=_FEWEST)
    _checks.positive_int(directions, "directions", minimum=0)
    generator = _random.as_generator(seed, machine.device)
    if start is None:
        start = machine.random_states(_checks.positive_int(chains, "chains"), seed=generator)
    hamiltonian = machine.hamiltonian()
    axes = _directions(hamiltonian, directions)
    kept: list[Tensor] = []

    def observe(number: int, state: KernelState, info: Info) -> None:
        if number > sweeps // 2:
            kept.append(_quantities(hamiltonian, axes, state.states))

    run(machine, kernel, start, sweeps, seed=generator, observer=observe)
    draws = torch.stack(kept).cpu()  # (sweeps, quantities, chains)
    names = ["free energy"]
    for l, m, axis in axes:
        names += [f"edge ({l}, {m}), direction {k}" for k in range(1, axis.shape[1] + 1)]
    found = {name: convergence(draws[:, number].t()) for number, name in enumerate(names)}
    return Diagnosis(found, draws.shape[0] * draws.shape[2])


def _directions(hamiltonian: Hamiltonian, directions: int) -> list[tuple[int, int, Tensor]]:
    """Leading left singular vectors of every coupling, (width_l, at most ``directions``)."""
    return [
        (l, m, torch.linalg.svd(J.double(), full_matrices=False)[0][:, :directions])
        for l, m, J in hamiltonian.edges
    ]


def _quantities(hamiltonian: Hamiltonian, axes: Sequence[tuple[int, int, Tensor]], states: States) -> Tensor:
    """The quantities of all chains, (quantities, chains) in float64."""
    free_energy = hamiltonian.free_energy(states, hamiltonian.graph.summed)
    return torch.cat([free_energy.unsqueeze(0), *(axis.t() @ states[l].double().t() for l, _, axis in axes)])
