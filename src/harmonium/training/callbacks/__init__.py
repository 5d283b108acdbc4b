"""Callbacks of ``harmonium.train``.

A callback is called with an ``Update`` after each update; one that returns ``STOP`` ends the run cleanly. An
object may also offer any of these methods:

- ``begin(machine, metrics)``: the run is about to start; ``metrics`` are the names of its metrics;
- ``wants(step, total)``: whether it has to be called after so many updates; without it, after all of them;
- ``finish(machine)``: the run was completed or stopped (not: interrupted) and its checkpoint is written;
- ``close()``: the run is over, however it ended;
- ``state_dict()`` and ``load_state_dict(state)``: what a checkpoint keeps of the callback; nested lists,
  tuples and dicts of tensors, numbers, strings and None.
"""

from harmonium.training.callbacks.early_stopping import EarlyStopping
from harmonium.training.callbacks.tensorboard import TensorBoard
from harmonium.training.callbacks.update import STOP, Callback, Signal, Update

__all__ = ["STOP", "Callback", "EarlyStopping", "Signal", "TensorBoard", "Update"]
