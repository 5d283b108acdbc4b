"""Ladders of machines: chains at all rungs that exchange states, ln Z of every rung, training along them."""

from harmonium.ladder.bennett import BennettRatio, bennett_ratio
from harmonium.ladder.files import laws_along, lead_to, load_ladder, save_ladder
from harmonium.ladder.kept import KeptLadder
from harmonium.ladder.kernel import Ladder, Traffic, halve, traffic
from harmonium.ladder.partition import LadderPartition, likelihood_curve, log_partitions

__all__ = [
    "BennettRatio",
    "KeptLadder",
    "Ladder",
    "LadderPartition",
    "Traffic",
    "bennett_ratio",
    "halve",
    "laws_along",
    "lead_to",
    "likelihood_curve",
    "load_ladder",
    "log_partitions",
    "save_ladder",
    "traffic",
]
