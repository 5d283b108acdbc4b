"""Exchange: machines of other programs, read and written.

- :func:`read` opens a file of another program as an :class:`Exchanged`: a machine and its chains.
- :func:`write` writes a machine for another program.
- :func:`from_sklearn`, :func:`to_sklearn`, :func:`from_dimod` and :func:`to_dimod` take and make objects.
- :func:`to_program` makes a program of torch, which runs without harmonium.
"""

from harmonium.exchange.adabm_dca import AdabmDCA
from harmonium.exchange.dimod import from_dimod, states_from_dimod, to_dimod
from harmonium.exchange.exchange import Exchanged, Format, form_by_suffix, read, writable, write
from harmonium.exchange.own_formats import Arrays, Text
from harmonium.exchange.rbm_jl import RBMjl
from harmonium.exchange.rbms import Rbms
from harmonium.exchange.scikit_learn import from_sklearn, to_sklearn
from harmonium.exchange.serving import to_program

__all__ = [
    "AdabmDCA",
    "Arrays",
    "Exchanged",
    "Format",
    "RBMjl",
    "Rbms",
    "Text",
    "form_by_suffix",
    "from_dimod",
    "from_sklearn",
    "read",
    "states_from_dimod",
    "to_dimod",
    "to_program",
    "to_sklearn",
    "writable",
    "write",
]
