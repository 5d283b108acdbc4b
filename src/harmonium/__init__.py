"""harmonium: Boltzmann machines of any depth and with any kind of unit, that you can trust.

A machine is layers joined by couplings; ``train`` fits one by a rule, ``likelihood`` says how good it is,
``chains`` sample from it. "FORMULAS" in a docstring is the page of that name in the documentation.
"""

from harmonium import (
    chains,
    couplings,
    data,
    edges,
    estimators,
    layers,
    learning,
    likelihood,
    machine,
    meanfield,
    report,
    tasks,
    training,
)
from harmonium.edges import Dense, Local, Masked
from harmonium.estimators import DBM, RBM
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
    "ReLU",
    "Spin",
    "StandardisedGaussian",
    "TrainingRun",
    "TruncatedGaussBernoulli",
    "TruncatedGaussian",
    "chains",
    "couplings",
    "data",
    "edges",
    "estimators",
    "layers",
    "learning",
    "likelihood",
    "load",
    "machine",
    "meanfield",
    "report",
    "rules",
    "tasks",
    "train",
    "training",
]
