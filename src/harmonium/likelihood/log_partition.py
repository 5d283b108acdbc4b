"""An estimate of ln Z, with an error or between two bounds."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

from harmonium import _checks, _html

WITHOUT_DATA = (
    "log_partition: there were no data to start from, so that a mode that no chain found is missing from the "
    "estimate and its bounds; give data="
)
"""The doubt about every estimate that nothing but its own chains told where the modes are."""


class LogPartition(NamedTuple):
    """ln Z between two bounds, with what is needed to judge them; printed with the bounds first.

    A ladder has no bounds: they are infinite, and its value and standard error are printed alone. Annealing
    is unbiased in Z and not in ln Z: E[exp(value)] = Z at any number of chains and temperatures, so
    that the value lies more than a nats above ln Z with probability at most exp(-a) (Markov), and below it on
    average, however far. Where few runs carry the estimate the bounds are what to quote.

    Attributes:
        value: the estimate, the log of the mean importance weight; on average too low.
        standard_error: Standard error of the value, by the delta method from the spread of the weights that
            were drawn. Of others it has nothing: unless the sample size is at least half the number of chains
            it is too small, and the value may lie many standard errors below ln Z.
        ess: effective sample size of the weights, (Σw)²/Σw², between 1 and the number of chains. What runs
            have missed altogether it cannot show.
        lower: value minus three standard errors. What the runs missed makes it lower and so no less a bound;
            it fails as often as a mean of positive weights is overrated by three of its standard errors.
        upper: the reverse-annealing estimate plus three of its standard errors, at least the value.
            E[exp(-estimate)] = 1/Z, so that it is too low by a nats with probability at most exp(-a), but
            only if its chains started in the machine's own distribution. Infinite where no reverse run was
            asked for, and with ``lower`` where the two crossed, which says that they did not: then there is
            no interval.
        doubts: all that speaks against the value and the bounds, one sentence each: the RuntimeWarnings of
            ``ais``, and that there were no data, where there were none. Empty where nothing was found.
    """

    value: float
    standard_error: float
    ess: float
    lower: float
    upper: float
    doubts: tuple[str, ...] = ()

    @classmethod
    def exact(cls, value: float) -> LogPartition:
        """Returns a value without error."""
        return cls(value, standard_error=0.0, ess=inf, lower=value, upper=value)

    @property
    def is_bounded(self) -> bool:
        """Returns whether the estimate comes with a bound."""
        return self.lower > -inf or self.upper < inf

    def __str__(self) -> str:
        if self.standard_error == 0 and self.ess == inf:
            return f"ln Z = {self.value:.3f}"
        text = f"{self.value:.3f} ± {self.standard_error:.3f}, ess {self.ess:.1f}"
        if not self.is_bounded:
            text = f"ln Z = {text}"
        elif self.upper == inf:
            text = f"ln Z ≥ {self.lower:.3f}, estimate {text}"
        else:
            text = f"ln Z in [{self.lower:.3f}, {self.upper:.3f}], estimate {text}"
        known = {(): "", (WITHOUT_DATA,): "; unverified without data"}
        return text + known.get(self.doubts, "; doubtful, see doubts")

    def __repr__(self) -> str:
        return (
            f"LogPartition(lower={self.lower!r}, upper={self.upper!r}, value={self.value!r}, "
            f"standard_error={self.standard_error!r}, ess={self.ess!r}, doubts={self.doubts!r})"
        )

    def _repr_html_(self) -> str:
        if self.standard_error == 0 and self.ess == inf:
            return _html.table("ln Z", [("exact", f"{self.value:.3f}")])
        rows = [
            ("estimate", f"{self.value:.3f} ± {self.standard_error:.3f}"),
            ("effective sample size", f"{self.ess:.1f}"),
        ]
        if self.is_bounded:
            rows.insert(0, ("between", f"{self.lower:.3f} and {self.upper:.3f}"))
        return _html.table("ln Z", rows, self.doubts)


def value_of(log_partition: Any) -> float:
    """Returns ln Z as a number.

    Raises:
        TypeError, ValueError: neither an estimate nor a finite number.
    """
    return _checks.real(getattr(log_partition, "value", log_partition), "log_partition")
