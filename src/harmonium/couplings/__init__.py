"""Couplings: one file for each kind of coupling between two layers, or between the units of one."""

from harmonium.couplings.coupling import Coupling, Dense
from harmonium.couplings.local import Local
from harmonium.couplings.masked import Masked

__all__ = ["Coupling", "Dense", "Local", "Masked"]
