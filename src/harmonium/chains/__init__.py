"""Chains: kernels that leave a machine's law invariant, and the loop that runs them."""

from harmonium._upgrade import refuse_gone
from harmonium.chains.convergence import Convergence, Diagnosis, convergence, diagnose
from harmonium.chains.gibbs import Gibbs
from harmonium.chains.kernel import Info, Kernel, KernelState, check_chains
from harmonium.chains.langevin import Correction, GibbsLangevin, Langevin
from harmonium.chains.local_search import local_search, search
from harmonium.chains.metropolis import Metropolis
from harmonium.chains.run import Observer, begin, complete, completed, planted, run, run_kernel
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
    "begin",
    "check_chains",
    "complete",
    "completed",
    "convergence",
    "diagnose",
    "local_search",
    "planted",
    "run",
    "run_kernel",
    "search",
]

__getattr__ = refuse_gone(__name__)
