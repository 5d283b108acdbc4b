"""Estimates of ln Z: with an error, between two bounds, or by TAP."""

from __future__ import annotations

from math import inf, nan
from typing import NamedTuple

import torch

from harmonium import _checks, _html
from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, require_distribution
from harmonium.meanfield import DampingLike, landscape


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
        upper: the reverse-annealing estimate plus three of its standard errors. E[exp(-estimate)] = 1/Z, so
            that it is too low by a nats with probability at most exp(-a), but only if its chains started in
            the machine's own distribution; ``upper`` below ``lower`` says that they did not. Infinite where
            no reverse run was asked for.
        vouched: whether the chains of ``upper`` started from data; it holds as far as these are of the
            machine's distribution. False: annealing had to find its starts itself, and a mode that
            it did not find is missing from ``upper`` too. The printed form says so.
        doubts: all that was found to speak against the value and the bounds, one sentence each; the
            RuntimeWarnings of ``ais``. Empty where nothing was found, which proves nothing without data.
    """

    value: float
    standard_error: float
    ess: float
    lower: float
    upper: float
    vouched: bool = True
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
        if not self.vouched:
            text += f"; the {'estimate' if self.upper == inf else 'upper bound'} is unverified without data"
        return text + ("; doubtful, see doubts" if self.doubts else "")

    def __repr__(self) -> str:
        return (
            f"LogPartition(lower={self.lower!r}, upper={self.upper!r}, value={self.value!r}, "
            f"standard_error={self.standard_error!r}, ess={self.ess!r}, vouched={self.vouched!r}, "
            f"doubts={self.doubts!r})"
        )

    def _repr_html_(self) -> str:
        if self.standard_error == 0 and self.ess == inf:
            return _html.table("ln Z", [("exact", f"{self.value:.3f}")])
        rows = [
            ("estimate", f"{self.value:.3f} ± {self.standard_error:.3f}"),
            ("effective sample size", f"{self.ess:.1f}"),
            (
                "upper bound" if self.is_bounded else "modes",
                "from data" if self.vouched else "unverified",
            ),
        ]
        if self.is_bounded:
            rows.insert(0, ("between", f"{self.lower:.3f} and {self.upper:.3f}"))
        return _html.table("ln Z", rows, self.doubts)


class TapPartition(NamedTuple):
    """The TAP approximation of ln Z, which is not a bound.

    Attributes:
        value: mean of -F over the distinct admissible solutions, each with the same weight (Tramel et al.
            2018, Sec. V.2): minima of F within Plefka's condition. NaN where there is none.
        spread: standard deviation of -F over these solutions, not an error of the value.
        solutions: number of distinct solutions.
        converged: the part of the starts that converged; the others are left out.
        admissible: number of the solutions that the value is a mean of.
        doubts: what speaks against solutions, one sentence each; the RuntimeWarnings. Empty where nothing
            was found, which proves nothing.
    """

    value: float
    spread: float
    solutions: int
    converged: float
    admissible: int
    doubts: tuple[str, ...]


@torch.no_grad()
def tap_log_partition(
    machine: BoltzmannMachine,
    X: Numbers,
    *,
    solver: str = "tap",
    order: int = 2,
    resolution: float = 0.01,
    tolerance: float = 1e-5,
    damping: DampingLike = "adaptive",
    max_sweeps: int = 1000,
) -> TapPartition:
    """Estimates ln Z as the mean of -F over the TAP solutions that data flow to (Tramel et al. 2018, Eq. 37).

    Close to ln Z while couplings are weak; ``docs/experiments_methods.md`` has its gap as they grow. Trained
    machines have strong couplings: set it beside ``ais``.

    Args:
        machine: the machine, of any depth.
        X: visible states to start from, (starts, visible_width).
        solver: see ``meanfield.landscape``; of solvers other than "tap" all solutions count.
        order: see ``meanfield.tap``.
        resolution: see ``meanfield.landscape``.
        tolerance: see ``meanfield.naive``.
        damping: see ``meanfield.tap``.
        max_sweeps: see ``meanfield.naive``.

    Warns:
        RuntimeWarning: solutions that are left out, as the expansion does not hold there or as they are no
            minima.

    Raises:
        ValueError: no start that converges.
    """
    require_distribution(machine.hamiltonian())
    solutions = landscape(
        machine,
        X,
        solver=solver,
        order=order,
        resolution=resolution,
        tolerance=tolerance,
        damping=damping,
        max_sweeps=max_sweeps,
    )
    values, doubts = -solutions.free_energies[solutions.admissible], solutions.doubts
    for doubt in doubts:
        _checks.warn(f"log_partition: {doubt}", RuntimeWarning)
    return TapPartition(
        float(values.mean()),
        float(values.std(correction=0)) if len(values) else nan,
        len(solutions.counts),
        float((solutions.basin >= 0).double().mean()),
        len(values),
        doubts,
    )


def value_of(log_partition: float | LogPartition | TapPartition) -> float:
    """Returns ln Z as a number.

    Raises:
        TypeError, ValueError: neither an estimate nor a finite number.
    """
    return _checks.real(getattr(log_partition, "value", log_partition), "log_partition")
