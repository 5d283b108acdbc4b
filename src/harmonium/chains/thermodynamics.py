"""Observables by temperature: energy, heat capacity, magnetisation and overlaps from one run of tempering."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.chains.diagnostics import SWAP_RATE
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.chains.moving import run_kernel
from harmonium.chains.overlap import as_vectors
from harmonium.chains.tempering import Tempering
from harmonium.layers import Spin
from harmonium.machine import BoltzmannMachine, Graph, Hamiltonian, require_distribution

_MOVES = 5  # Gibbs sweeps between swaps, after which all is measured: both take as long on a sparse lattice
_APART = 1.1  # R̂ from which on chains have not seen the same states (Gelman & Rubin 1992)
_DRIFT = 4.5  # standard errors between both halves: once in a thousand runs of 16 temperatures, 64 chains


class Estimates(NamedTuple):
    """Means at every temperature with their standard errors.

    Attributes:
        mean: (temperatures, ...), float64.
        standard_error: of every entry, by the jackknife over independent chains, or pairs of chains.
    """

    mean: Tensor
    standard_error: Tensor


class Thermodynamics(NamedTuple):
    """Observables by temperature, the coldest first; printed as a table.

    Attributes:
        betas: inverse temperatures β, (temperatures,) float64, falling.
        values: by name, each (temperatures,): of N units "energy" ⟨E⟩/N and "heat capacity"
            β²(⟨E²⟩ - ⟨E⟩²)/N; "q²" and "q Binder" of overlaps (``overlaps``); where all units have two values
            "m", "|m|", "m²" and "Binder" of m = Σ s_i / N, s = ±1. Binder's cumulant is 1 - ⟨m⁴⟩ / 3⟨m²⟩².
        edges: ends of the bins of P(q), (bins + 1,), between values that q can have.
        overlap_density: P(q), (temperatures, bins); times the widths of the bins it adds up to 1.
        swap_rates: share of accepted swaps of each temperature with the next, (temperatures - 1,).
        r_hat: R̂ of energy or q, the larger one, (temperatures,).
        doubts: what speaks against the run; empty where nothing was found.
    """

    betas: Tensor
    values: dict[str, Estimates]
    edges: Tensor
    overlap_density: Estimates
    swap_rates: Tensor
    r_hat: Tensor
    doubts: tuple[str, ...]

    def __repr__(self) -> str:
        shown = [name for name in ("energy", "heat capacity", "|m|", "q²") if name in self.values]
        lines = [f"{'β':>7} {' '.join(f'{name:>18}' for name in shown)}  swaps      R̂"]
        swaps = [*(f"{rate:6.2f}" for rate in self.swap_rates.tolist()), " " * 6]
        for i, beta in enumerate(self.betas.tolist()):
            cells = (
                f"{mean[i]:9.4f} ± {error[i]:<6.4f}" for mean, error in map(self.values.__getitem__, shown)
            )
            lines.append(f"{beta:7.4f} {' '.join(cells)} {swaps[i]} {self.r_hat[i]:7.3f}")
        return "\n".join([*lines, *(f"doubt: {doubt}" for doubt in self.doubts)])


@torch.no_grad()
def thermodynamics(
    machine: BoltzmannMachine,
    betas: Sequence[float] | None = None,
    *,
    replicas: int = 16,
    chains: int = 64,
    sweeps: int = 10_000,
    bins: int | None = None,
    kernel: Kernel | None = None,
    seed: int | torch.Generator = 0,
) -> Thermodynamics:
    """Measures energy, heat capacity, magnetisation and P(q) by temperature in one run of ``Tempering``.

    At β the distribution is p(x) ∝ exp(-β E(x)): fields are scaled with the couplings. Chains are independent
    of each other, so that their means tell errors whatever the autocorrelation; overlaps are those of one
    half of the chains with the other. The first half of the sweeps is a warm-up. After every fifth sweep
    neighbours swap, and all is measured.

    Args:
        machine: a machine of units with two values or categories, hidden ones included.
        betas: at least two inverse temperatures from 0 on, of which one has to be hot enough for chains to
            move. None: ``replicas`` of them from 1 to 0 that swap equally often (``Tempering.adapt``).
        replicas: number of temperatures where ``betas`` is None, at least 2.
        chains: chains at every temperature, an even number of at least 8.
        sweeps: Sweeps of every chain, at least 200.
        bins: bins of P(q), at most N + 1, as q has so many values; None: 50, or N + 1.
        kernel: what moves the replicas; Gibbs by default.
        seed: an int or a generator.

    Raises:
        TypeError, ValueError: other units, forbidden states (-inf), or an argument out of range.

    Examples:
        >>> import torch
        >>> import harmonium as hm
        >>> ring = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])})
        >>> ring.couplings[0].fill_(torch.ones(4))
        >>> found = hm.chains.thermodynamics(ring, [1.0, 0.5, 0.0], sweeps=1000)
        >>> found.values["energy"].mean.shape, found.doubts
        (torch.Size([3]), ())
    """
    if not all(layer.two_values or layer.one_hot for layer in machine.layers):
        raise ValueError(
            "machine: expected units with two values or categories, received "
            f"{', '.join(map(str, machine.layers))}"
        )
    if _checks.positive_int(chains, "chains", minimum=8) % 2:
        raise ValueError(f"chains: expected an even number, received {chains}")
    steps = _checks.positive_int(sweeps, "sweeps", minimum=200) // _MOVES
    units = sum(layer.n_units for layer in machine.layers)
    bins = min(50, units + 1) if bins is None else _checks.positive_int(bins, "bins")
    if bins > units + 1:
        raise ValueError(f"bins: expected from 1 to the {units + 1} values of q, received {bins}")
    cold = 1.0
    if betas is not None:
        listed = sorted(_checks.reals(betas, "betas"), reverse=True)
        if not (1 < len(listed) == len(set(listed)) and listed[-1] >= 0 and all(map(isfinite, listed))):
            raise ValueError(f"betas: expected two or more different numbers from 0 on, received {listed}")
        cold = listed[0]
    require_distribution(machine.hamiltonian())
    generator = _random.as_generator(seed, machine.device)
    hamiltonian = _scale(machine, cold, chains)
    noise = [hamiltonian.pure_noise(l, chains, generator) for l in range(len(hamiltonian.layers))]
    start = hamiltonian.clamp_states(noise)
    if betas is None:
        even = Tempering(replicas, kernel=kernel, moves=_MOVES)
        tempering = even.spaced(hamiltonian, start, steps, generator)
    else:
        tempering = Tempering(betas=[beta / cold for beta in listed], kernel=kernel, moves=_MOVES)
    beta = cold * torch.tensor(tempering.betas, dtype=torch.float64, device=machine.device)
    signs = all(layer.two_values for layer in machine.layers)
    sizes = {layer.columns_per_unit if layer.one_hot else 2 for layer in machine.layers}
    lowest = -1 / (max(sizes) - 1) if len(sizes) == 1 else -1.0
    ends = torch.arange(bins + 1, device=machine.device) * (units + 1) // bins
    half = steps // 4
    rows = len(beta), chains
    single, paired = beta.new_zeros(2, 6, *rows), beta.new_zeros(2, 3, len(beta), chains // 2)
    counts, accepted = beta.new_zeros(len(beta), chains // 2, bins), beta.new_zeros(len(beta) - 1)

    def observe(number: int, state: KernelState, info: Info) -> None:
        part = (number - 1 - steps + 2 * half) // half
        if part < 0:
            return
        coupling = state.cache[1]
        gains = (beta[:-1] - beta[1:]).unsqueeze(1) / cold * coupling.diff(dim=0)
        accepted.add_(gains.clamp(max=0).exp().mean(1))
        s = as_vectors(machine, state.memory.states[: len(machine.layers)], "states", machine.dtype)
        first, second = s.view(*rows, -1).chunk(2, 1)
        q = (first * second).sum(-1).double()
        m = s.sum(1).view(rows).double() / units**0.5
        E, m2, q2 = -coupling / cold, m.square(), q.square()
        single[part] += torch.stack([E, E.square(), m, m.abs(), m2, m2.square()])
        paired[part] += torch.stack([q, q2, q2.square()])
        value = ((q - lowest) / (1 - lowest) * units).round().long()  # of the values that q can have
        bin_index = torch.bucketize(value, ends[1:], right=True).unsqueeze(-1)
        counts.scatter_add_(2, bin_index, torch.ones_like(bin_index, dtype=counts.dtype))

    state = tempering.init(hamiltonian, start, generator, steps)
    run_kernel(hamiltonian, tempering, state, steps, generator, observe)
    single, paired, counts, accepted = (x / half for x in (single, paired, counts / 2, accepted / 2))
    column = beta.unsqueeze(1)
    values = {
        "energy": _jackknife(single, lambda x: (x[0] + machine.constant) / units),
        "heat capacity": _jackknife(single, lambda x: column**2 * (x[1] - x[0].square()) / units),
        "q²": _jackknife(paired, lambda x: x[1]),
        "q Binder": _jackknife(paired, lambda x: 1 - x[2] / (3 * x[1].square())),
    }
    if signs:
        values |= {
            "m": _jackknife(single, lambda x: x[2]),
            "|m|": _jackknife(single, lambda x: x[3]),
            "m²": _jackknife(single, lambda x: x[4]),
            "Binder": _jackknife(single, lambda x: 1 - x[5] / (3 * x[4].square())),
        }
    edges = lowest + (ends.double() - 0.5) * (1 - lowest) / units
    density = counts / edges.diff()
    errors = density.std(1) / (chains // 2) ** 0.5
    r_hat = torch.maximum(*(_r_hat(*sums.mean(0)[:2]) for sums in (single, paired)))
    doubts = []
    for name, halves in (("E", single[:, 0]), ("q²", paired[:, 1])):
        change = halves[1] - halves[0]
        z = (change.mean(1) / change.std(1) * change.shape[1] ** 0.5).abs().nan_to_num(0.0)
        if float(z.max()) > _DRIFT:
            doubts.append(f"{name} still drifts at β = {float(beta[z.argmax()]):.4g}: take more sweeps")
    if float(r_hat.max()) > _APART:
        doubts.append(
            f"R̂ is {float(r_hat.max()):.3g} at β = {float(beta[r_hat.argmax()]):.4g}: chains have not seen "
            "the same states; take more sweeps, or temperatures closer to each other"
        )
    if float(accepted.min()) < SWAP_RATE:
        at = int(accepted.argmin())
        doubts.append(
            f"only {float(accepted[at]):.1%} of swaps between β = {float(beta[at]):.4g} and "
            f"{float(beta[at + 1]):.4g} are accepted: take more temperatures there"
        )
    return Thermodynamics(
        beta, values, edges, Estimates(density.mean(1), errors), accepted, r_hat, tuple(doubts)
    )


def _scale(machine: BoltzmannMachine, beta: float, chains: int) -> Hamiltonian:
    """Returns a machine with β times all of its energy in couplings: fields are those to a unit held at 1."""
    bare = machine.hamiltonian()
    thetas, J, graph = [theta[0] for theta in bare.thetas], [beta * x for x in bare.J], bare.graph
    zeros, biased = (
        tuple((torch.zeros_like(x),) for x in thetas),
        [l for l, x in enumerate(thetas) if x.any()],
    )
    if not biased:
        return replace(bare, thetas=zeros, J=tuple(J))  # type: ignore[arg-type]
    layers, held = (*bare.layers, Spin(1).to(bare.device, bare.dtype)), len(bare.layers)
    joined = graph.joined | dict.fromkeys(range(len(J), len(J) + len(biased)))
    patterns = {edge: pattern for edge, pattern in enumerate(graph.patterns) if pattern is not None}
    edges = [*graph.edges, *((l, held) for l in biased)]
    whole = Graph(layers, edges, [*graph.visible, held], joined, patterns).to(bare.device, bare.dtype)
    J += [beta * thetas[l].unsqueeze(1) for l in biased]
    one = thetas[0].new_ones(chains, 1)
    return Hamiltonian(layers, whole, (*zeros, (one[0] * 0,)), tuple(J)).clamp({held: one}, chains)  # type: ignore[arg-type]


def _jackknife(sums: Tensor, formula: Callable[[Tensor], Tensor]) -> Estimates:
    """Returns a function of means over all chains, with its standard error.

    Args:
        sums: means in both halves of the run, (2, quantities, temperatures, chains).
        formula: of quantities, each (temperatures, any number).
    """
    x = sums.mean(0)
    count = x.shape[2]
    leave_one_out = formula((x.sum(2, keepdim=True) - x) / (count - 1))
    return Estimates(
        formula(x.mean(2, keepdim=True)).squeeze(1), (leave_one_out.var(1, correction=0) * (count - 1)).sqrt()
    )


def _r_hat(mean: Tensor, square: Tensor) -> Tensor:
    """Returns R̂ (Gelman & Rubin 1992) of a quantity by its moments in each chain, (temperatures, chains)."""
    within, between = (square - mean.square()).mean(1).clamp(min=0), mean.var(1)
    return torch.where(between > 0, (1 + between / within).sqrt(), 1.0)
