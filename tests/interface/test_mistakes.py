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
    "an unknown rule": (
        lambda: rbm(rule="contrastive divergence").fit(BITS),
        r"rule: expected one of .*cd, .*received 'contrastive divergence'",
    ),
    "Adam with the centred gradient": (
        lambda: rbm(optimizer="adam", centred=True).fit(BITS),
        r'centred: expected False with optimizer="adam", which rescales',
    ),
    "other columns than in fit": (
        lambda: rbm().fit(BITS).score_samples(BITS[:, :3]),
        r"X has 3 features, but RBM is expecting 4 features",
    ),
    "a column that is not there": (
        lambda: rbm().fit(BITS).sample(given={"age": 3}),
        r"given: expected columns 0 to 3, received 'age'",
    ),
    "real numbers for classes": (
        lambda: classifier().fit(BITS, RANDOM.normal(size=12)),
        r"Unknown label type: continuous",
    ),
    "samples of a discriminative machine": (
        lambda: classifier(objective="discriminative").fit(BITS, LABEL).sample(),
        r"machine: expected the objective hybrid or joint for sample, received discriminative: it has",
    ),
    "a label that is new": (
        lambda: classifier().fit(BITS, LABEL).sample(label=7),
        r"label: expected the classes \[.*0.*1.*\], received .*7",
    ),
    # The library
    "a list for data": (
        lambda: train(BITS.tolist()),
        r"X: expected a numpy array, torch tensor, scipy sparse matrix.*received list",
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
