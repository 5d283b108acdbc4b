"""Coupled chains: pairs of chains that meet, and bounds from their meeting times."""

from harmonium.coupled.block import (
    Block,
    BlockCoupling,
    CommonNoise,
    Coupled,
    Independent,
    Maximal,
    Reflection,
)
from harmonium.coupled.kernels import ChainState, Gibbs, Jumps, Metropolis, PairKernel
from harmonium.coupled.meeting import Meetings, meet, mixing_bound, mixing_limit, run_pairs

__all__ = [
    "Block",
    "BlockCoupling",
    "ChainState",
    "CommonNoise",
    "Coupled",
    "Gibbs",
    "Independent",
    "Jumps",
    "Maximal",
    "Meetings",
    "Metropolis",
    "PairKernel",
    "Reflection",
    "meet",
    "mixing_bound",
    "mixing_limit",
    "run_pairs",
]
