"""Ladders of machines: chains at all rungs that exchange states, ln Z of every rung, training along them."""

from harmonium.ladder.bennett import (
    BennettRatio as BennettRatio,
    LadderPartition as LadderPartition,
    ages_of as ages_of,
    bennett_ratio as bennett_ratio,
    log_partitions as log_partitions,
)
from harmonium.ladder.equilibrium import (
    EquilibriumTraining as EquilibriumTraining,
    PttState as PttState,
    ladder_of as ladder_of,
)
from harmonium.ladder.kept import KeptLadder as KeptLadder
from harmonium.ladder.kernel import (
    Ladder as Ladder,
    LadderState as LadderState,
    Traffic as Traffic,
    hamiltonians_along as hamiltonians_along,
    lead_to as lead_to,
    load_ladder as load_ladder,
    save_ladder as save_ladder,
    traffic as traffic,
)
