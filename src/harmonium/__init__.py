"""harmonium: Boltzmann machines of any depth and with any kind of unit, that you can trust.

A machine is layers joined by couplings; ``train`` fits one by a rule, ``likelihood`` measures the fit, and
``chains`` sample from it. "FORMULAS" in a docstring is the page of that name in the documentation.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harmonium import (
        backends as backends,
        chains as chains,
        coupled as coupled,
        couplings as couplings,
        data as data,
        distributed as distributed,
        estimators as estimators,
        exchange as exchange,
        ladder as ladder,
        layers as layers,
        learning as learning,
        likelihood as likelihood,
        machine as machine,
        meanfield as meanfield,
        report as report,
        sequences as sequences,
        tables as tables,
        tasks as tasks,
        training as training,
    )
    from harmonium.couplings import Dense as Dense, Local as Local, Masked as Masked, Sparse as Sparse
    from harmonium.estimators import (
        DBM as DBM,
        RBM as RBM,
        RBMClassifier as RBMClassifier,
        RBMImputer as RBMImputer,
        RBMOutlier as RBMOutlier,
    )
    from harmonium.layers import (
        Bernoulli as Bernoulli,
        Binomial as Binomial,
        Categorical as Categorical,
        DoubleReLU as DoubleReLU,
        Gaussian as Gaussian,
        ReLU as ReLU,
        Spin as Spin,
        TruncatedGaussBernoulli as TruncatedGaussBernoulli,
        TruncatedGaussian as TruncatedGaussian,
    )
    from harmonium.learning import rules as rules
    from harmonium.machine import BoltzmannMachine as BoltzmannMachine, load as load
    from harmonium.training import TrainingRun as TrainingRun, train as train

__version__ = "0.4.0"

# The packages, and which of their names stand here. A package is imported when it, or a name it holds, is
# first looked up: torch alone takes seconds.
_HOLDS = {
    **dict.fromkeys(
        ("backends", "chains", "coupled", "data", "distributed", "exchange", "ladder", "likelihood"), ()
    ),
    **dict.fromkeys(("meanfield", "report", "sequences", "tables", "tasks"), ()),
    "couplings": ("Dense", "Local", "Masked", "Sparse"),
    "estimators": ("DBM", "RBM", "RBMClassifier", "RBMImputer", "RBMOutlier"),
    "layers": (
        *("Bernoulli", "Binomial", "Categorical", "DoubleReLU", "Gaussian", "ReLU"),
        *("Spin", "TruncatedGaussBernoulli", "TruncatedGaussian"),
    ),
    "learning": ("rules",),
    "machine": ("BoltzmannMachine", "load"),
    "training": ("TrainingRun", "train"),
}
__all__ = sorted([*_HOLDS, *chain.from_iterable(_HOLDS.values())])

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
