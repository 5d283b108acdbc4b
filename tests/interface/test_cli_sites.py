"""Contacts, mutations, scores and couplings of sequences through the command line."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.cli.commands import evaluate
from harmonium.cli.commands.sample import at_temperature
from harmonium.report import sites
from harmonium.tables import Codec

from .command_line import CommandLine, train_once

pytestmark = pytest.mark.usefixtures("blank_figures")
SITES = 8
LETTERS = "-ACGU"


@pytest.fixture(scope="module")
def codes() -> np.ndarray:
    """A family in which sites 0 and 5, and 2 and 7, pair like bases."""
    codes = np.random.default_rng(0).integers(1, 5, (200, SITES))
    codes[:, 5], codes[:, 7] = 5 - codes[:, 0], 5 - codes[:, 2]
    codes[3, 1] = 0
    return codes


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory, codes: np.ndarray) -> Path:
    path = tmp_path_factory.mktemp("family") / "family.fasta"
    names = [f"P{k}/{10 + k}-{17 + k}" for k in range(len(codes))]
    names[3], names[4] = "P3/13-19", "P4/20-99 a range of another length"
    hm.sequences.write_fasta(path, codes, "rna", names)
    return path


@pytest.fixture(scope="module")
def trained(family: Path) -> Path:
    options = ("--hidden", 0, "--rule", "pseudo_likelihood", "--updates", 60, "--learning-rate", 0.2)
    return train_once(family.parent / "run", family, *options, "--threads", 1)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.nightly
def test_rows_are_weighed_as_in_training(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    """What is drawn stands beside the distribution that was learned: relatives counted less there too."""
    few = ("--hidden", 0, "--updates", 20, "--threads", 1)
    cli.succeed("train", family, tmp_path / "near", *few, "--reweight", 0.6)
    dataset = hm.data.read(family)
    weights = hm.sequences.similarity_weights(dataset.samples, 0.6)
    coding = Codec.of(hm.load(tmp_path / "near"))
    torch.testing.assert_close(coding.learned_weights(dataset), weights)
    np.savetxt(tmp_path / "own.txt", np.arange(1.0, 201.0))
    cli.succeed("train", family, tmp_path / "own", *few, "--weights", tmp_path / "own.txt")
    own = Codec.of(hm.load(tmp_path / "own")).learned_weights(dataset)
    torch.testing.assert_close(own, torch.arange(1.0, 201.0).double())
    cli.succeed("train", family, tmp_path / "plain", *few)
    assert Codec.of(hm.load(tmp_path / "plain")).learned_weights(dataset) is None


def test_ln_z_of_a_family_that_falls_has_that_word(
    cli: CommandLine, run: Path, family: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, zero = torch.tensor([0.9, 0.5]), torch.zeros(2)
    falling = hm.report.Resampling(torch.tensor([16, 32]), values, values - 0.5, zero, 1000 * values, 0.9, [])
    monkeypatch.setattr(evaluate, "resampling", lambda *given, **settings: falling)
    result = cli.succeed("evaluate", run, family, "--method", "ais", "--temperatures", 20, "--json").json
    assert "trained out of equilibrium" in result["notes"][0]
    assert result["log_partition"]["standard_error"] is None
    assert result["results"][0]["log_partition_standard_error"] is None


def test_contacts_are_those_of_the_library(cli: CommandLine, run: Path) -> None:
    result = cli.succeed("contacts", run, "--apart", 2, "--json").json
    scores = hm.tasks.contacts(hm.load(run / "machine.safetensors"))
    lines = table(run / "contacts" / "contacts.csv")
    assert len(lines) == 7 * 6 // 2 and [result["strongest"][k]["i"] for k in (0, 1)] in ([1, 3], [3, 1])
    for line in lines:
        i, j = int(line["i"]), int(line["j"])
        assert j - i >= 2 and float(line["score"]) == float(scores[i - 1, j - 1])
    values = [float(line["score"]) for line in lines]
    assert values == sorted(values, reverse=True)
    assert result["files"] == ["contacts.csv", "contacts.png"]
    assert "out: " in cli.refuse("contacts", run) and cli.succeed("contacts", run, "--overwrite")


@pytest.mark.parametrize("first", [0, 1])
def test_precision_follows_from_distances(cli: CommandLine, run: Path, tmp_path: Path, first: int) -> None:
    """Sites are from 1, or from 0 where a site 0 occurs; of pairs that are left out nothing is known."""
    near = {(0, 5): 5.0, (2, 7): 7.9, (1, 7): 8.1, (0, 6): 20.0}
    lines = [f"  {i + first}\t{j + first} 0.5   {distance}" for (i, j), distance in near.items()]
    (tmp_path / "d.txt").write_text("# a structure\n" + "\n".join(lines) + "\n")
    answer = ("contacts", run, "--distances", tmp_path / "d.txt", "--out", tmp_path / "c", "--json")
    result = cli.succeed(*answer).json
    assert result["precision"]["at L/5"] == 1.0 and result["precision"]["at L/2"] == 0.5
    assert result["precision"]["of any pair"] == 0.5 and "at L" not in result["precision"]
    assert result["files"] == ["contacts.csv", "contacts.png", "precision.png"]
    written = {line["distance"] for line in table(tmp_path / "c" / "contacts.csv")}
    assert written == {"", "5.0", "7.9", "8.1", "20.0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 2 3.0\n1 9 4.0\n", "expected pairs of sites from 1 to 8, received 1 9"),
        ("i;j;dist\n1;2;3,8\n", "line 2: expected 3 columns, received '1;2;3,8'"),
        ("1 2 3.0\nfoo bar baz\n", "line 2: expected a number, received 'foo bar baz'"),
        ("1 2 nan\n", "expected that of some pair"),
    ],
)
def test_other_distances_are_refused(
    cli: CommandLine, run: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "d.txt").write_text(text)
    assert said in cli.refuse("contacts", run, "--distances", tmp_path / "d.txt")
    assert not (run / "contacts").exists()


def test_mutations_are_named_as_scans_name_them(cli: CommandLine, run: Path, codes: np.ndarray) -> None:
    result = cli.succeed("mutations", run, "--wild-type", "P7", "--json").json
    effects = hm.tasks.mutations(hm.load(run / "machine.safetensors"), codes[7])
    lines = table(run / "mutations" / "mutations.csv")
    assert [*lines[0]] == ["mutant", "score"] and len(lines) == result["mutants"] == SITES * 3
    for line in lines:
        own, number, new = line["mutant"][0], int(line["mutant"][1:-1]), line["mutant"][-1]
        site = number - 17  # named P7/17-24
        assert LETTERS[codes[7, site]] == own != new
        assert float(line["score"]) == float(effects[site, LETTERS.index(new)])
    assert result["files"] == ["mutations.csv", "mutations.png"] and result["notes"] == []


def test_a_gap_is_not_mutated_and_not_counted(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m", "--overwrite", "--json")
    result = cli.succeed("mutations", run, "--wild-type", "P3/13-19", *out).json
    numbers = {int(line["mutant"][1:-1]) for line in table(tmp_path / "m" / "mutations.csv")}
    assert result["letters"] == 7 and numbers == set(range(13, 20))
    result = cli.succeed("mutations", run, "--wild-type", "P4", *out).json
    assert "numbered from 1" in result["notes"][0]
    cli.succeed("mutations", run, "--wild-type", "5", "--first", 30, *out)
    assert table(tmp_path / "m" / "mutations.csv")[0]["mutant"][1:-1] == "30"


def test_insertions_have_numbers_of_their_own(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    """Letters that the alignment leaves out count, where the range of the name counts them or has none."""
    rows = {"Q1/20-29": "ACgGUuACGU", "Q2/20-27": "ACgGUACGU", "Q3": "aACGU-CGU", "Q4/5-12": "ACGUACGU"}
    path, out = tmp_path / "query.a3m", ("--out", tmp_path / "m", "--overwrite", "--json")
    path.write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))

    def numbers(name: str, *more: object) -> list[int]:
        cli.succeed("mutations", run, "--data", path, "--wild-type", name, *more, *out)
        mutants = [row["mutant"] for row in table(tmp_path / "m" / "mutations.csv")]
        return [*dict.fromkeys(int(mutant[1:-1]) for mutant in mutants)]

    assert numbers("Q1") == [20, 21, 23, 24, 26, 27, 28, 29]
    assert numbers("Q2") == [*range(20, 28)] and numbers("Q4") == [*range(5, 13)]
    assert numbers("Q3") == [2, 3, 4, 5, 6, 7, 8]
    assert numbers("Q3", "--first", 30)[0] == 31
    (tmp_path / "scan.csv").write_text("mutant\nG23A\nA26C\n")
    done = cli.succeed(
        "mutations", run, "--data", path, "--wild-type", "Q1", "--mutants", tmp_path / "scan.csv", *out
    )
    assert done.json["mutants"] == 2


def test_listed_mutants_are_scored_and_ranked(
    cli: CommandLine, run: Path, tmp_path: Path, codes: np.ndarray
) -> None:
    """Two mutations at once against ln p of both sequences."""
    own = [LETTERS[code] for code in codes[7]]
    other = ["A" if letter != "A" else "C" for letter in own]
    names = [f"{own[0]}17{other[0]}", f"{own[5]}22{other[5]}", f"{own[0]}17{other[0]}:{own[5]}22{other[5]}"]
    (tmp_path / "scan.csv").write_text("\n".join(["mutant,DMS_score", *(f"{x},1" for x in names)]) + "\n")
    arguments = ("mutations", run, "--wild-type", "P7", "--mutants", tmp_path / "scan.csv")
    cli.succeed(*arguments)
    found = table(run / "mutations" / "mutations.csv")
    assert [line["mutant"] for line in found] == names
    machine = hm.load(run / "machine.safetensors").double()
    rows = np.repeat(codes[7:8], 4, 0)
    for row, changed in enumerate(((0,), (5,), (0, 5)), 1):
        rows[row, list(changed)] = [LETTERS.index(other[site]) for site in changed]
    energy = machine.free_energy(torch.eye(5)[torch.from_numpy(rows)].flatten(1).double()).detach()
    expected = (energy[0] - energy[1:]).tolist()
    np.testing.assert_allclose([float(line["score"]) for line in found], expected, rtol=1e-4, atol=1e-5)


def test_other_mutants_are_refused(cli: CommandLine, run: Path, tmp_path: Path, codes: np.ndarray) -> None:
    own = LETTERS[codes[7, 2]]
    other = "A" if own != "A" else "C"
    for text, said in (
        ("", "received 0 rows of the columns"),
        ("\udcff", "expected a table .csv or .tsv"),
        ("name,score\nx,1\ny,2\n", "received 2 rows of the columns 'name', 'score'"),
        ("mutant\nA99C\nA98C\n", "expected sites 17 to 24"),
        (f"mutant\n{other}19G\n", f"expected {own} at site 19, as in the sequence, received {other}19 in"),
        (f"mutant\n{own}19C:{own}19G\n", f"one letter at each site, received {own}19C and {own}19G"),
        (f"mutant,score\n,0\n{own}19C,1\n", "expected names such as A24G or A24G:C30D of letters in"),
    ):
        (tmp_path / "scan.csv").write_bytes(text.encode(errors="surrogateescape"))
        refused = cli.refuse("mutations", run, "--wild-type", "P7", "--mutants", tmp_path / "scan.csv")
        assert refused.startswith("--mutants: ") and said in refused


def test_a_wild_type_has_to_be_known(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    lines = family.read_text().splitlines()
    place = lines.index(">P9/19-26") + 1
    lines[place] = "N" + lines[place][1:]
    own = tmp_path / "own.fasta"
    own.write_text("\n".join(lines) + "\n")
    cli.train(own, tmp_path / "run", "--unknown", "missing")
    said = cli.refuse("mutations", tmp_path / "run", "--wild-type", "P9")
    assert "--wild-type: expected a sequence whose letters are all known, received P9/19-26 with 1" in said
    cli.succeed("score", tmp_path / "run", own, "--out", tmp_path / "s.csv", "--nearest")
    distances = [float(line["distance"]) for line in table(tmp_path / "s.csv")]
    assert distances[9] in (0.0, pytest.approx(0.5 / SITES))


def test_a_sequence_that_is_not_there_is_refused(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    assert "--wild-type: expected the name of one sequence" in cli.refuse(
        "mutations", run, "--wild-type", "Q7"
    )
    cli.train("bars-and-stripes", tmp_path / "other")
    assert "RUN: expected one of sequences" in cli.refuse("mutations", tmp_path / "other")
    for command in ("contacts", "couplings"):
        more = ("--out", tmp_path / "x.csv") if command == "couplings" else ()
        assert "expected one of sequences" in cli.refuse(command, tmp_path / "other", *more)


def test_scores_are_ln_p_where_ln_z_is_summed(
    cli: CommandLine, run: Path, family: Path, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "s.csv", "--overwrite", "--json")
    cli.succeed("score", run, family, *out, "--nearest")
    machine = hm.load(run / "machine.safetensors")
    rows = Codec.of(machine).rows(hm.data.read(family)).all()
    z = hm.likelihood.exact_log_partition(machine)
    expected = hm.likelihood.log_likelihood(machine, rows, z)
    lines = table(tmp_path / "s.csv")
    assert lines[0]["name"] == "P0/10-17" and {line["distance"] for line in lines} == {"0.0"}
    np.testing.assert_allclose([float(line["log_likelihood"]) for line in lines], expected, rtol=1e-12)


def test_unusual_sites_are_listed_beside_scores(
    cli: CommandLine, run: Path, family: Path, tmp_path: Path
) -> None:
    cli.succeed("score", run, family, "--out", tmp_path / "s.csv", "--why", 2)
    found = hm.tasks.unusual_cells(hm.load(run / "machine.safetensors"), hm.data.read(family), max_cells=2)
    lines, listed = table(tmp_path / "s.csv"), 0
    for cell in found:
        number = 1 + sum(other.row == cell.row and other.nats > cell.nats for other in found)
        line, listed = lines[cell.row], listed + 1
        assert line[f"cell_{number}"] == cell.column and 1 <= int(cell.column) <= SITES
        assert line[f"value_{number}"] == cell.value and line[f"expected_{number}"] == cell.expected
        assert float(line[f"nats_{number}"]) == pytest.approx(cell.nats, rel=1e-6)
    assert listed == sum(bool(line[f"cell_{n}"]) for line in lines for n in (1, 2)) > 0


def test_scores_are_energies_where_ln_z_is_not_known(
    cli: CommandLine, tmp_path: Path, codes: np.ndarray
) -> None:
    wide = np.concatenate([codes] * 4, 1)
    hm.sequences.write_fasta(tmp_path / "wide.fasta", wide, "rna")
    for hidden in (0, 40):
        run = tmp_path / str(hidden)
        steps = ("--hidden", hidden, "--updates", 5, "--threads", 1)
        cli.succeed("train", tmp_path / "wide.fasta", run, *steps)
        out = ("--out", tmp_path / "s.csv", "--overwrite", "--json")
        assert "ln Z" in cli.succeed("score", run, tmp_path / "wide.fasta", *out).json["notes"][0]
        machine = hm.load(run / "machine.safetensors").double()
        rows = Codec.of(machine).rows(hm.data.read(tmp_path / "wide.fasta"), torch.float64).all()
        energies = machine.free_energy(rows).detach().numpy()
        found = [float(line["energy"]) for line in table(tmp_path / "s.csv")]
        np.testing.assert_allclose(found, energies, rtol=1e-5)


def test_the_nearest_sequence_is_counted_by_letters(
    cli: CommandLine, run: Path, tmp_path: Path, codes: np.ndarray
) -> None:
    new = np.random.default_rng(1).integers(0, 5, (6, SITES))
    hm.sequences.write_fasta(tmp_path / "new.fasta", new, "rna")
    cli.succeed("score", run, tmp_path / "new.fasta", "--out", tmp_path / "s.csv", "--nearest")
    found = [float(line["distance"]) for line in table(tmp_path / "s.csv")]
    np.testing.assert_allclose(found, (new[:, None] != codes).mean(2).min(1), atol=1e-6)


@pytest.mark.parametrize("gauge", ["zero-sum", "lattice-gas"])
def test_couplings_of_a_gauge_have_the_same_distribution(
    cli: CommandLine, run: Path, family: Path, tmp_path: Path, gauge: str
) -> None:
    cli.succeed("couplings", run, "--out", tmp_path / "potts.dat", "--gauge", gauge)
    machine, other = (
        hm.load(run / "machine.safetensors").double(),
        hm.exchange.read(tmp_path / "potts.dat").machine,
    )
    rows = Codec.of(machine).rows(hm.data.read(family), torch.float64).all()
    difference = machine.free_energy(rows) - other.free_energy(rows)
    assert float((difference - difference.mean()).detach().abs().max()) < 1e-9
    J = other.couplings[0].matrix().detach().view(SITES, 5, SITES, 5)
    assert float((J.sum(1) if gauge == "zero-sum" else J[:, 0]).abs().max()) < 1e-9


def test_couplings_as_a_table_are_those_of_the_file(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    for name in ("c.csv", "c.txt"):
        cli.succeed("couplings", run, "--out", tmp_path / name)
    other = hm.exchange.read(tmp_path / "c.txt").machine
    J, h = other.couplings[0].matrix().detach().view(SITES, 5, SITES, 5), other.layers[0].bias.detach()
    lines = table(tmp_path / "c.csv")
    assert len(lines) == SITES * 5 + SITES * (SITES - 1) // 2 * 25
    for line in lines:
        i, a = int(line["i"]) - 1, LETTERS.index(line["a"])
        expected = h[i, a] if line["j"] == "" else J[i, a, int(line["j"]) - 1, LETTERS.index(line["b"])]
        assert float(line["value"]) == float(expected)
    assert "out: expected a name" in cli.refuse("couplings", run, "--out", tmp_path / "c.h5")


def test_a_machine_with_hidden_units_has_effective_couplings(
    cli: CommandLine, family: Path, tmp_path: Path
) -> None:
    cli.train(family, tmp_path / "run")
    cli.succeed("couplings", tmp_path / "run", "--out", tmp_path / "c.dat")
    found = hm.exchange.read(tmp_path / "c.dat").machine.couplings[0].matrix().detach()
    expected = hm.tasks.effective_couplings(hm.load(tmp_path / "run" / "machine.safetensors")).pairs
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_the_gap_is_found_by_its_letter(cli: CommandLine, tmp_path: Path, codes: np.ndarray) -> None:
    """An alphabet may begin with another letter, and files of other programs get the letters of the run."""
    order = "ACGU-"
    moved = np.array([order.index(letter) for letter in LETTERS])[codes]
    hm.sequences.write_fasta(tmp_path / "f.fasta", moved, order)
    options = ("--alphabet", order, "--hidden", 0, "--updates", 20, "--threads", 1)
    cli.succeed("train", tmp_path / "f.fasta", tmp_path / "run", *options)
    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    assert torch.equal(hm.tasks.contacts(machine), hm.tasks.contacts(machine, gap=4))
    assert not torch.equal(hm.tasks.contacts(machine), hm.tasks.contacts(machine, gap=0))
    cli.succeed("convert", tmp_path / "run", tmp_path / "potts.dat")
    cli.succeed("score", tmp_path / "run", tmp_path / "f.fasta", "--out", tmp_path / "s.csv")
    found = hm.exchange.read(tmp_path / "potts.dat").machine
    found.save(tmp_path / "potts.safetensors")  # which reads sequences by the letters of the file
    cli.succeed("score", tmp_path / "potts.safetensors", tmp_path / "f.fasta", "--out", tmp_path / "t.csv")
    ours, theirs = (
        [float(line["log_likelihood"]) for line in table(tmp_path / name)] for name in ("s.csv", "t.csv")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_samples_at_a_temperature(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    """All energies are divided by it."""
    machine, energies = hm.load(run), {}
    cold, states = at_temperature(machine, 0.5), machine.random_states(20, seed=0)
    torch.testing.assert_close(cold.energy(states), 2 * machine.energy(states), rtol=1e-4, atol=1e-3)
    for temperature in (0.5, 4.0):
        out = tmp_path / f"{temperature}.fasta"
        cli.succeed("sample", run, "--rows", 100, "--sweeps", 30, "--out", out, "--temperature", temperature)
        rows = Codec.of(machine).rows(hm.data.read(out, alphabet="rna")).all()
        energies[temperature] = float(machine.free_energy(rows).detach().mean())
    assert energies[0.5] < energies[4.0] - 1


def test_a_temperature_is_refused_where_it_has_no_meaning(cli: CommandLine, tmp_path: Path) -> None:
    hm.BoltzmannMachine([hm.Gaussian(3), hm.Bernoulli(2)]).save(tmp_path / "grey.safetensors")
    options = ("--out", tmp_path / "x.npy", "--temperature", 0.5)
    refused = cli.refuse("sample", tmp_path / "grey.safetensors", *options)
    assert "units with two values or categories" in refused


def test_a_heat_map_has_the_numbers_of_residues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    kept: list[Any] = []
    monkeypatch.setattr(sites, "save_figure", lambda figure, path: kept.append(figure))
    effects, numbers = torch.randn(6, 5), [None, 88, 89, 90, None, 91]
    hm.report.draw_mutations(effects, [0, 1, 2, 3, 0, 4], LETTERS, tmp_path / "x.png", numbers=numbers)
    axes = kept[0].axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["-", "A", "C", "G\n90", "-", "U"]
    assert axes.get_xlabel() == "residue"
    with pytest.raises(ValueError, match="numbers: expected one for each of 6 sites, received 5"):
        hm.report.draw_mutations(effects, [0] * 6, LETTERS, tmp_path / "x.png", numbers=numbers[1:])
    hm.report.draw_contacts(torch.rand(9, 9), tmp_path / "y.png")
    assert [axes.get_ylabel() for axes in kept[1].axes] == ["site", "score"]
