"""A fit that raises changes nothing: all estimators, all ways to begin, all ways to be refused."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Mapping
from copy import deepcopy
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from covering import covering
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

import harmonium as hm
from harmonium.chains import Gibbs, Kernel
from harmonium.estimators import DBM, RBM, RBMClassifier, RBMOutlier
from harmonium.training import TrainingDiverged

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = np.arange(40) % 2
FRAME = pandas.DataFrame(
    {
        "height": 170.0 + 10 * GROUP + RANDOM.normal(size=40),
        "city": np.array(["Ulm", "Rom"])[GROUP],
        "grade": np.array(["low", "mid", "high"])[RANDOM.integers(0, 3, 40)],
    }
)
LABEL = np.array(["cat", "dog"])[GROUP]
ALL = (RBM, DBM, RBMClassifier, RBMOutlier)


# What an estimator holds
# --------------------------------------------------------------------------------


def content(value: Any) -> Any:
    """Everything a value holds, to the bit, as nested tuples; objects without a known inside by identity."""
    if isinstance(value, torch.Tensor):
        return ("tensor", str(value.dtype), tuple(value.shape), value.detach().numpy().tobytes())
    if isinstance(value, np.ndarray):
        cells = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
        return ("array", str(value.dtype), value.shape, cells)
    if isinstance(value, torch.nn.Module):
        return (type(value), content(value.state_dict()), content(getattr(value, "metadata", {})))
    if isinstance(value, torch.optim.Optimizer):
        return (type(value), content(value.state_dict()))
    if isinstance(value, dict):
        return tuple((repr(key), content(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return (type(value), *map(content, value))
    if hasattr(value, "__dict__") and type(value).__module__.startswith("harmonium"):
        caches = {name for name, x in vars(type(value)).items() if isinstance(x, cached_property)}
        return (type(value), content({name: x for name, x in vars(value).items() if name not in caches}))
    return repr(value) if isinstance(value, (str, int, float, type(None))) else id(value)


def settings_of(kind: type) -> dict[str, Any]:
    rate = 0.05 if kind is RBMClassifier else 0.1
    return {
        "method": "chains",
        "n_hidden": (4, 3) if kind is DBM else 4,
        "max_updates": 6,
        "batch_size": 20,
        "learning_rate": rate,
        "random_state": 0,
        **({"averaging": None} if kind is RBMClassifier else {}),
        **({"optimizer": "adam", "centred": False} if kind is RBM else {}),
    }


def fitted(kind: type) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = kind(**settings_of(kind)).fit(FRAME, LABEL)
        made.score_samples(FRAME)  # finds ln Z
        return made


@pytest.fixture(scope="module")
def trained() -> dict[type, Any]:
    return {kind: fitted(kind) for kind in ALL}


# Ways to be refused
# --------------------------------------------------------------------------------


class Failing(Kernel):
    """Gibbs that breaks in the third sweep."""

    invariant = True

    def __init__(self) -> None:
        self._sweeps = 0

    def step(self, hamiltonian: Any, state: Any, generator: Any) -> Any:
        self._sweeps += 1
        if self._sweeps == 3:
            raise OSError("broken")
        return Gibbs().step(hamiltonian, state, generator)


def raising(error: BaseException, at: int = 0) -> Any:
    """A schedule that raises at a step, or an optimizer that does at once."""

    def call(step: Any, total: int = 0) -> float:
        if total == 0 or step == at:
            raise error
        return 1.0

    return call


class Way(NamedTuple):
    """One way to be refused: the error, parameters, data, and when it is one.

    ``when``: "any"; "new", where a machine is made anew; "on", where one is gone on with.
    """

    error: type[BaseException]
    settings: Mapping[str, Any] = MappingProxyType({})
    X: Any = FRAME
    y: Any = LABEL
    weights: Any = None
    when: str = "any"
    kinds: tuple[type, ...] = ALL


DIVERGES = {"learning_rate": 1e30, "clip_norm": None, "optimizer": "sgd"}

WAYS = {
    "nothing in any row": Way(ValueError, X=FRAME.assign(height=np.nan, city=None, grade=None)),
    "infinity": Way(ValueError, X=FRAME.assign(height=np.inf)),
    "a kind of no column": Way(ValueError, {"visible": {"town": "gaussian"}}, when="new"),
    "too few weights": Way(ValueError, weights=np.ones(39)),
    "a parameter out of range": Way(ValueError, {"batch_size": 0}),
    "a parameter that no training reads": Way(ValueError, {"ais_chains": 0}),
    "hidden units without a bound": Way(ValueError, {"hidden_kind": "gaussian"}, when="new"),
    "another size": Way(ValueError, {"n_hidden": 5}, when="warm", kinds=(RBM, RBMClassifier, RBMOutlier)),
    "another depth": Way(ValueError, {"n_hidden": (4,)}, when="warm", kinds=(DBM,)),
    "no hidden layers": Way(ValueError, {"n_hidden": ()}, when="new", kinds=(DBM,)),
    "an optimizer that raises": Way(OSError, {"optimizer": raising(OSError())}),
    "an optimizer that is none": Way(TypeError, {"optimizer": lambda parameters: "sgd"}),
    "a schedule that raises": Way(OSError, {"schedule": raising(OSError(), 3)}, when="fit"),
    "a schedule that is negative": Way(ValueError, {"schedule": lambda step, total: 2.5 - step}, when="fit"),
    "a rule that raises": Way(OSError, {"rule": "failing"}, when="fit"),
    "divergence at once": Way(TrainingDiverged, DIVERGES),
    "divergence later": Way(
        TrainingDiverged,
        {**DIVERGES, "learning_rate": 0.1, "schedule": lambda step, total: 1e30 if step == 3 else 1.0},
        when="fit",
    ),
    "a warning made an error": Way(ConvergenceWarning, {"max_updates": 200, "n_hidden": 16}, when="slow"),
    "Ctrl-C before training": Way(KeyboardInterrupt, {"optimizer": raising(KeyboardInterrupt())}),
    "a second Ctrl-C": Way(KeyboardInterrupt, {"schedule": raising(KeyboardInterrupt(), 3)}, when="fit"),
    "no labels": Way(ValueError, y=None, kinds=(RBMClassifier,)),
    "labels of weight zero alone": Way(
        ValueError, y=["a", "b", *[None] * 38], weights=[0, 0, *[1] * 38], when="new", kinds=(RBMClassifier,)
    ),
    "a class that fit has not met": Way(ValueError, y=["cat", "cow"] * 20, when="on", kinds=(RBMClassifier,)),
    "other classes beside bad rows": Way(
        ValueError,
        X=FRAME.assign(height=np.inf),
        y=np.array(["spam", "ham"])[GROUP],
        when="new",
        kinds=(RBMClassifier,),
    ),
}
BEGINNINGS = ("first fit", "first partial_fit", "fit", "partial_fit", "warm fit")


def applies(way: Way, kind: type, beginning: str) -> bool:
    new = "first" in beginning or beginning == "fit"
    possible = {
        "any": True,
        "new": new,
        "on": not new,
        "warm": beginning == "warm fit",
        "fit": beginning.endswith("fit") and "partial" not in beginning,
        "slow": beginning in ("first fit", "fit") and kind is RBM,
    }
    partly = "partial" in beginning and kind is RBMClassifier
    return kind in way.kinds and not partly and possible[way.when]


CASES = covering(
    (kind, beginning, name)
    for name, way in WAYS.items()
    for kind in ALL
    for beginning in BEGINNINGS
    if applies(way, kind, beginning)
)


def refused(kind: type, beginning: str, name: str, made: Any) -> None:
    """Fits in that way, and finds the estimator as it was."""
    way = WAYS[name]
    settings = {**way.settings, "warm_start": beginning == "warm fit"}
    if settings.get("rule") == "failing":
        settings["rule"] = hm.rules.pcd(kernel=Failing(), chains=20)
    made.set_params(**settings)
    before = content(vars(made))
    method = made.partial_fit if "partial" in beginning else made.fit
    with warnings.catch_warnings(), pytest.raises(way.error):
        warnings.simplefilter("ignore")
        if name == "a warning made an error":
            warnings.simplefilter("error", ConvergenceWarning)
        method(way.X, way.y, sample_weight=way.weights)
    after = content(vars(made))
    assert [key for key, _ in after] == [key for key, _ in before]
    changed = [key for (key, now), (_, then) in zip(after, before, strict=True) if now != then]
    assert not changed


@pytest.mark.parametrize(
    ("kind", "beginning", "name"), CASES, ids=lambda value: getattr(value, "__name__", value)
)
@pytest.mark.mostly_nightly(21)
def test_a_refused_fit_changes_nothing(
    trained: dict[type, Any], kind: type, beginning: str, name: str
) -> None:
    first = "first" in beginning
    made = kind(**settings_of(kind)) if first else deepcopy(trained[kind])
    refused(kind, beginning, name, made)
    if first:
        with pytest.raises(NotFittedError):
            check_is_fitted(made)


# Signals: what was learnt is kept, whole
# --------------------------------------------------------------------------------


def signalled(number: int, at: int = 3) -> Any:
    def call(step: int, total: int) -> float:
        if step == at:
            signal.raise_signal(number)
        return 1.0

    return call


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_a_signal_in_training_keeps_what_was_learnt(
    trained: dict[type, Any], kind: type, warm: bool, number: int, raised: type[BaseException]
) -> None:
    made = deepcopy(trained[kind])
    old, updates = made.machine_, made.n_updates_
    parameters = content(old)
    made.set_params(schedule=signalled(number), warm_start=warm)
    with pytest.raises(raised):
        made.fit(FRAME, LABEL)
    assert made.n_updates_ == 4 + (updates if warm else 0)
    assert made.machine_ is not old and content(old) == parameters
    truth = hm.likelihood.exact_log_partition(deepcopy(made.machine_).double())
    assert made.log_partition_.value == pytest.approx(truth, abs=1e-9)
    if kind is RBMOutlier:  # a threshold would be of the machine as it was
        with pytest.raises(NotFittedError, match="offset_"):
            made.predict(FRAME)
        assert np.isfinite(RBMOutlier.from_machine(made.machine_, FRAME).offset_)


@pytest.mark.parametrize("first", [False, True])
def test_ctrl_c_while_a_threshold_is_found_keeps_the_machine(
    trained: dict[type, Any], monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    made = RBMOutlier(**settings_of(RBMOutlier)) if first else deepcopy(trained[RBMOutlier])

    def interrupted(self: Any, X: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(RBMOutlier, "_relative_scores", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.fit(FRAME)
    assert made.n_updates_ == 6 and not hasattr(made, "offset_")
    assert np.isfinite(made.score_samples(FRAME)).all()
