"""harmonium anneal: graphs, machines, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import harmonium as hm

from .command_line import CommandLine


def test_a_graph_of_gset(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "G").write_text("4 4\n1 2 1\n2 3 1\n3 4 1\n1 4 1\n")
    answer = cli.succeed("anneal", tmp_path / "G", "--out", tmp_path / "cut.npz", "--json").json
    assert answer["method"] == "exact" and answer["largest_cut"] == 4
    with np.load(tmp_path / "cut.npz") as found:
        assert found["energies"].tolist() == [-4.0] and found["counts"].tolist() == [1]
        assert np.abs(found["states"].sum()) == 0
    assert "overwrite" in cli.refuse("anneal", tmp_path / "G", "--out", tmp_path / "cut.npz")


def test_a_machine_is_annealed_into_a_table(cli: CommandLine, tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(40)], seed=0)
    hm.machine.normal_(machine, 1.0, torch.Generator().manual_seed(1))
    machine.save(tmp_path / "m.safetensors")
    options = ("--runs", 5, "--sweeps", 20, "--seed", 3)
    answer = cli.succeed(
        "anneal", tmp_path / "m.safetensors", "--out", tmp_path / "low.csv", *options, "--json"
    ).json
    found = hm.tasks.minimise(machine, 5, sweeps=20, seed=3)
    assert answer["method"] == "anneal" and answer["states"] == len(found.energies)
    rows = np.loadtxt(tmp_path / "low.csv", delimiter=",", skiprows=1, ndmin=2)
    assert np.allclose(rows[:, 0], found.energies) and np.allclose(rows[:, 2:], torch.cat(found.states, 1))


def test_errors(cli: CommandLine, tmp_path: Path) -> None:
    assert "no file or folder" in cli.refuse("anneal", tmp_path / "none", "--out", tmp_path / "x.npz")
    (tmp_path / "G").write_text("4 4\n1 2 1\n2 3 1\n3 4 1\n1 4 1\n")
    assert "out: expected" in cli.refuse("anneal", tmp_path / "G", "--out", tmp_path / "x.png")
    assert "runs" in cli.refuse("anneal", tmp_path / "G", "--out", tmp_path / "x.npz", "--runs", 0)
