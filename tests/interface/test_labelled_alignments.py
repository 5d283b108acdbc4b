"""Alignments with labels in one table: read, trained as a machine of both, and written back."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import read
from harmonium.sequences import align, spell
from harmonium.tables import Codec

from .command_line import CommandLine, read_csv, train_once, write_csv

SITES, LETTERS = 6, "-ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def rows() -> list[list[str]]:
    """Sequences whose first two letters tell the class, of which every tenth is unknown."""
    random = np.random.default_rng(0)
    found = []
    for k in range(120):
        codes = random.integers(0, 21, SITES)
        codes[:2] = (5, 9) if k % 2 else (13, 2)
        kind = "" if k % 10 == 0 else ("kinase", "007")[k % 2]
        found.append([f"s{k}", spell(codes[None], "protein")[0], kind, str(k % 3)])
    return found


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]) -> Path:
    path = tmp_path_factory.mktemp("family") / "family.csv"
    return write_csv(path, rows, ["name", "sequence", "label", "clade"])


@pytest.fixture(scope="module")
def run(family: Path) -> Path:
    options = ("--label", "label", "--objective", "joint", "--hidden", 6, "--updates", 300, "--threads", 1)
    return train_once(family.parent / "run", family, *options)


def test_a_column_of_sequences_is_an_alignment(family: Path, rows: list[list[str]]) -> None:
    found = read(family)
    assert found.alignment is not None and found.alignment.alphabet == LETTERS
    assert spell(found.samples, "protein") == [row[1] for row in rows]
    assert found.alignment.names == [row[0] for row in rows]
    assert [cells.name for cells in found.other_columns] == ["label", "clade"]
    rest, labels = found.take_label("label")
    assert labels is not None and labels.values.tolist() == [row[2] or None for row in rows]
    assert rest.other_columns == () and rest.samples is found.samples
    with pytest.raises(ValueError, match=r"one of the columns 'label', 'clade', received 'kind'"):
        found.take_label("kind")


@pytest.mark.parametrize(
    "cells",
    [["AC", "ACD"], ["A1", "C2"], ["A", "C"], ["12", "13"]],
    ids=["lengths", "letters", "one", "numbers"],
)
def test_other_columns_of_that_name_are_columns_of_a_table(tmp_path: Path, cells: list[str]) -> None:
    (tmp_path / "x.csv").write_text("sequence,size\n" + "".join(f"{cell},1.5\n" for cell in cells))
    found = read(tmp_path / "x.csv")
    assert found.alignment is None and found.names == ("sequence", "size")


def test_an_alphabet_that_is_named_holds_for_every_row(tmp_path: Path) -> None:
    for text, said in (
        ("name,sequence\na,AC\nb,ACD\n", "row 1: expected 2 letters as in the first one, received 3 in 'b'"),
        ("name,sequence\na,AC\nb,A1\n", "row 1: expected letters of '-ACDEFGHIKLMNPQRSTVWY', received '1'"),
        ("name,sequence\na,AC\nb,\n", "row 1: expected a sequence in column 'sequence', received none"),
    ):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(ValueError, match=said):
            read(tmp_path / "x.csv", alphabet="protein")


def test_sequences_in_memory_are_those_of_a_file(tmp_path: Path) -> None:
    texts = ["AC.GUa", "A-CGU-"]
    (tmp_path / "x.txt").write_text("\n".join(texts) + "\n")
    from_file, from_memory = hm.sequences.read_alignment(tmp_path / "x.txt"), align(texts)
    assert (from_file.codes == from_memory.codes).all() and from_file.notes == from_memory.notes
    with pytest.raises(ValueError, match="row 1: expected 2 letters"):
        align(["AC", "ACG"])


@pytest.mark.nightly
def test_a_machine_of_both_draws_and_predicts_both(
    cli: CommandLine, run: Path, family: Path, rows: list[list[str]], tmp_path: Path
) -> None:
    codec = Codec.of(hm.load(run / "machine.safetensors"))
    assert [str(layer) for layer in codec.layers] == [f"Categorical({SITES}, 21)", "Categorical(1, 2)"]
    cli.succeed("sample", run, "--given", "label=007", "--rows", 40, "--out", tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_text().startswith("name,sequence,label\n1,")
    drawn = read(tmp_path / "new.csv", alphabet="protein")
    _, labels = drawn.take_label("label")
    assert labels is not None and set(labels.values.tolist()) == {"007"}
    assert np.mean((drawn.samples[:, :2] == (5, 9)).all(1)) > 0.8
    result = cli.succeed("predict", run, family, "--out", tmp_path / "p.csv", "--json").json
    assert result["accuracy"] > 0.95 and result["rows_scored"] == 108
    cli.succeed("impute", run, family, "--out", tmp_path / "full.csv")
    full = read_csv(tmp_path / "full.csv")
    assert full[0] == ["name", "sequence", "label"] and all(row[2] for row in full[1:])
    assert [row[:2] for row in full[1:]] == [row[:2] for row in rows]
    assert [new[2] for new, old in zip(full[1:], rows, strict=True) if old[2]] == [x[2] for x in rows if x[2]]


def test_a_table_of_sequences_is_converted_with_its_columns(
    cli: CommandLine, family: Path, rows: list[list[str]], tmp_path: Path
) -> None:
    cli.succeed("data", family, "--out", tmp_path / "new.tsv")
    with (tmp_path / "new.tsv").open() as file:
        found = list(csv.reader(file, delimiter="\t"))
    assert found == [["name", "sequence", "label", "clade"], *rows]
    cli.succeed("data", family, "--out", tmp_path / "new.fasta")
    assert hm.sequences.read_alignment(tmp_path / "new.fasta").names == [row[0] for row in rows]


def test_another_column_may_be_the_label(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    cli.train(family, tmp_path / "run", "--label", "clade")
    machine = hm.load(tmp_path / "run" / "machine.safetensors")
    assert str(machine.layers[1]) == "Categorical(1, 3)"
    answer = cli("train", family, tmp_path / "alone", "--hidden", 3, "--updates", 3, "--threads", 1)
    assert "beside them are 'label', 'clade', of which one may be the label" in answer.stderr
    assert len(hm.load(tmp_path / "alone" / "machine.safetensors").visible) == 1


@pytest.mark.nightly
def test_mutations_sum_over_the_label(run: Path) -> None:
    """Against a sum over the joint states of both."""
    machine = hm.load(run / "machine.safetensors").double()
    codes = torch.tensor([13, 2, 1, 0, 4, 20])
    effects = hm.tasks.mutations(machine, codes)

    def log_weight(sequence: torch.Tensor) -> torch.Tensor:
        one_hot = torch.eye(21, dtype=torch.float64)[sequence].flatten()
        both = torch.stack([torch.cat([one_hot, label]) for label in torch.eye(2, dtype=torch.float64)])
        return (-machine.free_energy(both)).logsumexp(0).detach()

    for site, state in ((0, 5), (3, 7), (5, 0)):
        mutant = codes.clone()
        mutant[site] = state
        expected = log_weight(mutant) - log_weight(codes)
        torch.testing.assert_close(effects[site, state], expected, rtol=1e-9, atol=1e-9)
    assert hm.tasks.contacts(machine).shape == (SITES, SITES)


def test_labels_and_weights_stay_with_their_rows(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("\n".join(str(k % 4) for k in range(120)) + "\n")
    result = cli.train(family, tmp_path / "run", "--label", "label", "--weights", tmp_path / "w.txt")
    assert result["effective_rows"] == sum(k % 4 for k in range(120))


def test_sites_are_given_and_predicted_by_their_letters(cli: CommandLine, run: Path, tmp_path: Path) -> None:
    """A site is a column by its number from 1."""
    cli.succeed("sample", run, "--given", "1=F", "--given", "6=-", "--rows", 30, "--out", tmp_path / "x.fa")
    drawn = hm.sequences.read_alignment(tmp_path / "x.fa", alphabet="protein").codes
    assert (drawn[:, 0] == 5).all() and (drawn[:, 5] == 0).all() and len(set(drawn[:, 3].tolist())) > 1
    assert "--given: " in cli.refuse("sample", run, "--given", "1=Z", "--out", tmp_path / "y.fa")
    refused = cli.refuse("sample", run, "--given", "7=A", "--out", tmp_path / "y.fa")
    assert refused == "--given: expected a site from 1 to 6, or the label 'label', received '7'"
    cli.succeed("predict", run, tmp_path / "x.fa", "--column", "1", "--out", tmp_path / "p.csv")
    cells = [row[0] for row in read_csv(tmp_path / "p.csv")]
    assert cells[0] == "1" and set(cells[1:]) <= set(LETTERS)


def test_the_made_up_family_has_a_fold() -> None:
    """Pairs that touch vary together, more than other pairs do in the mean, by five standard errors."""
    found, distances = read("family"), hm.data.family_distances()
    assert found.alignment is not None and found.samples.shape == (1500, 48)
    assert (found.samples == hm.data.protein_family().samples).all()
    assert (found.samples != hm.data.protein_family(seed=1).samples).any()
    weights = hm.sequences.similarity_weights(found.samples, 0.8)
    assert 0.3 < float(weights.mean()) < 0.8
    X = torch.eye(21)[torch.from_numpy(found.samples).long()].flatten(1)
    covariance = torch.cov(X.T, aweights=weights).view(48, 21, 48, 21).square().sum((1, 3)).sqrt()
    i, j = torch.triu_indices(48, 48, 5)
    touching = distances[i, j] < 8
    assert int(touching.sum()) == 30
    near, far = covariance[i, j][touching], covariance[i, j][~touching]
    assert float(near.mean() - far.mean()) > 5 * float(far.std()) / 30**0.5
    names = found.alignment.names
    assert all(
        hm.sequences.first_number(name, int((codes > 0).sum()))
        for name, codes in zip(names, found.samples, strict=True)
    )
