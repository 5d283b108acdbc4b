"""Rows hands out the same batches whatever holds the matrix."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse

from harmonium.data import Rows

torch.set_num_threads(1)

RANDOM = np.random.Generator(np.random.PCG64(0))
MATRIX = RANDOM.integers(0, 256, (57, 13), dtype=np.uint8) * RANDOM.integers(0, 2, (57, 13), dtype=np.uint8)
INDICES = torch.tensor([3, 56, 0, 3, 17, 2, 2, 2, 40])


def memory_map(folder, X):
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def hdf5(folder, X):
    h5py = pytest.importorskip("h5py", reason="the extra hdf5 is not installed")
    with h5py.File(folder / "rows.h5", "w") as file:
        file["samples"] = X
    return h5py.File(folder / "rows.h5", "r")["samples"]


IN_MEMORY = {
    "array": lambda folder, X: X,
    "Fortran order": lambda folder, X: np.asfortranarray(X),
    "strided": lambda folder, X: np.repeat(X, 2, axis=0)[::-2][::-1],
    "read only": lambda folder, X: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
    "tensor": lambda folder, X: torch.from_numpy(X.copy()),
    "transposed tensor": lambda folder, X: torch.from_numpy(X.T.copy()).T,
    "csr matrix": lambda folder, X: sparse.csr_matrix(X),
    "csr array": lambda folder, X: sparse.csr_array(X),
    "csc matrix": lambda folder, X: sparse.csc_matrix(X),
    "coo array": lambda folder, X: sparse.coo_array(X),
}
ON_DISK = {
    "memory map": memory_map,
    "view of a memory map": lambda folder, X: np.asarray(memory_map(folder, X)),
    "slice of a memory map": lambda folder, X: memory_map(folder, np.vstack([X, X]))[: len(X)],
    "hdf5": hdf5,
}
SOURCES = pytest.mark.parametrize("source", {**IN_MEMORY, **ON_DISK})


def held_by(source, folder, X=MATRIX):
    return {**IN_MEMORY, **ON_DISK}[source](folder, X)


@SOURCES
def test_take_is_the_dense_gather(source, tmp_path):
    rows = Rows.of(held_by(source, tmp_path))
    assert len(rows) == 57
    assert rows.width == 13
    assert rows.in_memory == (source in IN_MEMORY)
    batch = rows.take(INDICES)
    assert batch.dtype == torch.float32
    assert np.array_equal(batch.numpy(), MATRIX[INDICES.numpy()])
    assert np.array_equal(rows.take(torch.tensor([5])).numpy(), MATRIX[5:6])
    assert rows.take(torch.tensor([], dtype=torch.int64)).shape == (0, 13)
    assert np.array_equal(rows.take(torch.arange(57)).numpy(), MATRIX)


@SOURCES
@pytest.mark.parametrize("size", [1, 10, 57, 1000])
def test_chunks_are_all_rows_in_order(source, size, tmp_path):
    chunks = list(Rows.of(held_by(source, tmp_path)).chunks(size))
    assert [len(chunk) for chunk in chunks[:-1]] == [size] * ((57 - 1) // size)
    assert np.array_equal(torch.cat(chunks).numpy(), MATRIX)


@SOURCES
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.bool_])
def test_every_dtype_is_converted_batch_by_batch(source, dtype, tmp_path):
    X = MATRIX.astype(dtype)
    held = held_by(source, tmp_path, X)
    for result in (torch.float32, torch.float64):
        rows = Rows.of(held, dtype=result)
        for batch in (rows.take(INDICES), next(rows.chunks(9))):
            assert batch.dtype == result
        assert np.array_equal(rows.take(INDICES).numpy(), X[INDICES.numpy()])


@pytest.mark.parametrize("dtype", [">f4", ">i2", "<u2", "<u4", "<i8", "<f2", np.longdouble])
def test_dtypes_that_torch_lacks(dtype):
    rows = Rows.of(MATRIX.astype(dtype))
    assert np.array_equal(rows.take(INDICES).numpy(), MATRIX[INDICES.numpy()])


@SOURCES
def test_batches_are_fresh(source, tmp_path):
    X = held_by(source, tmp_path, MATRIX.astype(np.float32))
    rows = Rows.of(X)
    rows.take(INDICES).fill_(-1)
    next(rows.chunks(57)).fill_(-1)
    rows.mean_variance()[0].fill_(-1)
    assert np.array_equal(torch.cat(list(rows.chunks(20))).numpy(), MATRIX)
    assert (rows.mean_variance()[0] >= 0).all()


def test_gradients_do_not_pass():
    X = torch.ones(3, 2, requires_grad=True)
    assert not Rows.of(X).take(torch.tensor([0])).requires_grad


@SOURCES
def test_moments(source, tmp_path):
    mean, variance = Rows.of(held_by(source, tmp_path)).mean_variance()
    assert mean.dtype == variance.dtype == torch.float64
    np.testing.assert_allclose(mean.numpy(), MATRIX.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(variance.numpy(), MATRIX.var(axis=0), rtol=1e-12)


def test_moments_over_many_chunks_keep_their_digits(monkeypatch):
    monkeypatch.setattr("harmonium._rows._CHUNK", 70)
    X = 1e8 + RANDOM.normal(size=(501, 10))
    X[:, 0] = 0.1
    mean, variance = Rows.of(X).mean_variance()
    np.testing.assert_allclose(mean.numpy(), X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(variance.numpy(), X.var(axis=0), rtol=1e-9, atol=1e-30)
    assert variance[0] == 0


def test_a_memory_map_is_not_copied(tmp_path):
    X = memory_map(tmp_path, np.zeros((20_000, 500), dtype=np.uint8))
    tracemalloc.start()
    try:
        rows = Rows.of(X)
        rows.take(torch.arange(0, 20_000, 200))
        next(rows.chunks(100))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@SOURCES
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_named(source, wrong, tmp_path):
    X = MATRIX.astype(np.float64)
    X[40, 7] = wrong
    rows = Rows.of(held_by(source, tmp_path, X), name="noisy")
    text = rf"noisy: expected finite values in torch.float32, received {wrong} at row 40, column 7"
    with pytest.raises(ValueError, match=text):
        rows.take(INDICES)
    with pytest.raises(ValueError, match=text):
        list(rows.chunks(9))
    with pytest.raises(ValueError, match="at row 40, column 7"):
        rows.mean_variance()
    assert rows.take(INDICES[:-1]).shape == (8, 13)


def test_finite_rows_whose_sum_overflows_pass():
    X = np.full((4, 4), 3e38, dtype=np.float32)
    assert np.array_equal(Rows.of(X).take(torch.arange(4)).numpy(), X)


@pytest.mark.parametrize(
    ("X", "error", "text"),
    [
        ([[1, 2]], TypeError, "received list"),
        (np.array([["a"]]), TypeError, "numeric or boolean dtype, received <U1"),
        (sparse.csr_matrix(np.array([[1j]])), TypeError, "numeric or boolean dtype, received complex128"),
        (np.zeros(3), ValueError, r"expected two dimensions \(rows, columns\), .* received shape \(3,\)"),
        (np.zeros((0, 3)), ValueError, r"at least one row and one column, received shape \(0, 3\)"),
    ],
)
def test_what_rows_refuses(X, error, text):
    with pytest.raises(error, match=f"data: .*{text}"):
        Rows.of(X, name="data")


def test_hdf5_refusals(tmp_path):
    h5py = pytest.importorskip("h5py", reason="the extra hdf5 is not installed")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["text"] = np.array([[b"a"]])
        file["cube"] = np.zeros((2, 2, 2))
        with pytest.raises(TypeError, match="X: expected a numeric or boolean dtype"):
            Rows.of(file["text"])
        with pytest.raises(TypeError, match="X: expected a numeric or boolean dtype, received File"):
            Rows.of(file)
        with pytest.raises(ValueError, match="X: expected two dimensions"):
            Rows.of(file["cube"])


def test_indices_are_checked():
    rows = Rows.of(MATRIX)
    for wrong in (57, -1):
        with pytest.raises(ValueError, match=rf"indices: expected values in \[0, 57\), received .*{wrong}"):
            rows.take(torch.tensor([0, wrong] if wrong > 0 else [wrong, 0]))
    for other in (torch.tensor([0.0]), [0], torch.tensor([[0]])):
        with pytest.raises(TypeError, match=r"indices: expected a tensor \(k,\) of torch\.int64, received"):
            rows.take(other)


def test_other_arguments():
    with pytest.raises(TypeError, match=r"dtype: expected a floating dtype, received torch.int64"):
        Rows.of(MATRIX, dtype=torch.int64)
    with pytest.raises(ValueError, match="size: expected at least 1, received 0"):
        Rows.of(MATRIX).chunks(0)
