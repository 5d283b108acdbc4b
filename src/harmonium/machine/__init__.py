"""The machine: layers joined by couplings, its natural parameters, statistics, initialisers and files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harmonium import _device
from harmonium._upgrade import refuse_gone
from harmonium.machine.boltzmann import BoltzmannMachine
from harmonium.machine.clamp import Clamp, ClampLike
from harmonium.machine.drawing import Drawing
from harmonium.machine.gauge import to_zero_sum_
from harmonium.machine.graph import Graph, Part
from harmonium.machine.hamiltonian import Hamiltonian, States
from harmonium.machine.in_turn import draw_in_turn, layers_in_turn
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

if TYPE_CHECKING:
    visible_for: Any
    visible_layers: Any

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
    "draw_in_turn",
    "fit_",
    "fit_states_",
    "hidden_for",
    "init_from_data_",
    "init_visible_biases_",
    "join_layers",
    "layers_in_turn",
    "load",
    "logistic_biases_",
    "normal_",
    "orthogonal_",
    "rebuild",
    "to_zero_sum_",
    "visible_for",
    "visible_layers",
]

_device.keep_memory()

if not TYPE_CHECKING:

    def __getattr__(name):  # what reads data is loaded when it is asked for
        if name in ("visible_for", "visible_layers"):
            return getattr(import_module("harmonium.data"), name)
        return refuse_gone(__name__)(name)
