"""Coupled chains: pairs of chains that meet, and bounds from their meeting times."""

from harmonium.coupled.block import (
    Block as Block,
    BlockCoupling as BlockCoupling,
    CommonNoise as CommonNoise,
    Coupled as Coupled,
    Independent as Independent,
    Maximal as Maximal,
    Reflection as Reflection,
)
from harmonium.coupled.kernels import (
    ChainState as ChainState,
    Gibbs as Gibbs,
    Metropolis as Metropolis,
    PairKernel as PairKernel,
)
from harmonium.coupled.meeting import (
    Meetings as Meetings,
    meet as meet,
    run_pairs as run_pairs,
)
from harmonium.coupled.mixing import (
    MixingTimes as MixingTimes,
    mixing_bound as mixing_bound,
    mixing_limit as mixing_limit,
    mixing_times as mixing_times,
)
