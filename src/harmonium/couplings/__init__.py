"""Couplings: pairs of chains that meet, and what their meeting says."""

from harmonium.couplings.block import Block, BlockCoupling, CommonNoise, Coupled, Independent
from harmonium.couplings.gibbs import Gibbs
from harmonium.couplings.jumps import Jumps
from harmonium.couplings.maximal import Maximal
from harmonium.couplings.meeting import meet, run_pairs
from harmonium.couplings.meetings import Meetings
from harmonium.couplings.metropolis import Metropolis
from harmonium.couplings.mixing import mixing_bound, mixing_limit
from harmonium.couplings.pairs import PairKernel, Place
from harmonium.couplings.reflection import Reflection

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
