"""The RBM estimator: what its numbers mean, what it takes, what it remembers, what it refuses."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.exceptions import NotFittedError

import harmonium as hm
from harmonium import rules
from harmonium.chains import Gibbs, Kernel
from harmonium.data import Rows, bars_and_stripes, digits, gaussian_mixture
from harmonium.estimators import RBM
from harmonium.estimators._training import plan
from harmonium.tables import Fitting

torch.set_num_threads(1)

PICTURES = bars_and_stripes(3)
POINTS = gaussian_mixture(400).astype(np.float64) * (3.0, 0.1) + (1000.0, -2.0)
HEIGHTS = np.random.Generator(np.random.PCG64(1)).normal(size=(400, 1))
LINE = HEIGHTS * (3.0, -0.1) + (1000.0, -2.0)
LABELS = np.random.Generator(np.random.PCG64(0)).integers(0, 3, (60, 3))
ROWS = {
    "bernoulli": (PICTURES[:, :5], (0, 1)),
    "spin": (PICTURES[:, :5] * 2 - 1, (-1, 1)),
    "spin of 0 and 1": (PICTURES[:, :5], (0, 1)),
    "categorical": (LABELS, (0, 1, 2)),
}


def small(**settings) -> RBM:
    return RBM(**{"n_hidden": 4, "method": "chains", "epochs": 8, "random_state": 0} | settings)


def parameters(rbm: RBM) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in rbm.machine_.parameters()]


def same_bits(a: RBM, b: RBM) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))


class Spy(Kernel):
    """Gibbs, with a note of the states that every sweep starts from."""

    invariant = True

    def __init__(self):
        self.seen = []

    def step(self, hamiltonian, state, generator):
        self.seen.append([x.clone() for x in state.states])
        return Gibbs().step(hamiltonian, state, generator)

    def __repr__(self):
        return "Spy()"


# Likelihood
# --------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", ["bernoulli", "spin", "categorical", "gaussian"])
@pytest.mark.parametrize("rows", ROWS)
def test_probabilities_of_all_rows_sum_to_one(rows, hidden):
    X, values = ROWS[rows]
    rbm = small(visible=rows.split()[0], hidden_kind=hidden, hidden_states=3).fit(X)
    every_row = np.array(list(itertools.product(values, repeat=X.shape[1])))
    assert np.exp(rbm.score_samples(every_row)).sum() == pytest.approx(1, abs=1e-10)
    assert rbm.log_partition_.standard_error == 0


@pytest.mark.parametrize("hidden", ["bernoulli", "spin", "categorical"])
def test_density_integrates_to_one_in_the_units_of_the_data(hidden):
    rbm = small(n_hidden=6, hidden_kind=hidden, hidden_states=3).fit(POINTS)
    axes = np.linspace(POINTS.mean(0) - 8 * POINTS.std(0), POINTS.mean(0) + 8 * POINTS.std(0), 401).T
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(rbm.score_samples(grid)).sum() * cell == pytest.approx(1, abs=1e-6)


def test_annealed_log_partition_has_an_error_and_is_kept():
    rbm = small(log_partition="ais").fit(PICTURES)
    estimate = rbm.log_partition_
    assert estimate.standard_error > 0
    assert rbm.log_partition_ is estimate
    exact = rbm.set_params(log_partition="exact").log_partition_
    assert exact.standard_error == 0
    # Annealing this machine is all but exact: the margin is about fifty of its standard errors.
    assert estimate.value == pytest.approx(exact.value, abs=0.05)
    rbm.partial_fit(PICTURES)
    assert rbm.log_partition_.value != exact.value


def test_auto_takes_annealing_where_enumeration_is_long():
    rbm = RBM(n_hidden=23, epochs=1, ais_temperatures=20, ais_chains=10, random_state=0)
    assert rbm.fit(digits()[0][:50] > 0.5).log_partition_.standard_error > 0
    with pytest.raises(ValueError, match="at most 2\\^35"):
        rbm.set_params(n_hidden=40, log_partition="exact").fit(POINTS).score(POINTS)


# Units of the data, kinds of data
# --------------------------------------------------------------------------------


def test_real_samples_and_reconstructions_are_in_the_units_of_the_data():
    rbm = small(n_hidden=10, epochs=40, learning_rate=0.1).fit(LINE)
    drawn = rbm.sample(500)
    # Half and twice the spread of the data are far beyond the noise of 500 draws, and far from standardised.
    assert (np.abs(drawn.mean(0) - LINE.mean(0)) < LINE.std(0) / 2).all()
    assert (np.abs(np.log(drawn.std(0) / LINE.std(0))) < np.log(2)).all()
    error = rbm.inverse_transform(rbm.transform(LINE)) - LINE
    assert (error.std(0) < 0.8 * LINE.std(0)).all()


def test_reconstructions_of_labels_are_labels():
    rbm = small(visible="categorical").fit(LABELS)
    assert set(np.unique(rbm.inverse_transform(rbm.transform(LABELS)))) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("X", "visible", "format"),
    [
        (PICTURES, "auto", "csr"),
        (PICTURES, "spin", "csc"),
        (POINTS, "auto", "coo"),
        (LABELS, "categorical", "csr"),
    ],
    ids=["bernoulli", "spin", "gaussian", "categorical"],
)
def test_sparse_equals_dense(X, visible, format):
    S = sparse.coo_array(X).asformat(format)
    dense, thin = small(visible=visible).fit(X), small(visible=visible).fit(S)
    assert same_bits(dense, thin)
    for method in ("transform", "score_samples"):
        np.testing.assert_array_equal(getattr(dense, method)(X), getattr(thin, method)(S))


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, np.bool_])
def test_dtype_of_the_data_changes_nothing(dtype):
    X = PICTURES.astype(dtype)
    expected, rbm = small().fit(PICTURES), small().fit(X)
    assert same_bits(expected, rbm)
    np.testing.assert_array_equal(rbm.score_samples(X), expected.score_samples(PICTURES))
    assert rbm.transform(X).dtype == rbm.inverse_transform(rbm.transform(X)).dtype == np.float64
    means = expected.transform(PICTURES)
    assert means.dtype == expected.inverse_transform(means).dtype == np.float32


def test_split_into_batches_does_not_show():
    X = np.tile(PICTURES.astype(np.float64), (300, 1))  # more rows than one block
    rbm = small().fit(PICTURES)
    np.testing.assert_allclose(rbm.transform(X)[-16:], rbm.transform(PICTURES.astype(np.float64)), rtol=1e-12)


# Randomness and memory
# --------------------------------------------------------------------------------


def test_same_seed_same_bits():
    a, b, other = (small(random_state=seed).fit(PICTURES) for seed in (3, np.random.RandomState(3), 4))
    assert same_bits(a, b)
    assert not same_bits(a, other)
    assert not same_bits(*(small(random_state=None).fit(PICTURES) for _ in range(2)))
    np.testing.assert_array_equal(a.sample(20, random_state=1), b.sample(20, random_state=1))
    np.testing.assert_array_equal(a.sample(20), a.sample(20))
    assert (a.sample(20, random_state=1) != a.sample(20, random_state=2)).any()
    first, second = (small(log_partition="ais", ais_temperatures=50).fit(PICTURES) for _ in range(2))
    assert first.log_partition_ == second.log_partition_


def test_partial_fit_improves_the_score():
    rbm = small(n_hidden=8, optimizer=lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5), centred=False)
    rbm.partial_fit(PICTURES)
    first = rbm.score(PICTURES)
    for _ in range(40):
        rbm.partial_fit(PICTURES)
    assert rbm.n_updates_ == 41
    assert [record["step"] for record in rbm.history_] == list(range(1, 42))
    assert rbm.score(PICTURES) > first + 0.2


def test_partial_fit_goes_on_with_chains_and_optimizer():
    rbm = small(chains=7, optimizer="adam", centred=False).fit(PICTURES)
    chains, optimizer = rbm._fitted.chains.states, rbm._fitted.optimizer
    steps = {int(state["step"]) for state in optimizer.state.values()}
    rbm.partial_fit(PICTURES[:5])  # fewer rows than before change nothing about the chains
    assert len(rbm._fitted.chains.states[0]) == len(chains[0]) == 7
    assert {int(state["step"]) for state in rbm._fitted.optimizer.state.values()} == {max(steps) + 1}
    assert rbm._fitted.optimizer.param_groups[0]["lr"] == 0.01


def test_partial_fit_starts_where_the_chains_were():
    kernel = Spy()
    rbm = small(rule=rules.pcd(kernel=kernel)).fit(PICTURES)
    left = [x.clone() for x in rbm._fitted.chains.states]
    kernel.seen.clear()
    rbm.partial_fit(PICTURES)
    assert all(torch.equal(x, y) for x, y in zip(kernel.seen[0], left, strict=True))


def test_fit_starts_afresh():
    rbm = small().fit(POINTS)
    assert same_bits(rbm.partial_fit(POINTS).fit(PICTURES), small().fit(PICTURES))
    assert rbm.machine_.layers[0].kind == "bernoulli"


def test_pickled_estimator_goes_on_the_same_way():
    rbm = small(rule=rules.tempered_pcd(replicas=3)).fit(PICTURES)
    copy = pickle.loads(pickle.dumps(rbm))
    np.testing.assert_array_equal(copy.transform(PICTURES), rbm.transform(PICTURES))
    np.testing.assert_array_equal(copy.sample(5, sweeps=3), rbm.sample(5, sweeps=3))
    assert same_bits(copy.partial_fit(PICTURES), rbm.partial_fit(PICTURES))


# Rules
# --------------------------------------------------------------------------------


def test_sweeps_and_chains_reach_the_rule():
    def named(**settings):
        machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        fitting = Fitting(machine, Rows.of(torch.zeros(3, 3)))
        plan(small(**settings), fitting)
        return fitting.rule.name

    assert named(rule="cd", sweeps=3) == "centred(cd(3))"
    assert named(rule="pcd", batch_size=17, centred=False) == "pcd(1, chains=17)"
    assert named(sweeps=2, chains=5) == "centred(pcd(2, chains=5))"
    assert named(rule=rules.cd(4)) == "cd(4)"


# What it refuses
# --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": "exact", "sweeps": 2}, "sweeps: expected None with rule='exact'.*received 2"),
        ({"rule": "cd", "chains": 9}, "chains: expected None with rule='cd'.*received 9"),
        ({"rule": rules.cd(1), "sweeps": 2}, "sweeps: expected None with rule=cd\\(1\\)"),
        ({"device": "abacus"}, "device: abacus cannot be used"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        small(**settings).fit(PICTURES)


@pytest.mark.parametrize("method", ["partial_fit", "transform", "score_samples", "score"])
def test_later_data_must_fit(method):
    rbm = small().fit(PICTURES)
    with pytest.raises(ValueError, match="X has 8 features, but RBM is expecting 9"):
        getattr(rbm, method)(PICTURES[:, :8])
    with pytest.raises(ValueError, match=r"X.*expected values in {0, 1}.*received 0\.5"):
        getattr(rbm, method)(PICTURES / 2)
    with pytest.raises(ValueError, match="NaN"):
        getattr(rbm, method)(np.full((2, 9), np.nan))


def test_other_numbers_must_fit():
    with pytest.raises(ValueError, match=r"integers 0\.\.q-1"):
        small(visible="categorical").fit(POINTS)
    rbm = small().fit(PICTURES)
    with pytest.raises(ValueError, match="X: expected 4 columns of hidden values, received 9"):
        rbm.inverse_transform(PICTURES)
    with pytest.raises(ValueError, match="n_samples: expected an int of at least 1, received 0"):
        rbm.sample(0)
    with pytest.raises(ValueError, match="sweeps: expected an int of at least 0, received -1"):
        rbm.sample(1, sweeps=-1)


def test_unfitted_estimator_says_so():
    for use in (RBM.sample, RBM.get_feature_names_out, lambda rbm: rbm.log_partition_):
        with pytest.raises(NotFittedError):
            use(small())
