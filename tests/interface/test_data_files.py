"""Every format there and back, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import io
import os
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import sparse

from harmonium import data
from harmonium.data import Rows, files, read

RANDOM = np.random.Generator(np.random.PCG64(0))
IMAGES = RANDOM.integers(0, 256, (6, 5, 4), dtype=np.uint8)
COLOUR = RANDOM.integers(0, 256, (3, 5, 4, 3), dtype=np.uint8)
POINTS = RANDOM.normal(size=(7, 3))
LABELS = np.array([3, 1, 4, 1, 5, 9])

IDX_CODES = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def idx(array):
    header = struct.pack(">BBBB", 0, 0, IDX_CODES[array.dtype.name], array.ndim)
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return header + shape + array.astype(array.dtype.newbyteorder(">")).tobytes()


def assert_holds(found, samples, labels=None, image_shape=None, name=None):
    assert np.array_equal(np.asarray(found.samples), samples)
    assert found.samples.dtype == samples.dtype
    assert found.image_shape == image_shape
    if labels is None:
        assert found.labels is None
    else:
        assert np.array_equal(found.labels, labels)
    assert name is None or found.name == name
    rows = Rows.of(found.samples)
    assert np.array_equal(rows.take(torch.arange(len(rows))).numpy(), samples.astype(np.float32))


def refused(path, *texts):
    with pytest.raises(ValueError) as caught:
        read(path)
    for text in (str(path), *texts):
        assert text in str(caught.value)


# NumPy


def test_npy_is_mapped(tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, POINTS)
    found = read(str(path))
    assert_holds(found, POINTS, name="points.npy")
    assert isinstance(found.samples, np.memmap)
    assert not found.samples.flags.writeable
    assert not Rows.of(found.samples).in_memory


def test_npy_images_are_flattened_and_stay_mapped_bytes(tmp_path):
    np.save(tmp_path / "colour.npy", COLOUR)
    found = read(tmp_path / "colour.npy")
    assert_holds(found, COLOUR.reshape(3, 60), image_shape=(5, 4, 3))
    assert not Rows.of(found.samples).in_memory
    np.save(tmp_path / "fortran.npy", np.asfortranarray(IMAGES))
    assert_holds(read(tmp_path / "fortran.npy"), IMAGES.reshape(6, 20), image_shape=(5, 4))


@pytest.mark.parametrize("name", ["samples", "images", "X", "data", "anything"])
@pytest.mark.parametrize("labels", ["labels", "y", None])
def test_npz(tmp_path, name, labels):
    path = tmp_path / "set.npz"
    np.savez_compressed(path, **{name: IMAGES}, **({labels: LABELS} if labels else {}))
    found = read(path)
    assert_holds(found, IMAGES.reshape(6, 20), LABELS if labels else None, (5, 4), "set.npz")


def test_npz_without_a_name_to_choose(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, a=POINTS, b=POINTS)
    refused(path, "expected an array named samples, images, X or data, or one array only; it holds a, b")
    np.savez(path, labels=LABELS)
    refused(path, "it holds labels")
    np.savez(path)
    refused(path, "it holds none")


def test_npz_members_are_checked_whatever_they_are_called(tmp_path):
    path, head = tmp_path / "set.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    objects = io.BytesIO()
    np.save(objects, np.array([{}], dtype=object), allow_pickle=True)
    for content, message in ((head, "cannot be read as"), (objects, "pickle")):
        for name in ("X.npy", "X", "X.txt", "samples"):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr(name, content.getvalue())
            refused(path, message)
    np.savez(path, X=POINTS)
    with zipfile.ZipFile(path) as archive:
        honest = archive.read("X.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X", honest)
    assert np.array_equal(read(path).samples, POINTS)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
@pytest.mark.parametrize("container", ["matrix", "array"])
def test_sparse(tmp_path, form, container):
    path = tmp_path / "sparse.npz"
    dense = RANDOM.integers(0, 2, (9, 5), dtype=np.uint8)
    sparse.save_npz(path, getattr(sparse, f"{form}_{container}")(dense))
    found = read(path)
    assert found.samples.format == "csr"
    assert np.array_equal(found.samples.toarray(), dense)
    assert found.samples.dtype == np.uint8
    assert (found.labels, found.image_shape) == (None, None)


def test_sparse_with_indices_out_of_range(tmp_path):
    path = tmp_path / "sparse.npz"
    matrix = sparse.csr_matrix(np.eye(4))
    sparse.save_npz(path, matrix)
    with np.load(path) as archive:
        content = dict(archive)
    content["indices"] = np.array([0, 1, 2, 4_000_000])
    np.savez(path, **content)
    refused(path, "scipy sparse")


# Text


def test_csv(tmp_path):
    path = tmp_path / "points.csv"
    np.savetxt(path, POINTS, delimiter=",", fmt="%.17g")
    assert_holds(read(path), POINTS, name="points.csv")
    body = path.read_text()
    for text in (
        "a,b,c\n" + body,
        "\n" + body + "\n\n",
        "\ufeffa,b,c\n" + body,
        body.replace("\n", "\r\n"),
        body.rstrip("\n"),
    ):
        path.write_text(text, encoding="utf-8", newline="")
        assert_holds(read(path), POINTS)


def test_csv_labels(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("x, Label ,y\n0.5,7,1\n0.25,8,2\n")
    found = read(path)
    assert_holds(found, np.array([[0.5, 1], [0.25, 2]]), [7, 8])
    assert found.labels.dtype == np.int64
    path.write_text("label\n7\n")
    refused(path, "expected other columns beside 'label'")
    path.write_text("label,a,Labels\n1,2,3\n")
    refused(path, "expected one column of labels, received columns [1, 3]")
    path.write_text("a,label\n1,0.5\n2,1\n")
    assert read(path).labels.tolist() == [0.5, 1]  # no whole numbers, as they are


# IDX


@pytest.mark.parametrize("dtype", IDX_CODES)
@pytest.mark.parametrize("name", ["x.idx", "x.idx.gz", "x-idx3-ubyte", "x.idx3-ubyte.gz"])
def test_idx(tmp_path, dtype, name):
    array = (IMAGES // 2).astype(dtype)
    content = idx(array)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    found = read(tmp_path / name)
    assert_holds(found, array.reshape(6, 20), image_shape=(5, 4), name=name)
    assert found.samples.dtype.isnative
    assert found.samples.flags.writeable


@pytest.mark.parametrize(
    ("samples_name", "labels_name"),
    [
        ("my-images-idx3-ubyte", "my-labels-idx1-ubyte"),
        ("images.idx", "labels.idx.gz"),
        ("images.idx.gz", "labels.idx"),
    ],
)
def test_idx_labels_beside(tmp_path, samples_name, labels_name):
    for name, array in ((samples_name, IMAGES), (labels_name, LABELS.astype(np.uint8))):
        content = gzip.compress(idx(array)) if name.endswith("gz") else idx(array)
        (tmp_path / name).write_bytes(content)
    found = read(tmp_path / samples_name)
    assert_holds(found, IMAGES.reshape(6, 20), LABELS.astype(np.uint8), (5, 4))


def test_idx_labels_that_do_not_fit(tmp_path):
    path, labels = tmp_path / "images-idx3-ubyte", tmp_path / "labels-idx1-ubyte"
    path.write_bytes(idx(IMAGES))
    labels.write_bytes(idx(np.zeros(5, dtype=np.uint8)))
    refused(path, "labels: expected shape (6,), one per sample, received (5,)")
    labels.write_bytes(b"nothing of the kind")
    refused(path, str(labels), "does not begin as an IDX file")


@pytest.mark.parametrize("compressed", [True, False])
def test_idx_cut_or_extended_anywhere(tmp_path, compressed):
    path = tmp_path / ("x.idx" + ".gz" * compressed)
    content = gzip.compress(idx(IMAGES)) if compressed else idx(IMAGES)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        refused(path, "the file is empty" if length == 0 else "cannot be read as IDX")
    if not compressed:
        path.write_bytes(content + b"\0")
        refused(path, "expected 120 bytes for shape (6, 5, 4), received 121")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x00\x07\x01\x00\x00\x00\x01\x01", "does not begin as an IDX file"),
        (b"\x00\x00\x08\x01\x00\x00\x00\x01\x01", "received shape (1,)"),
    ],
)
def test_idx_of_another_kind(tmp_path, content, reason):
    (tmp_path / "x.idx").write_bytes(content)
    refused(tmp_path / "x.idx", reason)


# HDF5


@pytest.fixture
def h5py():
    return pytest.importorskip("h5py", reason="the extra hdf5 is not installed")


@pytest.mark.parametrize("suffix", ["h5", "hdf5", "H5"])
def test_hdf5_rows_stay_in_the_file(tmp_path, h5py, suffix):
    path = tmp_path / f"x.{suffix}"
    with h5py.File(path, "w") as file:
        file["samples"], file["labels"] = POINTS[:6], LABELS
    found = read(path)
    assert isinstance(found.samples, h5py.Dataset)
    assert_holds(found, POINTS[:6], LABELS, name=path.name)


def test_hdf5_errors(tmp_path, h5py):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["other"] = POINTS
    refused(path, "HDF5", "expected a dataset named samples; it holds other")
    with h5py.File(path, "w") as file:
        file.create_group("samples")
    refused(path, "expected a dataset named samples; it holds samples")
    with h5py.File(path, "w") as file:
        file["samples"] = POINTS
        file.create_group("labels")
    refused(path, "expected a dataset named labels; it holds labels, samples")
    with h5py.File(path, "w") as file:
        file["samples"], file["labels"] = POINTS, LABELS
    refused(path, "labels: expected shape (7,)")
    damaged = tmp_path / "damaged.h5"
    damaged.write_bytes(path.read_bytes()[:-100])
    refused(damaged, "cannot be read as HDF5", "truncated")


def test_hdf5_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "x.h5").write_bytes(b"anything")
    with pytest.raises(ImportError, match=r'x\.h5: reading HDF5 needs h5py.*"harmonium\[hdf5\]"'):
        read(tmp_path / "x.h5")


# Folders of images


@pytest.mark.parametrize("images", [IMAGES, COLOUR, IMAGES.astype(np.uint16) * 257], ids=["L", "RGB", "I;16"])
def test_images_in_the_order_of_their_names(tmp_path, images):
    for i in reversed(range(len(images))):
        Image.fromarray(images[i]).save(tmp_path / f"{i}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    found = read(tmp_path)
    assert_holds(found, images.reshape(len(images), -1), None, images.shape[1:], tmp_path.name)


def test_images_of_bits_and_of_palettes(tmp_path):
    bits = IMAGES > 127
    for i, image in enumerate(bits):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    assert_holds(read(tmp_path), bits.reshape(6, 20) * np.uint8(255), image_shape=(5, 4))
    for i, image in enumerate(COLOUR.repeat(2, axis=0)):
        Image.fromarray(image).quantize(64).save(tmp_path / f"{i}.png")
    assert_holds(read(tmp_path), COLOUR.repeat(2, axis=0).reshape(6, 60), image_shape=(5, 4, 3))


def test_folder_errors(tmp_path):
    refused(tmp_path, "a folder of images", "it holds no image")
    Image.fromarray(IMAGES[0]).save(tmp_path / "a.png")
    Image.fromarray(IMAGES[0].T).save(tmp_path / "b.png")
    refused(tmp_path, "b.png: expected shape (5, 4) and dtype uint8 like a.png, received (4, 5)")
    Image.fromarray(COLOUR[0]).save(tmp_path / "b.png")
    refused(tmp_path, "b.png: expected shape (5, 4)", "received (5, 4, 3)")
    Image.fromarray(IMAGES[0]).convert("RGBA").save(tmp_path / "b.png")
    refused(tmp_path, "b.png: expected grey levels or RGB without transparency, received mode RGBA")
    for content in (b"no such thing", b"", (tmp_path / "a.png").read_bytes()[:-30]):
        (tmp_path / "b.png").write_bytes(content)
        refused(tmp_path, "b.png: ")


# What holds for every format


def test_files_cut_short(tmp_path):
    np.save(tmp_path / "a.npy", POINTS)
    np.savez_compressed(tmp_path / "a.npz", samples=POINTS)
    sparse.save_npz(tmp_path / "sparse.npz", sparse.csr_matrix(IMAGES.reshape(6, 20)))
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for length in (1, 5, 20, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            refused(path, "cannot be read as")


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv", "x.idx", "x.idx.gz", "x-idx3-ubyte", "x.h5"])
def test_empty_and_foreign_files(tmp_path, name, h5py):
    path = tmp_path / name
    path.write_bytes(b"")
    refused(path, "the file is empty")
    path.write_bytes(bytes(range(256)) * 4)
    refused(path, "cannot be read as")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples", "not an array")
    refused(path, "cannot be read as")


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros(3), "received shape (3,)"),
        (np.zeros((0, 3)), "received shape (0, 3)"),
        (np.array([["a"]]), "numeric or boolean dtype, received <U1"),
        (np.array([[1j]]), "numeric or boolean dtype, received complex128"),
        (np.array([[None]]), "bject"),
    ],
)
def test_arrays_that_hold_no_samples(tmp_path, array, reason):
    np.save(tmp_path / "x.npy", array)
    refused(tmp_path / "x.npy", reason)
    np.savez(tmp_path / "x.npz", array)
    refused(tmp_path / "x.npz", reason)


def test_a_pickle_is_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "sprung"),)

    np.save(tmp_path / "x.npy", np.array([[Trap()]]), allow_pickle=True)
    np.savez(tmp_path / "x.npz", samples=np.array([[Trap()]]))
    for name in ("x.npy", "x.npz"):
        refused(tmp_path / name, "cannot be read as")
    assert not (tmp_path / "sprung").exists()


def test_labels_of_another_shape(tmp_path):
    for labels in (LABELS[:5], LABELS[:, None], np.array(3)):
        np.savez(tmp_path / "x.npz", samples=IMAGES, y=labels)
        refused(tmp_path / "x.npz", "labels: expected shape (6,), one per sample, received")


def test_missing_paths_and_unknown_formats(tmp_path):
    for name in ("x.npy", "folder", "digit"):
        with pytest.raises(
            FileNotFoundError, match=f"{name}: no such file or folder.*digits, bars-and-stripes"
        ):
            read(tmp_path / name)
    for name in ("x.doc", "x", "x.npy.gz", "x.idx3"):
        (tmp_path / name).write_bytes(b"1")
        refused(tmp_path / name, "expected a name that ends in .npy, .npz")


# Built-in names


def test_toy_sets():
    digits, labels = data.digits()
    assert_holds(read("digits"), digits, labels, (8, 8), "digits")
    assert_holds(read("bars-and-stripes"), data.bars_and_stripes(), None, (4, 4), "bars-and-stripes")
    assert_holds(read("gaussian-mixture"), data.gaussian_mixture(1000), name="gaussian-mixture")


def test_a_file_of_a_built_in_name_needs_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    Image.fromarray(IMAGES[0]).save(tmp_path / "digits" / "a.png")
    assert len(read("digits").samples) == 1797
    assert len(read("./digits").samples) == len(read(Path("digits")).samples) == 1


def put_images(folder, part, suffix=""):
    folder.mkdir(parents=True)
    pack = gzip.compress if suffix else bytes
    (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(idx(IMAGES)))
    (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(LABELS.astype(np.uint8))))


@pytest.mark.parametrize(
    ("name", "place", "part", "suffix"),
    [
        ("mnist", "set", "train", ""),
        ("mnist", "set/mnist", "train", ".gz"),
        ("mnist-test", "../shared/data/mnist", "t10k", ".gz"),
        ("fashion-mnist", "set/fashion-mnist", "train", ""),
        ("fashion-mnist-test", "../shared/data/fashion-mnist", "t10k", ".gz"),
    ],
)
def test_images_are_found_where_they_may_lie(tmp_path, monkeypatch, name, place, suffix, part):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("HARMONIUM_DATA", raising=False)
    if place.startswith("set"):
        monkeypatch.setenv("HARMONIUM_DATA", "set")
    put_images(Path(place), part, suffix)
    assert_holds(read(name), IMAGES.reshape(6, 20), LABELS.astype(np.uint8), (5, 4), name)


def test_one_set_of_images_is_not_read_for_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(files, "_DATA_FOLDERS", ())
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path / "set"))
    put_images(tmp_path / "set", "train")
    with pytest.raises(FileNotFoundError, match=r"fashion-mnist: train.* apt install dataset-.*, or put"):
        read("fashion-mnist")


def test_mnist_that_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARMONIUM_DATA", raising=False)
    with pytest.raises(
        FileNotFoundError, match=r"mnist: train.* in \.\./shared/data/mnist, /usr.*DATA is not set"
    ):
        read("mnist")
    monkeypatch.setenv("HARMONIUM_DATA", "/nowhere")
    with pytest.raises(
        FileNotFoundError, match=r"in /nowhere, /nowhere/mnist, \.\./shared/data/mnist, .* and not found;"
    ):
        read("mnist-test")


# What a number is, and what a label is


def test_csv_labels_that_no_integer_holds(tmp_path):
    (tmp_path / "x.csv").write_text("a,label\n1,0\n2,-1e16\n")
    refused(tmp_path / "x.csv", "labels: expected numbers between -2**53 and 2**53", "at position (1,)")


def test_csv_whose_compression_is_damaged(tmp_path):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 100)[:-9])
    refused(tmp_path / "x.csv.gz", "damaged, or not compressed by gz")


def test_csv_that_unfolds_without_end(tmp_path, monkeypatch):
    monkeypatch.setenv("HARMONIUM_READ_LIMIT", "10000")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 10000))
    refused(tmp_path / "x.csv.gz", "its text claims 320000 bytes")


def test_labels_that_are_no_numbers(tmp_path):
    np.savez(tmp_path / "x.npz", samples=POINTS[:2], labels=np.array([1j, 2]))
    refused(tmp_path / "x.npz", "labels: expected numbers, booleans or text, received complex128")
    np.savez(tmp_path / "x.npz", samples=POINTS[:2], labels=np.array([0, np.inf]))
    refused(tmp_path / "x.npz", "labels: expected finite numbers")
    np.savez(tmp_path / "x.npz", samples=POINTS[:2], labels=np.array(["cat", "dog"]))
    assert read(tmp_path / "x.npz").labels.tolist() == ["cat", "dog"]
