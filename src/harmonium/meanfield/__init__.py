"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adatap import AdaTAP
from harmonium.meanfield.fixed_point import DampingLike, check_settings, iterate, solve
from harmonium.meanfield.landscape import Landscape, distinct, landscape
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.relaxed_bp import RelaxedBP
from harmonium.meanfield.scheme import Point, Scheme
from harmonium.meanfield.solution import Solution, Status
from harmonium.meanfield.solution_tree import Node, SolutionTree, solution_tree
from harmonium.meanfield.solvers import adatap, naive, relaxed_bp, tap

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
