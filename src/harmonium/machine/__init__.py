"""The machine: layers joined by couplings, its natural parameters, statistics, initialisers and files."""

from harmonium import _host
from harmonium.machine.boltzmann import BoltzmannMachine
from harmonium.machine.clamp import Clamp, ClampLike
from harmonium.machine.graph import Graph, Part
from harmonium.machine.hamiltonian import Hamiltonian, States
from harmonium.machine.in_turn import draw_in_turn, layers_in_turn
from harmonium.machine.initialisation import (
    HIDDEN_KINDS,
    VISIBLE_KINDS,
    fit_,
    fit_states_,
    from_data_,
    hidden_for,
    joined,
    logistic_biases_,
    normal_,
    orthogonal_,
    visible_for,
    visible_from_data_,
    visible_layers,
)
from harmonium.machine.loading import load, rebuilt
from harmonium.machine.statistics import Statistics

__all__ = [
    "HIDDEN_KINDS",
    "VISIBLE_KINDS",
    "BoltzmannMachine",
    "Clamp",
    "ClampLike",
    "Graph",
    "Hamiltonian",
    "Part",
    "States",
    "Statistics",
    "draw_in_turn",
    "fit_",
    "fit_states_",
    "from_data_",
    "hidden_for",
    "joined",
    "layers_in_turn",
    "load",
    "logistic_biases_",
    "normal_",
    "orthogonal_",
    "rebuilt",
    "visible_for",
    "visible_from_data_",
    "visible_layers",
]

_host.keep_memory()
