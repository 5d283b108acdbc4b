"""Couplings: pairs of chains that meet, and bounds from their meeting times."""

from harmonium.couplings.block import (
    Block,
    BlockCoupling,
    CommonNoise,
    Coupled,
    Independent,
    Maximal,
    Reflection,
)
from harmonium.couplings.gibbs import Gibbs, Jumps
from harmonium.couplings.meeting import meet, run_pairs
from harmonium.couplings.meetings import Meetings, mixing_bound, mixing_limit
from harmonium.couplings.metropolis import Metropolis
from harmonium.couplings.pairs import PairKernel, Place

__all__ = [
    "Block",
    "BlockCoupling",
    "CommonNoise",
    "Coupled",
    "Gibbs",
    "Independent",
    "Jumps",
    "Maximal",
    "Meetings",
    "Metropolis",
    "PairKernel",
    "Place",
    "Reflection",
    "meet",
    "mixing_bound",
    "mixing_limit",
    "run_pairs",
]
