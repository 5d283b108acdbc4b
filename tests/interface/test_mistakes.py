"""What new users get wrong, in the library's and the estimators' words: what was wrong, and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import harmonium as hm

torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = (RANDOM.random((12, 4)) < 0.5).astype(float)
GREY = RANDOM.random((12, 4))
LABEL = np.arange(12) % 2


TABLE = np.array([["a", 1], ["b", 0]] * 3, object)


def rbm(**settings) -> hm.RBM:
    return hm.RBM(3, **{"max_updates": 1, "random_state": 0, **settings})


def classifier(**settings) -> hm.RBMClassifier:
    return hm.RBMClassifier(3, **{"max_updates": 1, "random_state": 0, **settings})


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)])


def train(X, **settings):
    return hm.train(machine(), X, **{"rule": "pcd", "updates": 1, "progress": False, **settings})


MISTAKES = {
    # The estimators
    "text in numbers": (
        lambda: rbm().fit(BITS).transform([["a", 1, 0, 1]]),
        r"X: expected numbers in column 0, received 'a'",
    ),
    "names of rows as a category": (
        lambda: rbm().fit(np.array([[f"row {i}"] for i in range(40)], dtype=object)),
        r"X: expected a column to learn from, received 0 \(40 different texts in 40 rows\); give a column",
    ),
    "a column without values": (
        lambda: rbm().fit(np.where(np.arange(4) == 2, np.nan, BITS)),
        r"X: expected at least one value in every column, all of column 2 is missing.*drop it",
    ),
    "a row without values": (
        lambda: rbm().fit(BITS).transform(np.where(np.arange(12)[:, None] == 5, np.nan, BITS)),
        r"X: expected at least one value in every row, all of row 5 is missing.*drop such rows",
    ),
    "grey levels for bits": (
        lambda: rbm(visible="bernoulli").fit(GREY),
        r'X: for visible="bernoulli": expected values in \{0, 1\}, received 0\.\d+; hm\.data\.threshold',
    ),
    "a dict for a table": (
        lambda: rbm().fit({"a": [1, 2]}),
        r"X: expected a data frame, .* received a dict; .*pandas\.DataFrame takes a mapping",
    ),
    "one column as a vector": (
        lambda: rbm().fit(BITS[:, 0]),
        r"(?s)Expected 2D array, got 1D array instead.*Reshape your data",
    ),
    "an unknown rule": (
        lambda: rbm(rule="contrastive divergence").fit(BITS),
        r"rule: expected one of .*cd, .*received 'contrastive divergence'",
    ),
    "Adam with the centred gradient": (
        lambda: rbm(optimizer="adam", centred=True).fit(BITS),
        r'centred: expected False with optimizer="adam", which rescales',
    ),
    "two layers without a bound": (
        lambda: rbm(hidden_kind="gaussian").fit(GREY),
        r"hidden_kind: expected discrete units, or others with a bound, beside Gaussian.*received 'gaussian'",
    ),
    "sizes of a deep machine for a shallow one": (
        lambda: hm.RBM((50, 20)).fit(BITS),
        r"n_hidden: expected an int, received tuple \(\(50, 20\)\)",
    ),
    "other columns than in fit": (
        lambda: rbm().fit(BITS).score_samples(BITS[:, :3]),
        r"X has 3 features, but RBM is expecting 4 features",
    ),
    "a category that is new": (
        lambda: rbm().fit(TABLE).sample(given={0: "c"}),
        r"X: column 0: expected one of 'a', 'b' as in fit, received 'c' at row 0",
    ),
    "a column that is not there": (
        lambda: rbm().fit(BITS).sample(given={"age": 3}),
        r"given: expected columns 0 to 3, received 'age'",
    ),
    "real numbers for classes": (
        lambda: classifier().fit(BITS, RANDOM.normal(size=12)),
        r"Unknown label type: continuous",
    ),
    "one class": (
        lambda: classifier().fit(BITS, np.zeros(12)),
        r"y: expected at least two classes, received one class",
    ),
    "no labels": (
        lambda: classifier().fit(BITS, None),
        r"y: expected labels: RBMClassifier requires y to be passed, but the target y is None",
    ),
    "samples of a discriminative machine": (
        lambda: classifier(objective="discriminative").fit(BITS, LABEL).sample(),
        r"machine: expected the objective hybrid or joint for sample, received discriminative: it has",
    ),
    "a label that is new": (
        lambda: classifier().fit(BITS, LABEL).sample(label=7),
        r"label: expected the classes \[.*0.*1.*\], received .*7",
    ),
    "half of the rows as outliers, and more": (
        lambda: hm.RBMOutlier(3, contamination=0.7).fit(GREY),
        r"contamination: expected a finite number in \(0, 0\.5\], received 0\.7",
    ),
    "negative weights": (
        lambda: rbm().fit(BITS, sample_weight=-np.ones(12)),
        r"sample_weight: expected finite numbers of at least 0, received -1 for row 0",
    ),
    "a deep machine in a shallow estimator": (
        lambda: hm.RBM.from_machine(hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3), hm.Bernoulli(2)])),
        r"machine: expected one hidden layer for RBM, received 2; DBM takes more",
    ),
    # The library
    "a list for data": (
        lambda: train(BITS.tolist()),
        r"X: expected a numpy array, torch tensor, scipy sparse matrix.*received list",
    ),
    "another width": (
        lambda: train(BITS[:, :3]),
        r"X: expected 4 columns, one for each visible unit, received 3",
    ),
    "values outside the support": (
        lambda: train(GREY),
        r"X\[0\]: expected .*0.*1.* for Bernoulli\(4\), received 0\.\d+",
    ),
    "both lengths": (
        lambda: train(BITS, epochs=3),
        r"updates, epochs: expected exactly one of them",
    ),
    "a rule that is none": (
        lambda: train(BITS, rule="backprop"),
        r"rule: expected a rule such as harmonium\.rules\.pcd\(\), or one of the names .*received 'backprop'",
    ),
    "no rule": (
        lambda: hm.train(machine(), BITS, updates=1),
        r"rule: expected one, received none\. Rule that estimates .*harmonium\.rules\.pcd\(\)",
    ),
    "samples without a seed": (
        lambda: hm.chains.run(machine(), hm.chains.Gibbs(), BITS, 1),
        r"missing 1 required keyword-only argument: 'seed'",
    ),
    "a machine that is not there": (
        lambda: hm.load("no/such/machine.safetensors"),
        r"path: no/such/machine\.safetensors is not a file",
    ),
    "too many states": (
        lambda: hm.likelihood.exact_log_partition(hm.BoltzmannMachine([hm.Bernoulli(99), hm.Bernoulli(99)])),
        r"machine: expected layers that can be summed out.*2\^35 unit updates.*use harmonium\.likelih",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_what_to_do(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError, OSError), match=message):
        make()
