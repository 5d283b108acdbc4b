"""Sequences: files of them, weights, splits, contacts and mutations."""

from __future__ import annotations

import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import harmonium as hm
from harmonium.backends import choice
from harmonium.likelihood import exact_log_likelihood
from harmonium.report.logos import stack_letters
from harmonium.sequences import (
    ALPHABETS,
    read_alignment,
    similarity_weights,
    split_by_similarity,
    write_fasta,
)
from harmonium.tasks import contacts, mutations, potts_machine

DATA = Path(os.environ.get("HARMONIUM_DATA", "../shared/data"))


def wrote(path, text):
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


# Files
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.fasta", "x.fasta.gz"])
def test_names_lines_and_blanks(name, tmp_path):
    text = ">first one\nACD\nEF\n\n>second\n-C D-\nF\n"
    found = read_alignment(wrote(tmp_path / name, text))
    assert found.names == ["first one", "second"]
    assert found.alphabet == ALPHABETS["protein"]
    assert ["".join(found.alphabet[c] for c in row) for row in found.codes] == ["ACDEF", "-CD-F"]


def test_insertions_are_left_out_and_small_letters_alone_are_letters(tmp_path):
    found = read_alignment(wrote(tmp_path / "a.a3m", ">a\nAC.gGU\n>b\nA-..GU\n"))
    assert found.codes.tolist() == [[1, 2, 3, 4], [1, 0, 3, 4]]
    found = read_alignment(wrote(tmp_path / "b.fa", ">a\nacgu\n>b\na-gu\n"))
    assert found.codes.tolist() == [[1, 2, 3, 4], [1, 0, 3, 4]]


@pytest.mark.parametrize(
    ("letters", "kind"), [("ACGU-N", "rna"), ("ACGT-R", "dna"), ("ACDEFGHIKLXZ", "protein")]
)
def test_the_alphabet_follows_from_the_letters(letters, kind, tmp_path):
    assert read_alignment(wrote(tmp_path / "x.fa", f">a\n{letters}\n")).alphabet == ALPHABETS[kind]


def test_unknown_letters(tmp_path):
    path = wrote(tmp_path / "x.fa", ">a\nACXDE\n")
    assert read_alignment(path).codes.tolist() == [[1, 2, 0, 3, 4]]
    assert read_alignment(path, unknown="missing").codes.tolist() == [[1, 2, -1, 3, 4]]
    with pytest.raises(ValueError, match=r"line 1: .*'X' in 'a'"):
        read_alignment(path, unknown="error")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (">a\nMKV?LAE\n>b\nMR-DLAE\n", ["MKV?LAE", "MR-DLAE"]),
        (">a\r\nMKvv?LAE*\r\n>b\r\nMR..?LAE*\r\n", ["MK?LAE", "MR?LAE"]),
        (">a\nmk*dlae\n>b\nmr-dlae\n", ["MK?DLAE", "MR-DLAE"]),  # at the end it is left out
        ("# STOCKHOLM 1.0\na MKV?LAE\nb MRdDLAE\n#=GC RF xx~xxxx\n//\n", ["MK?LAE", "MRDLAE"]),
        ("\nCLUSTAL W\n\na AC?U\nb ACGU\n", ["AC?U", "ACGU"]),
    ],
)
def test_question_marks_and_stop_codons_are_unknown_as_x_is(text, expected, tmp_path):
    path = wrote(tmp_path / "x.fa", text)
    for unknown, stands in (("gap", 0), ("missing", -1)):
        found = read_alignment(path, unknown=unknown)
        known = [[stands if x == "?" else found.alphabet.index(x) for x in row] for row in expected]
        assert found.codes.tolist() == known
        assert found.ambiguous == "".join(expected).count("?")
    with pytest.raises(ValueError, match=r"line \d: expected letters .*; give the alphabet '[-A-Z]+[?*]'"):
        read_alignment(path, unknown="error")


@pytest.mark.parametrize("name", ["x.fasta", "x.fasta.gz"])
def test_what_is_written_comes_back(name, tmp_path):
    codes = np.random.default_rng(0).integers(-1, 21, (7, 200))
    names = [f"s{i} of seven" for i in range(7)]
    write_fasta(tmp_path / name, codes, "protein", names)
    found = read_alignment(tmp_path / name, unknown="missing")
    np.testing.assert_array_equal(found.codes, codes)
    assert found.names == names
    with pytest.raises(FileExistsError, match="overwrite"):
        write_fasta(tmp_path / name, codes, "protein")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "none"),
        (">a\n>b\nAC\n", "line 1: expected some"),
        (">a\nACG\n>b\nAC\n", "line 3: expected 3 letters .* received 2 in 'b'"),
        (">a\nAC1\n", "alphabet"),
        ("ACG\n>b\nACG\n", "line 2"),
    ],
)
def test_files_that_are_no_alignment_are_refused_by_line(text, message, tmp_path):
    path = wrote(tmp_path / "x.fa", text)
    with pytest.raises(ValueError, match=message) as caught:
        read_alignment(path)
    assert str(path) in str(caught.value)


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "x.fa.gz").write_bytes(gzip.compress(b">a\nACGU\n" * 100)[:-20])
    (tmp_path / "x.fa").write_bytes(b">a\n\xff\xfe\n")
    for name, said in (("x.fa.gz", "damaged"), ("x.fa", "text")):
        with pytest.raises(ValueError, match=said):
            read_alignment(tmp_path / name)


STOCKHOLM = """# STOCKHOLM 1.0
#=GF ID pair
one/1-6  ACc.GU
two/3-8  A-..Gu
#=GC RF  xx..xx

one/1-6  GG-
two/3-8  .AN
#=GC RF  xxx
//
"""


@pytest.mark.parametrize("name", ["x.sto", "x.stk.gz"])
def test_stockholm_is_fasta_with_blocks_and_marks(name, tmp_path):
    same = wrote(tmp_path / "x.fasta", ">one/1-6\nACGUGG-\n>two/3-8\nA-GU-AN\n")
    for unknown in ("gap", "missing"):
        found, expected = (
            read_alignment(path, alphabet="rna", unknown=unknown)
            for path in (wrote(tmp_path / name, STOCKHOLM), same)
        )
        np.testing.assert_array_equal(found.codes, expected.codes)
        assert found[1:4] == expected[1:4]
        np.testing.assert_array_equal(
            hm.data.read(tmp_path / name, unknown=unknown).samples,
            hm.data.read(same, unknown=unknown).samples,
        )


def test_without_a_reference_small_letters_alone_are_insertions(tmp_path):
    text = "".join(line for line in STOCKHOLM.splitlines(True) if "RF" not in line)
    found = read_alignment(wrote(tmp_path / "x.sto", text))
    dotted = wrote(tmp_path / "x.fa", ">1\nAC-GUGG-\n>2\nA--GU-AN\n")  # a column of dots alone is one of gaps
    np.testing.assert_array_equal(found.codes, read_alignment(dotted).codes)
    small = read_alignment(wrote(tmp_path / "y.sto", "# STOCKHOLM 1.0\n1 acg.u\n2 a-gau\n//\n"))
    assert small.codes.tolist() == [[1, 2, 3, 0, 4], [1, 0, 3, 1, 4]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (STOCKHOLM.replace("GG-", "GG"), "line 3: expected 9 columns as in the reference line, received 8"),
        (STOCKHOLM * 2, "line 11: expected one alignment, received another"),
        (STOCKHOLM.replace("//", ""), "it is cut off"),
    ],
)
def test_other_stockholm_files_are_refused(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        read_alignment(wrote(tmp_path / "x.sto", text), alphabet="rna")
    assert str(tmp_path / "x.sto") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected", "note"),
    [
        (">a\nAC.GUACGU\n>b\nA.CGUACGU\n>c\nACG.UACGU\n", ["AC-GUACGU", "A-CGUACGU", "ACG-UACGU"], "gap"),
        (">one\nGAU.CC\n>two\nGA..CC\n>three\nGAUUCC\n", ["GAU-CC", "GA--CC", "GAUUCC"], "gap"),
        (">a\nACa.GU\n>b\nA-.cGU\n", ["ACGU", "A-GU"], "insertions"),
        (">a\nACgu\n>b\naCGU\n>c\nACGU\n", ["ACGU", "ACGU", "ACGU"], "others are letters"),
        (">a\nACGUAC\n>b\nACGTAC\n", ["ACGUAC", "ACGUAC"], "T is read as U"),
        (">a\r\nacgu\r\n>b\r\na-gu\r\n", ["ACGU", "A-GU"], None),
        ("\ufeff>a\nACGU\n>b\nA-GU\n", ["ACGU", "A-GU"], None),
        ("#4\t1\n>1\nACGU\n; a comment\n>2\nACaGU\n", ["ACGU", "ACGU"], "insertions"),
        (
            ">q\nACGU\n>ss_pred PSIPRED\nHHCC\n>ss_conf\n9876\n>s\nA-GU\n",
            ["ACGU", "A-GU"],
            "ss_pred (line 3)",
        ),
        (
            "CLUSTAL W (1.83)\n\na  ACG- 3\nb  A-GU 3\n   * *\n\na  CC 5\nb  CU 5\n",
            ["ACG-CC", "A-GUCU"],
            None,
        ),
    ],
)
def test_files_as_they_come(text, expected, note, tmp_path):
    path = tmp_path / "x.aln"
    path.write_bytes(text.encode())
    found = read_alignment(path, alphabet="auto")
    assert ["".join(found.alphabet[c] for c in row) for row in found.codes] == expected
    assert any(note in each for each in found.notes) if note else found.notes == ()
    np.testing.assert_array_equal(hm.data.read(path).samples, found.codes)


@pytest.mark.parametrize(
    ("text", "alphabet", "expected"),
    [
        (">a\naAbA\n>b\nbAaA\n", "-abA", [[1, 3, 2, 3], [2, 3, 1, 3]]),
        (">a\nA.CG\n>b\nAC.G\n", ".ACG", [[1, 0, 2, 3], [1, 2, 0, 3]]),
        (">a\nAbcA\n>b\nAbA\n", "-bA", [[2, 1, 2], [2, 1, 2]]),
        (">a\nA.A\n>b\nAAA\n", "-A", [[1, 0, 1], [1, 1, 1]]),
    ],
)
def test_letters_that_an_alphabet_names_are_never_dropped(text, alphabet, expected, tmp_path):
    found = read_alignment(wrote(tmp_path / "x.fa", text), alphabet=alphabet)
    assert found.codes.tolist() == expected


@pytest.mark.parametrize("text", ["# STOCKHOLM 1.0\na ACGU\na A-GU\n//\n", "CLUSTAL\n\na ACGU\na A-GU\n"])
def test_a_name_twice_in_a_block_is_refused_and_not_joined(text, tmp_path):
    with pytest.raises(ValueError, match="different names in a block, received 'a' again"):
        read_alignment(wrote(tmp_path / "x.aln", text))


@pytest.mark.parametrize(("alphabet", "letter"), [("rna", "U"), ("dna", "T")])
def test_the_other_nucleotide_is_read_as_the_one_of_the_alphabet(alphabet, letter, tmp_path):
    other = {"U": "T", "T": "U"}[letter]
    found = read_alignment(wrote(tmp_path / "x.fa", f">a\nAC{other}\n>b\nA-{other}\n"), alphabet=alphabet)
    assert found.alphabet == ALPHABETS[alphabet] and found.codes.tolist() == [[1, 2, 4], [1, 0, 4]]
    assert found.notes == (f"{other} is read as {letter}",)


@pytest.mark.parametrize(
    ("codes", "message"), [([[0, 9]], "-1 to 4"), ([[0.5, 1]], "-1 to 4"), ([0, 1], "sequences, sites")]
)
def test_codes_without_a_letter_are_not_written(codes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        write_fasta(tmp_path / "x.fa", codes, "rna")
    assert not (tmp_path / "x.fa").exists()


# Weights and splits
# ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["compiled", "plain"])
def compiled(request, monkeypatch):
    monkeypatch.setattr(choice, "COMPILED", request.param and choice.COMPILED)


def family(rows=300, sites=40, seed=0):
    random = np.random.default_rng(seed)
    parents = random.integers(0, 21, (20, sites))
    codes = parents[random.integers(0, 20, rows)]
    changed = random.random(codes.shape) < random.uniform(0, 0.3, (rows, 1))
    return np.where(changed, random.integers(0, 21, codes.shape), codes)


@pytest.mark.parametrize("threshold", [0.8, 1.0, 0.5])
def test_weights_equal_a_count_of_all_pairs(compiled, threshold):
    codes = family()
    alike = (codes[:, None] == codes[None]).mean(-1) >= threshold - 1e-12
    found = similarity_weights(codes, threshold)
    np.testing.assert_allclose(found.numpy(), 1 / alike.sum(1), atol=1e-12)


@pytest.mark.parametrize(("threshold", "told"), [(0.2, "0.8"), (0.8, None)])
def test_a_distance_given_as_a_likeness_is_told(compiled, threshold, told):
    """Most pairs of unlike rows of a family agree in a fifth of their columns, which joins all of them."""
    codes = family(60, 30) % 6
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        weights = similarity_weights(codes, threshold)
    alike = (codes[:, None] == codes[None]).mean(-1) >= threshold - 1e-12
    np.testing.assert_allclose(weights.numpy(), 1 / alike.sum(1), atol=1e-12)
    assert len(caught) == (told is not None)
    if told is not None:
        said = f"their {threshold} is {told} here"
        assert str(caught[0].message).endswith(said) and f"as {weights.sum():.3g}" in str(caught[0].message)


def test_rows_that_are_unlike_at_a_low_threshold_are_no_mistake(compiled, recwarn):
    assert similarity_weights(np.arange(40).reshape(10, 4), 0.2).tolist() == [1.0] * 10
    assert len(recwarn) == 0


def test_effective_numbers_of_a_published_split():
    path = DATA / "rf00379" / "split.npz"
    if not path.exists():
        pytest.skip(f"{path} is not there")
    with np.load(path) as split:
        assert float(similarity_weights(split["train"]).sum()) == pytest.approx(1108.9, abs=0.05)
        assert float(similarity_weights(split["validation"]).sum()) == pytest.approx(429.5, abs=0.05)


def test_a_split_keeps_what_is_alike_together(compiled):
    codes = family()
    kept, held = split_by_similarity(codes, 0.3, 0.7, seed=1)
    assert sorted([*kept.tolist(), *held.tolist()]) == list(range(len(codes)))
    assert 0.15 * len(codes) < len(held) <= 0.3 * len(codes)
    between = (codes[kept.numpy()][:, None] == codes[held.numpy()][None]).mean(-1)
    assert between.max() < 0.7
    assert [x.tolist() for x in split_by_similarity(codes, 0.3, 0.7, seed=1)] == [
        kept.tolist(),
        held.tolist(),
    ]


def test_one_cluster_cannot_be_split():
    with pytest.raises(ValueError, match="clusters"):
        split_by_similarity([[1, 2, 3]] * 10)


@pytest.mark.parametrize("codes", [[1, 2], [[0.5, 1]], [["a", "b"]]])
def test_other_codes_are_refused(codes):
    with pytest.raises(ValueError, match="codes"):
        similarity_weights(codes)


# Contacts and mutations
# ------------------------------------------------------------------------------------------------------


def potts(hidden=False):
    layers = [hm.Categorical(5, 3), *([hm.Bernoulli(3)] if hidden else [])]
    edges = {(0, 0): hm.Dense(), **({(0, 1): hm.Dense()} if hidden else {})}
    machine = hm.BoltzmannMachine(layers, edges, [0]).double()
    generator = torch.Generator().manual_seed(0)
    for coupling in machine.couplings:
        coupling.draw_(1.0, generator)
    with torch.no_grad():
        machine.layers[0].bias.normal_(generator=generator)
    return machine


def test_contacts_are_corrected_norms_of_zero_sum_blocks():
    machine = potts()
    hm.machine.to_zero_sum_(machine)  # it does not depend on the gauge
    torch.testing.assert_close(contacts(machine), contacts(potts()))
    J = machine.hamiltonian().J[0].detach().view(5, 3, 5, 3)
    J = J - J.mean(1, keepdim=True) - J.mean(3, keepdim=True) + J.mean((1, 3), keepdim=True)
    norms = J[:, 1:, :, 1:].square().sum((1, 3)).sqrt()
    torch.testing.assert_close(contacts(machine, correct=False), norms)
    each = norms.sum(1) / 4
    expected = (norms - each[:, None] * each / each.mean()).fill_diagonal_(0)
    torch.testing.assert_close(contacts(machine), expected)
    whole = J.square().sum((1, 3)).sqrt()
    torch.testing.assert_close(contacts(machine, gap=None, correct=False), whole)


@pytest.mark.parametrize("hidden", [False, True])
def test_mutations_are_differences_of_log_probabilities(hidden):
    machine = potts(hidden)
    wild = [0, 2, 1, 0, 1]
    found = mutations(machine, wild)
    layer = machine.layers[0]

    def log_p(codes):
        return float(exact_log_likelihood(machine, layer.from_digits(torch.tensor([codes])).double()))

    for site in range(5):
        for state in range(3):
            mutant = [*wild[:site], state, *wild[site + 1 :]]
            assert float(found[site, state]) == pytest.approx(log_p(mutant) - log_p(wild), abs=1e-8)


def test_couplings_of_the_first_letter_are_zero_in_the_lattice_gas_gauge():
    machine = potts()
    other = potts_machine(machine, "lattice-gas")
    J = other.couplings[0].matrix().detach().view(5, 3, 5, 3)
    assert float(J[:, 0].abs().max()) < 1e-12 and float(J[..., 0].abs().max()) < 1e-12
    states = torch.cartesian_prod(*[torch.arange(3)] * 5)
    v = machine.layers[0].from_digits(states).double()
    torch.testing.assert_close(exact_log_likelihood(other, v), exact_log_likelihood(machine, v))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contacts(hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])), "categorical"),
        (lambda: contacts(potts(), gap=3), "gap"),
        (lambda: mutations(potts(), [0, 1]), "sequence"),
        (lambda: mutations(potts(), [0, 1, 2, 3, 0]), "states 0 to 2"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# Independent columns
# ------------------------------------------------------------------------------------------------------


def test_a_pseudocount_is_a_share_of_pure_noise():
    layer, weights = hm.Categorical(2, 3), torch.tensor([3.0, 0.3, 1.0], dtype=torch.float64)
    rows = layer.from_digits(torch.tensor([[0, 1], [1, 1], [2, 1]]))
    machine = hm.BoltzmannMachine([layer, hm.Bernoulli(1)], seed=None)
    hm.machine.init_visible_biases_(machine, rows, weights, pseudocount=0.1)
    found = layer.moments(torch.zeros(1, 6)).mean[0].double()
    expected = 0.9 * (weights @ rows.double()) / weights.sum() + 0.1 / 3
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    for wrong in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match=r"pseudocount: expected a finite number in \(0, 1\)"):
            hm.machine.init_visible_biases_(machine, rows, pseudocount=wrong)


@pytest.mark.skipif(not (DATA / "rf00379").is_dir(), reason=f"no rf00379 in {DATA}")
def test_the_published_profile():
    """-0.924 and -0.927 nats a site, with a pseudocount of 1/M_eff."""
    with np.load(DATA / "rf00379" / "split.npz") as split:
        weights = {name: torch.from_numpy(split[f"{name}_weights"]) for name in ("train", "validation")}
        layer = hm.Categorical(136, 5)
        rows = {name: layer.from_digits(torch.from_numpy(split[name])) for name in weights}
    machine = hm.BoltzmannMachine([layer], [], [0], seed=None)
    hm.machine.init_visible_biases_(machine, rows["train"], weights["train"], pseudocount=1 / 1108.9)
    for (name, share), published in zip(weights.items(), (-0.924, -0.927), strict=True):
        each = exact_log_likelihood(machine, rows[name])
        assert float(share @ each.double() / share.sum()) / 136 == pytest.approx(published, abs=6e-4)


# Logos
# ------------------------------------------------------------------------------------------------------


def test_letters_of_a_logo_stand_on_each_other():
    weights = torch.tensor([[0.5, -1.0, 2.0], [0.0, 0.0, -3.0]])
    found = [tuple(each) for each in stack_letters(weights, "-AC")]
    assert found == [(0, "-", 0.0, 0.5), (0, "A", -1.0, 0.0), (0, "C", 0.5, 2.5), (1, "C", -3.0, 0.0)]


def test_logos_are_drawn(tmp_path):
    weights = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    hm.report.draw_logos(weights, "-ACGU", tmp_path / "x.png", ["unit 2", "unit 0"])
    with Image.open(tmp_path / "x.png") as image:
        assert image.width > image.height and len(image.convert("RGB").getcolors(1 << 20)) > 50
