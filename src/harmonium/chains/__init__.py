"""Chains: kernels that leave a machine's law invariant, and the loop that runs them."""

from harmonium.chains.diagnostics import Convergence, Diagnosis, convergence, diagnose
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState, check_chains, exchange
from harmonium.chains.langevin import Correction, GibbsLangevin, Langevin, relax_alone, relaxes_alone
from harmonium.chains.local_modes import climb, local_search, search
from harmonium.chains.metropolis import Metropolis
from harmonium.chains.moving import (
    Observer,
    fill_hidden,
    initial_states,
    run,
    run_kernel,
)
from harmonium.chains.tempering import Tempering

__all__ = [
    "Convergence",
    "Correction",
    "Diagnosis",
    "Gibbs",
    "GibbsLangevin",
    "Info",
    "Kernel",
    "KernelState",
    "Langevin",
    "Metropolis",
    "Observer",
    "Tempering",
    "check_chains",
    "climb",
    "convergence",
    "diagnose",
    "exchange",
    "fill_hidden",
    "initial_states",
    "local_search",
    "relax_alone",
    "relaxes_alone",
    "run",
    "run_kernel",
    "search",
]
