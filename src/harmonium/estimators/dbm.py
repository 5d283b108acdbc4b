"""The deep Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from harmonium.estimators.rbm import FeatureEstimator


@final
@dataclass(eq=False, repr=False)
class DBM(FeatureEstimator):
    """A deep Boltzmann machine: a density of the rows and a transformer to its hidden layers.

    Rows go in and come out in the data's own units, as with ``RBM``. ``harmonium.train`` offers more settings
    on the machine itself.

    All other parameters are those of ``RBM``; some have other defaults.

    Args:
        n_hidden: units of the hidden layers from the lowest up, each at least 1; two or more for a deep
            machine.
        hidden_kind: kind of the hidden units, see ``RBM``: "bernoulli", or "spin", whose two values weigh
            alike in the gradient (Taniguchi et al. 2023, §4.1), or others; no two layers without a bound side
            by side.
        rule: how the gradient is estimated: the name of a recipe in ``harmonium.rules``, or a ``Rule``.
            "pcd" and "mean_field_pcd", which takes longer, are for any units; "ucd_lmi" and "ucd" for binary.
        epochs: passes of ``fit`` over the rows, at least 1. None: with several hidden layers 2.4 times as
            many updates as ``RBM`` has at most, as upper layers learn last.
        centred: Whether a rule by name gives the enhanced gradient (Montavon & Müller 2012 centre the machine
            instead), without which a deep machine of 0/1 units hardly learns from random couplings; a
            ``Rule`` stays as it is. None: as ``RBM``.
        init: see ``RBM``; "ucd_lmi" learns best from "orthogonal,logistic,data".

    Attributes:
        machine_, encoder_, history_, n_updates_, n_features_in_, feature_names_in_: see ``RBM``.

    Examples:
        >>> import harmonium as hm
        >>> dbm = hm.DBM((4, 2), max_updates=20, random_state=0).fit([[0, 0, 1], [1, 1, 0]] * 20)
        >>> dbm.transform([[0, 0, 1], [1, 1, 0]]).shape
        (2, 6)
    """

    n_hidden: Sequence[int] = (100, 50)
