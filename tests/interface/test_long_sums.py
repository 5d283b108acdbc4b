"""The cost of sums over missing cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.sums import unit_updates, unit_updates_by_row

pandas = pytest.importorskip("pandas")
torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
GROUP = RANDOM.integers(0, 3, (40, 1))
WHOLE = pandas.DataFrame((GROUP + RANDOM.integers(0, 2, (40, 9))).astype(str)).rename(columns="c{}".format)
HOLED = WHOLE.mask(RANDOM.random(WHOLE.shape) < 0.3)
short: dict[str, Any] = {"method": "chains", "max_updates": 20, "random_state": 0}


@pytest.fixture(scope="module")
def model() -> hm.RBM:
    return hm.RBM(14, **short).fit(pandas.concat([WHOLE, HOLED]))


def test_the_cost_of_rows_is_that_of_their_sum(model: hm.RBM) -> None:
    v = torch.cat([*model._require_fitted().states(HOLED)])
    hamiltonian = model.machine_.double().hamiltonian()
    each = unit_updates_by_row(hamiltonian, v)
    assert each.shape == (40,)
    assert float(each.sum()) == unit_updates(hamiltonian, v)
    missing = HOLED.isna().sum(axis=1).to_numpy()
    assert (each.numpy()[missing == 0] == 0).all()
    assert (np.diff(each.numpy()[np.argsort(missing)]) >= 0).all()
