"""How long estimators learn, what they start from, and what they keep: settings that all of them share."""

from __future__ import annotations

import pickle
import re
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import harmonium as hm
from harmonium._settings import AtLeast0
from harmonium.data import Rows, bars_and_stripes
from harmonium.estimators import DBM, RBM, RBMClassifier, RBMOutlier
from harmonium.estimators._training import plan
from harmonium.machine import join_layers
from harmonium.tables import Fitting
from harmonium.tables.recipe import highest_rate
from harmonium.training import TrainingDiverged

torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = np.repeat(bars_and_stripes(3), 6, 0).astype(np.float64)
LABEL = (BITS.reshape(-1, 3, 3).std(1).max(1) > 0).astype(int)
ALL = (RBM, DBM, RBMClassifier, RBMOutlier)


def small(kind, **settings):
    rate = {RBMClassifier: 0.05}.get(kind, 0.3)
    given = {"learning_rate": rate, "random_state": 0, "method": "chains", **settings}
    return kind((4, 3) if kind is DBM else 4, **given)


def budget(estimator, rows, layers=None):
    deep = [hm.Bernoulli(3)] if isinstance(estimator, DBM) else []
    label, share = ([hm.Categorical(1, 2)], 0.03) if isinstance(estimator, RBMClassifier) else ([], None)
    visible, hidden = layers or [hm.Bernoulli(9), hm.Bernoulli(4)]
    machine = join_layers([visible, *label], [hidden, *deep])
    nothing = torch.zeros(1, machine.visible_width).expand(rows, -1)  # columns that do not vary
    fitting = Fitting(machine, Rows.of(nothing), share=share)
    plan(estimator, fitting)
    return fitting.decided["updates"], fitting.decided["learning_rate"]


# How long
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_few_rows_are_not_few_updates(kind) -> None:
    default = 1000 if kind is RBMClassifier else 800
    assert budget(kind(), 80)[0] == default
    assert budget(kind(max_updates=7), 80)[0] == 7
    assert budget(kind(epochs=3, batch_size=10), 80)[0] == 24
    assert budget(kind(), 1_000_000)[0] == {RBMClassifier: 200_000, DBM: 12_000}.get(kind, 10_000)
    assert small(kind, max_updates=5).fit(BITS, LABEL).n_updates_ == 5


UNITS = {
    "binary": ([hm.Bernoulli(9), hm.Bernoulli(4)], 3.0, 0.3),
    "spin": ([hm.Spin(9), hm.Bernoulli(4)], 0.75, 0.075),
    "categorical": ([hm.Categorical(3, 3), hm.Bernoulli(4)], 0.75, 0.3),
    "counts": ([hm.Binomial(9, 8), hm.Bernoulli(4)], 0.5, 0.1),
    "real": ([hm.Gaussian(9), hm.Bernoulli(4)], 0.5, 0.1),
}


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("batch", [10, 100, 1000])
def test_rate_and_length_go_as_far_as_the_rows_reach(units, batch) -> None:
    layers, reach, highest = UNITS[units]
    highest *= min(1, batch / 100)
    for rows in (2, 80, 150, 400, 1500, 60_000, 3_000_000):
        updates, rate = budget(RBM(batch_size=batch), rows, layers)
        assert updates >= max(500, -(-rows // min(batch, rows))) and 0 < rate <= highest
        assert updates * rate <= reach * rows + highest
        if rows == 150:
            assert updates * rate == pytest.approx(reach * rows, abs=highest)
        if rows == 60_000:
            assert rate == highest and updates == 5000 * max(1, 100 // batch)


def test_rate_falls_where_columns_vary_together() -> None:
    """Spins have a quarter of the rate of their image in 0 and 1; whole weights stand for repeated rows."""
    level = RANDOM.random((600, 1)) < 0.4
    bits = np.where(level, RANDOM.random((600, 200)) < 0.9, RANDOM.random((600, 200)) < 0.2).astype(
        np.float32
    )
    expected = 30 / np.square(np.cov(bits.T, bias=True)).sum()
    assert 0 < expected < 0.3

    def rate(X, visible=hm.Bernoulli, hidden=hm.Bernoulli, weights=None):
        machine = hm.BoltzmannMachine([visible(200), hidden(5)])
        return highest_rate(machine, Rows.of(X, missing=True), weights)

    assert rate(bits) == pytest.approx(expected, rel=1e-5)
    assert rate(2 * bits - 1, hm.Spin) == pytest.approx(expected / 4, rel=1e-5)
    assert rate(2 * bits - 1, hm.Spin, hm.Spin) == pytest.approx(expected / 16, rel=1e-5)
    twice = torch.tensor([2.0, 1.0]).repeat(300)
    assert rate(bits, weights=twice) == pytest.approx(rate(np.repeat(bits, twice.int(), 0)), rel=1e-5)
    mean = np.where(np.arange(600)[:, None] % 3, bits, np.nan)
    seen = rate(mean)
    assert seen == pytest.approx(rate(bits[np.arange(600) % 3 > 0]), rel=1e-5)
    assert rate(bits * (np.arange(200, dtype=np.float32) < 9)) == 0.3


def test_a_given_length_or_rate_leaves_the_other_one_as_it_is() -> None:
    updates, rate = budget(RBM(), 80)
    assert (updates, rate) == (800, 0.3)
    assert budget(RBM(epochs=7000), 80) == (7000, rate)
    assert budget(RBM(max_updates=9), 80) == (9, rate)
    assert budget(RBM(learning_rate=0.3), 80) == (updates, 0.3)
    assert budget(RBM(optimizer="adam", centred=False), 80) == (updates, 0.01)


@pytest.mark.parametrize("kind", [RBM, DBM])
def test_a_run_that_was_too_short_says_so(kind) -> None:
    sizes = (16, 8) if kind is DBM else 16
    with pytest.warns(ConvergenceWarning, match=rf"{kind.__name__}: .*of 200 updates; more epochs"):
        kind(sizes, max_updates=200, random_state=0).fit(BITS, LABEL)


def test_a_run_that_was_long_enough_does_not() -> None:
    points = RANDOM.normal(size=(80, 2)) + 4 * (np.arange(80)[:, None] % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        small(RBM, max_updates=200).fit(points)


@pytest.mark.parametrize("averaging", [None, 0.9])
def test_divergence_is_answered_by_a_lower_rate(averaging) -> None:
    points = RANDOM.normal(size=(60, 4)) @ RANDOM.normal(size=(4, 4))
    settings = {"max_updates": 40, "clip_norm": None, "averaging": averaging, "optimizer": "adam"}
    settings |= {"centred": False}
    with pytest.warns(RuntimeWarning, match=r"diverged after \d+ updates at .*a third of it") as said:
        made = small(RBM, **settings, learning_rate=90.0).fit(points)
    times = len([warning for warning in said if "a third of it" in str(warning.message)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        direct = small(RBM, **settings, learning_rate=90.0 / 3**times).fit(points)
    for one, other in zip(made.machine_.parameters(), direct.machine_.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert made.history_[0]["learning_rate"] == pytest.approx(90.0 / 3**times, rel=0.1)
    with pytest.raises(TrainingDiverged):
        small(RBM, **settings, learning_rate=90.0, on_divergence="raise").fit(points)


@pytest.mark.parametrize("kind", ALL)
def test_a_warm_start_goes_on(kind) -> None:
    warm = small(kind, warm_start=True, max_updates=20).fit(BITS, LABEL)
    before = [p.detach().clone() for p in warm.machine_.parameters()]
    machine = warm.machine_
    warm.set_params(learning_rate=0.0).fit(BITS, LABEL)
    assert warm.n_updates_ == 40 and warm.machine_ is not machine  # which stays as it was
    if kind is not RBMClassifier:  # whose machine is an average, which forgets
        for left in (machine, warm.machine_):
            assert all(torch.equal(a, b) for a, b in zip(before, left.parameters(), strict=True))
    with pytest.raises(ValueError, match="8 features"):
        warm.fit(BITS[:, :8], LABEL)


def test_a_pass_reads_all_rows_at_one_rate_and_a_warm_start_their_weights() -> None:
    made = small(RBM, batch_size=20, max_updates=2).partial_fit(BITS)
    assert [record["learning_rate"] for record in made.history_] == [0.3] * 5
    warm, weighted = (small(RBM, warm_start=True, max_updates=5).fit(BITS) for _ in range(2))
    warm.fit(BITS), weighted.fit(BITS, sample_weight=1.0 + LABEL)
    assert not torch.equal(warm.machine_.couplings[0].weight, weighted.machine_.couplings[0].weight)


STRUCTURE = {"n_hidden": 5, "hidden_kind": "spin", "hidden_states": 3, "visible": "spin", "dtype": "float64"}


@pytest.mark.parametrize("name", STRUCTURE)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.mostly_nightly(2)
def test_training_that_goes_on_refuses_what_it_would_not_read(kind, name) -> None:
    made = small(kind, max_updates=3).fit(BITS, LABEL)
    value = (4, 2) if (kind, name) == (DBM, "n_hidden") else STRUCTURE[name]
    made.set_params(**{name: value}, warm_start=True)
    said = rf"{name}: expected .* as in the machine that is to go on .* warm_start=False begins again"
    with pytest.raises(ValueError, match=said):
        made.fit(BITS, LABEL)
    if kind is not RBMClassifier:
        with pytest.raises(ValueError, match=said):
            made.partial_fit(BITS)
    assert made.set_params(warm_start=False).fit(BITS, LABEL).n_updates_ == 3
    assert made.set_params(warm_start=True).fit(BITS, LABEL).n_updates_ == 6


# Parameters
# --------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class Sparse(RBM):
    """An estimator with one more parameter, as ``docs/design.md`` has it."""

    l1: AtLeast0 = 0.0


@pytest.mark.parametrize("value", ["no", 1])
def test_a_choice_that_the_data_may_make_is_true_or_false(value) -> None:
    with pytest.raises(TypeError, match="centred: expected True or False, received"):
        small(RBM, centred=value).fit(BITS)


def test_a_parameter_is_one_line() -> None:
    made = clone(Sparse(4, l1=0.3, max_updates=200, random_state=0))
    assert made.get_params()["l1"] == 0.3
    plain = RBM(4, max_updates=200, random_state=0).fit(BITS).machine_.couplings[0].weight
    assert made.fit(BITS).machine_.couplings[0].weight.abs().sum() < plain.abs().sum() / 3
    with pytest.raises(ValueError, match=r"l1: expected a finite number of at least 0, received -1\.0"):
        made.set_params(l1=-1.0).fit(BITS)


@pytest.mark.parametrize("kind", ALL)
def test_every_parameter_is_documented(kind) -> None:
    text = f"{kind.__doc__}{RBM.__doc__}"
    assert [name for name in kind().get_params() if not re.search(rf"^ +{name}: ", text, re.M)] == []


# Files and machines
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RBM, DBM])
def test_files_and_machines(kind, tmp_path) -> None:
    X = RANDOM.normal(size=(50, 3)) * 5 + 100
    estimator = small(kind, max_updates=20, hidden_kind="spin", rule="cd").fit(X)
    estimator.save(tmp_path / "machine.safetensors")
    again = kind.load(tmp_path / "machine.safetensors")
    np.testing.assert_array_equal(again.score_samples(X), estimator.score_samples(X))
    np.testing.assert_array_equal(again.transform(X), estimator.transform(X))
    assert again.get_params() == {**estimator.get_params(), "n_hidden": again.n_hidden}
    assert tuple(np.atleast_1d(again.n_hidden)) == tuple(np.atleast_1d(estimator.n_hidden))
    assert again.n_updates_ == 20 and again.set_params(warm_start=True).fit(X).n_updates_ == 40
    with pytest.raises(FileExistsError, match="overwrite replaces it"):
        estimator.save(tmp_path / "machine.safetensors")
    machine = hm.load(tmp_path / "machine.safetensors")
    around = kind.from_machine(machine, learning_rate=0.5)
    np.testing.assert_array_equal(around.transform(X), estimator.transform(X))
    assert around.hidden_kind == "spin" and around.learning_rate == 0.5
    assert np.array_equal(pickle.loads(pickle.dumps(around)).transform(X), around.transform(X))


def test_machines_of_another_form() -> None:
    deep = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3), hm.Bernoulli(2)])
    with pytest.raises(ValueError, match="machine: expected one hidden layer for RBM, received 2; DBM takes"):
        RBM.from_machine(deep)
    states = np.eye(4)
    assert DBM.from_machine(deep).transform(states).shape == (4, 5)
    with pytest.raises(TypeError, match="machine: expected a BoltzmannMachine"):
        RBM.from_machine("machine.safetensors")


def test_a_damaged_description_is_refused_by_name(tmp_path) -> None:
    rbm = small(RBM, max_updates=2).fit(BITS)
    for about in ({"name": "RBM", "parameters": {"n_units": 3}}, {"parameters": [1]}, "RBM"):
        rbm.machine_.metadata["estimator"] = about
        rbm.machine_.save(tmp_path / "m.safetensors", overwrite=True)
        with pytest.raises(ValueError, match=r"path: .*m\.safetensors"):
            RBM.load(tmp_path / "m.safetensors")


# Weights
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [RBM, DBM, RBMOutlier])
def test_whole_weights_are_repetitions(kind) -> None:
    """Where a batch holds all rows, in float64, from a start that draws no rows."""
    X = RANDOM.normal(size=(20, 3)) * (1.0, 5.0, 0.1)
    weights = np.arange(20) % 3
    settings = {"dtype": "float64", "initial_std": 0.1, "max_updates": 20, "chains": 10}
    settings |= {"rule": "mean_field_pcd"} if kind is DBM else {}  # whose clamped phase draws nothing
    one = small(kind, **settings).fit(X, sample_weight=weights)
    other = small(kind, **settings).fit(X.repeat(weights, 0))
    np.testing.assert_allclose(one.score_samples(X), other.score_samples(X), rtol=1e-9)
    if kind is RBMOutlier:
        assert one.offset_ == pytest.approx(other.offset_, rel=1e-9)
    with pytest.raises(ValueError, match="sample_weight: expected one for each of 20 rows"):
        small(kind).fit(X, sample_weight=weights[1:])
