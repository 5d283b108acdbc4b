"""The summary that ``harmonium train`` prints at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harmonium.cli.beginning import Beginning
from harmonium.cli.runs import AVERAGED
from harmonium.learning import Rule
from harmonium.machine.storage import CHECKPOINT, MACHINE
from harmonium.training import Callback, TrainingRun, callbacks


def outcome(
    run: TrainingRun, beginning: Beginning, rule: Rule, watchers: Sequence[Callback]
) -> dict[str, Any]:
    """The summary of a run, for ``show``."""
    assert run.run_dir is not None
    names = (MACHINE, AVERAGED, CHECKPOINT)
    return {
        "run": str(run.run_dir),
        "status": run.status,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        "data": beginning.dataset.name,
        "rows": int(beginning.dataset.samples.shape[0]),
        "layers": [str(layer) for layer in run.machine.layers],
        "rule": rule.name,
        "bias": rule.bias,
        "metrics": run.metrics,
        **{name: value for each in watchers for name, value in _best(each).items()},
        "files": [name for name in names if (run.run_dir / name).exists()],
    }


def _best(watcher: Callback) -> dict[str, Any]:
    """Of early stopping, the evaluation whose machine is kept."""
    if not isinstance(watcher, callbacks.EarlyStopping) or watcher.best is None:
        return {}
    return {"best": {watcher.metric: watcher.best, "updates": watcher.best_step}}
