"""The objective with a label: joint, hybrid or discriminative."""

from __future__ import annotations

from typing import Any

from harmonium import _checks
from harmonium.data.column import Column

SHARE = 0.03
_OBJECTIVES = {"hybrid": SHARE, "discriminative": 0.0, "joint": 1.0}
OBJECTIVES = tuple(_OBJECTIVES)
EPOCHS, UPDATES = 10, 2000  # at least, where no length is given,
LABEL_EPOCHS, LABEL_UPDATES = 20, 1000  # and with a label


def objective_of(
    label: str | None, objective: str | None, joint: float | None
) -> tuple[str | None, float | None]:
    """The name of the objective, and the weight of ln p(rest, label) in it; None without a label.

    Raises:
        ValueError: an unknown name, or settings that do not go together.
    """
    for name, value in (("objective", objective), ("joint", joint)):
        if label is None and value is not None:
            raise ValueError(f"{name}: expected with --label COLUMN, received {value} without")
    if label is None:
        return None, None
    chosen = _checks.one_of(objective or "hybrid", "objective", _OBJECTIVES)
    if chosen != "hybrid" and joint is not None:
        raise ValueError(f"joint: expected none with --objective {chosen}, received {joint}")
    return chosen, _OBJECTIVES[chosen] if joint is None else _checks.real(joint, "joint", 0.0, 1.0)


def refuse_unlabelled(label: Column, X: Any) -> None:
    """Refuses states, the last of them the label's, none of which has one."""
    if bool(X[:, -label.coding.width :].isnan().all()):
        raise ValueError(
            f"DATA: expected labels in a column {label.name!r}, which the machine learns to tell, received "
            "none; --objective joint learns of rows without them"
        )


def length(label: str | None, rows: int, batch_size: int) -> int:
    """Passes over the data where no length was given."""
    epochs, updates = (EPOCHS, UPDATES) if label is None else (LABEL_EPOCHS, LABEL_UPDATES)
    size = min(_checks.positive_int(batch_size, "batch_size"), rows)
    return max(epochs, -(-updates * size // rows))
