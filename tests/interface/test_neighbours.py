"""Labels from neighbours: by hand on a small graph, where to believe them, and in the classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonium.estimators import RBMClassifier
from harmonium.estimators._neighbours import Neighbours, from_neighbours

torch.set_num_threads(1)

SETTINGS = {"n_hidden": 8, "epochs": 150, "learning_rate": 0.05, "random_state": 0}


def rings(rows: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two rings about one centre, which no line parts, shuffled."""
    random = np.random.default_rng(seed)
    group, angle = random.permutation(np.arange(rows) % 2), 2 * np.pi * random.random(rows)
    radius = 1 + 2 * group + random.normal(size=rows) * 0.1
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), group


def clouds(rows: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of 12 columns of 0 and 1."""
    random = np.random.default_rng(seed)
    group = random.permutation(np.arange(rows) % 3)
    likely = np.where(np.arange(12) // 4 == group[:, None], 0.9, 0.1)
    return (random.random((rows, 12)) < likely).astype(float), group


def hidden(y: np.ndarray, labels: int) -> np.ndarray:
    """Codes of the first few rows of each class, -1 of all others."""
    codes = np.full(len(y), -1)
    for label in np.unique(y):
        codes[np.flatnonzero(y == label)[:labels]] = label
    return codes


def by_hand(points: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Poisson learning with dense matrices, the edges one by one."""
    rows = len(points)
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    np.fill_diagonal(distance, np.inf)
    near = np.argsort(distance, 1)[:, :10]
    reach = np.sort(distance, 1)[:, 9]
    weights = np.zeros((rows, rows))
    for i in range(rows):
        for j in near[i]:
            weights[i, j] = weights[j, i] = np.exp(-(distance[i, j] ** 2) / (reach[i] * reach[j]))
    weights = weights / weights.sum(1).mean() + 0.01 / rows
    laplacian = np.diag(weights.sum(1)) - weights
    source = (codes[:, None] == np.unique(codes[codes >= 0])).astype(float)
    source[codes >= 0] -= source[codes >= 0].mean(0)
    scores = np.linalg.pinv(laplacian) @ source
    scores -= weights.sum(1) @ scores / weights.sum()
    return np.where(codes >= 0, codes, scores.argmax(1))


def test_labels_are_those_of_poisson_learning_by_hand() -> None:
    random = np.random.default_rng(0)
    for count in (1, 4):
        points = random.normal(size=(60, 2))
        codes = hidden(random.integers(0, 3, 60), count)
        found = Neighbours(points).labels(codes)
        expected = by_hand(points, codes)
        np.testing.assert_array_equal(found, expected)
        assert len(set(expected)) == 3


def test_one_label_a_class_fills_two_rings() -> None:
    points, group = rings()
    np.testing.assert_array_equal(Neighbours(points).labels(hidden(group, 1)), group)


def test_rows_out_of_reach_and_equal_rows_get_a_label() -> None:
    points, group = rings()
    points[:20] = 50.0  # equal, and no label among them
    codes = hidden(group, 40)
    codes[:20] = -1
    found = Neighbours(points).labels(codes)
    assert set(found) == {0, 1}
    np.testing.assert_array_equal(found[20:], group[20:])


def test_copies_of_a_row_do_not_part_the_graph() -> None:
    points, group = clouds()
    found = Neighbours(points.repeat(12, 0)).labels(hidden(group.repeat(12), 1))
    np.testing.assert_array_equal(found, Neighbours(points).labels(hidden(group, 1)).repeat(12))
    assert (found == group.repeat(12)).mean() > 0.9


def test_neighbours_are_believed_where_they_know() -> None:
    points, group = rings()
    assert Neighbours(points).know(hidden(group, 20))
    random = np.random.default_rng(1)
    noise = random.normal(size=(150, 30))
    line = (noise[:, 0] + noise[:, 1] > 0).astype(int)  # 28 columns lead neighbours astray
    assert not Neighbours(noise).know(hidden(line, 60))
    assert Neighbours(noise).know(hidden(line, 1))  # nothing to hold out


def test_what_is_left_as_it_was() -> None:
    points, group = rings()
    label = torch.nn.functional.one_hot(torch.from_numpy(group), 2).double()
    assert torch.equal(from_neighbours(points, label, always=True), label)
    alone = label.masked_fill(torch.from_numpy(group == 1)[:, None], torch.nan)
    assert torch.equal(from_neighbours(points, alone, always=True).isnan(), alone.isnan())
    label[30:] = torch.nan
    equal = np.ones_like(points)
    assert torch.equal(from_neighbours(equal, label, always=True).isnan(), label.isnan())
    assert not from_neighbours(points, label, always=True).isnan().any()


@pytest.mark.nightly
def test_few_labels_spread_to_a_classifier() -> None:
    X, y = clouds()
    some = hidden(y, 1)
    settings = {**SETTINGS, "missing_label": -1}
    classifier = RBMClassifier(**settings).fit(X, some)
    assert classifier.score(X, y) > 0.9
    alone = RBMClassifier(**settings, unlabelled="density").fit(X, some)
    assert np.abs(classifier.predict_proba(X) - alone.predict_proba(X)).max() > 0.1


@pytest.mark.parametrize("unlabelled", ["auto", "neighbours"])
def test_labels_of_rows_that_do_not_count_are_not_spread(unlabelled: str) -> None:
    X, y = clouds()
    some, weights = hidden(y, 5), np.ones(len(y))
    weights[y == 2] = np.where(some[y == 2] >= 0, 1.0, 0.0)
    wrong = np.where(weights == 0, 0, some)
    settings = {**SETTINGS, "epochs": 3, "missing_label": -1, "unlabelled": unlabelled}
    one, other = (RBMClassifier(**settings).fit(X, labels, weights) for labels in (some, wrong))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_where_neighbours_do_not_know_auto_is_density() -> None:
    random = np.random.default_rng(0)
    X = (random.random((150, 30)) < 0.5).astype(float)
    some = np.where(np.arange(150) < 120, (X[:, 0] > 0).astype(int), -1)
    settings = {**SETTINGS, "n_hidden": 60, "epochs": 5, "missing_label": -1}
    auto, density, neighbours = (
        RBMClassifier(**settings, unlabelled=how).fit(X, some).predict_proba(X)
        for how in ("auto", "density", "neighbours")
    )
    np.testing.assert_array_equal(auto, density)
    assert not np.array_equal(auto, neighbours)
