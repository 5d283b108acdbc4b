"""The machine: layers joined by couplings, its natural parameters, statistics, initialisers and files."""

from harmonium import _device
from harmonium.machine.boltzmann import BoltzmannMachine
from harmonium.machine.clamp import Clamp, ClampLike
from harmonium.machine.drawing import Drawing
from harmonium.machine.gauge import to_zero_sum_
from harmonium.machine.graph import Graph, Part
from harmonium.machine.hamiltonian import Hamiltonian, States
from harmonium.machine.initialisation import (
    fit_,
    fit_states_,
    hidden_for,
    init_from_data_,
    init_visible_biases_,
    join_layers,
    logistic_biases_,
    normal_,
    orthogonal_,
)
from harmonium.machine.loading import load, rebuild
from harmonium.machine.statistics import Statistics

__all__ = [
    "BoltzmannMachine",
    "Clamp",
    "ClampLike",
    "Drawing",
    "Graph",
    "Hamiltonian",
    "Part",
    "States",
    "Statistics",
    "fit_",
    "fit_states_",
    "hidden_for",
    "init_from_data_",
    "init_visible_biases_",
    "join_layers",
    "load",
    "logistic_biases_",
    "normal_",
    "orthogonal_",
    "rebuild",
    "to_zero_sum_",
]

_device.keep_memory()
