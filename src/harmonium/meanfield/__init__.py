"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adaptive_tap import AdaTAP as AdaTAP
from harmonium.meanfield.fixed_point import (
    DampingLike as DampingLike,
    check_settings as check_settings,
    iterate as iterate,
    solve as solve,
)
from harmonium.meanfield.message_passing import RelaxedBP as RelaxedBP
from harmonium.meanfield.plefka import Plefka as Plefka
from harmonium.meanfield.scheme import Point as Point, Scheme as Scheme
from harmonium.meanfield.solution import Solution as Solution, Status as Status
from harmonium.meanfield.solvers import SOLVERS as SOLVERS, naive as naive, tap as tap
from harmonium.meanfield.tap_landscape import (
    Landscape as Landscape,
    distinct as distinct,
    landscape as landscape,
)
from harmonium.meanfield.tree import (
    Node as Node,
    SolutionTree as SolutionTree,
    solution_tree as solution_tree,
)
