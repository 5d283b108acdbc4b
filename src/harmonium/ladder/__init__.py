"""Ladders of machines: chains at all rungs that exchange states, ln Z of every rung, training along them."""

from harmonium.ladder.bennett import (
    BennettRatio,
    LadderPartition,
    bennett_ratio,
    likelihood_curve,
    log_partitions,
)
from harmonium.ladder.equilibrium import Follower, PttState, ladder_of
from harmonium.ladder.kept import KeptLadder
from harmonium.ladder.kernel import (
    Ladder,
    LadderState,
    Traffic,
    laws_along,
    lead_to,
    load_ladder,
    save_ladder,
    traffic,
)

__all__ = [
    "BennettRatio",
    "Follower",
    "KeptLadder",
    "Ladder",
    "LadderPartition",
    "LadderState",
    "PttState",
    "Traffic",
    "bennett_ratio",
    "ladder_of",
    "laws_along",
    "lead_to",
    "likelihood_curve",
    "load_ladder",
    "log_partitions",
    "save_ladder",
    "traffic",
]
