"""Edges: one file for each kind of coupling between two layers, or between the units of one."""

from harmonium.edges.coupling import Coupling, Dense
from harmonium.edges.local import Local
from harmonium.edges.masked import Masked

__all__ = ["Coupling", "Dense", "Local", "Masked"]
