"""harmonium anneal: machines, networks, and what is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm

from .command_line import CommandLine


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    """The file of an antiferromagnetic ring of four spins."""
    pairs = hm.Sparse([(0, 1), (1, 2), (2, 3), (0, 3)])
    machine = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): pairs}, [0], seed=None)
    machine.couplings[0].fill_(-torch.ones(4))
    machine.save(tmp_path / "ring.safetensors")
    return tmp_path / "ring.safetensors"


def test_a_ring_has_its_lowest_state(cli: CommandLine, ring: Path, tmp_path: Path) -> None:
    answer = cli.succeed("anneal", ring, "--out", tmp_path / "low.csv", "--json").json
    assert answer["method"] == "exact" and answer["lowest_energy"] == -4
    (found,) = np.loadtxt(tmp_path / "low.csv", delimiter=",", skiprows=1, ndmin=2)
    assert found[:2].tolist() == [-4, 1] and found[2:].sum() == 0
    assert "overwrite" in cli.refuse("anneal", ring, "--out", tmp_path / "low.csv")


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


NETWORK = "MARKOV\n3\n3 2 3\n4\n1 0\n1 1\n1 2\n2 0 2\n3 1 2 9\n2 1 5\n3 4 1 1\n9 1 1 1 1 1 1 1 1 1\n"


def test_a_network_has_a_column_for_each_variable_in_the_order_of_the_file(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "m.uai").write_text(NETWORK)
    cli.succeed("anneal", tmp_path / "m.uai", "--out", tmp_path / "m.csv")
    lines = (tmp_path / "m.csv").read_text().splitlines()
    assert lines[0] == "energy,count,x0,x1,x2"
    assert np.allclose(np.fromstring(lines[1], sep=","), [-np.log(180), 1, 2, 1, 0])
    (tmp_path / "m.uai.evid").write_text("1 0 1")
    options = ("--evidence", tmp_path / "m.uai.evid")
    cli.succeed("anneal", tmp_path / "m.uai", *options, "--out", tmp_path / "e.csv")
    lines = (tmp_path / "e.csv").read_text().splitlines()
    assert lines[0] == "energy,count,x0,x1,x2"
    assert np.allclose(np.fromstring(lines[1], sep=","), [-np.log(40), 1, 1, 1, 0])


def test_evaluate_reads_what_anneal_reads(cli: CommandLine, tmp_path: Path) -> None:
    """A network of probabilities has ln Z = 0, and so has its machine; evidence leaves its probability."""
    text = "BAYES\n2\n2 3\n2\n1 0\n2 0 1\n\n2\n0.25 0.75\n\n6\n0.5 0.5 0 0.1 0.2 0.7\n"
    (tmp_path / "b.uai").write_text(text)
    cli.succeed("convert", tmp_path / "b.uai", tmp_path / "b.safetensors")
    cli.succeed("convert", tmp_path / "b.safetensors", tmp_path / "again.uai")
    for name in ("b.uai", "b.safetensors", "again.uai"):
        found = cli.succeed("evaluate", tmp_path / name, "--json").json["log_partition"]
        assert found["method"] == "exact" and abs(found["value"]) < 1e-12
    (tmp_path / "e").write_text("1 1 2")
    options = ("--evidence", tmp_path / "e", "--json")
    found = cli.succeed("evaluate", tmp_path / "b.uai", *options).json["log_partition"]
    assert abs(found["value"] - np.log(0.75 * 0.7)) < 1e-12
    assert "evidence: expected beside" in cli.refuse("evaluate", tmp_path / "b.safetensors", *options[:2])


def test_errors(cli: CommandLine, ring: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").write_text("MARKOV\n2\n2 x\n")
    assert f"RUN: {tmp_path / 'cut'}: line 3" in cli.refuse(
        "anneal", tmp_path / "cut", "--out", tmp_path / "x.csv"
    )
    assert "runs" in cli.refuse("anneal", ring, "--out", tmp_path / "x.csv", "--runs", 0)
