"""The base of all kinds of units: a log-partition and what follows from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce
from math import inf, log2
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from harmonium import _checks, _device, _random

Theta = tuple[Tensor, ...]


class Moments(NamedTuple):
    """Mean and variance of every column of a layer's state, each of the field's shape."""

    mean: Tensor
    variance: Tensor


class Layer(nn.Module, ABC):
    """Units of one kind, independent of each other given the rest of the machine.

    A unit has the distribution p(x | B, A) ∝ exp(θ·t(x) + B x - A x²/2) with sufficient statistics t, natural
    parameters θ, a field B from its neighbours and a curvature A (zero but in TAP). Its log-partition ψ(B, A;
    θ) is the log of the normaliser; means, variances and expected statistics are its derivatives. ψ defines a
    layer, the closed forms that a subclass adds compute it.

    States are matrices of ``width`` columns: one a unit, or ``n_states`` a unit where the state is one-hot.
    Every method takes ``theta`` to use in place of the layer's own natural parameters.

    A new kind of unit is one subclass: ``kind``, ``location`` and the abstract methods.

    Args:
        n_units: number of units, at least 1.
        columns: columns of the state matrix for each unit.
    """

    kind: ClassVar[str]
    """The name of this kind of unit in files, estimators and the command line."""
    location: ClassVar[str]
    """The parameter that shifts the field; the target of gradient centring."""
    bounded: ClassVar[bool] = True
    """True if the states lie in a finite interval: the distribution then exists beside any other units."""
    smoothed: ClassVar[bool] = True
    """True if a fit counts one row of pure noise beside the data, which keeps parameters of constant units
    finite. If False, a constant unit gets variance 1."""
    gaussian: ClassVar[bool] = False
    """True if θ = (U, V) and p(x | field) is normal with mean (U + B)/V and variance 1/V."""
    two_values: ClassVar[tuple[float, float] | None] = None
    """The lower and the upper state of units with these two and θ = U, so that P(upper) = σ((upper - lower)
    (U + B)); None for all others."""
    one_hot: ClassVar[bool] = False
    """True if states are one-hot and θ = U, so that P(state a) ∝ exp(U_a + B_a)."""
    square: ClassVar[tuple[float, ...] | None] = None
    """Coefficients c with -x²/2 = Σ_k c_k t_k(x) + constant, for example (-0.5,) for Bernoulli units; None if
    there are none. A curvature A then replaces θ_k by θ_k + A c_k."""
    short: ClassVar[bool] = False
    """True if all states are -1, 0 or 1, so that products with them need no more than 8 bits."""
    coding: ClassVar[str] = "states"
    """The encoding by ``harmonium.tables`` of a data column for visible units of this kind, which a
    ``ColumnCodec`` serves:

    - "states": into numbers that are states as they are, two labels into the states of a unit with two, and
      as many labels as there are states, in their order, into these;
    - "one-hot": labels, however many, into one column of the state each;
    - "counts": whole numbers from 0 as they are;
    - "standardised": real numbers, less their mean and over their deviation;
    - "scaled": real numbers from 0, over the root of their mean square;
    - "interval": real numbers, their range to [0, 1];
    - "fractions": real numbers in [0, 1] as they are.
    """
    normal_noise: ClassVar[bool] = False
    """True if ``sample`` takes standard normal noise, else uniform."""
    registry: ClassVar[dict[str, type[Layer]]] = {}
    """Every kind of layer by name."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "kind" in vars(cls):  # abstract layers have none
            _checks.add_kind(Layer.registry, cls.kind, cls)

    def __init__(self, n_units: int, columns: int = 1) -> None:
        super().__init__()
        self.n_units = _checks.positive_int(n_units, "n_units")
        self.columns_per_unit = columns
        self.width = self.n_units * columns

    @abstractmethod
    def natural(self) -> Theta:
        """Returns the natural parameters θ, each (width,), differentiable in the learnable parameters."""

    @abstractmethod
    def log_partition(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Tensor:
        """Returns ψ(B, A) of every unit (FORMULAS §1).

        Args:
            B: field, (..., width).
            A: curvature, broadcast against B.

        Returns:
            (..., n_units).
        """

    @abstractmethod
    def moments(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Moments:
        """Returns the mean ∂ψ/∂B and variance ∂²ψ/∂B² of every column, each (..., width)."""

    @abstractmethod
    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        """Returns E[t(x)] = ∂ψ/∂θ, in the order of ``natural``, each (..., width)."""

    @abstractmethod
    def statistics(self, x: Tensor) -> Theta:
        """Returns t(x) in the order of ``natural``, each (..., width); the first is x itself."""

    @abstractmethod
    def sample(self, field: Tensor, noise: Tensor, theta: Theta | None = None) -> Tensor:
        """Draws a state from p(x | field), (..., width): deterministic given the noise."""

    @abstractmethod
    def mode(self, field: Tensor, theta: Theta | None = None) -> Tensor:
        """Returns the most probable state given the field, (..., width); ties go to the upper value."""

    @abstractmethod
    def log_conditional(self, x: Tensor, field: Tensor, theta: Theta | None = None) -> Tensor:
        """Returns ln p(x | field) of every unit (a density for real ones), (..., n_units)."""

    @abstractmethod
    def propose(self, x: Tensor, noise: Tensor, step: float = 1.0) -> Tensor:
        """Proposes states, (..., width), symmetrically.

        Uniform over the states of a discrete unit, a random walk by ``step`` for a real unit. ``noise`` is as
        for ``sample``.
        """

    @abstractmethod
    def fit_(self, expected: Theta, variance: Tensor) -> None:
        """Sets the parameters so that the units, without couplings, have these expected statistics.

        Args:
            expected: E[t(x)] in the order of ``natural``, each (width,), float64.
            variance: Variances of x, (width,), for layers that would lose them in E[x²] by rounding.

        Raises:
            ValueError: statistics that no finite parameters give, such as those of a unit that never changes;
                ``machine.fit_``, which is given how many rows they come from, smooths them.
        """

    @abstractmethod
    def misfit(self, x: Tensor) -> tuple[Tensor, str]:
        """Returns the entries outside of the support, as booleans of x's shape, and the support in words."""

    @torch.no_grad()
    def set_finite_(self, **values: Tensor) -> None:
        """Sets parameters by name, each of the parameter's shape, as the last line of ``fit_``.

        Raises:
            ValueError: values that are not finite.
        """
        parameters = {name: getattr(self, name) for name in values}
        for name, parameter in parameters.items():
            value = values[name].to(parameter)
            if not bool(value.isfinite().all()):
                column = int((~value.isfinite()).flatten().nonzero()[0])
                raise ValueError(
                    f"expected: expected statistics that {self} can have with finite parameters, received "
                    f"some that make {name} {float(value.flatten()[column])} in column {column}; "
                    "harmonium.machine.fit_ smooths units that never change"
                )
        for name, parameter in parameters.items():
            parameter.copy_(values[name])

    # What follows for every kind that defines nothing else

    @classmethod
    def plain(cls, n_units: int, n_states: int = 2) -> Self:
        """Returns units with nothing but their number given, such as hidden ones.

        Args:
            n_units: number of units, at least 1.
            n_states: States of each unit, at least 2; read only by kinds that may have any number of states.
        """
        return cls(n_units)

    def reference(self) -> Theta:
        """Returns the natural parameters of pure noise, each (width,).

        Zero for discrete units and units in an interval, whose distribution then is their base measure; other
        kinds return those of a standard normal, truncated to the support.
        """
        return tuple(map(torch.zeros_like, self.natural()))

    def noise(self, shape: Sequence[int], *, generator: torch.Generator) -> Tensor:
        """Draws the noise that ``sample`` consumes for a field of this shape: one number a unit.

        Args:
            shape: Shape of the field, (..., width).
            generator: source of the noise.

        Returns:
            (..., n_units), uniform, or standard normal by ``normal_noise``.
        """
        draw = _random.normal if self.normal_noise else _random.uniform
        return draw((*shape[:-1], self.n_units), generator, getattr(self, self.location).dtype)

    @property
    def n_states(self) -> int | None:
        """Number of states of one unit; None for real units."""
        return None if self.two_values is None else 2

    def values(self) -> Tensor:
        """Returns the states of one discrete unit in rising order, (n_states, columns).

        Raises:
            TypeError: real units.
        """
        if self.two_values is None:
            raise TypeError(f"{self.kind} units have no finite list of states")
        like = next(self.parameters())
        return _device.to_device(torch.tensor(self.two_values, dtype=like.dtype), like.device).unsqueeze(-1)

    @property
    def discrete(self) -> bool:
        """True if a unit has finitely many states."""
        return self.n_states is not None

    @property
    def log2_states(self) -> float:
        """Log to base 2 of the number of joint states; infinite for real units."""
        return inf if self.n_states is None else self.n_units * log2(self.n_states)

    @property
    def scale(self) -> Tensor | None:
        """The factor of this side of a coupling, J = W · scale, (width,); None where J = W."""
        return None

    def config(self) -> dict[str, Any]:
        """Returns the arguments that rebuild the layer, as JSON has them."""
        return {"n_units": self.n_units}

    def part(self, units: Sequence[int]) -> Self:
        """Returns a layer of some of the units, for use with ``theta``: its own parameters are not theirs."""
        config = self.config()
        listed = {
            name: [value[i] for i in units] for name, value in config.items() if isinstance(value, list)
        }
        return type(self)(**{**config, **listed, "n_units": len(units)})

    def from_digits(self, digits: Tensor) -> Tensor:
        """Returns states, (..., width), for integer labels 0..n_states-1, (..., n_units)."""
        return self.values()[digits.long()].flatten(-2)

    def log_measure(self, x: Tensor) -> Tensor | None:
        """Returns ln of the base measure at x, by unit, (..., n_units); None where it is 0 throughout."""
        return None

    def log_weight(self, x: Tensor, theta: Theta | None = None) -> Tensor:
        """Returns θ·t(x) summed over the units, (...,), linear in θ: without the base measure.

        θ is one for all rows, (width,), or as x is, one for each.
        """
        terms = [
            t @ parameter if parameter.dim() == 1 else (t * parameter).sum(-1)
            for t, parameter in zip(self.statistics(x), theta or self.natural(), strict=True)
        ]
        return reduce(torch.add, terms)

    def unit_log_weights(self, x: Tensor, theta: Theta | None = None) -> Tensor:
        """Returns θ·t(x) with ln of the base measure of every unit, (..., n_units): what ψ integrates."""
        terms = zip(self.statistics(x), theta or self.natural(), strict=True)
        weights = self.by_unit(torch.stack([t * parameter for t, parameter in terms]).sum(0)).sum(-1)
        measure = self.log_measure(x)
        return weights if measure is None else weights + measure

    def by_unit(self, x: Tensor) -> Tensor:
        """Returns x, (..., width), by unit: (..., n_units, columns)."""
        return x.reshape(*x.shape[:-1], self.n_units, self.columns_per_unit)

    def check(self, x: Tensor, name: str) -> None:
        """Refuses states of the wrong shape, type or support.

        Args:
            x: states, (..., width).
            name: what to call them in the message.

        Raises:
            TypeError: not a floating tensor.
            ValueError: another width, NaN, or a value outside the support; the message names the place.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.layout is not torch.strided:
            received = f"{x.layout} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name}: expected a dense floating torch tensor, received {received}")
        if x.dim() == 0 or x.shape[-1] != self.width:
            raise ValueError(
                f"{name}: expected {self.width} columns for {self}, received shape {tuple(x.shape)}"
            )
        _checks.finite(x, name)
        bad, support = self.misfit(x)
        if bool(bad.any()):
            index = tuple(torch.nonzero(bad)[0].tolist())
            raise ValueError(
                f"{name}: expected {support} for {self}, received {x[index].item():g} at {index}"
            )

    def check_rows(self, x: Tensor, name: str) -> None:
        """Refuses what ``check`` does, and anything but a matrix of at least one row: (rows, width)."""
        self.check(x, name)
        if x.dim() != 2 or len(x) == 0:
            raise ValueError(
                f"{name}: expected (rows, {self.width}) with at least one row, "
                f"received shape {tuple(x.shape)}"
            )

    def check_whole(self, mask: Tensor, name: str) -> None:
        """Refuses units of which some columns are given and others are missing.

        Args:
            mask: Whether each column is given, (..., width) bool.
            name: Name of the argument, for messages.

        Raises:
            ValueError: a unit given in part.
        """
        if self.columns_per_unit == 1:
            return
        by_unit = self.by_unit(mask)
        torn = by_unit.any(-1) & ~by_unit.all(-1)
        if bool(torn.any()):
            raise ValueError(
                f"{name}: expected every unit of {self} given or missing (NaN) as a whole, "
                f"received one given in part at {tuple(torch.nonzero(torn)[0].tolist())}"
            )

    def observed(self, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """Returns the mask of observed entries (not NaN), and the states with the others filled in.

        Args:
            x: (..., width), NaN for all columns of a unit that is not observed.
            name: Name of the argument, for messages.

        Returns:
            Booleans of x's shape, and x with the units that are not given at their mode under pure noise.

        Raises:
            TypeError, ValueError: as ``check`` for the given entries; a unit given in part.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.shape[-1:] != (self.width,):
            self.check(x, name)
        mask = ~x.isnan()
        self.check_whole(mask, name)
        if not bool(mask.all()):
            noise = tuple(parameter.to(x.device) for parameter in self.reference())  # data may be elsewhere
            x = torch.where(mask, x, self.mode(torch.zeros_like(x), noise))
        self.check(x, name)
        return mask, x

    def extra_repr(self) -> str:
        return ", ".join(str(value) for value in self.config().values())


class DiscreteUnits(Layer, ABC):
    """Units with few states, θ = bias and t(x) = x.

    Args:
        n_units: number of units, at least 1.
        columns: Columns of the state matrix for each unit.

    Attributes:
        bias: learnable, (n_units,) or (n_units, columns), zero at first.
    """

    location: ClassVar[str] = "bias"

    def __init__(self, n_units: int, columns: int = 1) -> None:
        super().__init__(n_units, columns)
        self.bias = nn.Parameter(torch.zeros(self.n_units, *([columns] if columns > 1 else [])))

    def natural(self) -> Theta:
        return (self.bias.flatten(),)

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        return (self.moments(B, A, theta).mean,)

    def statistics(self, x: Tensor) -> Theta:
        return (x,)

    def _find_local(self, B: Tensor, theta: Theta | None) -> Tensor:
        (bias,) = theta or self.natural()
        return B + bias


class QuadraticUnits(Layer, ABC):
    """Real units with θ = (U, V), t(x) = (x, -x²/2)."""

    square = (0.0, 1.0)

    def statistics(self, x: Tensor) -> Theta:
        return (x, -0.5 * x.square())

    def expected_statistics(self, B: Tensor, A: Tensor | float = 0.0, theta: Theta | None = None) -> Theta:
        mean, variance = self.moments(B, A, theta)
        return (mean, -0.5 * (mean.square() + variance))

    def _find_local(self, B: Tensor, A: Tensor | float, theta: Theta | None) -> tuple[Tensor, Tensor]:
        slope, curvature = theta or self.natural()
        none = isinstance(A, float) and A == 0.0  # in most calls: an operation less for a GPU
        return B + slope, curvature if none else curvature + A
