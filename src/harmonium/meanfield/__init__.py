"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adaptive_tap import AdaTAP
from harmonium.meanfield.fixed_point import DampingLike, check_settings, iterate, solve
from harmonium.meanfield.message_passing import RelaxedBP
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.scheme import Point, Scheme
from harmonium.meanfield.solution import Solution, Status
from harmonium.meanfield.solvers import adatap, naive, relaxed_bp, tap
from harmonium.meanfield.tap_landscape import Landscape, distinct, landscape
from harmonium.meanfield.tree import Node, SolutionTree, solution_tree

__all__ = [
    "AdaTAP",
    "DampingLike",
    "Landscape",
    "Node",
    "Plefka",
    "Point",
    "RelaxedBP",
    "Scheme",
    "Solution",
    "SolutionTree",
    "Status",
    "adatap",
    "check_settings",
    "distinct",
    "iterate",
    "landscape",
    "naive",
    "relaxed_bp",
    "solution_tree",
    "solve",
    "tap",
]
