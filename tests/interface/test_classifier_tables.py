"""The classifier on tables and on rows with missing cells, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.estimators import RBMClassifier
from harmonium.sums import log_weights
from harmonium.tables import Codec

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

ROWS = 150
RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, ROWS)
LABEL = np.array(["ash", "beech", "cedar"])[GROUP]
FRAME = pandas.DataFrame(
    {
        "height": RANDOM.normal(170.0 + 10 * GROUP, 4.0),
        "soil": np.array(["clay", "sand", "chalk"])[np.where(RANDOM.random(ROWS) < 0.8, GROUP, 0)],
        "wet": RANDOM.random(ROWS) < 0.1 + 0.4 * GROUP,
    }
)
HOLED = FRAME.mask(RANDOM.random(FRAME.shape) < 0.2)
HOLED.loc[HOLED.isna().all(axis=1), "wet"] = True
BITS = (RANDOM.random((ROWS, 6)) < np.where(np.arange(6) // 2 == GROUP[:, None], 0.85, 0.2)).astype(float)


def small(**settings) -> RBMClassifier:
    usual = {"n_hidden": 5, "epochs": 30, "averaging": None, "learning_rate": 0.05, "random_state": 0}
    return RBMClassifier(method="chains", **(usual | settings))


@pytest.fixture(scope="module")
def trees() -> RBMClassifier:
    return small(joint=0.3).fit(HOLED, LABEL)


def test_a_table_with_holes_is_learnt_from(trees) -> None:
    assert list(trees.feature_names_in_) == list(FRAME) and trees.score(HOLED, LABEL) > 0.7
    kinds = [layer.kind for layer in trees.machine_.layers]
    assert kinds == ["gaussian", "categorical", "bernoulli", "categorical", "bernoulli"]
    rows, labels = trees.sample(5, label="cedar", sweeps=10)
    assert isinstance(rows, pandas.DataFrame) and list(rows) == list(FRAME) and set(labels) == {"cedar"}
    rows, labels = trees.sample(4, given={"soil": "sand"}, sweeps=10)
    assert set(rows["soil"]) == {"sand"} and len(labels) == 4


def by_hand(classifier, bits: np.ndarray) -> np.ndarray:
    """p(y | what a row of bits shows) from all completions."""
    machine, classes = classifier._fitted.double(), len(classifier.classes_)
    total = np.zeros((len(bits), classes))
    for i, row in enumerate(bits):
        free = np.flatnonzero(np.isnan(row))
        for values in itertools.product([0.0, 1.0], repeat=len(free)):
            full = row.copy()
            full[free] = values
            for y in range(classes):
                v = np.concatenate([full, np.eye(classes)[y]])[None]
                total[i, y] += np.exp(float(-machine.free_energy(torch.from_numpy(v))))
    return total / total.sum(1, keepdims=True)


@pytest.mark.parametrize("objective", ["joint", "hybrid"])
def test_labels_given_what_a_row_shows(objective: str) -> None:
    bits, rate = BITS[:60], 0.2 if objective == "joint" else 0.05
    holed = np.where(RANDOM.random(bits.shape) < 0.4, np.nan, bits)
    holed[np.isnan(holed).all(1), 0] = 1
    classifier = small(objective=objective, epochs=60, learning_rate=rate).fit(holed, LABEL[:60])
    few = holed[:12]
    expected = by_hand(classifier, few)
    assert expected.std(0).max() > 0.02
    np.testing.assert_allclose(classifier.predict_proba(few), expected, atol=1e-9)


def test_scores_of_what_a_row_shows(trees) -> None:
    machine = trees._fitted.double()
    v = torch.from_numpy(trees.encoder_.encode(HOLED))
    blank = torch.full((ROWS, 3), torch.nan, dtype=torch.float64)
    slopes = np.nansum(trees.encoder_.log_jacobian(v.numpy()), 1)
    weights = log_weights(machine.hamiltonian(), torch.cat([v, blank], 1)).detach().numpy()
    codec = Codec(trees.encoder_, trees.encoder_.layers)
    shares = codec.log_shares(HOLED, trees.machine_).sum(1).numpy()
    expected = weights + slopes + shares - trees.log_partition_.value
    np.testing.assert_allclose(trees.score_samples(HOLED), expected, atol=1e-9)
    labels = torch.eye(3, dtype=torch.float64).repeat_interleave(ROWS, 0)
    weights = log_weights(machine.hamiltonian(), torch.cat([v.repeat(3, 1), labels], 1)).detach().numpy()
    joint = weights.reshape(3, ROWS).T + (slopes + shares - trees.log_partition_.value)[:, None]
    found = trees.score_samples(HOLED)[:, None] + trees.predict_log_proba(HOLED)  # ln p(x, y)
    np.testing.assert_allclose(found, joint, atol=1e-9)


def test_real_cells_beside_many_hidden_units_are_drawn_or_refused() -> None:
    classifier = small(n_hidden=40, epochs=5).fit(HOLED, LABEL)
    few = HOLED[:8]
    assert few["height"].isna().any()
    assert np.allclose(classifier.predict_proba(few).sum(1), 1)
    with pytest.raises(ValueError, match=r"X: expected .*leave these out"):
        classifier.score_samples(few)


def test_new_categories_and_blank_rows(trees) -> None:
    new = FRAME.iloc[:2].assign(soil=["clay", "moss"])
    same = trees.predict_proba(new.assign(soil=["clay", None]))
    with pytest.warns(UserWarning, match="taken as missing: 'moss' in column 'soil'"):
        np.testing.assert_array_equal(trees.predict_proba(new), same)
    blank = np.repeat(np.arange(ROWS)[:, None] == 1, 3, 1)
    with pytest.warns(
        UserWarning, match=rf"nothing is learned from 1 of {ROWS} rows, the first of them row 1"
    ):
        small(epochs=2).fit(FRAME.mask(blank), LABEL)
    with pytest.raises(ValueError, match="all of row 1 is missing"):
        trees.predict(FRAME.iloc[:3].mask(np.repeat([[False], [True], [False]], 3, 1)))


def test_file_and_machine(trees, tmp_path) -> None:
    trees.save(tmp_path / "trees.safetensors")
    again = RBMClassifier.load(tmp_path / "trees.safetensors")
    np.testing.assert_array_equal(again.predict_proba(HOLED), trees.predict_proba(HOLED))
    np.testing.assert_array_equal(again.score_samples(HOLED), trees.score_samples(HOLED))
    assert again.get_params()["joint"] == 0.3 and list(again.feature_names_in_) == list(FRAME)
    machine = hm.load(tmp_path / "trees.safetensors")
    assert machine.metadata["label"]["values"] == ["ash", "beech", "cedar"]
    numbered = small(epochs=1, objective="discriminative").fit(FRAME, GROUP)
    copy = RBMClassifier.from_machine(numbered.machine_)
    assert copy.classes_.dtype.kind == "i" and copy.classes_.tolist() == [0, 1, 2]
    around = RBMClassifier.from_machine(machine)
    assert list(around.classes_) == ["ash", "beech", "cedar"]
    np.testing.assert_array_equal(around.predict(HOLED), trees.predict(HOLED))
    with pytest.raises(ValueError, match="machine: expected a label as its last visible layer"):
        RBMClassifier.from_machine(hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)]))
    for other in (hm.RBM, hm.DBM, hm.RBMOutlier):
        with pytest.raises(ValueError, match=r"machine: expected one of rows without .* RBMClassifier\.load"):
            other.from_machine(machine)
    del machine.metadata["estimator"]
    machine.save(tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match=r"machine: expected one of rows without .* RBMClassifier\.load"):
        hm.RBM.load(tmp_path / "bare.safetensors")


@pytest.mark.nightly
def test_weights_of_classes_are_weights_of_their_rows() -> None:
    label = np.where(np.arange(ROWS) % 10 == 0, "rare", "usual")
    weighted = small(epochs=5, class_weight={"rare": 4.0, "usual": 1.0}).fit(FRAME, label)
    same = small(epochs=5).fit(FRAME, label, sample_weight=np.where(label == "rare", 4.0, 1.0))
    np.testing.assert_array_equal(weighted.predict_proba(FRAME), same.predict_proba(FRAME))
    balanced = RBMClassifier(class_weight="balanced", random_state=0).fit(FRAME, label)
    plain = RBMClassifier(random_state=0).fit(FRAME, label)
    assert balanced.predict_proba(FRAME)[:, 0].mean() > 3 * plain.predict_proba(FRAME)[:, 0].mean()
    with pytest.raises(ValueError, match="class_weight"):
        small(class_weight={"usul": 1.0}).fit(FRAME, label)
