"""Nearest rows against all pairs in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonium.report import nearest_neighbours

RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(300, 5)) @ RNG.normal(size=(5, 5)) + 1.0
GENERATED = RNG.normal(size=(200, 5)) * [0.5, 1, 2, 1, 0.1]


def test_nearest_neighbours_are_those_of_all_pairs():
    distances = np.linalg.norm(GENERATED[:, None] - REAL, axis=-1)
    found = nearest_neighbours(GENERATED, REAL)
    np.testing.assert_array_equal(found.indices, distances.argmin(1))
    np.testing.assert_allclose(found.distances, distances.min(1), rtol=1e-12)
    # Copies are at distance zero exactly, also far from the origin in float32.
    rows = torch.from_numpy(REAL + 1000).float()
    copies = nearest_neighbours(rows[5:9], rows)
    assert copies.indices.tolist() == [5, 6, 7, 8] and bool((copies.distances == 0).all())


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="samples: expected 5 values"):
        nearest_neighbours(np.zeros((2, 4)), REAL)


def test_tables_are_to_be_encoded():
    with pytest.raises(TypeError, match=r"data: expected numbers, received object; encode .*encode\(frame\)"):
        nearest_neighbours(REAL, np.array([["a", 1.0]], dtype=object))
