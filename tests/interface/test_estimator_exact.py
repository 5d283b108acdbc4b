"""Estimators on tables train without chains by default, and everything they answer is exact."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch

from harmonium._settings import settings_of
from harmonium.estimators import RBM
from harmonium.estimators._intake import validated
from harmonium.layers import Bernoulli
from harmonium.likelihood import HiddenStates, exact_log_likelihood
from harmonium.sums import log_weights, nothing_seen
from harmonium.tables import Codec, Fitting, table_training

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)
short = pytest.mark.usefixtures("short_fits")

ROWS = 160
RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, ROWS)
HEIGHT = RANDOM.normal(size=ROWS)
FRAME = pandas.DataFrame(
    {
        "height": 170 + 10 * HEIGHT,
        "weight": 70 + 9 * HEIGHT + RANDOM.normal(size=ROWS),
        "member": RANDOM.random(ROWS) < 0.1 + 0.4 * GROUP,
        "city": np.array(["Ulm", "Rom", "Bern"])[GROUP],
        "country": np.array(["D", "I", "CH"])[GROUP],
    }
)
GAPS = np.random.default_rng(1).random(FRAME.shape) < 0.2
GAPS[GAPS.all(1), 0] = False
HOLED = FRAME.mask(GAPS)
REAL = RANDOM.normal(size=(120, 3)) @ RANDOM.normal(size=(3, 3))
BITS = np.repeat(np.eye(4), 20, 0)


def states_of(rbm: RBM, rows: pandas.DataFrame) -> torch.Tensor:
    return rbm._fitted.visible(validated(rbm, rows))


@pytest.fixture(scope="module")
def rbm() -> RBM:
    return RBM(random_state=0).fit(HOLED)


# Which route
# --------------------------------------------------------------------------------


def is_exact(estimator: RBM) -> bool:
    return len(estimator.history_) > 0 and estimator._fitted.rule == ""


@pytest.mark.mostly_nightly(1)
@short
@pytest.mark.parametrize("X", [HOLED, REAL[:50], pandas.DataFrame(BITS.astype(bool))])
def test_tables_get_few_hidden_units_and_no_chains(X) -> None:
    made = RBM(random_state=0).fit(X)
    assert made.machine_.layers[-1].n_units == 8 and is_exact(made)
    assert made.transform(X).shape == (len(X), 8) and made.get_feature_names_out()[-1] == "rbm7"
    if X is HOLED:  # the same seed gives the same bits
        again = RBM(random_state=0).fit(X).machine_
        assert all(map(torch.equal, again.parameters(), made.machine_.parameters()))


def test_images_keep_chains_and_a_hundred_units() -> None:
    made = RBM(random_state=0).fit(BITS)
    assert made.machine_.layers[-1].n_units == 100 and not is_exact(made)
    wide = RBM(random_state=0, max_updates=2, n_hidden=13).fit(REAL)
    assert wide.machine_.layers[-1].n_units == 13 and not is_exact(wide)
    assert RBM(random_state=0, max_updates=2).fit(np.tile(BITS, 125)).machine_.layers[-1].n_units == 500


TRAINING = {
    **{"rule": "cd", "sweeps": 2, "chains": 7, "batch_size": 99, "epochs": 1, "max_updates": 2},
    **{"centred": False, "learning_rate": 0.05, "optimizer": torch.optim.Adam, "schedule": "constant"},
    **{"clip_norm": None, "weight_decay": 0.1, "averaging": 0.5, "initial_std": 0.1, "init": "normal,data"},
    "on_divergence": "raise",
}


@short
def test_no_option_of_training_changes_the_model() -> None:
    """The same graph, hidden units and parameters as without them, and one warning that names them."""
    declared = settings_of(RBM)
    assert {name for name, setting in declared.items() if setting.method == "chains"} == set(TRAINING)
    rows = FRAME[["city", "country"]][:40]
    plain = RBM(random_state=0).fit(rows)
    with pytest.warns(UserWarning, match=r"RBM: .* are not used by method='exact'.*='chains' uses") as said:
        made = RBM(random_state=0, **TRAINING).fit(rows)
    assert made.machine_.config() == plain.machine_.config()
    assert all(map(torch.equal, made.machine_.parameters(), plain.machine_.parameters()))
    (told,) = (str(each.message) for each in said if "not used" in str(each.message))
    assert {*told.removeprefix("RBM: ").partition(" are ")[0].split(", ")} == {*TRAINING}
    with pytest.warns(UserWarning, match=r"RBM: batch_size is not used by method='exact'.*='chains' uses it"):
        RBM(batch_size=10).fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        RBM(random_state=0, method="chains", epochs=1, batch_size=10).fit(rows)
        RBM(random_state=0, warm_start=True).fit(rows)


@short
def test_exact_sums_may_be_asked_for() -> None:
    made = RBM(6, method="exact", random_state=0).fit(BITS)  # pixels
    assert is_exact(made) and made.machine_.layers[-1].n_units == 6
    for refused, X, said in (
        (RBM(13), REAL, r"hidden units other than .* at most 12 .* \(Bernoulli\(13\)\)"),
        (RBM(), BITS, r"hidden units other than .* \(Bernoulli\(100\)\)"),
        (RBM(4, hidden_kind="spin"), REAL, r"hidden units other than .* \(Spin\(4\)\)"),
        (RBM(4), REAL[:1], "a single row"),
    ):
        with pytest.raises(ValueError, match=rf'method: expected "chains" or "auto" for .*{said}.*"exact"'):
            refused.set_params(method="exact").fit(X)
    with pytest.raises(ValueError, match=r'method: expected "auto" or "chains" for partial_fit'):
        RBM(4, method="exact").partial_fit(REAL)
    with pytest.raises(ValueError, match=r'method: expected .* warm_start goes on .* received "exact"'):
        made.set_params(warm_start=True).fit(BITS)


@pytest.mark.nightly
def test_a_machine_with_joined_columns_does_not_go_on(rbm) -> None:
    assert (0, 0) in rbm.machine_.edges
    with pytest.raises(ValueError, match=r"joined columns .* fit with warm_start=False"):
        pickle.loads(pickle.dumps(rbm)).partial_fit(FRAME)
    again = pickle.loads(pickle.dumps(rbm)).set_params(warm_start=True)
    with pytest.raises(ValueError, match=r"joined columns .* fit with warm_start=False"):
        again.fit(FRAME)
    assert again.machine_.config() == rbm.machine_.config()


# What it learns
# --------------------------------------------------------------------------------


def test_links_between_columns_of_all_kinds_are_learned(rbm) -> None:
    full = rbm.impute(HOLED)
    city = GAPS[:, 3] & ~GAPS[:, 4]
    assert (full["city"][city] == FRAME["city"][city]).mean() > 0.95
    weight = GAPS[:, 1] & ~GAPS[:, 0]
    error = (full["weight"] - FRAME["weight"])[weight]
    assert error.std() < 1.6 < 0.3 * FRAME["weight"].std()  # 1 is the noise
    rows = rbm.sample(500, random_state=0)
    assert np.corrcoef(rows["height"], rows["weight"])[0, 1] > 0.97
    assert (rows["city"].map({"Ulm": "D", "Rom": "I", "Bern": "CH"}) == rows["country"]).mean() > 0.8


@short
def test_rows_of_weight_zero_change_no_bit() -> None:
    masked = RBM(2, random_state=0).fit(HOLED[:60], sample_weight=np.r_[np.zeros(20), np.ones(40)])
    alone = RBM(2, random_state=0).fit(HOLED[20:60])
    assert masked.score(HOLED[20:60]) == alone.score(HOLED[20:60])


@short
@pytest.mark.parametrize("rows", [2, 3, 20])
def test_few_rows_and_hidden_units_are_enough(rows) -> None:
    made = RBM(3, random_state=0).fit(FRAME[:rows])
    assert is_exact(made) and made.machine_.layers[-1].n_units == 3
    assert np.isfinite(made.score(FRAME[:rows])) and not made.impute(HOLED[:rows]).isna().any().any()


@pytest.mark.nightly
def test_columns_that_do_not_vary_join_nothing() -> None:
    X = np.c_[REAL[:30], np.full(30, 3.0)]
    X[1:, 3] = np.where(np.arange(len(X) - 1) < 1, 4.0, 3.0)
    made = RBM(2, random_state=0, visible="gaussian").fit(X)
    assert np.isfinite(made.score(X))


# Exact answers
# --------------------------------------------------------------------------------


def test_scores_are_the_enumerated_ones(rbm) -> None:
    slopes = np.nansum(rbm.encoder_.log_jacobian(states_of(rbm, HOLED).numpy()), 1)
    shares = Codec(rbm.encoder_, rbm.encoder_.layers).log_shares(HOLED, rbm.machine_).sum(1).numpy()
    expected = exact_log_likelihood(rbm._fitted.double(), states_of(rbm, HOLED)).numpy() + slopes + shares
    np.testing.assert_allclose(rbm.score_samples(HOLED), expected, atol=1e-8)
    assert rbm.log_partition_.standard_error == 0


@torch.no_grad()
def test_hidden_means_given_holes_are_slopes_of_the_likelihood(rbm) -> None:
    """E[h | what a row shows] is the derivative of ln Σ exp(-E) by the bias of h."""
    machine, v = rbm._fitted.double(), states_of(rbm, HOLED[:20])
    bias, step = machine.layers[-1].bias.detach(), 1e-4
    expected = torch.empty(20, 8, dtype=torch.float64)
    for j in range(8):
        ends = []
        for move in (step, -2 * step, step):
            bias[j] += move
            ends.append(log_weights(machine.hamiltonian(), v).detach())
        expected[:, j] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(rbm.transform(HOLED[:20]), expected, atol=1e-7)


def test_visible_means_given_hidden_values_are_conditional(rbm) -> None:
    """Against draws of the columns given one hidden state, and with the joined columns by their precision."""
    machine = rbm._fitted.double()
    h = torch.tensor([[0.0, 1.0] * 4, [1.0, 1.0, 0.0, 0.0] * 2], dtype=torch.float64)
    table = HiddenStates.of(machine)
    expected = []
    for row in h:
        place = int((table.states == row).all(1).nonzero())
        p = torch.zeros(1, 256, dtype=torch.float64)
        p[0, place] = 1.0
        given = table.posterior(nothing_seen(table.machine))
        given.probabilities = p
        expected.append(given.moments().mean)
    shown = rbm.inverse_transform(h.numpy())
    means = rbm.encoder_.decode(torch.cat(expected))
    pandas.testing.assert_frame_equal(shown, means)
    assert list(rbm.inverse_transform(rbm.transform(HOLED))) == list(FRAME)


def test_imputation_and_draws_take_the_exact_distribution_by_default(rbm) -> None:
    exact = rbm.impute(HOLED, method="exact", random_state=0)
    pandas.testing.assert_frame_equal(rbm.impute(HOLED, random_state=0), exact)
    several = rbm.imputations(HOLED, 2, random_state=0)
    pandas.testing.assert_frame_equal(
        several[1], rbm.imputations(HOLED, 2, method="exact", random_state=0)[1]
    )
    drawn = rbm.sample(5, random_state=0)
    pandas.testing.assert_frame_equal(drawn, rbm.sample(5, method="exact", random_state=0))
    held = rbm.sample(300, given={"city": "Rom"}, random_state=0)
    assert set(held["city"]) == {"Rom"} and (held["country"] == "I").mean() > 0.8


def test_files_and_pickles_keep_joined_columns(rbm, tmp_path) -> None:
    rbm.save(tmp_path / "rbm")
    imputed = rbm.impute(HOLED, random_state=1)
    for other in (RBM.load(tmp_path / "rbm"), pickle.loads(pickle.dumps(rbm))):
        np.testing.assert_allclose(other.score_samples(HOLED), rbm.score_samples(HOLED), atol=1e-10)
        pandas.testing.assert_frame_equal(other.impute(HOLED, random_state=1), imputed)
    assert RBM.load(tmp_path / "rbm").n_hidden is None
    around = RBM.from_machine(rbm.machine_)
    assert around.n_hidden == 8 and around.transform(FRAME).shape == (ROWS, 8)


def test_wide_tables_are_learned_exactly_but_not_pictures() -> None:
    """Items of a scale, many real columns and mixed ones; columns of two values may be pixels."""
    random = np.random.default_rng(0)
    ability = random.normal(size=(120, 1))
    items = np.clip(np.round(2 + ability + random.normal(size=(120, 75))), 0, 4)
    names = [f"q{number}" for number in range(75)]
    frames = {
        "items": pandas.DataFrame(items, columns=names),
        "real": pandas.DataFrame(items + random.normal(size=items.shape), columns=names),
        "pixels": pandas.DataFrame((items > 2).astype(float), columns=names),
    }
    for name, frame in frames.items():
        codec = Codec.fit(frame)
        units = Fitting.begin(codec, frame).machine.layers[-1].n_units
        assert units == (100 if name == "pixels" else 8), name
    holes = frames["items"].mask(random.random(items.shape) < 0.1)
    rbm = RBM(random_state=0).fit(holes)
    gone = holes.isna().to_numpy()
    error = (rbm.impute(holes, value="mean").to_numpy() - items)[gone].std()
    assert error < 0.85 * (items - items.mean(0))[gone].std()  # a common factor of half of the variance
    assert np.isfinite(rbm.score_samples(holes)).all()


@pytest.mark.nightly
def test_the_work_of_exact_training_decides_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, columns and hidden units alike: "auto" sums where that takes a minute at most."""

    def chosen(rows: int, columns: int, hidden: int | None = None) -> tuple[str, int]:
        table = frame_of_reals(rows, columns)
        many = pandas.concat([table] * (84 if rows == 60 else 1))
        layers = None if hidden is None else [Bernoulli(hidden)]
        fitting = Fitting.begin(Codec.fit(table), many, hidden=layers)
        return fitting.method, fitting.machine.layers[-1].n_units

    assert chosen(60, 300) == ("exact", 8)
    assert chosen(60, 2000) == ("chains", 500)
    assert chosen(60, 300, 12) == ("chains", 12)
    assert chosen(50, 300, 12) == ("exact", 12)
    table = frame_of_reals(50, 12)
    monkeypatch.setattr(table_training, "LONG", 1e-6)
    with pytest.warns(UserWarning, match=r"8 hidden units beside 12 columns .* about .* seconds on one core"):
        RBM(random_state=0).fit(table)


def frame_of_reals(rows: int, columns: int) -> pandas.DataFrame:
    """Columns that are linear in two factors, with noise."""
    random = np.random.default_rng(4)
    x = random.normal(size=(rows, 2)) @ random.normal(size=(2, columns)) + random.normal(size=(rows, columns))
    return pandas.DataFrame(x, columns=[f"x{j}" for j in range(columns)])


@pytest.mark.nightly
def test_more_columns_than_rows_are_joined_by_factors() -> None:
    table = frame_of_reals(60, 120)
    gone = np.random.default_rng(5).random(table.shape) < 0.1
    rbm = RBM(random_state=0).fit(table.mask(gone))
    assert (0, 0) in rbm.machine_.edges
    off = (rbm.impute(table.mask(gone)) - table).to_numpy()[gone]
    assert np.sqrt(np.mean(off**2)) < 0.8 * np.sqrt(np.mean((table - table.mean()).to_numpy()[gone] ** 2))
    assert np.isfinite(rbm.score_samples(table)).all()
