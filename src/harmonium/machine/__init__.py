"""The machine: layers joined by couplings, its natural parameters, statistics, initialisers and files."""

from harmonium import _device
from harmonium.machine.boltzmann import (
    BoltzmannMachine as BoltzmannMachine,
    refuse_infinite as refuse_infinite,
)
from harmonium.machine.clamp import Clamp as Clamp, ClampLike as ClampLike
from harmonium.machine.forbidden import forbid as forbid, penalise as penalise
from harmonium.machine.gauge import state_means as state_means, to_zero_sum_ as to_zero_sum_
from harmonium.machine.graph import Graph as Graph, Part as Part
from harmonium.machine.hamiltonian import Hamiltonian as Hamiltonian, States as States
from harmonium.machine.initialisation import (
    INITS as INITS,
    check_init as check_init,
    fit_ as fit_,
    fitted_layer as fitted_layer,
    hidden_for as hidden_for,
    init_by_name_ as init_by_name_,
    init_from_data_ as init_from_data_,
    init_visible_biases_ as init_visible_biases_,
    join_layers as join_layers,
    logistic_biases_ as logistic_biases_,
    normal_ as normal_,
    orthogonal_ as orthogonal_,
)
from harmonium.machine.loading import load as load, rebuild as rebuild
from harmonium.machine.precision import (
    find_improper as find_improper,
    joint_precision as joint_precision,
    require_distribution as require_distribution,
)
from harmonium.machine.statistics import Statistics as Statistics

_device.keep_memory()
