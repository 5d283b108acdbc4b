"""harmonium: Boltzmann machines of any depth and with any kind of unit, that you can trust.

A machine is layers joined by couplings; ``train`` fits one by a rule, ``likelihood`` measures the fit, and
``chains`` sample from it. "FORMULAS" in a docstring is the page of that name in the documentation.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harmonium import (
        backends,
        chains,
        coupled,
        couplings,
        data,
        distributed,
        estimators,
        exchange,
        ladder,
        layers,
        learning,
        likelihood,
        machine,
        meanfield,
        report,
        sequences,
        tables,
        tasks,
        training,
    )
    from harmonium.couplings import Dense, Local, Masked
    from harmonium.estimators import DBM, RBM, RBMClassifier, RBMImputer, RBMOutlier
    from harmonium.layers import (
        Bernoulli,
        Binomial,
        Categorical,
        DoubleReLU,
        Gaussian,
        NaturalGaussian,
        ReLU,
        Spin,
        StandardisedGaussian,
        TruncatedGaussBernoulli,
        TruncatedGaussian,
    )
    from harmonium.learning import rules
    from harmonium.machine import BoltzmannMachine, load
    from harmonium.training import TrainingRun, train

__version__ = "0.2.0"

__all__ = [
    "DBM",
    "RBM",
    "Bernoulli",
    "Binomial",
    "BoltzmannMachine",
    "Categorical",
    "Dense",
    "DoubleReLU",
    "Gaussian",
    "Local",
    "Masked",
    "NaturalGaussian",
    "RBMClassifier",
    "RBMImputer",
    "RBMOutlier",
    "ReLU",
    "Spin",
    "StandardisedGaussian",
    "TrainingRun",
    "TruncatedGaussBernoulli",
    "TruncatedGaussian",
    "backends",
    "chains",
    "coupled",
    "couplings",
    "data",
    "distributed",
    "estimators",
    "exchange",
    "ladder",
    "layers",
    "learning",
    "likelihood",
    "load",
    "machine",
    "meanfield",
    "report",
    "rules",
    "sequences",
    "tables",
    "tasks",
    "train",
    "training",
]

# A package is imported when it, or a name that it holds, is first asked for: torch alone takes seconds.
_HOLDS = {
    "couplings": ("Dense", "Local", "Masked"),
    "estimators": ("DBM", "RBM", "RBMClassifier", "RBMImputer", "RBMOutlier"),
    "layers": (
        *("Bernoulli", "Binomial", "Categorical", "DoubleReLU", "Gaussian", "NaturalGaussian", "ReLU"),
        *("Spin", "StandardisedGaussian", "TruncatedGaussBernoulli", "TruncatedGaussian"),
    ),
    "learning": ("rules",),
    "machine": ("BoltzmannMachine", "load"),
    "training": ("TrainingRun", "train"),
}

if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        package = next((package for package, names in _HOLDS.items() if name in names), name)
        module = import_module(f"{__name__}.{package}")
        value = globals()[name] = module if package == name else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
