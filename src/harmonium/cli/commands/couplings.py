"""``harmonium couplings``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

from harmonium._settings import Setting
from harmonium.cli import options
from harmonium.cli.output import check_target, working
from harmonium.cli.rows_file import TABLES, write_table
from harmonium.data import Series
from harmonium.exchange import SUFFIXES, write
from harmonium.machine import BoltzmannMachine
from harmonium.tasks import GAUGES, potts_machine

EXAMPLES = (
    "harmonium couplings runs/family --out couplings.csv",
    "harmonium couplings runs/family --gauge lattice-gas --out potts.dat",
)


def couplings(
    run: options.Trained,
    out: Path,
    gauge: Annotated[str, Setting(GAUGES)] = "zero-sum",
    overwrite: options.Overwrite = False,
) -> dict[str, Any]:
    """Write fields and couplings of a machine of sequences, in a gauge.

    Of machines with hidden units they are those that act through these (effective couplings).

    Args:
        out: file: a table .csv, .tsv, .parquet or .feather (site i, site j, letter a, letter b, value; of a
            field j and b are empty), .dat for adabmDCA, .uai or .txt.
        gauge: zero-sum, or lattice-gas: those of the gap are zero.
    """
    formats = [suffix for suffix, kind in SUFFIXES.items() if kind.form != "rbms"]
    check_target(out, (*TABLES, *formats), overwrite)
    coding, source = run.load()
    with working("finding couplings"):
        potts = potts_machine(coding.machine, gauge)
    sites, states = potts.layers[0].n_units, potts.layers[0].columns_per_unit
    if out.suffix.lower() in TABLES:
        write_table(out, _columns(potts, coding.alphabet, sites, states))
    else:
        write(potts, out, overwrite=overwrite)
    return {"machine": source, "file": out, "sites": sites, "states": states, "gauge": gauge}


def _columns(potts: BoltzmannMachine, letters: str | None, sites: int, states: int) -> dict[str, Series]:
    """Returns the columns of a table of fields, and below them the couplings of each pair once."""
    hamiltonian = potts.hamiltonian()
    h = hamiltonian.thetas[0][0].numpy(force=True)
    J = hamiltonian.J[0].numpy(force=True).reshape(sites, states, sites, states)
    names = np.array(list(letters or map(str, range(states))), object)
    site, state = np.indices((sites, states)).reshape(2, -1)
    pair, a, b = np.indices((sites * (sites - 1) // 2, states, states)).reshape(3, -1)
    i, j = (index[pair] for index in np.triu_indices(sites, 1))
    columns = {
        "i": (np.append(site, i) + 1.0, "int64"),
        "j": (np.append(np.full(len(site), np.nan), j + 1), "int64"),
        "a": (names[np.append(state, a)], "str"),
        "b": (np.append(np.full(len(site), None), names[b]), "str"),
        "value": (np.append(h, J[i, a, j, b]).astype(np.float64), "float64"),
    }
    return {name: Series(name, values, dtype) for name, (values, dtype) in columns.items()}
