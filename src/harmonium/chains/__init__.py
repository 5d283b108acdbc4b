"""Chains: kernels that leave a machine's distribution invariant, and the loop that runs them."""

from harmonium.chains.diagnostics import (
    Convergence as Convergence,
    Diagnosis as Diagnosis,
    Observable as Observable,
    autocorrelation_times as autocorrelation_times,
    convergence as convergence,
    diagnose_chains as diagnose_chains,
)
from harmonium.chains.gibbs import Gibbs as Gibbs
from harmonium.chains.kernel import (
    Info as Info,
    Kernel as Kernel,
    KernelState as KernelState,
    check_chains as check_chains,
    not_a_step as not_a_step,
    swap_where as swap_where,
)
from harmonium.chains.langevin import (
    Correction as Correction,
    GibbsLangevin as GibbsLangevin,
    Langevin as Langevin,
    relax_alone as relax_alone,
)
from harmonium.chains.local_modes import climb as climb, local_search as local_search, search as search
from harmonium.chains.metropolis import Metropolis as Metropolis
from harmonium.chains.moving import (
    Observer as Observer,
    fill_hidden as fill_hidden,
    initial_states as initial_states,
    run as run,
    run_kernel as run_kernel,
)
from harmonium.chains.overlap import overlaps as overlaps
from harmonium.chains.replaying import replay_under as replay_under
from harmonium.chains.tempering import Tempering as Tempering
from harmonium.chains.thermodynamics import (
    Estimates as Estimates,
    Thermodynamics as Thermodynamics,
    thermodynamics as thermodynamics,
)
