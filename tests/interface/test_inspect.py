"""What a run keeps along its way, as the commands use it: ladder, directions, the tree of solutions."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

import harmonium as hm
from harmonium.ladder.rungs import as_rung, hamiltonian_of

from .command_line import CommandLine

BARS = "bars-and-stripes"


def test_singular_vectors_make_the_couplings_again() -> None:
    made = hm.BoltzmannMachine(
        [hm.Gaussian(3), hm.Spin(4), hm.Bernoulli(2), hm.Bernoulli(3)],
        edges=[(0, 1), (0, 2), (2, 3), (1, 3)],
        visible=[0, 3],
    )
    hm.machine.normal_(made, 1.0, seed=0)
    found, hamiltonian = hm.tasks.directions(made), made.hamiltonian()
    J = {(l, m): x.detach().double() for l, m, x in hamiltonian.edges}
    whole = torch.cat([torch.cat([J[0, 1], J[0, 2]], 1), torch.cat([J[1, 3].T, J[2, 3].T], 1)])
    torch.testing.assert_close((found.visible * found.values) @ found.hidden.T, whole)
    torch.testing.assert_close(found.visible.T @ found.visible, torch.eye(6).double())
    assert bool((found.visible.gather(0, found.visible.abs().argmax(0, keepdim=True)) > 0).all())
    torch.testing.assert_close(found.project(found.visible.T), torch.eye(6).double())
    with pytest.raises(ValueError, match="expected an edge between a visible and a hidden layer"):
        hm.tasks.directions(hm.BoltzmannMachine([hm.Spin(3)], edges=[]))


@pytest.mark.parametrize("hidden", [0, 3])
def test_directions_of_sequences_do_not_depend_on_the_gauge(hidden: int) -> None:
    """They are those of the zero-sum gauge, also where a machine without hidden units joins sites."""
    sites = hm.Categorical(4, 3)
    made = hm.BoltzmannMachine([sites, hm.Bernoulli(3)] if hidden else [sites], edges=[(0, min(hidden, 1))])
    hm.machine.normal_(made, 1.0, seed=0)
    found = hm.tasks.directions(made)
    hm.machine.to_zero_sum_(made)
    whole = made.hamiltonian().J[0].detach().double()
    torch.testing.assert_close((found.visible * found.values) @ found.hidden.T, whole, atol=1e-5, rtol=0)
    leading = found.visible[:, found.values > 1e-5]
    torch.testing.assert_close(leading.view(4, 3, -1).sum(1), torch.zeros(4, leading.shape[1]).double())
    if not hidden:  # of a symmetric matrix
        values = torch.linalg.eigvalsh(whole).abs().sort(descending=True).values
        torch.testing.assert_close(found.values, values, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("blank_figures")
def test_sequences_are_looked_into(cli: CommandLine, tmp_path: Path) -> None:
    """Data lie along the first direction as the pairs of letters that they were made of."""
    (tmp_path / "family.txt").write_text("ACGUA\nACGUC\nACGUG\nUGCAU\nUGCAC\nUGCAG\n" * 5)
    steps = ("--hidden", 0, "--updates", 20, "--learning-rate", 0.2, "--threads", 1)
    cli.succeed("train", tmp_path / "family.txt", tmp_path / "run", *steps)
    found = cli.succeed("inspect", tmp_path / "run", "--sweeps", 20, "--json").json
    assert "logos.png" in found["files"] and "directions.png" in found["files"]
    machine, rows = hm.load(tmp_path / "run"), hm.data.read(tmp_path / "family.txt")
    X = hm.tables.Codec.of(machine).rows(rows).all()
    along = hm.tasks.directions(machine).project(X)[:, 0]
    first = torch.arange(len(X)) % 6 < 3
    assert along[first].min() > along[~first].max() or along[first].max() < along[~first].min()


def test_solutions_of_a_ferromagnet_merge_where_naive_mean_field_has_one() -> None:
    """For 10 and 10 spins with equal couplings J that is up to J = 1/10."""
    made = hm.BoltzmannMachine([hm.Spin(10), hm.Spin(10)])
    with torch.no_grad():
        made.couplings[0].weight.fill_(0.5)
    hamiltonian, top = made.hamiltonian(), as_rung(made)
    ages = [0.0, 0.05, 0.09, 0.12, 0.3, 0.5]
    hamiltonians = [
        hamiltonian_of(hamiltonian, [x * (age / 0.5 if x.dim() == 2 else 1) for x in top]) for age in ages
    ]
    X = torch.ones(6, 10)
    X[:2] = -1
    X[2, 0] = -1
    tree = hm.meanfield.solution_tree(made, hamiltonians, ages, X, order=1)
    assert tree.solutions.tolist() == [1, 1, 1, 2, 2, 2] and tree.basin.tolist() == [0, 0, 1, 1, 1, 1]
    assert tree.newick == "(2:0.41,4:0.41)6;" and tree.root.age == 0.09
    with pytest.raises(ValueError, match="ages: expected one for each of 6 hamiltonians, not falling"):
        hm.meanfield.solution_tree(made, hamiltonians, ages[::-1], X)


@pytest.mark.nightly
def test_commands_use_the_ladder_of_a_run(cli: CommandLine, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cli.succeed(
        "train", BARS, run, "--hidden", 6, "--updates", 1500, "--learning-rate", 0.2, "--ladder",
        "--averaging", 0.99, "--threads", 1, "--json",
    )  # fmt: skip
    machine = hm.load(run)
    kept = hm.ladder.load_ladder(run / "ladder.safetensors", machine)
    assert kept.rungs is not None and len(kept.rungs) >= 2
    cli.succeed("sample", run, "--kernel", "ladder", "--out", tmp_path / "s.npy", "--sweeps", 20)
    inside = cli.succeed("inspect", run, "--json", "--sweeps", 100).json
    assert inside["ages"][0]["updates"] == 0 and len(inside["ages"]) == len(kept.rungs) + 1
    values = torch.linalg.svdvals(machine.couplings[0].weight)[:5]
    assert inside["ages"][-1]["singular_values"] == pytest.approx(values.tolist(), rel=1e-5)
    assert (run / "inspect" / "tree.nwk").read_text().strip() == inside["tree"]
    assert all((run / "inspect" / name).stat().st_size > 0 for name in ("tree.png", "directions.png"))
    assert "exists; --overwrite" in cli.refuse("inspect", run)
    cli.succeed("report", run, "--sweeps", 50, "--mixing-sweeps", 20)
    assert tomllib.loads((run / "run.toml").read_text())["run"]["ladder"] == 1
    assert "holds a run" in cli.refuse("train", BARS, run)
