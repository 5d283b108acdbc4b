"""p(y | x) of a machine whose last visible layer is a label: hidden units, and what x lacks, summed out."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from harmonium import _random
from harmonium.chains import fill_hidden
from harmonium.likelihood import log_weight_of
from harmonium.machine import BoltzmannMachine

MISSING = ("auto", "exact", "gibbs")

_ROWS = 1024
_AUTO_LOG2_STATES = 12
_CHAINS, _SWEEPS = 10, 60


@final
class LabelPosterior:
    """The label of rows, in float64.

    Args:
        machine: with one hidden layer, joined to the visible layers; the last of these is one categorical
            unit. Real columns may have edges of their own where ``HiddenStates`` takes them.
    """

    def __init__(self, machine: BoltzmannMachine) -> None:
        self._hamiltonian = machine.hamiltonian().to(torch.float64)
        (self._hidden,) = machine.hidden
        *self._data, self._label = machine.visible
        visible = set(machine.visible)
        self._joined = any(visible.issuperset(edge) for edge in machine.edges)
        self._labels = machine.layers[self._label].values().to(machine.device, torch.float64)

    @torch.no_grad()
    def log_weights(self, x: Tensor) -> Tensor:
        """Returns ln Σ exp(-E) over hidden units, and what x lacks, for every label: (rows, labels).

        Args:
            x: states of the data's layers, (rows, columns), NaN where missing.

        Raises:
            ValueError: more than 2^26 states to sum over.
        """
        hamiltonian, labels = self._hamiltonian, self._labels
        weights = x.new_empty(len(x), len(labels))
        holed = x.isnan().any(1)
        for rows in _blocks(holed):
            each = [log_weight_of(hamiltonian, _beside(x[rows], y)) for y in labels]
            weights[rows] = torch.stack(each, 1)
        if bool(holed.all()):
            return weights
        states = hamiltonian.split(_beside(x[~holed], labels[0]))
        heard = hamiltonian.field(self._hidden, states, neighbours=self._data)
        each = []
        for y in labels:
            states[self._label] = y.expand(len(heard), -1)
            field = heard + hamiltonian.field(self._hidden, states, neighbours=[self._label])
            each.append(-hamiltonian.free_energy(states, (self._hidden,), {self._hidden: field}))
        weights[~holed] = torch.stack(each, 1)
        return weights

    @torch.no_grad()
    def log_probabilities(self, x: Tensor, missing_cells: str, generator: torch.Generator) -> Tensor:
        """Returns ln p(y | what x shows), (rows, labels), exact where nothing is missing.

        It is exact for joined columns too, whatever ``missing_cells`` says, as their hidden states are few.

        Raises:
            ValueError: more than 2^26 states to sum over with "exact".
        """
        drawn = x.isnan().any(1) & (missing_cells != "exact" and not self._joined)
        if missing_cells == "auto":
            drawn &= self._log2_missing(x) > _AUTO_LOG2_STATES
        scores = x.new_empty(len(x), len(self._labels))
        try:
            scores[~drawn] = self.log_weights(x[~drawn]).log_softmax(1)
        except ValueError as error:
            raise ValueError(
                "X: expected rows whose missing cells (NaN), or else the hidden units, have at most 2^26 "
                'states to sum over with missing_cells="exact"; "gibbs" and "auto" draw them'
            ) from error
        for rows in _blocks(drawn):
            scores[rows] = self._drawn(x[rows], generator)
        return scores

    def _log2_missing(self, x: Tensor) -> Tensor:
        """Returns log2 of the states to sum over for every row: of missing cells, or else of hidden units."""
        bits, layers = x.new_zeros(len(x)), self._hamiltonian.layers
        states = self._hamiltonian.split(_beside(x, self._labels[0]))
        for l in self._data:
            missing = layers[l].by_unit(states[l])[..., 0].isnan().sum(1)
            bits += torch.where(missing > 0, missing * (layers[l].log2_states / layers[l].n_units), 0.0)
        return bits.clamp(max=layers[self._hidden].log2_states)

    def _drawn(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Returns ln of the mean of p(y | x) over draws of what x lacks given what it shows.

        Of each chain a sweep draws y given x, the hidden units given both, and the missing cells given these:
        the label, which is slow to leave beside the hidden units, is drawn with them summed out.
        """
        hamiltonian = self._hamiltonian
        v = _beside(x.repeat(_CHAINS, 1), torch.full_like(self._labels[0], torch.nan))
        states = list(fill_hidden(hamiltonian.clamp(v, len(v)), v, generator))
        holes = {l: hamiltonian.split(v)[l].isnan() for l in self._data}
        total = x.new_full((len(v), len(self._labels)), -torch.inf)
        for sweep in range(_SWEEPS):
            now = self.log_weights(torch.cat([states[l] for l in self._data], 1)).log_softmax(1)
            if sweep >= _SWEEPS // 3:
                total = torch.logaddexp(total, now)
            noise = _random.uniform(now.shape, generator, torch.float64).to(now)
            largest = (now - (-noise.log()).log()).argmax(1)  # Gumbel variates beside ln p: a draw of y
            states[self._label] = self._labels[largest]
            field = hamiltonian.field(self._hidden, states)
            states[self._hidden] = hamiltonian.sample(self._hidden, field, generator)
            for l, hole in holes.items():
                fresh = hamiltonian.sample(l, hamiltonian.field(l, states), generator)
                states[l] = torch.where(hole, fresh, states[l])
        return total.view(_CHAINS, len(x), -1).logsumexp(0).log_softmax(1)


def _blocks(which: Tensor) -> list[Tensor]:
    """Returns the indices of some rows, a number at a time."""
    return [rows for rows in torch.split(which.nonzero().flatten(), _ROWS) if len(rows)]


def _beside(x: Tensor, y: Tensor) -> Tensor:
    """Returns rows with a label, (columns,), beside each."""
    return torch.cat([x, y.expand(len(x), -1)], 1)
