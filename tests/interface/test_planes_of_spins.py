"""Bit-planes of ±1 units: grey levels go in and come out as with 0/1 units, of the same distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import BitPlanes, encoder_from_dict
from harmonium.tables import Codec

from .command_line import CommandLine

PLANES = ("bit-planes", "gray-planes")
GREY = np.random.Generator(np.random.PCG64(3)).integers(0, 256, (40, 2, 2)).astype(np.uint8)


@pytest.mark.parametrize("binarise", PLANES)
def test_planes_are_the_same_digits_in_either_unit(binarise: str) -> None:
    X = np.arange(256, dtype=np.uint8).reshape(-1, 4)
    bits, spins = (Codec.fit(X, visible=kind, binarise=binarise) for kind in ("bernoulli", "spin"))
    assert [str(layer) for layer in spins.layers] == ["Spin(32)"]
    zero_one, states = bits.rows(X).all(), spins.rows(X).all()
    assert torch.equal(states, 2 * zero_one - 1)
    back = spins.decode(states)[0]
    assert back.dtype == np.uint8 and np.array_equal(back, X)
    assert encoder_from_dict(spins.to_dict()["encoder"]) == spins.encoder
    assert not (bits.encoder.takes_means or spins.encoder.takes_means)
    hidden = np.zeros((1, 4), dtype=bool)
    hidden[0, 1] = True  # of column 1 every plane, and nothing else
    left = spins.hide(states[:1], hidden, hm.data.DataSet(X[:1], None, (), "grey"))
    assert left.isnan().nonzero()[:, 1].tolist() == [1 + 4 * plane for plane in range(8)]


def test_planes_of_other_states_have_no_slope() -> None:
    planes = BitPlanes(states=(-1.0, 1.0))
    assert planes.width == 8 and planes.log_jacobian(np.ones((1, 24))).tolist() == [[0.0, 0.0, 0.0]]
    assert planes.spread(np.array([[True, False]])).tolist() == [[True, False] * 8]


def test_units_of_other_values_are_refused() -> None:
    with pytest.raises(ValueError, match=r"visible: expected auto or one of .*spin.* received gaussian"):
        Codec.fit(GREY.reshape(40, 4), visible="gaussian", binarise="bit-planes")


def test_every_command_writes_grey_levels(cli: CommandLine, tmp_path: Path) -> None:
    np.save(tmp_path / "grey.npy", GREY)
    run, data = tmp_path / "run", tmp_path / "grey.npy"
    few = ("--hidden", "spin:5", "--updates", 20, "--threads", 1, "--json")
    made = cli.succeed("train", data, run, "--visible", "spin", "--binarise", "gray-planes", *few).json
    assert made["layers"] == ["Spin(32)", "Spin(5)"]
    cli.succeed("sample", run, "--rows", 6, "--sweeps", 2, "--out", tmp_path / "s.npy")
    samples = np.load(tmp_path / "s.npy")
    assert samples.dtype == np.uint8 and samples.shape == (6, 4)
    assert "bit-planes" in cli.refuse("sample", run, "--means", "--out", tmp_path / "m.npy")
    (likelihood,) = cli.succeed("evaluate", run, data, "--json").json["results"]
    assert np.isfinite(likelihood["log_likelihood"])
    half = ("--missing", "random:0.5", "--sweeps", 4)
    cli.succeed("impute", run, data, "--out", tmp_path / "c.npy", *half)
    completed = np.load(tmp_path / "c.npy")
    assert completed.dtype == np.uint8
    assert 0.3 < (completed == GREY.reshape(40, 4)).mean() < 0.7
    noise = ("--flip-probability", 0.1)
    cli.succeed("denoise", run, data, *noise, "--out", tmp_path / "n.npy")
    assert np.load(tmp_path / "n.npy").dtype == np.uint8
