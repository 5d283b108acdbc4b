"""The classifier: its probabilities by hand, missing labels, weights, samples, and what it refuses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.estimators import RBMClassifier

torch.set_num_threads(1)

OBJECTIVES = ("joint", "discriminative", "hybrid")


def blobs(rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds in the plane, far from 0 and of different scales, with names."""
    random = np.random.default_rng(seed)
    group = random.integers(0, 3, rows)
    X = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])[group] + random.normal(size=(rows, 2))
    return X * [10.0, 0.1] + [500.0, -3.0], np.array(["ash", "beech", "cedar"])[group]


def flags(rows: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    return (random.random((rows, 6)) < np.where(np.arange(6) // 2 == y[:, None], 0.85, 0.2)).astype(float), y


def small(**settings) -> RBMClassifier:
    return RBMClassifier(
        **{"n_hidden": 5, "method": "chains", "epochs": 5, "averaging": None, "learning_rate": 0.05}
        | {"random_state": 0}
        | settings
    )


def by_hand(classifier: RBMClassifier, X: np.ndarray) -> np.ndarray:
    """ln Σ_h exp(b·x + W_x h·x + c_y + W_y h + a·h) for every label, the hidden states one by one."""
    machine = classifier.machine_
    x_bias, y_bias, h_bias = (layer.bias.detach().double().numpy().ravel() for layer in machine.layers)
    (x_weight, y_weight) = (coupling.weight.detach().double().numpy() for coupling in machine.couplings)
    total = np.full((len(X), len(y_bias)), -np.inf)
    for h in itertools.product((0.0, 1.0), repeat=len(h_bias)):
        log = (X @ (x_bias + x_weight @ h))[:, None] + y_bias + y_weight @ h + h_bias @ np.array(h)
        total = np.logaddexp(total, log)
    return total


# Defaults
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["discriminative", "hybrid"])
@pytest.mark.parametrize(("hidden", "known"), [(1500, True), (50, False)], ids=["labels", "labels at random"])
@pytest.mark.mostly_nightly(2)
def test_images_of_784_pixels_are_learned_with_any_number_of_hidden_units(
    hidden: int, objective: str, known: bool
) -> None:
    """Nothing that Adam's first steps do to p(x) ends a run that learns p(y | x)."""
    random = np.random.default_rng(0)
    y = random.integers(0, 4, 400)
    shown = np.kron(np.eye(4, dtype=bool), np.ones((1, 196), dtype=bool))[y]
    X = (random.random((400, 784)) < np.where(shown, 0.3, 0.08)).astype(np.float32)
    labels = y if known else random.permutation(y)
    fitted = RBMClassifier(hidden, objective=objective, max_updates=40, random_state=0).fit(X, labels)
    assert fitted.n_updates_ == 40
    if known:
        assert fitted.score(X, y) > 0.9


# Probabilities
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_probabilities_are_those_of_enumeration(objective: str) -> None:
    X, y = flags()
    classifier = small(objective=objective, joint=0.3, learning_rate=0.2, epochs=25).fit(X, y)
    weights = by_hand(classifier, X)
    expected = np.exp(weights - np.logaddexp.reduce(weights, 1)[:, None])
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(classifier.predict_log_proba(X), np.log(expected), rtol=0, atol=1e-8)
    np.testing.assert_array_equal(classifier.predict(X), classifier.classes_[expected.argmax(1)])
    assert np.ptp(expected[:, 0]) > 0.3  # it has learned something to compare
    states = torch.cat([torch.from_numpy(X), torch.full((len(X), 3), torch.nan)], 1)
    found = hm.tasks.predict(classifier.machine_, states, 1)[:, 0]
    np.testing.assert_allclose(classifier.predict_proba(X), found, rtol=0, atol=1e-10)


def test_scores_are_those_of_enumeration() -> None:
    X, y = flags()
    classifier = small(objective="joint", learning_rate=0.1).fit(X, y)
    every = np.array(list(itertools.product((0.0, 1.0), repeat=6)))
    log_z = np.logaddexp.reduce(by_hand(classifier, every).ravel())
    assert classifier.log_partition_.value == pytest.approx(log_z, abs=1e-8)
    assert classifier.log_partition_.standard_error == 0
    weights = by_hand(classifier, X) - log_z
    np.testing.assert_allclose(
        classifier.score_samples(X), np.logaddexp.reduce(weights, 1), rtol=0, atol=1e-8
    )
    joint = classifier.score_samples(X)[:, None] + classifier.predict_log_proba(X)  # ln p(x, y)
    np.testing.assert_allclose(joint, weights, rtol=0, atol=1e-8)


def test_log_probabilities_do_not_underflow() -> None:
    X, y = blobs()
    classifier = small(epochs=1).fit(X, y)
    with torch.no_grad():
        classifier.machine_.layers[1].bias[0, 0] = -2000.0
    assert (classifier.predict_proba(X)[:, 0] == 0).all()
    assert np.isfinite(classifier.predict_log_proba(X)).all()


# Labels
# --------------------------------------------------------------------------------


def _missing_as(kind: str, y: np.ndarray, gone: np.ndarray):
    if kind == "NaN":
        return np.where(gone, np.nan, y)
    if kind == "NaN beside text":
        return [float("nan") if g else f"t{v}" for v, g in zip(y, gone, strict=True)]
    if kind == "-1":
        return np.where(gone, -1, y)
    return [None if g else v for v, g in zip(y.tolist(), gone, strict=True)]


@pytest.fixture(scope="module")
def without_some() -> RBMClassifier:
    """Has learned from rows of which a third have None for a label."""
    X, y = flags()
    return small(joint=0.5).fit(X, _missing_as("None", y, np.arange(len(y)) % 3 == 1))


@pytest.mark.parametrize("kind", ["NaN", "-1", "NaN beside text"])
def test_missing_labels_are_one_thing_however_they_are_written(
    kind: str, without_some: RBMClassifier
) -> None:
    X, y = flags()
    gone = np.arange(len(y)) % 3 == 1
    missing_label = -1 if kind == "-1" else None
    classifier = small(joint=0.5, missing_label=missing_label).fit(X, _missing_as(kind, y, gone))
    assert len(classifier.classes_) == 3
    np.testing.assert_array_equal(classifier.predict_proba(X), without_some.predict_proba(X))
    if kind == "NaN":
        everything = small(joint=0.5).fit(X, y)
        assert not np.allclose(classifier.predict_proba(X), everything.predict_proba(X))


def test_rows_without_a_label_teach_a_generative_machine_only() -> None:
    X, y = flags(400)
    y = y.astype(float)
    y[40:] = np.nan
    discriminative = {"objective": "discriminative", "batch_size": 400, "clip_norm": None}
    with_others = small(**discriminative, optimizer="sgd", learning_rate=1.0).fit(X, y)
    without = small(**discriminative, optimizer="sgd", learning_rate=0.1)
    # The first layer starts at the marginals of all rows, which p(y | x) does not read.
    without.fit(X[:40], y[:40])
    np.testing.assert_allclose(with_others.predict_proba(X), without.predict_proba(X), atol=1e-5)
    hybrid = small(joint=0.5, learning_rate=0.02, epochs=6, batch_size=40)
    mean = [hybrid.fit(X[:rows], y[:rows]).score_samples(flags(400, 1)[0]).mean() for rows in (40, 400)]
    assert mean[1] > mean[0]


@pytest.mark.parametrize(
    ("y", "error", "words"),
    [
        (None, ValueError, "requires y to be passed"),
        ([np.nan] * 4, ValueError, "y: expected a label in at least one row"),
        ([1, 1, None, 1], ValueError, "one class"),
        ([0, 1], ValueError, "inconsistent"),
    ],
)
def test_what_are_no_labels(y, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        small().fit(np.eye(4), y)


# Weights
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_whole_weights_are_repetitions(objective: str) -> None:
    """Where a batch holds all rows; smaller ones hold other rows in one case than in the other."""
    X, y = blobs(30)
    weights = np.arange(30) % 3
    one = small(objective=objective, joint=0.3).fit(X, y, sample_weight=weights)
    other = small(objective=objective, joint=0.3).fit(X.repeat(weights, 0), y.repeat(weights))
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)


# Samples
# --------------------------------------------------------------------------------


def test_samples_given_a_label() -> None:
    X, y = blobs(300)
    classifier = small(objective="joint", n_hidden=8, epochs=80, learning_rate=0.06).fit(X, y)
    for label in classifier.classes_:
        rows, labels = classifier.sample(200, label=label, sweeps=100, random_state=1)
        assert rows.shape == (200, 2) and set(labels) == {label}
        distance = np.abs(rows.mean(0) - X[y == label].mean(0)) / X[y == label].std(0)
        assert distance.max() < 1.2  # the clouds are four deviations apart
    _, labels = classifier.sample(3, label=["cedar", "ash", "cedar"], sweeps=2)
    assert list(labels) == ["cedar", "ash", "cedar"]
    _, labels = classifier.sample(300, sweeps=100, random_state=1)
    assert set(labels) == set(classifier.classes_)


def test_what_a_discriminative_machine_does_not_know() -> None:
    X, y = flags()
    for settings in ({"objective": "discriminative"}, {"joint": 0.0}):
        classifier = small(**settings).fit(X, y)
        with pytest.raises(ValueError, match="expected the objective hybrid or joint for sample, received d"):
            classifier.sample(2)
        with pytest.raises(ValueError, match="expected the objective hybrid or joint for score_samples, rec"):
            classifier.score_samples(X)
    classifier = small().fit(X, y)
    with pytest.raises(ValueError, match="label: expected the classes"):
        classifier.sample(2, label=7)


# As scikit-learn has it
# --------------------------------------------------------------------------------
