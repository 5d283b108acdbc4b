"""Outliers: the offset, the sign of decisions, weights, tables, and rows that cannot be judged."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score

import harmonium as hm
from harmonium.estimators import RBM, RBMOutlier
from harmonium.tables.tails import tails_of

torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
CLOUD = RANDOM.normal(size=(200, 2)) * (1.0, 10.0) + (5.0, 0.0)
FAR = np.array([[12.0, 0.0], [5.0, 90.0], [-4.0, -50.0]])


def small(**settings) -> RBMOutlier:
    return RBMOutlier(**{"n_hidden": 6, "method": "chains", "epochs": 30, "random_state": 0, **settings})


def test_far_rows_are_outliers() -> None:
    judge = small().fit(CLOUD)
    assert judge.predict(FAR).tolist() == [-1, -1, -1] and (judge.predict(CLOUD) == -1).mean() < 0.08
    scores = judge.score_samples(CLOUD)
    low, high = np.quantile(scores, [0.25, 0.75])
    assert judge.offset_ == pytest.approx(low - 2.5 * (high - low), abs=0.1)
    np.testing.assert_allclose(judge.decision_function(CLOUD), scores - judge.offset_)
    same = RBM(6, method="chains", epochs=30, random_state=0).fit(CLOUD)  # the machine is that of an RBM
    np.testing.assert_array_equal(same.score_samples(CLOUD), scores)


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_contamination_is_the_fraction_of_training_rows(share: float) -> None:
    judge = small(contamination=share).fit(CLOUD)
    assert (judge.predict(CLOUD) == -1).mean() == pytest.approx(share, abs=0.005)
    assert judge.offset_ == pytest.approx(np.quantile(judge.score_samples(CLOUD), share, method="higher"))


def test_tables_and_rows_that_are_not_whole() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"size": CLOUD[:, 0], "kind": np.where(CLOUD[:, 1] > 0, "a", "b")})
    holed = frame.mask(RANDOM.random(frame.shape) < 0.1).dropna(how="all")
    judge = small().fit(holed)
    assert judge.predict(pandas.DataFrame({"size": [5.0, 15.0], "kind": ["a", "b"]})).tolist() == [1, -1]
    far = pandas.DataFrame({"size": [5.0, 15.0, -5.0], "kind": None})
    np.testing.assert_array_equal(judge.predict(far), [1, -1, -1])
    whole = holed.dropna()
    unit = np.log(judge.encoder_.columns[0].scale)  # of sizes, which are judged as they are coded
    apart = judge.score_samples(whole) + unit - judge.offset_
    np.testing.assert_allclose(judge.decision_function(whole), apart)
    # The mean of ln p over what p(kind | size) says the kind may be; its draws are ten.
    column, kept = judge.encoder_.columns[0], judge._fitted.numbers  # 15 and -5 are beyond the others
    within = far.assign(size=far["size"].clip(*column.ends))
    p = np.exp([judge.score_samples(within.assign(kind=kind)) for kind in "ab"])
    expected = (p / p.sum(0) * np.log(p)).sum(0) + unit - judge.offset_
    shares = sum(x.log_falls(far["size"]) for x in tails_of(column))
    expected += shares + (kept["fall"] - 1) * (shares - kept["least_share"]).clip(upper=0)
    np.testing.assert_allclose(judge.decision_function(far), expected, atol=1.0)
    assert np.isfinite(small(epochs=2).fit(holed[holed.isna().any(axis=1)]).offset_)


@pytest.mark.nightly
def test_rows_of_a_table_are_judged_alike_on_every_scale() -> None:
    """Amounts and their logarithms have the same outliers, where amounts are coded by the logarithm."""
    pandas = pytest.importorskip("pandas")
    plain = pandas.DataFrame(RANDOM.normal(size=(150, 3)) @ RANDOM.normal(size=(3, 3)), columns=list("abc"))
    by_scale = {"none": plain, "log": np.exp(plain)}
    margins = []
    for transform, table in by_scale.items():
        kinds = {name: {"kind": "gaussian", "transform": transform} for name in table}
        judge = RBMOutlier(visible=kinds, random_state=0).fit(table)
        margins.append(judge.decision_function(table))
    np.testing.assert_allclose(*margins, atol=1e-9)
    found = margins[0] < np.quantile(margins[0], 0.05)
    assert np.abs(plain).max(axis=1)[found].mean() > np.abs(plain).max(axis=1)[~found].mean()


def test_files_and_machines(tmp_path) -> None:
    judge = small().fit(CLOUD)
    judge.save(tmp_path / "judge.safetensors")
    again = RBMOutlier.load(tmp_path / "judge.safetensors")
    assert again.offset_ == judge.offset_
    np.testing.assert_array_equal(again.decision_function(FAR), judge.decision_function(FAR))
    around = RBMOutlier.from_machine(hm.load(tmp_path / "judge.safetensors"), CLOUD)
    assert around.offset_ == judge.offset_
    with pytest.raises(ValueError, match=r"path.*expected the machine of a RBM, received a RBMOutlier's"):
        RBM.load(tmp_path / "judge.safetensors")


def test_a_threshold_is_that_of_the_machine_as_it_is() -> None:
    judge = small(epochs=5).fit(CLOUD)
    hm.train(judge.machine_, judge.encoder_.encode(CLOUD), rule="cd", updates=5)
    with pytest.raises(
        NotFittedError, match=r"offset_: .* one of before it changed; RBMOutlier.from_machine"
    ):
        judge.predict(FAR)
    around = RBMOutlier.from_machine(judge.machine_, CLOUD)
    assert around.predict(CLOUD).mean() > 0.8


def test_another_estimate_of_ln_z_moves_no_row_across_the_threshold(tmp_path) -> None:
    twins = np.repeat(np.random.default_rng(0).random((60, 3)) < 0.5, 4, axis=1).astype(float)
    rough = {"log_partition": "ais", "ais_chains": 2, "ais_temperatures": 1}
    judge = RBMOutlier(4, method="chains", max_updates=200, learning_rate=0.3, random_state=0, **rough).fit(
        twins
    )
    found, told = judge.log_partition_.value, judge.decision_function(twins)
    judge.set_params(log_partition="exact")
    assert abs(judge.log_partition_.value - found) > 0.1
    np.testing.assert_array_equal(judge.decision_function(twins), told)
    judge.save(tmp_path / "judge.safetensors")
    again = RBMOutlier.load(tmp_path / "judge.safetensors").set_params(**rough, random_state=1)
    np.testing.assert_array_equal(again.decision_function(twins), told)


def products(random: np.random.Generator) -> np.ndarray:
    """Five skewed numbers, and products and sums of them, which sometimes are far off."""
    z, off = random.gamma(2, 1, size=(300, 5)), 0.01 * random.standard_t(2.5, size=(300, 5))
    pairs = z[:, 0] * z[:, 1], z[:, 1] * z[:, 2], z[:, 3] + z[:, 4], 10 * z[:, 0], z[:, 2] / (1 + z[:, 3])
    return np.column_stack([z, np.column_stack(pairs) * (1 + off)])


@pytest.mark.nightly
def test_a_cell_beyond_the_range_is_not_hidden_among_rare_rows() -> None:
    """One number at ten times the largest, in a tenth of new rows: area under the curve, two tables each."""
    pandas = pytest.importorskip("pandas")
    for seed in range(2):
        random = np.random.default_rng(100 + seed)
        table = pandas.DataFrame(products(random)).add_prefix("x")
        train, new = table.iloc[:200], table.iloc[200:].reset_index(drop=True)
        judge = RBMOutlier(random_state=seed).fit(train)
        sound = judge.decision_function(new)
        moved = random.random(100) < 0.2
        beyond = new.copy()
        for row in np.flatnonzero(moved):
            j = random.integers(new.shape[1])
            beyond.iloc[row, j] = 10 * train.iloc[:, j].max()
        scores = judge.decision_function(beyond)
        assert roc_auc_score(~moved, scores) > 0.99
        np.testing.assert_array_equal(scores[~moved], sound[~moved])
        # Of what training saw it is ln p of the states, and so is the threshold.
        told = judge.decision_function(train) + judge.offset_
        low, high = np.quantile(told, [0.25, 0.75])
        assert judge.offset_ == pytest.approx(low - 2.5 * (high - low), abs=1.0)
        far = [new.iloc[:1].assign(x0=factor * train["x0"].max()) for factor in (1.5, 3, 10, 1e6)]
        falling = judge.decision_function(pandas.concat(far))
        assert (np.diff(falling) < 0).all()
        # Each nat of a cell beyond counts as often as the rows' ln p falls more slowly than their number.
        by_cells = judge.encoder_.log_shares(pandas.concat(far)).sum(1)
        fall = judge._fitted.numbers["fall"]
        assert fall > 1
        np.testing.assert_allclose(np.diff(falling), fall * np.diff(by_cells), rtol=1e-6)
