"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adatap import AdaTAP
from harmonium.meanfield.fixed_point import DampingLike, check_settings, iterate, solve
from harmonium.meanfield.landscape import Landscape, distinct, landscape
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.relaxed_bp import RelaxedBP
from harmonium.meanfield.scheme import Point, Scheme
from harmonium.meanfield.solution import Solution, Status
from harmonium.meanfield.solvers import adatap, naive, relaxed_bp, tap

__all__ = [
    "AdaTAP",
    "DampingLike",
    "Landscape",
    "Plefka",
    "Point",
    "RelaxedBP",
    "Scheme",
    "Solution",
    "Status",
    "adatap",
    "check_settings",
    "distinct",
    "iterate",
    "landscape",
    "naive",
    "relaxed_bp",
    "solve",
    "tap",
]
