"""Mean field: deterministic approximations of a machine's moments and free energy."""

from harmonium.meanfield.adatap import AdaTAP, adatap
from harmonium.meanfield.fixed_point import iterate, solve
from harmonium.meanfield.landscape import Landscape, distinct, landscape
from harmonium.meanfield.naive import naive
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.relaxed_bp import RelaxedBP, relaxed_bp
from harmonium.meanfield.scheme import Point, Scheme
from harmonium.meanfield.solution import Solution, Status
from harmonium.meanfield.tap import tap

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
