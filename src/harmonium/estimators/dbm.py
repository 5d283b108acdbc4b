"""The deep Boltzmann machine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from harmonium.estimators._density import DensityEstimator
from harmonium.estimators._fitted import posterior_means


@final
@dataclass(eq=False, repr=False)
class DBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityEstimator):
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

    # Hidden layers
    # ----------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return sum(self.machine_.layers[l].width for l in self.machine_.hidden)

    def transform(self, X: Any) -> Any:
        """Returns the hidden units' means given what every row shows, by naive mean field.

        The layers stand side by side.

        Args:
            X: (rows, columns), dense or sparse.

        Returns:
            (rows, sum of n_hidden), the lowest hidden layer first; float32 for float32 data, else float64.

        Raises:
            ValueError: other columns than in ``fit``, a row of missing cells only, or values that the visible
                units do not take.
        """
        fitted = self._require_fitted()
        X, machine = self._validated(X), fitted.double()
        return fitted.compute(X, lambda v: posterior_means(machine, v), like=X)
