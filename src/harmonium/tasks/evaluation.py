"""Scores of a machine on rows as people bring them: in the units of the data, with those of the label."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium.data import Rows
from harmonium.likelihood import (
    BASE_ROWS,
    CHUNK_ROWS,
    Evaluation,
    LogPartition,
    evaluate,
    score_separate,
    separate,
)
from harmonium.machine import BoltzmannMachine
from harmonium.tables import Codec, ColumnUnit
from harmonium.tasks.prediction import log_probabilities


@torch.no_grad()
def evaluate_rows(
    codec: Codec,
    X: Any,
    log_partition: float | LogPartition | None = None,
    *,
    training: Rows | None = None,
    states: Rows | None = None,
    seed: int | torch.Generator = 0,
) -> Evaluation:
    """Evaluates a machine on rows in the units of the data: ``likelihood.evaluate``, and the label's scores.

    Args:
        codec: Codec of a machine (``tables.Codec.of``).
        X: rows as ``Codec.rows`` takes them: a data frame, an array or a ``DataSet``.
        log_partition: ln Z, exact or estimated; None: it is found.
        training: states that independent columns are fitted to; None: those of X.
        states: the states of X, where they are at hand (``Codec.observed_rows``); None: they are made.
        seed: Seed of all that is drawn.

    Returns:
        Means over rows. With a label ``labels`` has ``label_accuracy`` and ``label_log_likelihood``, beside
        ``majority_class_accuracy`` and ``label_frequencies_log_likelihood`` of the simplest predictions.

    Raises:
        TypeError, ValueError: rows that do not suit the machine, or without any cell.

    Examples:
        >>> import harmonium as hm
        >>> machine, X = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(4)]), hm.data.bars_and_stripes()
        >>> found = hm.tasks.evaluate_rows(hm.tables.Codec.of(machine), X)
        >>> found.mean == hm.likelihood.evaluate(machine, X).mean
        True
    """
    machine = codec.machine
    rows = codec.observed_rows(X, missing=True, beyond="tail") if states is None else states
    base = rows if training is None else training
    alone = separate(machine, base.take(base.spread(BASE_ROWS)).to(machine.device, torch.float64))
    offset = partial(unit_offsets, codec, X, rows)
    evaluation = evaluate(machine, rows, log_partition, alone=alone, offset=offset, seed=seed)
    if codec.label is None:
        return evaluation
    labels, doubts = evaluate_labels(codec, rows, alone, seed)
    return replace(evaluation, labels=labels, doubts=(*evaluation.doubts, *doubts))


def unit_offsets(codec: Codec, X: Any, states: Rows, machine: BoltzmannMachine) -> Tensor:
    """Returns what the units of the data X add to ln p of each row's states, (rows,) float64 on the CPU."""
    log_shares = codec.log_shares(X, machine)
    offsets = (
        torch.zeros(len(states), dtype=torch.float64, device="cpu")
        if log_shares is None
        else log_shares.sum(1)
    )
    if codec.density:
        offsets = offsets + torch.cat([codec.log_slopes(v).cpu() for v in states.chunks(CHUNK_ROWS)])
    return offsets


def evaluate_labels(
    codec: Codec, rows: Rows, alone: BoltzmannMachine | None = None, seed: int | torch.Generator = 0
) -> tuple[dict[str, float], list[str]]:
    """Returns accuracy and mean ln p of the labels of rows given the rest of each, and doubts.

    Beside them stand the share of the commonest label, and with ``alone``, a machine of independent columns,
    the mean ln p by frequencies. Without a label in any row there are no scores.
    """
    assert codec.label is not None
    query, parts = codec.unit_of(str(codec.label.name)), list[tuple[Tensor, ...]]()
    for v in (chunk.to(codec.machine.device) for chunk in rows.chunks(CHUNK_ROWS)):
        v = v[~v[:, query.states].isnan().any(1)]
        if len(v):
            true_labels, rest = v[:, query.states].argmax(1), codec.within(v)
            log_probability, drawn = log_probabilities(
                codec.machine, rest, query.layer, query.unit, seed=seed
            )
            log_p = log_probability[:, 0].gather(1, true_labels.unsqueeze(1))
            by_frequency = log_p if alone is None else score_separate(alone, v)[-1]
            parts.append(
                (true_labels, log_probability[:, 0].argmax(1) == true_labels, log_p, drawn, by_frequency)
            )
    labelled = sum(len(rows_labels) for rows_labels, *_ in parts)
    doubts = list[str]()
    if 0 < labelled < len(rows):
        doubts.append(f"label_accuracy: of the {labelled} rows with a label that training has seen")
    if codec.objective == "discriminative":
        doubts.append(
            "log_likelihood: of a machine that has learned the label given the rest, and not the rest"
        )
    if not parts:
        return {}, doubts
    true_labels, right, log_p, drawn, by_frequency = map(torch.cat, zip(*parts, strict=True))
    if bool(drawn.any()):
        doubts.append("label_log_likelihood: by chains, as there are too many states to count")
    scores = {
        "label_accuracy": float(right.double().mean()),
        "majority_class_accuracy": float(true_labels.bincount().max()) / labelled,
        "label_log_likelihood": float(log_p.mean()),
    }
    if alone is not None:
        scores["label_frequencies_log_likelihood"] = float(by_frequency.mean())
    return scores, doubts


def score_cells(query: ColumnUnit, truth: NDArray[Any], best: NDArray[Any]) -> dict[str, float]:
    """Scores the prediction of a column beside the simplest one, over the rows that have its cell.

    Args:
        query: the column and its unit.
        truth: its states, (rows, states), NaN where a row lacks the cell, or has one never seen in training.
        best: the predicted ones, (rows, states).

    Returns:
        "accuracy" and then "majority_class_accuracy"; of numbers "root_mean_square_error" and then
        "standard_deviation"; and "rows_scored". Empty without such rows.
    """
    known = ~np.isnan(truth[:, 0])
    if not known.any():
        return {}
    shown = (states[known] if query.column.width > 1 else states[known, 0] for states in (truth, best))
    cells, predicted = map(query.column.cells_of, shown)
    scored = int(known.sum())
    if query.column.values:
        right = float(np.mean([a == b for a, b in zip(cells, predicted, strict=True)]))
        commonest = max(Counter(map(str, cells)).values()) / scored
        return {"accuracy": right, "majority_class_accuracy": commonest, "rows_scored": scored}
    error = float(np.sqrt(np.mean((cells - predicted) ** 2)))
    return {
        "root_mean_square_error": error,
        "standard_deviation": float(np.std(cells)),
        "rows_scored": scored,
    }
