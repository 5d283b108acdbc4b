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
from harmonium.coupled.gibbs import Gibbs, Jumps
from harmonium.coupled.meeting import meet, run_pairs
from harmonium.coupled.meetings import Meetings, mixing_bound, mixing_limit
from harmonium.coupled.metropolis import Metropolis
from harmonium.coupled.pairs import ChainState, PairKernel

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
