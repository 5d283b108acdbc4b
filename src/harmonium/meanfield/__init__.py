"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adatap import AdaTAP
from harmonium.meanfield.fixed_point import iterate, solve
from harmonium.meanfield.landscape import Landscape, distinct, landscape
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.relaxed_bp import RelaxedBP
from harmonium.meanfield.scheme import Point, Scheme
from harmonium.meanfield.solution import Solution, Status
from harmonium.meanfield.solvers import adatap, naive, relaxed_bp, tap

__all__ = [
    "AdaTAP",
    "Landscape",
    "Plefka",
    "Point",
    "RelaxedBP",
    "Scheme",
    "Solution",
    "Status",
    "adatap",
    "distinct",
    "iterate",
    "landscape",
    "naive",
    "relaxed_bp",
    "solve",
    "tap",
]
