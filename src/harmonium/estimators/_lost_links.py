"""A warning where a machine tells rows no better than independent columns, and the columns hang together."""

from __future__ import annotations

from copy import deepcopy
from math import log1p, sqrt

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from harmonium import _checks
from harmonium.estimators._fitted import Fitted
from harmonium.estimators._progress import RowScore
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.sums import HiddenStates, has_hidden_states
from harmonium.tables import Table

_ROWS, _WIDEST = 256, 100  # that are looked at, at most
_LEAST = 50  # rows
_STRONG, _SURE = 0.3, 5.0  # correlation, and standard errors of none, of a link that is to be learned
_SHARE = 0.05  # of what a Gaussian of that pair alone would gain


@torch.no_grad()
def warn_of_lost_links(name: str, fitted: Fitted, row_score: RowScore) -> None:
    """Warns where a machine gains next to nothing on independent columns though two are correlated."""
    v, machine = fitted.rows, fitted.machine
    if v is None or len(v) < _LEAST or not v.shape[1] <= _WIDEST or fitted.data_width < v.shape[1]:
        return
    v = v[:_ROWS].to(machine.device, machine.dtype)
    r, first, second = _find_link(machine, v)
    if r < max(_STRONG, _SURE / sqrt(len(v))):
        return
    exact = has_hidden_states(machine.graph, machine.layers)
    scores = [
        HiddenStates.of(each).log_likelihood(v.double()) if exact else row_score(each, v)
        for each in (machine, _separate(machine, v))
    ]
    if float((scores[0] - scores[1]).mean()) > -_SHARE * log1p(-min(r * r, 0.99)) / 2:
        return
    names = fitted.encoder.columns if isinstance(fitted.encoder, Table) else None
    one, other = ((unit if names is None else names[unit].name) for unit in (first, second))
    _checks.warn(
        f"{name}: the machine tells its rows no better than independent columns would, though columns "
        f"{one!r} and {other!r} hang together (correlation {r:.2f}): give it another random_state, more "
        'n_hidden, or with chains more epochs or optimizer="adam" with centred=False',
        ConvergenceWarning,
    )


def _find_link(machine: BoltzmannMachine, v: Tensor) -> tuple[float, int, int]:
    """Returns the largest correlation of states of two units, and the units, counted over all layers."""
    x = (v - v.nanmean(0)).nan_to_num(0.0).double()
    x = x / x.norm(dim=0).clamp(min=1e-12)
    units = machine.unit_of_column
    correlation = (x.t() @ x).abs().masked_fill(units == units.unsqueeze(1), 0.0)
    i, j = divmod(int(correlation.argmax()), len(units))
    return float(correlation[i, j]), int(units[i]), int(units[j])


def _separate(machine: BoltzmannMachine, v: Tensor) -> BoltzmannMachine:
    """Returns the machine of columns that nothing joins."""
    made = deepcopy(machine)
    init_visible_biases_(made, v)
    for coupling in made.couplings:
        coupling.fill_(torch.zeros_like(coupling.weight))
    return made
