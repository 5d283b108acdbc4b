"""Exchange: machines of other programs, read and written.

- :func:`read` opens a file of another program as an :class:`Exchanged`: a machine and its chains.
- :func:`write` writes a machine for another program.
- :func:`from_sklearn`, :func:`to_sklearn`, :func:`from_dimod` and :func:`to_dimod` take and make objects.
"""

from harmonium.exchange._format import Exchanged as Exchanged, Format as Format
from harmonium.exchange._variables import values_of as values_of, variables_of as variables_of
from harmonium.exchange.dimod import (
    from_dimod as from_dimod,
    states_from_dimod as states_from_dimod,
    states_to_dimod as states_to_dimod,
    to_dimod as to_dimod,
)
from harmonium.exchange.exchange import (
    FORMATS as FORMATS,
    SUFFIXES as SUFFIXES,
    read as read,
    recognised as recognised,
    write as write,
)
from harmonium.exchange.scikit_learn import from_sklearn as from_sklearn, to_sklearn as to_sklearn
