"""Couplings: one file for each kind of coupling between two layers, or between the units of one."""

from harmonium.couplings.coupling import Coupling as Coupling, Dense as Dense
from harmonium.couplings.local import Local as Local
from harmonium.couplings.masked import Masked as Masked
from harmonium.couplings.sparse import Sparse as Sparse
