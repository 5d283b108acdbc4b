"""Thresholds, Bernoulli draws and bit-planes, for NumPy arrays and torch tensors alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from harmonium.data import BitPlanes, bernoulli_binarise, threshold

torch.set_num_threads(1)

KINDS = pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
LEVELS = np.arange(256, dtype=np.uint8)


def same_kind(result, argument):
    return type(result) is type(argument) and result.dtype == argument.dtype


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threshold_is_strictly_above(kind, dtype):
    X = kind(np.array([[0, 0.5, 0.51], [-3, 1, 7]], dtype=dtype))
    result = threshold(X)
    assert same_kind(result, X)
    assert result.tolist() == [[0, 0, 1], [0, 1, 1]]
    assert threshold(X, at=1).tolist() == [[0, 0, 0], [0, 0, 1]]


@KINDS
def test_threshold_reads_bytes_as_intensities(kind):
    X = kind(LEVELS)
    result = threshold(X)
    assert same_kind(result, X)
    assert np.array_equal(np.asarray(result), LEVELS >= 128)
    assert np.array_equal(np.asarray(threshold(X, at=0.2)), LEVELS > 51)


@KINDS
def test_threshold_leaves_booleans_and_other_integers_in_their_units(kind):
    assert threshold(kind(np.array([True, False]))).tolist() == [True, False]
    assert threshold(kind(np.array([-1, 0, 1, 9])), at=0).tolist() == [0, 0, 1, 1]


@KINDS
@pytest.mark.parametrize("binarise", [threshold, lambda X: bernoulli_binarise(X, 0)])
def test_bytes_that_are_binary_already_are_not_darkened(kind, binarise):
    with pytest.raises(ValueError, match="received only 0 and 1; it is binary already"):
        binarise(kind(np.array([[0, 1]], dtype=np.uint8)))
    assert binarise(kind(np.zeros((1, 2), dtype=np.uint8))).tolist() == [[0, 0]]


@KINDS
def test_threshold_refuses_nan(kind):
    with pytest.raises(ValueError, match="X: expected numbers, received nan at row 0, column 1"):
        threshold(kind(np.array([[0, math.nan]])))
    with pytest.raises(ValueError, match="at: expected a finite number, received nan"):
        threshold(kind(np.zeros((1, 1))), at=math.nan)


@KINDS
def test_bernoulli_is_certain_at_the_ends_and_keeps_the_kind(kind):
    for X in (np.array([[0.0, 1.0]]), np.array([[0, 255]], dtype=np.uint8), np.array([[False, True]])):
        X = kind(np.repeat(X, 1000, axis=0))
        result = bernoulli_binarise(X, 0)
        assert same_kind(result, X)
        assert np.array_equal(np.asarray(result), np.asarray(X) > 0)


def test_bernoulli_frequencies():
    n = 20_000
    for X in (np.tile([0.1, 0.5, 0.9], (n, 1)), np.tile(np.array([26, 128, 229], dtype=np.uint8), (n, 1))):
        p = X[0] / (255 if X.dtype == np.uint8 else 1)
        frequencies = bernoulli_binarise(X, 7).mean(axis=0)
        # Failure rate below 1e-3: six comparisons at 4 standard errors.
        assert (np.abs(frequencies - p) < 4 * np.sqrt(p * (1 - p) / n)).all()


@KINDS
def test_neighbouring_levels_differ_in_one_bit_of_the_gray_code(kind):
    planes = BitPlanes(gray=True).encode(kind(np.arange(256, dtype=np.uint8).reshape(256, 1)))
    bits = np.asarray(planes).astype(int)
    assert (np.abs(np.diff(bits, axis=0)).sum(1) == 1).all()
    assert np.array_equal(bits[:, 0], np.arange(256) >= 128)
    levels = BitPlanes(gray=True).decode(planes)
    assert type(levels) is type(planes)
    assert np.array_equal(np.asarray(levels)[:, 0], np.arange(256))


@KINDS
@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan, math.inf])
def test_bernoulli_refuses_what_is_no_intensity(kind, wrong):
    X = np.full((4, 5), 0.5)
    X[2, 3] = wrong
    with pytest.raises(ValueError, match=rf"X: expected intensities in \[0, 1\].*{wrong} at row 2, column 3"):
        bernoulli_binarise(kind(X), 0)


@KINDS
def test_bit_planes_of_all_levels_and_back(kind):
    X = kind(np.stack([LEVELS, LEVELS[::-1], np.roll(LEVELS, 77)], axis=1))
    planes = BitPlanes().encode(X)
    assert same_kind(planes, X)
    assert tuple(planes.shape) == (256, 24)
    assert set(np.unique(np.asarray(planes)).tolist()) == {0, 1}
    levels = BitPlanes().decode(planes)
    assert same_kind(levels, X)
    assert np.array_equal(np.asarray(levels), np.asarray(X))


@KINDS
def test_bit_planes_come_most_significant_first(kind):
    X = kind(np.array([[128, 1, 6]], dtype=np.uint8))
    planes = np.asarray(BitPlanes().encode(X)).reshape(8, 3)
    assert planes[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert planes[:, 1].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert planes[:, 2].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    full = kind(LEVELS[:, None].copy())
    assert np.array_equal(np.asarray(BitPlanes().encode(full))[:, :1], np.asarray(threshold(full)))


@KINDS
def test_bit_plane_errors(kind):
    with pytest.raises(TypeError, match="X: expected dtype uint8"):
        BitPlanes().encode(kind(np.zeros((2, 3), dtype=np.float32)))
    with pytest.raises(
        ValueError, match=r"planes: expected values in \{0, 1\}, received 0.5 at row 1, column 9"
    ):
        BitPlanes().decode(kind(np.where(np.arange(32).reshape(2, 16) == 25, 0.5, 0.0)))


@pytest.mark.parametrize(
    ("X", "text"),
    [
        ([[0, 1]], "received list"),
        (np.array([["a"]]), "numeric or boolean dtype"),
        (np.array([[1j]]), "numeric or boolean dtype"),
        (np.ma.masked_array([[1.0]], [[True]]), "masked array"),
        (torch.zeros(2, 2, dtype=torch.complex64), "dense tensor of real numbers"),
        (torch.zeros(2, 2).to_sparse(), "dense tensor of real numbers"),
    ],
    ids=["list", "text", "complex", "masked", "complex tensor", "sparse tensor"],
)
def test_other_objects_are_refused(X, text):
    for transform in (threshold, lambda X: bernoulli_binarise(X, 0)):
        with pytest.raises(TypeError, match=text):
            transform(X)
