"""Langevin sampling of Gaussian layers: on the marginal density, and as part of a Gibbs sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, final, get_args

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium._states import record
from harmonium.backends import runs
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState
from harmonium.machine import Hamiltonian, Part, States, Statistics

Correction = Literal["none", "metropolis", "exact"]
Units = Literal["own", "mean"]
Number = TypeVar("Number", float, Tensor)


@record
@dataclass(frozen=True)
class Annealing:
    """The sweeps that steps fall over, at least 1."""

    planned: int


@final
class Langevin(Kernel):
    """A Langevin step of every Gaussian layer with its neighbours summed out, then all else drawn given it.

    x' = x - α_i ∂F/∂x + √(2 α_i) ξ with F the free energy of the Gaussian units, and accepted or refused by
    Metropolis's rule (MALA; Liao et al. 2022, Alg. 1, Eqs. 6 and 7). The step of unit i is α_i = step · σ_i²,
    at temperature 1 whatever the batch, so that it follows the variances as they are learned. Gaussian layers
    may be visible or hidden, in machines of any depth.

    Args:
        step: α₀, of the order of n^(-1/3) for n units; above 0.
        adjust: first sweeps of a chain that are left unadjusted (the paper's adjust step); None leaves all
            of them so. An unadjusted sweep does not keep the machine's distribution. In ``chains.run`` and
            for fresh chains they are those of the run; persistent chains have them once, and not at every
            update.
        anneal: whether the step falls along a half cosine in the course of a run, from ``step`` at its first
            sweep towards 0 after its last. Persistent chains, which have no last sweep, run through it at
            every update. Adjusted sweeps keep the distribution at any step.
        temperature: T of the noise, √(2 α_i T) ξ. Adjusted chains then follow exp(-F(x)/T) in the Gaussian
            layers, and the machine's own distribution of all else given them. The public program of Liao et
            al. has T = B chains and the step α₀/B.
        variance: variance that a step is in units of: "own", σ_i² of the unit; "mean", that of its layer, as
            in the public program: unadjusted units of much smaller variance then diverge.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> states = hm.chains.run(machine, hm.chains.Langevin(step=0.3), start, sweeps=20, seed=1)
        >>> bool(0.8 < states[0].std() < 1.2)
        True
        >>> hm.chains.Langevin(adjust=None).invariant
        False
    """

    kind = "langevin"

    def __init__(
        self,
        step: float = 0.1,
        adjust: int | None = 0,
        anneal: bool = False,
        *,
        temperature: float = 1.0,
        variance: Units = "own",
    ) -> None:
        self.step_size = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)
        self.adjust = None if adjust is None else _checks.positive_int(adjust, "adjust", minimum=0)
        _checks.instance(anneal, "anneal", bool, "True or False")
        self.anneal = anneal
        self.temperature = _checks.real(temperature, "temperature", low=torch.finfo(torch.float32).tiny)
        _checks.one_of(variance, "variance", get_args(Units))
        self.variance = variance

    @property
    def invariant(self) -> bool:
        return self.adjust is not None and self.temperature == 1

    def init(
        self,
        hamiltonian: Hamiltonian,
        states: Sequence[Tensor],
        generator: torch.Generator,
        planned: int | None = None,
    ) -> KernelState:
        if not self.anneal:
            return KernelState(list(states), 0)
        planned = max(1, _checks.positive_int(planned, "planned", minimum=0))
        return KernelState(list(states), 0, Annealing(planned))

    def is_steady(self, persistent: bool) -> bool:
        return not (persistent and self.adjust)

    def relaxation(self, state: KernelState) -> Relaxation:
        """Returns the move of the next sweep."""
        size = self.step_size
        if self.anneal:
            planned = state.memory.planned
            size *= 0.5 * (1 + math.cos(math.pi * (state.sweeps % planned) / planned))
        adjusted = self.adjust is not None and state.sweeps >= self.adjust
        common = (size,) if self.variance == "mean" else None
        spread = math.sqrt(2 * size * self.temperature)
        return Relaxation(1 - size, spread, True, adjusted, self.temperature, common, self.temperature)

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        return self.relaxation(state).step(hamiltonian, state, generator)

    def check(self, hamiltonian: Hamiltonian, state: KernelState) -> None:
        super().check(hamiltonian, state)
        if self.anneal:
            _checks.positive_int(state.memory.planned, "state.memory.planned")

    def __repr__(self) -> str:
        return f"Langevin(step={self.step_size:g}, adjust={self.adjust}, anneal={self.anneal}{_rest(self)})"


@final
class GibbsLangevin(Kernel):
    """Gibbs sampling in which a Gaussian layer makes ``inner`` Langevin steps instead of being drawn again.

    With the neighbours fixed these steps are one Gaussian draw (Liao et al. 2022, Alg. 2, Eqs. 9-11), so the
    inner loop costs nothing: x' = m + β₀ (x - m) + s σ ξ with m the mean given the neighbours, β₀ = Π_j (1 -
    α₀ c_j), steps α₀ c_j σ_i² and c_j = ½ (1 + cos(π j / inner)) for j = 0 … inner-1. The chain stays near
    its place; β₀ = 0 is Gibbs sampling, which "exact" with ``step=1`` gives.

    Args:
        step: α₀ of the first inner step, above 0.
        inner: Langevin steps of a sweep, at least 1.
        correction: "metropolis": a Metropolis test of the whole sweep (Eq. 12); in wide layers it needs small
            steps. "exact": the noise has s² = 1 - β₀², which leaves the conditional distribution as it is,
            and so the machine's, with nothing to accept. "none": s² as in the paper; the distribution is not
            kept.
        adjust: first sweeps of a chain without the Metropolis test; of a persistent chain once, and not at
            every update.
        temperature: T of the noise, s √T. With "metropolis" the distribution is that of ``Langevin`` at T.
            With "exact" Gaussian units given the others follow p(x | h)^(1/T) and the others given them p(h |
            x), which are the conditionals of no joint distribution unless T = 1.
        proposal_temperature: T of the noise where the Metropolis test has ``temperature``; None: the same.
            Hot proposals, tested at 1, keep the machine's distribution and cross between distant modes (the
            first public program of Liao et al. has the batch size here, and 6 to 7 % accepted).
        variance: as in ``Langevin``; "mean" is not for "exact", whose β₀ has to stay below 1 for all units.

    Raises:
        ValueError: |β₀| of 1 or more with "exact"; a step so large that the noise is not finite; "exact" with
            steps of the mean variance; a temperature of proposals that no Metropolis test follows.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)])
        >>> start = machine.random_states(200, seed=0)
        >>> kernel = hm.chains.GibbsLangevin(step=0.3, inner=5)
        >>> states = hm.chains.run(machine, kernel, start, sweeps=20, seed=1)
        >>> bool(0.8 < states[0].std() < 1.2)
        True
    """

    kind = "gibbs-langevin"

    def __init__(
        self,
        step: float = 0.1,
        inner: int = 10,
        correction: Correction = "exact",
        *,
        adjust: int = 0,
        temperature: float = 1.0,
        proposal_temperature: float | None = None,
        variance: Units = "own",
    ) -> None:
        self.step_size = _checks.real(step, "step", low=torch.finfo(torch.float32).tiny)
        self.inner = _checks.positive_int(inner, "inner")
        _checks.one_of(correction, "correction", ("none", "metropolis", "exact"))
        self.correction = correction
        self.adjust = _checks.positive_int(adjust, "adjust", minimum=0)
        tiny = torch.finfo(torch.float32).tiny
        self.temperature = _checks.real(temperature, "temperature", low=tiny)
        if proposal_temperature is not None:
            proposal_temperature = _checks.real(proposal_temperature, "proposal_temperature", low=tiny)
            if correction != "metropolis":
                raise ValueError(
                    'proposal_temperature: expected with correction "metropolis", which tests the proposals, '
                    f'received {proposal_temperature:g} with "{correction}"; temperature is that of all noise'
                )
        self.proposal_temperature = proposal_temperature
        self._heat = self.temperature if proposal_temperature is None else proposal_temperature
        _checks.one_of(variance, "variance", get_args(Units))
        self.variance = variance
        if variance == "mean" and correction == "exact":
            raise ValueError(
                'variance: expected "own" with correction "exact", received "mean"; '
                'take correction "none" or "metropolis"'
            )
        cosine = (0.5 * (1 + math.cos(math.pi * j / self.inner)) for j in range(self.inner))
        self._sizes = tuple(self.step_size * cosine_value for cosine_value in cosine)
        keep, total = _compose(self._sizes, 1.0)
        if correction == "exact":
            total = 1 - keep * keep
        self._keep, self._spread = keep, math.sqrt(max(total, 0.0) * self._heat)
        if correction == "exact" and not abs(keep) < 1:
            raise ValueError(
                f"step: expected one with |β₀| below 1, such as less than 2, received {self.step_size:g}"
            )
        if not math.isfinite(keep + self._spread):
            raise ValueError(f"step: expected one that keeps the noise finite, received {self.step_size:g}")

    @property
    def invariant(self) -> bool:
        return self.correction != "none" and self.temperature == 1

    def is_steady(self, persistent: bool) -> bool:
        return not (persistent and self.adjust)

    def relaxation(self, state: KernelState) -> Relaxation:
        """Returns the move of the next sweep."""
        adjusted = self.correction == "metropolis" and state.sweeps >= self.adjust
        common = self._sizes if self.variance == "mean" else None
        return Relaxation(self._keep, self._spread, False, adjusted, self.temperature, common, self._heat)

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        return self.relaxation(state).step(hamiltonian, state, generator)

    def __repr__(self) -> str:
        return (
            f"GibbsLangevin(step={self.step_size:g}, inner={self.inner}, correction={self.correction!r}, "
            f"adjust={self.adjust}{_rest(self)})"
        )


def _rest(kernel: Langevin | GibbsLangevin) -> str:
    """Returns the settings of a kernel that are rarely changed, where they were."""
    heat = "" if kernel.temperature == 1 else f", temperature={kernel.temperature:g}"
    if isinstance(kernel, GibbsLangevin) and kernel.proposal_temperature is not None:
        heat += f", proposal_temperature={kernel.proposal_temperature:g}"
    return heat if kernel.variance == "own" else f"{heat}, variance={kernel.variance!r}"


def _compose(sizes: Sequence[float], ratio: Number) -> tuple[Number, Number]:
    """Returns what Langevin steps of these sizes, times a ratio, keep of a distance, and their variance."""
    keep, variance = ratio * 0 + 1, ratio * 0
    for size in sizes:
        left = 1 - size * ratio
        keep, variance = keep * left, variance * (left * left) + 2 * size * ratio
    return keep, variance


class Relaxation(NamedTuple):
    """x' ~ N(m + keep (x - m), (spread σ)²) for every Gaussian unit, with m its mean given its neighbours.

    A sweep draws the discrete layers of a colour given the other colour, moves the Gaussian layers of that
    colour, and draws the other colour again. Clamped entries stay, and count as given in every density.

    Attributes:
        keep: what is kept of the distance to the mean.
        spread: Deviation of the noise, in units of σ.
        collapsed: m is taken at the conditional means of the neighbours, which are summed out (Langevin on
            the marginal density), rather than at their states.
        adjusted: whether a Metropolis test follows, which makes the machine's distribution invariant.
        temperature: T by which the test divides the marginal density's logarithm.
        common: the steps in units of the layer's mean variance, where they are: ``keep`` and ``spread`` then
            differ from unit to unit. None: they are in units of each unit's variance.
        heat: T of the noise, whose root ``spread`` has.
    """

    keep: float
    spread: float
    collapsed: bool
    adjusted: bool
    temperature: float = 1.0
    common: tuple[float, ...] | None = None
    heat: float = 1.0

    def of_units(self, precision: Tensor) -> tuple[float | Tensor, float | Tensor]:
        """Returns ``keep`` and ``spread`` of the units of a layer: numbers, or (width,)."""
        if self.common is None:
            return self.keep, self.spread
        keep, variance = _compose(self.common, precision * precision.reciprocal().mean())
        return keep, (variance * self.heat).sqrt()

    def step(
        self, hamiltonian: Hamiltonian, state: KernelState, generator: torch.Generator
    ) -> tuple[KernelState, Info]:
        """Moves the chains by a sweep; caches of the last one save half the work of a Metropolis test.

        Raises:
            ValueError: a machine without a Gaussian layer, or a graph that two colours do not suffice for.
        """
        real = [l for l, layer in enumerate(hamiltonian.layers) if layer.gaussian]
        if not real:
            raise ValueError(
                "machine: expected a Gaussian layer for a Langevin kernel, received "
                + ", ".join(layer.kind for layer in hamiltonian.layers)
            )
        moving = [l for l in real if not hamiltonian.is_clamped(l)]
        if not moving:
            return Gibbs().step(hamiltonian, state, generator)
        states, known = list(state.states), dict(state.fields)
        log_marginal: Tensor | None = state.cache
        diagnostics: list[Tensor] = []
        sides = hamiltonian.graph.sides("a Langevin kernel")
        for side, others in (sides, sides[::-1]):
            block = _Block(self, hamiltonian, generator, [l for l in moving if l in side], others)
            if not block.moving:
                continue
            drawn = [l for l in side if l not in moving and not hamiltonian.is_clamped(l)]
            block.draw(states, block.find_fields(drawn, states, known))
            if drawn:
                for l in others:
                    known.pop(l, None)
            log_marginal, numbers = block.move(states, known, None if drawn or diagnostics else log_marginal)
            diagnostics.append(numbers)
        means = diagnostics[0] if len(diagnostics) == 1 else torch.stack(diagnostics).mean(0)
        acceptance, jump = means
        # The next sweep begins with the same block.
        next_log_marginal = log_marginal if len(diagnostics) == 1 else None
        after = KernelState(states, state.sweeps + 1, state.memory, known, next_log_marginal)
        return after, {"acceptance": acceptance, "squared_jump": jump}


class _Block:
    """Gaussian layers of one colour, ``moving``, and the layers of the other colour, which they depend on."""

    def __init__(
        self,
        relaxation: Relaxation,
        hamiltonian: Hamiltonian,
        generator: torch.Generator,
        moving: list[int],
        others: Sequence[int],
    ) -> None:
        self.relaxation, self.hamiltonian, self.generator = relaxation, hamiltonian, generator
        self.moving, self.others = moving, others
        self.deviations = {l: hamiltonian.thetas[l][1].rsqrt() for l in moving}
        units = {l: relaxation.of_units(hamiltonian.thetas[l][1]) for l in moving}
        self.keeps = {l: keep for l, (keep, _) in units.items()}
        self.noises = {l: spread * self.deviations[l] for l, (_, spread) in units.items()}

    def move(
        self, states: States, known: dict[int, Tensor], log_marginal: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Moves the block in ``states``, whose fields and marginal density may be known.

        Returns:
            The density where the states are now, if it is known, and the acceptance and the mean squared
            jump, (2,).
        """
        collapsed, adjusted = self.relaxation.collapsed, self.relaxation.adjusted
        fields = self.find_fields(self.others, states, known) if adjusted or collapsed else {}
        pulls = self._find_pulls(states, fields, known)
        centres = self._find_centres(pulls)
        proposal = list(states)
        for l in self.moving:
            drifted = torch.lerp(centres[l], states[l], self.keeps[l])
            noise = self.hamiltonian.noise(l, len(drifted), self.generator)
            proposal[l] = self.hamiltonian.apply_clamp(l, drifted.addcmul_(noise, self.noises[l]))
        if collapsed:
            proposed_fields = self.find_fields(self.others, proposal, {})
        else:
            proposed_fields = self.draw_others(proposal)
        reached, taken = None, None
        if adjusted:
            back = self._find_pulls(proposal, proposed_fields, {})
            if log_marginal is None:
                log_marginal = self._find_log_marginal(states, fields)
            reached = self._find_log_marginal(proposal, proposed_fields)
            gain = reached - log_marginal
            if self.relaxation.temperature != 1:
                gain = gain / self.relaxation.temperature
            gain += self._find_log_density(states, proposal, self._find_centres(back))
            gain -= self._find_log_density(proposal, states, centres)
            taken = _random.accept(gain, self.generator)
            reached = torch.where(taken, reached, log_marginal)
        numbers = self._find_numbers(states, proposal, taken)
        if taken is not None:
            rows = taken.unsqueeze(-1)
            for new, old in zip(proposal, states, strict=True):
                if new is not old:
                    torch.where(rows, new, old, out=new)
            for l, new in proposed_fields.items():
                torch.where(rows, new, fields[l], out=new)
        known.clear()
        known.update(proposed_fields)
        if collapsed:
            self.draw(proposal, proposed_fields)
        elif adjusted:
            known.update({l: torch.where(rows, new, pulls[l]) for l, new in back.items()})
        states[:] = proposal
        return reached, numbers

    def _find_numbers(self, states: States, proposal: States, taken: Tensor | None) -> Tensor:
        """Returns the acceptance and the mean squared jump of a move, (2,); ``taken`` None: of all rows."""
        jumps = [(proposal[l] - states[l]) / self.deviations[l] for l in self.moving]
        moved = jumps[0] if len(jumps) == 1 else torch.cat(jumps, -1)
        if taken is None:
            squared = torch.linalg.vector_norm(moved).square() / moved.numel()
            return torch.stack((torch.ones_like(squared), squared))
        accepted = taken.to(moved.dtype)
        return torch.stack((accepted.mean(), accepted @ moved.square().sum(-1) / moved.numel()))

    def draw_others(self, states: States) -> dict[int, Tensor]:
        """Draws the layers of the other colour given this one, and returns their fields."""
        fields = dict[int, Tensor]()
        for l in self.others:
            if self.hamiltonian.is_clamped(l):
                fields[l] = self.hamiltonian.field(l, states, drawn=True)
                continue
            states[l], field = self.hamiltonian.draw(Part(l), states, self.generator)
            assert field is not None
            fields[l] = field
        return fields

    def draw(self, states: States, fields: dict[int, Tensor]) -> None:
        """Draws layers of one colour given their fields."""
        for l, field in fields.items():
            if not self.hamiltonian.is_clamped(l):
                states[l] = self.hamiltonian.apply_clamp(l, self.hamiltonian.sample(l, field, self.generator))

    def find_fields(
        self, layers: Sequence[int], states: States, known: Mapping[int, Tensor], drawn: bool = True
    ) -> dict[int, Tensor]:
        """Returns fields of layers of one colour, with those that are known already.

        ``drawn`` is as in ``Hamiltonian.field``.
        """
        return {l: known[l] if l in known else self.hamiltonian.field(l, states, drawn=drawn) for l in layers}

    def _find_pulls(
        self, states: States, fields: dict[int, Tensor], known: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Returns fields of the moving layers, given the other colour or its means in these fields."""
        if not self.relaxation.collapsed:
            return self.find_fields(self.moving, states, known)
        at_means = list(states)
        for l, mean in self._find_centres(fields).items():
            at_means[l] = self.hamiltonian.apply_clamp(l, mean)
        return self.find_fields(self.moving, at_means, {}, drawn=False)

    def _find_centres(self, fields: dict[int, Tensor]) -> dict[int, Tensor]:
        return {l: self.hamiltonian.mean(l, field) for l, field in fields.items()}

    def _find_log_marginal(self, states: States, fields: dict[int, Tensor]) -> Tensor:
        """Returns ln of the moving layers' density, free units of the other colour summed out: (batch,)."""
        total = torch.stack([self.hamiltonian.log_weight(l, states[l]).double() for l in self.moving]).sum(0)
        for l, field in fields.items():
            total = total + self.hamiltonian.summed_weight(l, field)
        return total

    def _find_log_density(self, to: States, start: States, centres: dict[int, Tensor]) -> Tensor:
        """Returns ln q(to | start) of the free units, up to a constant: (batch,)."""
        total = torch.zeros(len(to[0]), dtype=torch.float64, device=self.hamiltonian.device)
        for l in self.moving:
            z = to[l] - torch.lerp(centres[l], start[l], self.keeps[l])
            z, held = z / self.noises[l], self.hamiltonian.mask(l)
            z = z if held is None else z.masked_fill(held, 0.0)
            total -= 0.5 * z.square().sum(-1, dtype=torch.float64)
        return total


def relax_alone(
    hamiltonian: Hamiltonian,
    kernel: Kernel,
    state: KernelState,
    sweeps: int,
    generator: torch.Generator,
    *,
    into: Statistics,
    weight: float,
    burn_in: int,
) -> tuple[KernelState, dict[str, float]] | None:
    """Runs free chains of a small machine one by one in compiled code, and adds their statistics.

    Several times as fast as sweeps of a batch.

    The other arguments are those of ``run_kernel``.

    Args:
        into: where to add.
        weight: Weight of every state of every chain after burn-in.
        burn_in: sweeps left out of the statistics.

    Returns:
        The chains, and the diagnostics of ``Relaxation`` as means over chains and sweeps; None: they are to
        be moved together.
    """
    if not isinstance(kernel, Gibbs | Langevin | GibbsLangevin):
        return None

    def moves() -> list[Relaxation]:
        if isinstance(kernel, Gibbs):
            return [Relaxation(0.0, 1.0, collapsed=False, adjusted=False)] * sweeps
        return [kernel.relaxation(state._replace(sweeps=state.sweeps + sweep)) for sweep in range(sweeps)]

    ran = runs.run(
        "langevin", hamiltonian, state.states, generator,
        find_moves=moves, into=into, weight=weight, burn_in=burn_in,
    )  # fmt: skip
    if ran is None:
        return None
    states, acceptance, jump = ran
    known = {} if isinstance(kernel, Gibbs) else {"acceptance": acceptance, "squared_jump": jump}
    return KernelState(states, state.sweeps + sweeps, state.memory), known
