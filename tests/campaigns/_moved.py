"""A plugin of pytest that moves a test suite to the pretend device: what tests make, they make there.

Machines, units and tensors that a test makes live on the device; so do estimators, files that are loaded and
commands, where the test does not say where. Code of harmonium is under the rules of a GPU, see
``tests/pretend_device.py``: nothing that it makes is moved. What a test computes by itself, to compare with,
is under no rule: there the host and the device may meet, and NumPy read the device.

Which of them it is, the innermost function says that is of harmonium or of the tests.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from pretend_device import (
    DEVICE,
    PretendGenerator,
    PretendTensor,
    _Generator,
    _GeneratorOf,
    _Given,
    _given,
    _mapped,
    pretend_device,
)
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

import harmonium as hm
from harmonium.cli import options
from harmonium.estimators import _estimator
from harmonium.layers import Layer
from harmonium.tables import fitting

from .devices import left_out, read

LIBRARY = str(Path(hm.__file__).parent) + "/"
TESTS = str(Path(__file__).parents[1]) + "/"
HERE = (__file__, str(Path(__file__).parents[1] / "pretend_device.py"))
PASSED_ON = (LIBRARY + "machine/visible.py", LIBRARY + "layers/")  # what makes things for whoever asks


DIFFERENTIATE = (torch.autograd.grad, torch.autograd.backward)  # what they are given has to stay itself
ON_HOST = "exact/graph_oracle.py"  # takes what it gets to the host


def where(*, passed_on: bool = False) -> tuple[bool, str]:
    """Whether the innermost function is harmonium's, as also where there is none, and its file and line."""
    frame = sys._getframe(1)
    skipped = HERE + PASSED_ON * passed_on
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith((LIBRARY, TESTS)) and not name.startswith(skipped):
            inside = name.startswith(LIBRARY)
            return inside, f"{name.removeprefix(LIBRARY if inside else TESTS)}:{frame.f_lineno}"
        frame = frame.f_back
    return True, "a thread"


class Moved:
    """The plugin."""

    def __init__(self, report: Path, limit: float, cases: int | None, again: bool) -> None:
        self._report, self._limit, self._cases = report, limit, cases
        self._done = {test for test, each in read(report).items() if not again or fine(each)}
        self._faults: list[str] = []
        self._late = False
        self._stack = ExitStack()

    def start(self) -> None:
        enter = self._stack.enter_context
        self._counts = enter(pretend_device(self._exempt))
        for owner, name, new in (
            (torch, "Generator", Generator),
            (torch, "from_numpy", from_numpy(torch.from_numpy)),
            (
                torch.testing,
                "assert_close",
                partial(torch.testing.assert_close, check_device=False),
            ),
            (hm.BoltzmannMachine, "__init__", machine_init(hm.BoltzmannMachine.__init__)),
            (hm, "load", there(hm.load)),
            (_estimator, "load", there(_estimator.load)),
            (fitting, "train", there(fitting.train)),
            (options, "as_device", named(options.as_device)),
        ):
            enter(mock.patch.object(owner, name, new))
        for kind in Layer.registry.values():
            enter(mock.patch.object(kind, "__init__", layer_init(kind.__init__)))
        enter(TestsMakeThere())

    def _exempt(self, error: Exception) -> bool:
        inside, place = where()
        if inside:
            self._faults.append(f"{place}: {error}")
        return not inside

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Of a test with more than so many cases those that lie evenly among them, unless they are done."""
        of: dict[str, list[pytest.Item]] = {}
        for item in items:
            if reason := left_out(item.nodeid):
                if item.nodeid not in self._done:
                    self._write({"test": item.nodeid, "outcome": "left out", "reason": reason})
                continue
            of.setdefault(item.nodeid.partition("[")[0], []).append(item)
        most = self._cases or len(items)
        chosen = [
            every[i * len(every) // min(most, len(every))]
            for every in of.values()
            for i in range(min(most, len(every)))
        ]
        items[:] = [item for item in chosen if item.nodeid not in self._done]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        def late(number: int, frame: Any) -> None:
            self._late = True
            raise TimeoutError(f"more than {self._limit:g} CPU seconds")

        before = signal.signal(signal.SIGPROF, late)
        signal.setitimer(signal.ITIMER_PROF, self._limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        report = yield
        if call.when == "call" or not report.passed:
            outcome = "cut short" if self._late else report.outcome
            found: dict[str, Any] = {"test": item.nodeid, "outcome": outcome}
            found |= {"faults": self._faults, "launches": self._counts.launches.total()}
            if call.excinfo is not None:
                found["error"] = f"{call.excinfo.typename}: {str(call.excinfo.value)[:400]}"
                found["place"] = place_of(call.excinfo.traceback)
            self._write(found)
            self._counts.clear()
        self._faults, self._late = [], False
        return report

    def _write(self, found: dict[str, Any]) -> None:
        with self._report.open("a") as file:
            file.write(json.dumps({"faults": [], "launches": 0} | found) + "\n")


def fine(found: dict[str, Any]) -> bool:
    return found["outcome"] in ("passed", "skipped") and not found["faults"]


def place_of(traceback: Any) -> str:
    """The innermost line that is of harmonium or of the tests."""
    for entry in reversed(traceback):
        name = str(entry.path)
        if name.startswith((LIBRARY, TESTS)) and name not in HERE:
            return f"{name.removeprefix(LIBRARY).removeprefix(TESTS)}:{entry.lineno + 1}"
    return ""


class TestsMakeThere(TorchFunctionMode):
    """``torch.zeros(3)`` in a test is on the device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _device_constructors() and kwargs.get("device") is None:
            inside, place = where()
            if not inside and not place.startswith(ON_HOST):
                kwargs["device"] = DEVICE
        if mixed(_given((args, kwargs))) and func not in DIFFERENTIATE and not where()[0]:
            args, kwargs = together(func, args, kwargs)
        return func(*args, **kwargs)


def mixed(given: _Given) -> bool:
    """Whether a function is given things of the device and tensors of the host."""
    return bool(given.outside) and (
        bool(given.inside) or any(PretendGenerator.has(x) for x in given.generators)
    )


def together(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """All tensors on the device, or on the host where one of its own is written to."""
    name = getattr(func, "__name__", "")
    written = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    stays = written and isinstance(args[0], Tensor) and not isinstance(args[0], PretendTensor)
    place = torch.device("cpu") if stays else DEVICE
    move = partial(_mapped, lambda x: x.to(place) if isinstance(x, Tensor) else x)
    return move(args), move(kwargs)


class _GeneratorOfTests(_GeneratorOf):
    def __call__(cls, device: Any = None) -> torch.Generator:
        if device is None:
            return _Generator() if where()[0] else PretendGenerator()
        return super().__call__(device)


class Generator(metaclass=_GeneratorOfTests):
    """Stands for ``torch.Generator``."""


def from_numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    def made(array: Any) -> Any:
        x = original(array)
        return x if where()[0] else x.to(DEVICE)

    return made


def machine_init(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def init(self: Any, layers: Any, *args: Any, **kwargs: Any) -> None:
        inside = where(passed_on=True)[0]
        if not inside and isinstance(layers, (list, tuple)):
            for layer in layers:
                if isinstance(layer, Layer):
                    layer.to("cpu")
        seed, plain = kwargs.get("seed"), _Generator()
        lent = not inside and isinstance(seed, torch.Generator) and PretendGenerator.has(seed)
        if lent:
            plain.set_state(seed.get_state())
            kwargs["seed"] = plain
        original(self, layers, *args, **kwargs)
        if lent:
            seed.set_state(plain.get_state())
        if not inside:
            self.to(DEVICE)

    return init


def layer_init(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if not where(passed_on=True)[0]:
            self.to(DEVICE)

    return init


def there(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function that puts a machine on the device unless it is told where."""

    @wraps(original)
    def call(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        return original(*args, device=DEVICE if device in (None, "cpu") else device, **kwargs)

    return call


def named(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, by its name on the command line."""
    return lambda name: original(name or str(DEVICE))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--moved-report", type=Path, required=True)
    parser.addoption("--moved-limit", type=float, default=60.0)
    parser.addoption("--moved-cases", type=int)
    parser.addoption("--moved-again", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    plugin = Moved(*(config.getoption(f"--moved-{name}") for name in ("report", "limit", "cases", "again")))
    plugin.start()
    config.pluginmanager.register(plugin)
