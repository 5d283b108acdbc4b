"""scikit-learn's ``BernoulliRBM``, as an object: its files are pickles, which may hold any program."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from harmonium.exchange._format import is_rbm, make_rbm, misfit
from harmonium.layers import Bernoulli
from harmonium.machine import BoltzmannMachine


@torch.no_grad()
def from_sklearn(rbm: Any) -> BoltzmannMachine:
    """Returns the machine of a fitted ``sklearn.neural_network.BernoulliRBM``, in its dtype.

    Args:
        rbm: Object with ``components_``, ``intercept_visible_`` and ``intercept_hidden_``.

    Raises:
        TypeError: another object, or one that is not fitted.

    Examples:
        >>> from sklearn.neural_network import BernoulliRBM
        >>> import harmonium as hm
        >>> rbm = BernoulliRBM(2, n_iter=1, random_state=0).fit([[0, 1, 1], [1, 0, 0]])
        >>> hm.exchange.from_sklearn(rbm).layers
        ModuleList(
          (0): Bernoulli(3)
          (1): Bernoulli(2)
        )
    """
    names = ("components_", "intercept_visible_", "intercept_hidden_")
    try:
        W, a, b = (torch.from_numpy(np.array(getattr(rbm, name))) for name in names)
    except AttributeError as error:
        raise TypeError(
            f"rbm: expected a fitted BernoulliRBM, received {type(rbm).__name__} without {error.name}"
        ) from error
    return make_rbm(Bernoulli(len(a)), W.t(), a, b, {"form": "scikit-learn"})


@torch.no_grad()
def to_sklearn(machine: BoltzmannMachine) -> Any:
    """Returns a fitted ``sklearn.neural_network.BernoulliRBM`` with the parameters of a machine.

    Args:
        machine: two layers of Bernoulli units.

    Raises:
        ValueError: another machine.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=0)
        >>> hm.exchange.to_sklearn(machine).transform([[0, 1, 1]]).shape
        (1, 2)
    """
    from sklearn.neural_network import BernoulliRBM  # slow to import

    visible: Any = machine.layers[0]
    hidden: Any = machine.layers[-1]
    if not (is_rbm(machine) and visible.two_values == (0.0, 1.0)):
        raise misfit(machine, "two layers of Bernoulli units for scikit-learn")
    rbm = BernoulliRBM(hidden.n_units)
    rbm.components_ = machine.hamiltonian().J[0].detach().cpu().numpy().T.copy()
    rbm.intercept_visible_ = visible.bias.detach().cpu().numpy().copy()
    rbm.intercept_hidden_ = hidden.bias.detach().cpu().numpy().copy()
    rbm.n_features_in_, rbm._n_features_out = visible.n_units, hidden.n_units
    rbm.h_samples_ = np.zeros((rbm.batch_size, hidden.n_units), rbm.components_.dtype)
    return rbm
