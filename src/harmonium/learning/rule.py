"""A learning rule: a pair of expectations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import Parameter, signature
from math import inf
from typing import Any, Literal, NamedTuple, ParamSpec, final, get_args

import torch
from torch import Tensor

from harmonium import _checks, _device, _random
from harmonium._checks import Numbers
from harmonium.chains import GibbsLangevin, Langevin
from harmonium.distributed import Group
from harmonium.learning.centring import PreviousBatch
from harmonium.learning.expectation import (
    ALONE,
    ClampedChains,
    Enumeration,
    Expectation,
    ExpectationRequest,
    FreeChains,
    Outcome,
    StepControl,
)
from harmonium.learning.parametrisation import Parametrisation, centred_pullback
from harmonium.machine import BoltzmannMachine, Hamiltonian, Statistics

P = ParamSpec("P")
Bias = Literal["exact", "unbiased", "asymptotic", "biased"]


class Estimate(NamedTuple):
    """An estimated gradient.

    Attributes:
        parameters: for the name of every learnable parameter, the gradient of the mean log-likelihood of the
            batch (ascent direction), in the parameter's shape.
        diagnostics: numbers about the estimate; ``Rule.estimate`` leaves those of a device there.
        state: what to hand to the next call; None where the rule keeps nothing.
        control: what the rule asks of the step.
    """

    parameters: dict[str, Tensor]
    diagnostics: Mapping[str, float | Tensor]
    state: Any
    control: StepControl = StepControl()


@final
@dataclass(frozen=True)
class Rule:
    """∇ log p(v) = E[S | v] - E[S] with a way to estimate each side.

    Attributes:
        name: how it is called in files and on the command line, with its settings.
        clamped: the expectation with the visible layer clamped to data.
        free: the expectation of the free machine.
        bias: "exact"; "unbiased": noisy but right on average, if no pair of chains is given up; "asymptotic":
            right in the limit of many updates at a slow learning rate; "biased". The first two hold for every
            machine and row that the rule takes. An "asymptotic" rule is right in its free side. It is biased
            where something is left to sample given the data (hidden layers that an edge joins, missing
            entries of more than ``sums.MAX_MISSING_STATES`` states), in a fixed number of sweeps.
        centred: whether the enhanced gradient is returned in place of the gradient.
        condition_on: visible layers x on which the likelihood is conditional, ∇ log p(y | x) = E[S | x, y] -
            E[S | x]: both sides are clamped expectations then, the second with x alone, and ``free`` is not
            used. None: the likelihood of all visible layers.
        joint: with ``condition_on``, how much log p(x, y) counts in what is learned, log p(y | x) the rest to
            1. The second side is (1 - joint) E[S | x] + joint E[S], and above 0 ``free`` is used for it.
    """

    name: str
    clamped: Expectation
    free: Expectation
    bias: Bias
    centred: bool = False
    condition_on: tuple[int, ...] | None = None
    joint: float = 0.0

    def __post_init__(self) -> None:
        _checks.one_of(self.bias, "bias", get_args(Bias))
        for name in ("clamped", "free"):
            _checks.instance(getattr(self, name), name, Expectation, "an Expectation")

    @torch.no_grad()
    def gradient(
        self,
        machine: BoltzmannMachine,
        v: Numbers,
        state: Any = None,
        *,
        seed: int | torch.Generator,
        weights: Tensor | None = None,
    ) -> Estimate:
        """Estimates the gradient of the (weighted) mean log-likelihood of a batch.

        Batches of one data set have it at their mean weight: times that, they add up to that of the data.

        Args:
            machine: the machine; it is not changed.
            v: data, (batch, visible_width), NaN where not observed.
            state: ``Estimate.state`` of the last call, None at first.
            seed: source of all noise: an int, or a generator on the machine's device. From update to update
                hand in one generator: an int would repeat its noise.
            weights: Row weights, (batch,), at least 0, not all 0; the mean is Σ w ln p(v) / Σ w. None: all
                count alike. Rows of weight 0 are as if they were not there.

        Raises:
            ValueError: weights that do not fit; v of the wrong shape, empty or infinite (its support is
                not checked: that would cost a few percent of every update); a state of another machine.
            TypeError: v that is not real numbers, or no seed.
        """
        parametrisation = Parametrisation(machine)
        if state is not None:
            self.check_state(machine, state)
        v, row_weights, observed = self.checked(machine, v, weights)
        generator = _random.as_generator(seed, machine.device)
        estimate = self.estimate(parametrisation, v, state, generator, row_weights, observed)
        return estimate._replace(diagnostics=_device.read_numbers(estimate.diagnostics))

    @torch.no_grad()
    def estimate(
        self,
        parametrisation: Parametrisation,
        v: Tensor,
        state: Any,
        generator: torch.Generator,
        row_weights: Tensor | None = None,
        observed: bool | None = None,
        supported: bool = False,
        group: Group = ALONE,
        share: float = 1.0,
    ) -> Estimate:
        """Estimates the gradient as ``gradient`` does, from what is known to fit: nothing is checked.

        Args:
            parametrisation: Parametrisation of the machine.
            v: data, (batch, visible_width), on its device and in its dtype; NaN is not observed.
            state: ``Estimate.state`` of the last call, None at first.
            generator: source of all noise.
            row_weights: Row weights, (batch,), above 0 and of mean 1; None means uniform.
            observed: whether all of v is; None: not known.
            supported: whether all of v that is observed is known to lie in the support of its units.
            group: processes that make this call together, each with rows, a state and noise of its own. Their
                statistics are added, and all get the gradient of all rows.
            share: weight of these rows as a share of those of all processes.
        """
        hamiltonian = parametrisation.hamiltonian()
        sums = Statistics(hamiltonian)
        complete = _checks.observed(v) if observed is None else observed
        request = ExpectationRequest(
            hamiltonian, v, generator, sums, complete, share, row_weights=row_weights,
            parameters=parametrisation.parameters,
            supported=supported,
            group=group,
        )  # fmt: skip
        centre, diagnostics, next_state = self.add(request, state)
        if group.size > 1:
            sums, centre = _sum_over(group, hamiltonian, sums, centre, diagnostics)
        direction = (
            self.direction(parametrisation, sums, centre) if self.centred else parametrisation.pullback(sums)
        )
        if not (self.free.controls and self.generative):
            return Estimate(direction, diagnostics, next_state)
        return Estimate(
            direction, diagnostics, next_state, self.free.control(PreviousBatch.of(next_state).free)
        )

    def checked(
        self, machine: BoltzmannMachine, v: Numbers, weights: Tensor | None
    ) -> tuple[Tensor, Tensor | None, bool]:
        """Returns rows and weights as ``estimate`` takes them, and whether all entries are observed.

        Raises:
            TypeError, ValueError: as ``gradient``.
        """
        v = _checks.tensor(v, "v", machine.dtype)  # looked at where it is: a GPU is not waited for
        width = machine.visible_width
        if v.dim() != 2 or v.shape[1] != width or len(v) == 0:
            raise ValueError(f"v: expected (batch, {width}) with at least one row, received {tuple(v.shape)}")
        complete = bool(v.isfinite().all())
        if not complete:
            _checks.finite(v.nan_to_num(nan=0.0, posinf=inf, neginf=-inf), "v")
        if self.condition_on is not None:
            machine.check_condition(self.condition_on)
        v, row_weights = _weighted(v, weights)
        complete = complete or _checks.observed(v)
        v = _device.to_device(v, machine.device)
        if row_weights is not None:
            row_weights = _device.to_device(row_weights, machine.device, v.dtype)
        return v, row_weights, complete

    def add(
        self, request: ExpectationRequest, state: Any
    ) -> tuple[list[Tensor], dict[str, float | Tensor], Any]:
        """Adds E[S | v] - E[S], times the request's weight, to its sum.

        Returns:
            The offsets of centring times the weight, (width_l,) for every layer, or none; diagnostics; and
            the state for the next call.
        """
        # A clamped estimate keeps no state: every batch brings other data.
        diagnostics: dict[str, float | Tensor] = {}
        label = None
        if self.condition_on is not None and isinstance(self.clamped, Enumeration) and not self.clamped.roots:
            label = request.find_label(self.condition_on)
        if label is not None:
            request.add_labels(label, self.joint)  # of both sides
        elif request.complete:
            diagnostics |= self.clamped.add(request).diagnostics
        else:
            for part in self.clamped.parts(request):
                diagnostics |= self.clamped.add(part).diagnostics
        clamped = request.into.means() if self.centred else []
        earlier = state if isinstance(state, PreviousBatch) else PreviousBatch(free=state)
        if self.condition_on is not None and label is None:
            condition = request.hamiltonian.observe_only(self.condition_on, request.v)
            weight = request.weight * (self.joint - 1.0)
            second = replace(request, v=condition, weight=weight, fields={}, complete=False)
            for part in self.clamped.parts(second):
                noted = self.clamped.add(part).diagnostics
                diagnostics |= {f"condition_{name.removeprefix('clamped_')}": x for name, x in noted.items()}
        free = Outcome(None, {})
        if self.generative:
            weight = -self.density_share * request.weight
            second = copy(request)  # of fields and tables that the first side has made, too
            second.weight, second.state = weight, earlier.free
            free = self.free.add(second)
            diagnostics |= free.diagnostics
        if not self.centred:
            return [], diagnostics, free.state
        if free.is_plain_mean and self.condition_on is None:  # the midpoint of the means of rows and chains
            off = request.into.means()
            return [x - y / 2 for x, y in zip(clamped, off, strict=True)], diagnostics, free.state
        earlier.check(request.hamiltonian)
        now = PreviousBatch.from_request(request, free.state)
        offsets = (now if earlier.rows is None else earlier).means(request.hamiltonian)
        if free.initial_means is not None:
            offsets = [(x + y) / 2 for x, y in zip(offsets, free.initial_means, strict=True)]
        return [request.weight * x for x in offsets], diagnostics, now

    def direction(
        self, parametrisation: Parametrisation, delta: Statistics, centre: list[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the direction of ascent for every learnable parameter, of its shape.

        Args:
            parametrisation: the map from learnable to natural parameters.
            delta: E[S | v] - E[S].
            centre: offsets of every layer, (width_l,); not read if the rule is not centred.
        """
        return (
            centred_pullback(parametrisation, delta, centre)
            if self.centred
            else parametrisation.pullback(delta)
        )

    @property
    def is_steady(self) -> bool:
        """True if an estimate from complete data is the same operations at every update, without a wait."""
        sides = self.clamped.is_steady and self.free.is_steady and not self.free.controls
        return sides and self.condition_on is None

    @property
    def noiseless(self) -> bool:
        """True if equal rows always give an equal gradient, of one objective."""
        return self.clamped.noiseless and self.free.noiseless and self.condition_on is None

    @cached_property
    def density_share(self) -> float:
        """The weight of ln p of all visible layers in the objective, in [0, 1]."""
        return 1.0 if self.condition_on is None else self.joint

    @cached_property
    def temperature(self) -> float:
        """The temperature of the free chains' Gaussian units: 1 unless a Langevin kernel has another."""
        kernel = self.free.kernel if isinstance(self.free, FreeChains) else None
        return kernel.temperature if isinstance(kernel, Langevin | GibbsLangevin) else 1.0

    @cached_property
    def generative(self) -> bool:
        """True if the rule learns the distribution of all visible layers, not p(y | x) alone."""
        return self.density_share > 0

    @cached_property
    def learns_density(self) -> bool:
        """True if the rule learns the density of all visible layers, and no label or sampler from noise."""
        return self.density_share == 1 and self.temperature == 1 and self.sweeps_from_noise is None

    @cached_property
    def sweeps_from_noise(self) -> int | None:
        """The sweeps after which chains from noise are what the rule learns; None: it has no such chains."""
        free = self.free
        return free.sweeps if isinstance(free, FreeChains) and free.start == "noise" else None

    @cached_property
    def gibbs_chains(self) -> FreeChains | None:
        """The chains of the free side, where the rule is ``rules.cd`` or ``rules.pcd`` by Gibbs sweeps."""
        clamped, free = self.clamped, self.free
        plain = isinstance(clamped, ClampedChains) and self.condition_on is None
        return free if plain and isinstance(free, FreeChains) and free.plain else None

    def check_state(self, machine: BoltzmannMachine, state: Any) -> None:
        """Refuses a state, read from a file, that ``gradient`` could not have returned for this machine.

        Raises:
            TypeError, ValueError: naming what is wrong with it.
        """
        hamiltonian, earlier = machine.hamiltonian(), PreviousBatch.of(state)
        earlier.check(hamiltonian)
        if self.generative:
            self.free.check_state(hamiltonian, earlier.free)
        elif earlier.free is not None:
            received = type(earlier.free).__name__
            raise ValueError(f"state: expected None, as {self} keeps none, received {received}")

    def __repr__(self) -> str:
        return self.name


def _sum_over(
    group: Group,
    hamiltonian: Hamiltonian,
    sums: Statistics,
    centre: list[Tensor],
    diagnostics: Mapping[str, float | Tensor],
) -> tuple[Statistics, list[Tensor]]:
    """Returns the statistics and offsets of all processes together, equal in each.

    Gradients are not added: that of centred statistics is not linear in them.
    """
    for value in diagnostics.values():  # one that is not finite has to be seen by all processes
        sums.thetas[0][0].add_(0.0 * value)
    thetas = [theta for layer in sums.thetas for theta in layer]
    totals = iter(group.all_reduce_sum([*thetas, *sums.products, *centre]))
    together = Statistics(hamiltonian)
    together.add_sums(
        [[next(totals) for _ in layer] for layer in sums.thetas], [next(totals) for _ in sums.products]
    )
    return together, [*totals]


def recipe(make: Callable[P, Rule]) -> Callable[P, Rule]:
    """Names the rules that a function makes by its call: k, and all arguments that are not the defaults."""
    parameters = signature(make).parameters

    @wraps(make)
    def named(*args: P.args, **kwargs: P.kwargs) -> Rule:
        rule = make(*args, **kwargs)
        called = signature(make).bind(*args, **kwargs)
        called.apply_defaults()
        settings = dict[str, Any]()
        for name, value in called.arguments.items():
            several = parameters[name].kind is Parameter.VAR_KEYWORD
            settings |= dict(sorted(value.items())) if several else {name: value}
        words = [str(settings.pop("k"))] if "k" in settings else []
        for name, value in settings.items():
            if name not in parameters or value != parameters[name].default:
                words.append(f"{name}={sorted(value) if isinstance(value, Mapping) else value!r}")
        return replace(rule, name=f"{make.__name__}({', '.join(words)})")

    return named


def _weighted(v: Tensor, weights: Any) -> tuple[Tensor, Tensor | None]:
    """The rows of weight above 0, and their weights brought to a mean of 1, in float64 on the CPU."""
    weights = _checks.weights(weights, "weights", len(v))
    if weights is None:
        return v, None
    positive = weights > 0
    if not bool(positive.all()):
        v, weights = v[_device.selected_indices(positive, v.device)], weights[positive]
    return v, weights / weights.mean()
