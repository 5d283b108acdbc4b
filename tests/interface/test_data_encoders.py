"""Encoders and transforms go there and back, keep the kind of array, and survive JSON."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from harmonium.data import (
    BernoulliBinarise,
    BitPlanes,
    Identity,
    OneHot,
    Standardise,
    Threshold,
    bernoulli_binarise,
    encoder_from_dict,
    threshold,
)

torch.set_num_threads(1)

KINDS = pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
LEVELS = np.arange(256, dtype=np.uint8).reshape(32, 8)
POINTS = np.random.Generator(np.random.PCG64(0)).normal((3, -40, 0), (2, 0.1, 7), (500, 3))
ALL = [
    Identity(),
    Standardise(0.1, 3.0),
    Standardise((0.1, -1 / 3), (1e-9, 2.0)),
    Threshold(0.3),
    Threshold(0.3, states=(-1.0, 1.0)),
    BernoulliBinarise(11),
    BitPlanes(),
    BitPlanes(gray=True),
]


@pytest.mark.parametrize("encoder", ALL, ids=repr)
def test_stored_and_restored(encoder):
    text = json.dumps(encoder.to_dict())
    assert encoder_from_dict(json.loads(text)) == encoder
    assert encoder_from_dict(encoder.to_dict()) == encoder
    assert pickle.loads(pickle.dumps(encoder)) == encoder
    assert hash(encoder_from_dict(json.loads(text))) == hash(encoder)


@KINDS
@pytest.mark.parametrize(
    "encoder",
    [Identity(), BitPlanes(), BitPlanes(gray=True), BitPlanes(states=(-1.0, 1.0))],
    ids=repr,
)
def test_all_levels_come_back_exactly(kind, encoder):
    X = kind(LEVELS)
    back = encoder.decode(encoder.encode(X))
    assert type(back) is type(X)
    assert back.dtype == X.dtype
    assert np.array_equal(np.asarray(back), LEVELS)


@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("per_column", [True, False])
def test_standardise_and_back(kind, dtype, per_column):
    X = kind(POINTS.astype(dtype))
    encoder = Standardise.fit(X, per_column)
    states = encoder.encode(X)
    assert type(states) is type(X)
    assert states.dtype == X.dtype
    axis = 0 if per_column else None
    tolerance = 1e-10 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(np.asarray(states, dtype=np.float64).mean(axis=axis), 0, atol=tolerance)
    np.testing.assert_allclose(np.asarray(states, dtype=np.float64).std(axis=axis), 1, atol=tolerance)
    back = encoder.decode(states)
    assert back.dtype == X.dtype
    np.testing.assert_allclose(np.asarray(back), np.asarray(X), rtol=10 * np.finfo(dtype).eps, atol=1e-5)


@KINDS
def test_standardise_takes_integers_larger_than_float32_can_tell_apart(kind):
    X = kind(np.array([[1_700_000_000], [1_700_000_001], [1_700_000_002]]))
    states = Standardise.fit(X).encode(X)
    assert str(states.dtype).endswith("float32")
    np.testing.assert_allclose(np.asarray(states)[:, 0], np.array([-1, 0, 1]) * math.sqrt(1.5), rtol=1e-6)


def test_a_constant_column_gets_scale_one():
    X = np.column_stack([np.full(1000, 0.1), np.full(1000, 1e8 + 0.3), np.arange(1000.0)])
    encoder = Standardise.fit(X)
    assert encoder.scale[:2] == (1.0, 1.0)
    assert encoder.scale[2] == pytest.approx(X[:, 2].std())
    assert np.array_equal(encoder.encode(X)[:, :2], np.zeros((1000, 2)))
    assert Standardise.fit(np.full((3, 2), 7.0), per_column=False) == Standardise(7.0, 1.0)


def test_slopes_carry_a_density_into_data_units():
    encoder = Standardise.fit(POINTS)
    standard = (stats.norm.logpdf(states := encoder.encode(POINTS)) + encoder.log_jacobian(states)).sum(
        axis=1
    )
    direct = stats.norm.logpdf(POINTS, encoder.mean, encoder.scale).sum(axis=1)
    np.testing.assert_allclose(standard, direct, rtol=1e-12)
    one = Standardise(0.0, 4.0).log_jacobian(np.array([[1.0, np.nan]]))
    np.testing.assert_allclose(one, [[-math.log(4), np.nan]])
    for encoder in (Identity(), Threshold(), BernoulliBinarise(0), BitPlanes()):
        assert not encoder.log_jacobian(np.ones((2, 8))).any()


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Standardise(0.0, 0.0), ValueError, "mean, scale: expected finite"),
        (lambda: Standardise((0.0, 1.0), (1.0,)), ValueError, "two equally long vectors"),
        (lambda: Threshold(math.nan), ValueError, "at: expected a finite number"),
        (lambda: BernoulliBinarise(0.5), TypeError, "seed: expected"),
        (
            lambda: BernoulliBinarise(torch.Generator()),
            TypeError,
            "seed: expected an int, which can be stored",
        ),
        (lambda: Standardise.fit(np.array([[math.nan]])), ValueError, "row 0, column 0"),
        (
            lambda: Standardise((0.0, 0.0), (1.0, 1.0)).encode(np.zeros((4, 3))),
            ValueError,
            "expected 2 columns",
        ),
    ],
)
def test_errors_name_the_argument(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("description", "error", "text"),
    [
        ("Identity", TypeError, "description: expected a mapping, received str"),
        ({}, ValueError, "expected a codec among Identity, Standardise.*received None"),
        (
            {"codec": "Identity", "low": 0},
            ValueError,
            r"Identity: expected fields \[\], received \['low'\]",
        ),
        (
            {"codec": "Standardise", "mean": 0.0},
            ValueError,
            r"Standardise: expected fields \['mean', 'scale'\]",
        ),
        ({**Standardise(0.0, 1.0).to_dict(), "scale": -1.0}, ValueError, "scale: expected"),
        (
            {"codec": "BernoulliBinarise", "states": [0, 1], "seed": "x"},
            ValueError,
            "BernoulliBinarise: seed: expected",
        ),
    ],
)
def test_damaged_descriptions_are_refused(description, error, text):
    with pytest.raises(error, match=text):
        encoder_from_dict(description)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32"])
def test_one_hot_goes_there_and_back(library, dtype):
    q = 3
    values = np.array([[0, 1], [1, 0]] if dtype == "bool" else [[0, 2], [1, 1]]).astype(dtype)
    X = torch.from_numpy(values) if library == "torch" else values
    encoder = OneHot(q)
    encoded = encoder.encode(X)
    assert encoded.shape == (2, 6)
    blocks = np.asarray(encoded).reshape(2, 2, 3)
    assert (blocks.sum(-1) == 1).all()
    assert (blocks.argmax(-1) == values).all()
    assert (np.asarray(encoder.decode(encoded)) == values).all()
    assert encoder_from_dict(json.loads(json.dumps(encoder.to_dict()))) == encoder


@pytest.mark.parametrize("wrong", [-1.0, 3.0, 0.5, np.nan, np.inf])
def test_one_hot_refuses_what_is_no_label(wrong):
    with pytest.raises(ValueError, match=r"X: expected integers 0\.\.2, received .* row 1, column 0"):
        OneHot(3).encode(np.array([[0.0, 1.0], [wrong, 2.0]]))


def test_one_hot_takes_more_states_than_its_dtype_counts():
    encoded = OneHot(300).encode(np.array([[255, 0]], dtype=np.uint8))
    assert encoded.shape == (1, 600) and encoded.sum() == 2


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
    X = kind(LEVELS.ravel())
    result = threshold(X)
    assert same_kind(result, X)
    assert np.array_equal(np.asarray(result), LEVELS.ravel() >= 128)
    assert np.array_equal(np.asarray(threshold(X, at=0.2)), LEVELS.ravel() > 51)


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


@KINDS
@pytest.mark.parametrize("wrong", [-0.1, 1.5, math.nan])
def test_bernoulli_refuses_what_is_no_intensity(kind, wrong):
    X = np.full((4, 5), 0.5)
    X[2, 3] = wrong
    with pytest.raises(ValueError, match=rf"X: expected intensities in \[0, 1\].*{wrong} at row 2, column 3"):
        bernoulli_binarise(kind(X), 0)


@KINDS
def test_bit_planes_come_most_significant_first(kind):
    X = kind(np.array([[128, 1, 6]], dtype=np.uint8))
    planes = np.asarray(BitPlanes().encode(X)).reshape(8, 3)
    assert same_kind(BitPlanes().encode(X), X)
    assert planes[:, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert planes[:, 1].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    assert planes[:, 2].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    full = kind(LEVELS.ravel()[:, None].copy())
    assert np.array_equal(np.asarray(BitPlanes().encode(full))[:, :1], np.asarray(threshold(full)))


@KINDS
def test_bit_plane_errors(kind):
    with pytest.raises(TypeError, match="X: expected dtype uint8"):
        BitPlanes().encode(kind(np.zeros((2, 3), dtype=np.float32)))
    with pytest.raises(
        ValueError, match=r"planes: expected values in \{0, 1\}, received 0.5 at row 1, column 9"
    ):
        BitPlanes().decode(kind(np.where(np.arange(32).reshape(2, 16) == 25, 0.5, 0.0)))


@pytest.mark.parametrize("transform", [threshold, lambda X: bernoulli_binarise(X, 0)])
def test_other_objects_are_refused(transform):
    with pytest.raises(TypeError, match="received list"):
        transform([[0, 1]])
