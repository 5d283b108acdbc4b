"""Sequences through the command line: files in and out, alphabets, weights, machines without hidden units."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import Letters, read
from harmonium.sequences import read_alignment, similarity_weights
from harmonium.tables import Codec

from .command_line import TINY, CommandLine, train_once

TEXT = ">a\nAC-GU\n>b\nACAGU\n>c\nUUAGA\n>d\nGGCnA\n>e\nGGCCA\n"
FEW = ("--rows", 4, "--sweeps", 3)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("family") / "family.fasta"
    path.write_text(TEXT.replace("n", "N"))
    return path


@pytest.fixture(scope="module")
def run(family: Path) -> Path:
    return train_once(family.parent / "run", family, *TINY)


def test_samples_are_sequences_in_the_alphabet_of_training(
    cli: CommandLine, run: Path, tmp_path: Path
) -> None:
    cli.succeed("sample", run, *FEW, "--out", tmp_path / "new.fa.gz")
    found = read_alignment(tmp_path / "new.fa.gz", alphabet="rna")
    assert found.codes.shape == (4, 5) and found.names == ["1", "2", "3", "4"]
    cli.succeed("sample", run, *FEW, "--out", tmp_path / "codes.npy")
    assert (np.load(tmp_path / "codes.npy") == found.codes).all()
    codec = Codec.of(hm.load(run / "machine.safetensors"))
    assert codec.encoder == Letters("-ACGU") and codec.layers[0].width == 25


def test_other_data_are_read_in_the_alphabet_of_training(cli: CommandLine, tmp_path: Path) -> None:
    """By its letters alone a file of A, C and G would be one of RNA, where G has another place."""
    (tmp_path / "own.fasta").write_text(TEXT.replace("U", "L").replace("n", "X"))
    cli.train(tmp_path / "own.fasta", run := tmp_path / "run")
    (tmp_path / "few.txt").write_text("AC-GA\nGGCCA\n")
    np.savez(tmp_path / "codes.npz", samples=[[1, 2, 0, 6, 1], [6, 6, 2, 2, 1]])
    scores = [
        cli.succeed("evaluate", run, tmp_path / name, "--method", "exact", "--json").json["results"][0]
        for name in ("few.txt", "codes.npz")
    ]
    assert scores[0]["log_likelihood"] == scores[1]["log_likelihood"]
    (tmp_path / "wrong.fasta").write_text(">a\nACTGA\n>b\nAC1GA\n")
    said = cli.refuse("evaluate", run, tmp_path / "wrong.fasta")
    assert "line 3: expected letters of '-ACDEFGHIKLMNPQRSTVWY', received '1' in 'b'" in said


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ((), "pcd(10, chains=100)"),
        (("--rule", "cd"), "cd(1)"),
    ],
)
def test_families_are_learned_by_ten_sweeps(
    cli: CommandLine, family: Path, tmp_path: Path, options: tuple, rule: str
) -> None:
    """One sweep leaves equilibrium; other rules, and data that are no alignment, keep their own length."""
    short = ("--updates", 2, "--threads", 1, "--json")
    result = cli.succeed("train", family, tmp_path / "run", "--hidden", 3, *short, *options).json
    assert result["rule"] == f"centred({rule})"
    again = cli.succeed("train", "--config", tmp_path / "run" / "run.toml", tmp_path / "again", "--json").json
    assert again["rule"] == result["rule"]
    if not options:
        result = cli.succeed("train", "bars-and-stripes", tmp_path / "bars", *short).json
        assert result["rule"] == "centred(pcd(1, chains=100))"


def test_training_ends_at_a_correlation(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    """The value in the history is that of chains from noise and the rows with their weights."""
    options = ("--hidden", 0, "--reweight", 0.8, "--updates", 40, "--threads", 1)
    options += ("--learning-rate", 0.1, "--json")
    low = ("--until-correlation", 0.5, *options)
    result = cli.succeed("train", family, tmp_path / "run", *low).json
    assert result["status"] == "stopped" and result["updates"] < 40 and result["updates"] % 2 == 0
    found = result["metrics"]["pair_correlation"]
    assert found >= 0.5 and result["best"]["pair_correlation"] == found
    machine, dataset = hm.load(tmp_path / "run"), read(family)
    rows, weights = Codec.of(machine).rows(dataset).all(), similarity_weights(dataset.samples, 0.8)
    other = hm.report.resampling(machine, rows, weights=weights, chains=1000, sweeps=50, seed=5)
    assert abs(found - float(other.correlation[-1])) < 0.1
    high = ("--until-correlation", 1, "--validation", family, *options, "--updates", 4)
    result = cli.succeed("train", family, tmp_path / "long", *high).json
    assert {"pair_correlation", "pseudo_log_likelihood"} <= result["metrics"].keys()
    assert "until_correlation" in (tmp_path / "long" / "run.toml").read_text()
    assert "until-correlation" in cli.refuse("train", family, tmp_path / "no", "--until-correlation", 1.5)
    both = ("--until-correlation", 0.9, "--early-stopping", 2, "--validation", family)
    assert "--early-stopping" in cli.refuse("train", family, tmp_path / "no", *both)


@pytest.mark.parametrize("form", ["lines", "column", "array"])
def test_weights_are_given_as_they_are_written(
    cli: CommandLine, family: Path, tmp_path: Path, form: str
) -> None:
    """The same bits as by --reweight, whatever wrote the file."""
    path = tmp_path / "family.weights"
    weights = similarity_weights(read(family).samples, 0.8)
    np.savetxt(path, weights)
    if form == "column":
        path = tmp_path / "weights.csv"
        lines = [f"{name},{weight}" for name, weight in zip("abcde", weights.tolist(), strict=True)]
        path.write_text("\n".join(["id,weight", *lines]) + "\n")
    elif form == "array":
        path = tmp_path / "weights.npy"
        np.save(path, weights.numpy())
    plain = ("--schedule", "constant")
    given = cli.train(family, tmp_path / "given", "--weights", path, *plain)
    own = cli.train(family, tmp_path / "own", "--reweight", "0.8", *plain)
    assert given["effective_rows"] == own["effective_rows"]
    runs = (hm.load(tmp_path / name / "machine.safetensors") for name in ("given", "own"))
    for found, expected in zip(*(machine.parameters() for machine in runs), strict=True):
        assert torch.equal(found, expected)
    cli.succeed("train", "--resume", tmp_path / "given", "--updates", "25")
    assert f'weights = "{path}"' in (tmp_path / "given" / "run.toml").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n1\n", "expected 5, one for each row of the data, received 2"),
        ("1\n1\nx\n1\n1\n", "line 3: expected a number, received 'x'"),
    ],
)
def test_other_weights_are_refused(
    cli: CommandLine, family: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "w.txt").write_text(text)
    refused = cli.refuse("train", family, tmp_path / "run", "--weights", tmp_path / "w.txt")
    assert refused.startswith("--weights: ") and said in refused
    assert "--weights: expected none beside reweight" in cli.refuse(
        "train", family, tmp_path / "run", "--weights", tmp_path / "w.txt", "--reweight", "0.8"
    )
    assert "--weights: there is no file" in cli.refuse(
        "train", family, tmp_path / "run", "--weights", tmp_path / "none.txt"
    )


def test_rows_that_are_left_out_take_their_weights_along(cli: CommandLine, tmp_path: Path) -> None:
    """A row that shows nothing teaches nothing; the others keep their own weights."""
    (tmp_path / "own.fasta").write_text(TEXT.replace("n", "N") + ">f\nNNNNN\n")
    (tmp_path / "w.txt").write_text("1\n2\n3\n4\n5\n7\n")
    result = cli.train(
        tmp_path / "own.fasta", tmp_path / "run", "--unknown", "missing", "--weights", tmp_path / "w.txt"
    )
    assert result["effective_rows"] == 15


def test_reweighting_takes_shares_above_0_up_to_1(cli: CommandLine, family: Path) -> None:
    distinct = float(similarity_weights(read(family).samples, 1.0).sum())
    assert cli.succeed("data", family, "--reweight", "1", "--json").json["effective_rows"] == distinct
    for share in ("0", "1.01"):
        assert "reweight: expected a finite number in (0, 1]" in cli.refuse(
            "data", family, "--reweight", share
        )


def test_data_are_described_and_converted(cli: CommandLine, family: Path, tmp_path: Path) -> None:
    result = cli.succeed("data", family, "--reweight", "0.8", "--json").json
    assert (result["rows"], result["columns"], result["alphabet"]) == (5, 5, "-ACGU")
    assert result["gaps"] == 2 / 25 and result["effective_rows"] == 3
    cli.succeed("data", family, "--out", tmp_path / "x.fasta.gz")
    assert gzip.decompress((tmp_path / "x.fasta.gz").read_bytes()).decode() == TEXT.replace("n", "-")
    cli.succeed("data", family, "--out", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().splitlines()[:2] == ["name,sequence", "a,AC-GU"]
    cli.succeed("data", family, "--out", tmp_path / "x.npz")
    cli.succeed("data", tmp_path / "x.npz", "--alphabet", "rna", "--out", tmp_path / "y.fa")
    assert (tmp_path / "y.fa").read_text().startswith(">1\nAC-GU\n")
    assert "out: expected a machine or data of sequences" in cli.refuse(
        "data", tmp_path / "x.npz", "--out", tmp_path / "z.fa"
    )


AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"


@pytest.fixture(scope="module")
def proteins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a machine of proteins, whose file has one X among its 100 letters."""
    rows = ["X" + AMINO_ACIDS[1:], *([AMINO_ACIDS] * 2), *([AMINO_ACIDS[::-1]] * 2)]
    data = tmp_path_factory.mktemp("proteins") / "proteins.txt"
    data.write_text("\n".join(rows) + "\n")
    return train_once(data.parent / "run", data, *TINY)


@pytest.mark.parametrize(("command", "kind", "other"), [("score", "RNA", "U"), ("evaluate", "DNA", "T")])
def test_nucleotides_are_no_proteins(
    cli: CommandLine, proteins: Path, tmp_path: Path, command: str, kind: str, other: str
) -> None:
    """Of the width of training, as A, C, G and T are amino acids too and U would be a gap."""
    (tmp_path / "other.fasta").write_text(f">a\n{f'ACG{other}' * 5}\n>b\n{f'{other}GCAN' * 4}\n")
    out = ("--out", tmp_path / "out.csv") if command == "score" else ()
    said = cli.refuse(command, proteins, tmp_path / "other.fasta", *out)
    assert "other.fasta: cannot be read as aligned sequences: expected proteins, in the letters '" in said
    assert f"received {kind}" in said


def test_letters_that_stand_for_several_are_counted(cli: CommandLine, proteins: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out.csv", "--overwrite")
    assert (
        "stand for several"
        not in cli.succeed("score", proteins, proteins.parent / "proteins.txt", *out).stderr
    )
    (tmp_path / "more.txt").write_text(AMINO_ACIDS + "\nUU" + AMINO_ACIDS[2:-1] + "B\n")
    said = " ".join(cli.succeed("score", proteins, tmp_path / "more.txt", *out).stderr.split())
    assert "more.txt: letters that stand for several, or for none that is known, are read as gaps" in said
    assert "B 1 times, U 2 times; they are" in said
    assert "0.075 of the letters, 0.01 in training" in said
    lines = cli.succeed("data", tmp_path / "more.txt").stdout
    assert "B 1 times, U 2 times" in lines


def test_sequences_of_another_width_are_counted_in_sites(
    cli: CommandLine, proteins: Path, tmp_path: Path
) -> None:
    (tmp_path / "short.txt").write_text(AMINO_ACIDS[:-3] + "\n")
    said = cli.refuse("evaluate", proteins, tmp_path / "short.txt")
    assert "expected aligned sequences of 20 sites as in training, received 17" in said


def test_sequences_of_another_alphabet_are_no_rows_of_a_machine(proteins: Path) -> None:
    codec = Codec.of(hm.load(proteins / "machine.safetensors"))
    alignment = hm.sequences.align(["ACGU" * 5])
    dataset = hm.data.DataSet.of(alignment.codes, None, "rna", alignment=alignment)
    assert len(Codec.fit(dataset).read("family").samples) == 1500  # a codec without a machine reads too
    with pytest.raises(ValueError, match=r"expected sequences in the letters .* received those of '-ACGU'"):
        codec.rows(dataset)
