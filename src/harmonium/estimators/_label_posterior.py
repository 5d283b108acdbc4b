"""p(y | x) of a machine whose last visible layer is a label: hidden units, and what x lacks, summed out."""

from __future__ import annotations

from math import log2
from typing import final

import torch
from torch import Tensor

from harmonium.chains import fill_hidden
from harmonium.machine import BoltzmannMachine
from harmonium.sums import LIMIT_TEXT, TABLE_STATES, log2_states, unit_log_weights

MISSING = ("auto", "exact", "gibbs")

_ROWS = 1024  # beside their chains at a time
# Of a row with missing cells: p(y | x) is then known to about 0.02.
_CHAINS, _SWEEPS = 10, 60


@final
class LabelPosterior:
    """The label of rows, in float64.

    Args:
        machine: with one hidden layer, joined to the visible layers; the last of these is one categorical
            unit. Real columns may have edges of their own where ``HiddenStates`` takes them.
    """

    def __init__(self, machine: BoltzmannMachine) -> None:
        self._law = machine.hamiltonian().to(torch.float64)
        self._label = machine.visible[-1]
        visible = set(machine.visible)
        self._joined = any(visible.issuperset(edge) for edge in machine.edges)

    @torch.no_grad()
    def log_weights(self, x: Tensor) -> Tensor:
        """Returns ln Σ exp(-E) over hidden units, and what x lacks, for every label: (rows, labels).

        Args:
            x: states of the data's layers, (rows, columns), NaN where missing.

        Raises:
            ValueError: too many states to sum over.
        """
        return unit_log_weights(self._law, self._unlabelled(x), self._label, 0)

    @torch.no_grad()
    def log_probabilities(self, x: Tensor, missing_cells: str, generator: torch.Generator) -> Tensor:
        """Returns ln p(y | what x shows), (rows, labels), exact where nothing is missing.

        It is exact for joined columns too, whatever ``missing_cells`` is, as their hidden states are few.

        Raises:
            ValueError: too many states to sum over with "exact".
        """
        drawn = x.isnan().any(1) & (missing_cells != "exact" and not self._joined)
        if missing_cells == "auto":
            label = self._law.layers[self._label].values()[0].to(x)
            rows = torch.cat([x, label.expand(len(x), -1)], 1)
            drawn &= (log2_states(self._law, rows) > log2(TABLE_STATES)).to(x.device)
        scores = x.new_empty(len(x), self._law.layers[self._label].width)
        try:
            scores[~drawn] = self.log_weights(x[~drawn]).log_softmax(1)
        except ValueError as error:
            raise ValueError(
                f"X: expected rows whose missing cells (NaN), or else the hidden units, take {LIMIT_TEXT} "
                'with missing_cells="exact"; "gibbs" and "auto" draw them'
            ) from error
        for rows in torch.split(drawn.nonzero().flatten(), _ROWS):
            if len(rows):
                scores[rows] = self._drawn(x[rows], generator)
        return scores

    def _unlabelled(self, x: Tensor) -> Tensor:
        """Returns rows beside a label that is missing, (rows, visible_width)."""
        return torch.nn.functional.pad(x, (0, self._law.layers[self._label].width), value=torch.nan)

    def _drawn(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Returns ln of the mean of p(y | x) over draws of what x lacks given what it shows.

        Of each chain a sweep draws y given x, the hidden units given both, and the missing cells given these:
        the label, which is slow to leave beside the hidden units, is drawn with them summed out.
        """
        v = self._unlabelled(x.repeat(_CHAINS, 1))
        law, label = self._law.clamp(v, len(v)), self._law.layers[self._label]
        states = list(fill_hidden(law, v, generator).states)
        total = x.new_full((len(v), label.width), -torch.inf)
        for sweep in range(_SWEEPS):
            now = self.log_weights(law.visible_states(states)[:, : x.shape[1]]).log_softmax(1)
            if sweep >= _SWEEPS // 3:
                total = torch.logaddexp(total, now)
            noise = label.noise(now.shape, generator=generator).to(now)
            states[self._label] = label.sample(now, noise, label.reference())
            for part in law.graph.backwards:
                if not law.is_clamped(part.layer):
                    states[part.layer] = law.draw(part, states, generator)
        return total.view(_CHAINS, len(x), -1).logsumexp(0).log_softmax(1)
