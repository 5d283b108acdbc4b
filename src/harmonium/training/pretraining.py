"""Greedy pretraining of a deep machine, layer by layer."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks, _random
from harmonium.data import Rows
from harmonium.learning import Rule
from harmonium.machine import BoltzmannMachine, init_visible_biases_
from harmonium.training.batch_source import check_rows
from harmonium.training.seeds import as_seed, stream_seed
from harmonium.training.state import TrainingRun
from harmonium.training.trainer import train

_ROWS = 4096  # rows that are drawn at once, which bounds the memory: 16 MB of 1,000 units


def pretrain(
    machine: BoltzmannMachine,
    X: Any,
    *,
    rule: Rule | str,
    seed: int | torch.Generator = 0,
    run_dir: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> list[TrainingRun]:
    """Trains every two neighbouring layers as a machine of their own (Tramel et al. 2018, Alg. 4).

    The lowest pair sees the data. Each further pair sees one draw of its lower layer given the layer below,
    under the pair just trained; its couplings and its upper layer are kept, and what it learned for its lower
    layer is dropped. Weights go into the machine as they are, as in the paper: nothing is doubled while a
    pair is trained and nothing is halved afterwards (compare Salakhutdinov & Hinton 2009), so that layers
    which are driven from both sides start out over-driven; joint training corrects it.

    Args:
        machine: Machine of at least two hidden layers, filled in place from the parameters that it has.
        X: data, as in ``train``.
        rule: any rule, or its name, as in ``train``; it estimates the gradient of every pair.
        seed: Seed of the draws and of every run, as in ``train``.
        run_dir: folder for the runs, ``pair-1`` and so on.
        **settings: Settings of ``train`` for every pair: ``epochs`` or ``updates``, ``learning_rate`` and
            others that do not concern the data (no ``transform``, no ``validation``).

    Returns:
        The run of every pair, from below.

    Raises:
        TypeError, ValueError: as in ``train``; a machine with one hidden layer.
    """
    _checks.instance(machine, "machine", BoltzmannMachine, "a BoltzmannMachine")
    if not machine.graph.is_chain:
        raise ValueError(f"machine: expected a chain of layers, received the edges {machine.edges}")
    if len(machine.layers) < 3:
        raise ValueError(
            f"machine: expected at least two hidden layers, received {len(machine.layers) - 1}; train does it"
        )
    for name in ("transform", "validation", "validation_weights", "metrics"):
        if settings.get(name) is not None:
            raise ValueError(f"{name}: expected None, as the pairs see other data than the machine")
    rows = Rows.of(X, dtype=machine.dtype, name="X")
    check_rows(machine, rows, "X")
    runs, seed = [], as_seed(seed)
    for l in range(len(machine.layers) - 1):
        pair = BoltzmannMachine([deepcopy(machine.layers[l]), deepcopy(machine.layers[l + 1])])
        pair = pair.to(machine.device, machine.dtype)
        with torch.no_grad():
            pair.couplings[0].weight.copy_(machine.couplings[l].weight)
        if l > 0:
            init_visible_biases_(pair, rows, settings.get("weights"))
        folder = None if run_dir is None else Path(run_dir) / f"pair-{l + 1}"
        runs.append(train(pair, rows, rule=rule, seed=seed, run_dir=folder, **settings))
        with torch.no_grad():
            machine.couplings[l].weight.copy_(pair.couplings[0].weight)
        if l == 0:
            machine.layers[0].load_state_dict(pair.layers[0].state_dict())
        machine.layers[l + 1].load_state_dict(pair.layers[1].state_dict())
        if runs[-1].signal is not None:  # also where this pair was at its last update
            runs[-1] = replace(runs[-1], status="interrupted")
            return runs
        if l < len(machine.layers) - 2:
            rows = Rows.of(_draw_hidden(pair, rows, stream_seed(seed, "pretraining", l)), dtype=machine.dtype)
    return runs


@torch.no_grad()
def _draw_hidden(pair: BoltzmannMachine, rows: Rows, seed: int) -> Tensor:
    """Draws the upper layer for every row, (rows, width); small integers where they hold its states."""
    hamiltonian = pair.hamiltonian()
    generator = _random.as_generator(seed, pair.device)
    small = pair.layers[1].discrete and bool((pair.layers[1].values().abs() <= 127).all())
    parts = []
    for chunk in rows.chunks(_ROWS):
        v = chunk.to(pair.device)
        h = hamiltonian.sample(1, hamiltonian.field(1, hamiltonian.split(v)), generator).cpu()
        parts.append(h.to(torch.int8) if small else h)
    return torch.cat(parts)
