"""Machines of other programs: read, written, and read back by the programs where they are there."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium import exchange
from harmonium.exchange import FORMATS

h5py = pytest.importorskip("h5py")


def drawn(layers, edges=None, visible=None, seed=0):
    machine = hm.BoltzmannMachine(layers, edges, visible, seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, x in machine.named_parameters():
            if "weight" not in name:
                x.copy_(torch.randn(x.shape, generator=generator, dtype=x.dtype))
        for coupling in machine.couplings:
            coupling.draw_(0.5, generator)
    return machine


def rows_of(machine, rows=20):
    hamiltonian = machine.hamiltonian()
    return hamiltonian.visible_states(machine.random_states(rows, seed=1)).detach()


def same(one, other):
    """Energies of two machines of a visible and a hidden layer."""
    v = rows_of(one)
    torch.testing.assert_close(one.free_energy(v), other.free_energy(v), atol=1e-6, rtol=0)


def energies(machine, v):
    return machine.energy(machine.hamiltonian().split(v)).detach()


ANY = {
    "bits": lambda: drawn([hm.Bernoulli(4), hm.Bernoulli(3)]),
    "real, deep": lambda: drawn([hm.Gaussian(3), hm.Spin(2), hm.Bernoulli(2)]),
    "potts in a graph": lambda: drawn(
        [hm.Categorical(3, 4), hm.Bernoulli(2)],
        {(0, 0): hm.Masked(torch.ones(3, 3)), (0, 1): hm.Dense()},
        [0],
    ),
    "double": lambda: drawn([hm.Categorical(3, 4), hm.DoubleReLU(2)]),
}


@pytest.mark.parametrize("name", ANY)
def test_any_machine_comes_back_bit_for_bit(name, tmp_path):
    machine = ANY[name]()
    machine.metadata["note"], machine.constant = "ours", 0.1 + 0.2
    exchange.write(machine, tmp_path / "machine.txt")
    again = exchange.read(tmp_path / "machine.txt").machine
    assert again.config() == machine.config()
    assert again.metadata == machine.metadata
    for name, x in machine.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], x, rtol=0, atol=0)


# rbms
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visible", [lambda: hm.Bernoulli(5), lambda: hm.Categorical(4, 3)])
def test_rbms_files_come_back_with_their_chains(visible, tmp_path):
    machine = drawn([visible(), hm.Bernoulli(3)])
    chains = rows_of(machine)
    exchange.write(machine, tmp_path / "rbm.h5", chains=chains)
    found = exchange.read(tmp_path / "rbm.h5")
    same(machine, found.machine)
    assert found.form == "rbms"
    torch.testing.assert_close(found.chains, chains)


@pytest.mark.parametrize("visible", [lambda: hm.Bernoulli(5), lambda: hm.Categorical(4, 3)])
def test_rbms_reads_what_is_written_and_has_the_same_energies(visible, tmp_path):
    io = pytest.importorskip("rbms.io")
    machine = drawn([visible(), hm.Bernoulli(3)])
    v = rows_of(machine)
    exchange.write(machine, tmp_path / "rbm.h5", chains=v)
    params, chains, _, _ = io.load_model(str(tmp_path / "rbm.h5"), 1, torch.device("cpu"), torch.float64)
    layer = machine.layers[0]
    codes = layer.by_unit(v).argmax(-1) if layer.one_hot else v
    torch.testing.assert_close(chains["visible"].double(), codes.double())
    theirs = params.compute_energy_visibles(codes.double())
    ours = machine.free_energy(v).detach()
    torch.testing.assert_close(theirs, ours, atol=1e-6, rtol=0)
    io.save_model(str(tmp_path / "theirs.h5"), params, chains, 7, 0.0)  # and the other way round
    again = exchange.read(tmp_path / "theirs.h5")
    assert again.machine.metadata["origin"] == {"form": "rbms", "update": 7}
    same(machine, again.machine)


def write_rbms(path, *, old=False, states_first=False, ages=(3, 20)):
    random = np.random.default_rng(0)
    with h5py.File(path, "w") as file:
        for age in ages:
            group = file.create_group(f"update_{age}")
            W, a, b = random.normal(size=(6, 3, 2)), random.normal(size=(6, 3)), random.normal(size=2)
            W += age
            named = {"weight_matrix": W, "vbias": a, "hbias": b}
            for name, x in named.items():
                if states_first and name != "hbias":
                    x = x.swapaxes(0, 1)
                group[name if old else f"params/{name}"] = x
        if not old:
            file["model_type"] = b"PBRBM"
            file["parallel_chains"] = random.integers(0, 3, (5, 6)).astype(np.float32)
    return a, W


@pytest.mark.parametrize("layout", [{}, {"old": True}, {"old": True, "states_first": True}])
def test_old_and_new_layouts_of_rbms(layout, tmp_path):
    a, W = write_rbms(tmp_path / "x.h5", **layout)
    found = exchange.read(tmp_path / "x.h5")
    layer = found.machine.layers[0]
    assert (layer.n_units, layer.n_states) == (6, 3)
    np.testing.assert_allclose(layer.bias.detach().numpy(), a)
    np.testing.assert_allclose(found.machine.hamiltonian().J[0].detach().numpy(), W.reshape(18, 2))
    assert (found.chains is None) == bool(layout)
    assert found.machine.metadata["origin"]["update"] == 20
    earlier = exchange.read(tmp_path / "x.h5", update=3).machine
    assert float(earlier.hamiltonian().J[0].mean()) == pytest.approx(3, abs=1)


def published(*parts: str) -> Path:
    """A file of others among the data, without which the test is skipped."""
    path = Path(os.environ.get("HARMONIUM_DATA", "../shared/data")).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def test_a_published_file_of_rbms():
    path = published("exchange", "rbms-blume-capel-potts.h5")
    machine = exchange.read(path).machine
    layer = machine.layers[0]
    assert (layer.n_units, layer.n_states, machine.layers[1].n_units) == (51, 3, 250)
    with h5py.File(path) as file:
        group = file["update_5000000"]
        W, a, b = (group[name][()] for name in ("weight_matrix", "vbias", "hbias"))
    codes = np.random.default_rng(0).integers(0, 3, (10, 51))
    fields = a[codes, np.arange(51)].sum(1)
    hidden = W[codes, np.arange(51)].sum(1) + b
    expected = -fields - np.logaddexp(0, hidden).sum(1)
    ours = machine.free_energy(layer.from_digits(torch.from_numpy(codes)).double()).detach()
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-6)


# RestrictedBoltzmannMachines.jl
# ------------------------------------------------------------------------------------------------------


def unit_energy(kind, x, par):
    """Of units x, (rows, n) or one-hot (rows, n, q), as the format defines them."""
    if kind.startswith("Potts"):
        return -(x * par[..., 0]).sum((1, 2))
    if kind in ("Binary", "Spin"):
        return -(x * par[:, 0]).sum(1)
    if kind in ASYMMETRIC:
        par = ASYMMETRIC[kind](*par.T)
    if kind in ("dReLU", *ASYMMETRIC):
        p, n = np.maximum(x, 0), np.minimum(x, 0)
        half = np.abs(par[:, 2]) / 2 * p**2 + np.abs(par[:, 3]) / 2 * n**2
        return (half - par[:, 0] * p - par[:, 1] * n).sum(1)
    return (np.abs(par[:, 1]) / 2 * x**2 - par[:, 0] * x).sum(1)


COUNTS = {"Binary": 1, "Spin": 1, "Potts": 1, "PottsGumbel": 1, "Gaussian": 2, "ReLU": 2, "dReLU": 4}
COUNTS |= {"pReLU": 4, "xReLU": 4, "nsReLU": 3}


def by_eta(theta, gamma, delta, eta):
    return np.stack(
        [theta + delta / (1 + eta), theta - delta / (1 - eta), gamma / (1 + eta), gamma / (1 - eta)], -1
    )


ASYMMETRIC = {
    "pReLU": by_eta,
    "xReLU": lambda theta, gamma, delta, xi: by_eta(theta, gamma, delta, xi / (1 + abs(xi))),
    "nsReLU": lambda theta, delta, xi: by_eta(theta, 1 + 0 * theta, delta, xi / (1 + abs(xi))),
}
JULIA = [
    ("Binary", "Binary"),
    ("Spin", "Gaussian"),
    ("Potts", "dReLU"),
    ("Potts", "ReLU"),
    ("Gaussian", "Spin"),
    ("Binary", "pReLU"),
    ("PottsGumbel", "xReLU"),
    ("Spin", "nsReLU"),
]


def draw_units(kind, shape, random):
    if kind.startswith("Potts"):
        return np.eye(3)[random.integers(0, 3, shape)]
    if kind == "Binary":
        return random.integers(0, 2, shape).astype(float)
    if kind == "Spin":
        return random.choice([-1.0, 1.0], shape)
    x = random.normal(size=shape)
    return np.abs(x) if kind == "ReLU" else x


@pytest.mark.parametrize("rbm_type", ["RBM", "CenteredRBM", "StandardizedRBM"])
@pytest.mark.parametrize(("below", "above"), JULIA)
def test_files_of_rbm_jl_have_the_energies_of_their_definition(below, above, rbm_type, tmp_path):
    random = np.random.default_rng(0)
    n, m = 5, 4
    size_v = (n, 3) if below.startswith("Potts") else (n,)
    par_v, par_h = random.normal(size=(*size_v, COUNTS[below])), random.normal(size=(m, COUNTS[above]))
    w = 0.3 * random.normal(size=(m, *size_v))
    if above == "pReLU":
        par_h[:, -1] = np.tanh(par_h[:, -1])
    offset_v, offset_h = random.normal(size=size_v), random.normal(size=m)
    scale_v, scale_h = random.uniform(0.5, 2, size_v), random.uniform(0.5, 2, m)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["rbm_hdf5_file_format_version"] = "1.0.0"
        file["rbm_type"], file["visible_type"], file["hidden_type"] = rbm_type, below, above
        file["weights"], file["visible_par"], file["hidden_par"] = w, par_v, par_h
        if rbm_type != "RBM":
            file["offset_v"], file["offset_h"] = offset_v, offset_h
        if rbm_type == "StandardizedRBM":
            file["scale_v"], file["scale_h"] = scale_v, scale_h
    v, h = draw_units(below, (20, n), random), draw_units(above, (20, m), random)
    x, y = v, h
    if rbm_type != "RBM":
        x, y = x - offset_v, y - offset_h
    if rbm_type == "StandardizedRBM":
        x, y = x / scale_v, y / scale_h
    axes = "rvq,hvq,rh->r" if below.startswith("Potts") else "rv,hv,rh->r"
    expected = unit_energy(below, v, par_v) + unit_energy(above, h, par_h) - np.einsum(axes, x, w, y)
    found = exchange.read(tmp_path / "x.h5")
    assert found.form == "rbm.jl"
    ours = found.machine.energy([torch.from_numpy(v.reshape(20, -1)), torch.from_numpy(h)]).detach().numpy()
    difference = ours - expected  # a constant is not part of an energy
    np.testing.assert_allclose(difference, difference[0], atol=1e-6)


UNITS = {
    "Binary": lambda n: hm.Bernoulli(n),
    "Spin": lambda n: hm.Spin(n),
    "Potts": lambda n: hm.Categorical(n, 3),
    "Gaussian": lambda n: hm.Gaussian(n),
    "ReLU": lambda n: hm.ReLU(n),
    "dReLU": lambda n: hm.DoubleReLU(n),
}


@pytest.mark.parametrize(("below", "above"), zip(UNITS, [*UNITS][1:] + [*UNITS][:1], strict=True))
def test_machines_for_rbm_jl_have_the_energies_of_its_definition_and_come_back(below, above, tmp_path):
    random = np.random.default_rng(1)
    machine = drawn([UNITS[below](5), UNITS[above](4)])
    exchange.write(machine, tmp_path / "x.hdf5")
    with h5py.File(tmp_path / "x.hdf5") as file:
        names = ("rbm_hdf5_file_format_version", "rbm_type", "visible_type", "hidden_type")
        assert [file[name][()].decode() for name in names] == ["1.0.0", "RBM", below, above]
        par_v, par_h, w = (file[name][()] for name in ("visible_par", "hidden_par", "weights"))
    size_v, size_h = ((n, 3) if kind == "Potts" else (n,) for n, kind in ((5, below), (4, above)))
    assert par_v.shape == (*size_v, COUNTS[below])
    assert par_h.shape == (*size_h, COUNTS[above])
    assert w.shape == (*size_h, *size_v)  # Julia has them the other way round
    v, h = draw_units(below, (20, 5), random), draw_units(above, (20, 4), random)
    joint = np.einsum("rv,hv,rh->r", v.reshape(20, -1), w.reshape(h[0].size, -1), h.reshape(20, -1))
    theirs = unit_energy(below, v, par_v) + unit_energy(above, h, par_h) - joint
    states = [torch.from_numpy(x.reshape(20, -1)) for x in (v, h)]
    found = exchange.read(tmp_path / "x.hdf5")
    assert found.form == "rbm.jl"
    for one in (machine, found.machine):
        difference = one.energy(states).detach().numpy() - theirs
        np.testing.assert_allclose(difference, difference[0], atol=1e-6)


# adabmDCA
# ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_text_of_adabmdca(sparse, tmp_path):
    mask = torch.ones(4, 4)
    if sparse:
        mask[0, 2] = mask[2, 0] = 0
    machine = drawn([hm.Categorical(4, 5)], {(0, 0): hm.Masked(mask) if sparse else hm.Dense()}, [0])
    exchange.write(machine, tmp_path / "params.dat")
    lines = (tmp_path / "params.dat").read_text().splitlines()
    assert sum(line.startswith("J") for line in lines) == (5 if sparse else 6) * 25
    found = exchange.read(tmp_path / "params.dat")
    assert found.form == "adabmdca"
    assert found.machine.metadata["encoder"]["alphabet"] == "-ACGU"
    v = rows_of(machine)
    torch.testing.assert_close(energies(found.machine, v), energies(machine, v))
    assert isinstance(found.machine.couplings[0], hm.Sparse if sparse else hm.Dense)


@pytest.mark.parametrize("value", ["nan", "-1e400"])
@pytest.mark.parametrize("line", [0, -2])
def test_numbers_that_are_none_are_refused_by_line(value, line, tmp_path):
    machine = drawn([hm.Categorical(3, 5)], {(0, 0): hm.Dense()}, [0])
    exchange.write(machine, tmp_path / "x.dat")
    lines = (tmp_path / "x.dat").read_text().split("\n")
    lines[line] = " ".join([*lines[line].split()[:-1], value])
    (tmp_path / "y.dat").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"line {line % len(lines) + 1}: expected .* a finite value"):
        exchange.read(tmp_path / "y.dat")


def test_no_reader_repairs_numbers(tmp_path):
    machine = drawn([hm.Bernoulli(3), hm.Bernoulli(2)])
    with torch.no_grad():
        machine.couplings[0].weight[1, 1] = torch.nan
    exchange.write(machine, tmp_path / "x.txt")
    with pytest.raises(ValueError, match="finite"):
        exchange.read(tmp_path / "x.txt")


def test_states_numbered_as_bmdca_does_are_those_of_the_alphabet(tmp_path):
    machine = drawn([hm.Categorical(3, 21)], {(0, 0): hm.Dense()}, [0])
    exchange.write(machine, tmp_path / "x.dat")
    place = {letter: str(i) for i, letter in enumerate("-ACDEFGHIKLMNPQRSTVWY")}
    lines = [line.split() for line in (tmp_path / "x.dat").read_text().splitlines()]
    numbered = "\n".join(" ".join(place.get(cell, cell) for cell in cells) for cells in lines)
    (tmp_path / "y.dat").write_text(numbered)
    found = exchange.read(tmp_path / "y.dat").machine
    assert found.metadata["encoder"]["alphabet"] == "-ACDEFGHIKLMNPQRSTVWY"
    torch.testing.assert_close(
        found.couplings[0].weight, exchange.read(tmp_path / "x.dat").machine.couplings[0].weight
    )


def test_energies_mutations_and_contacts_are_those_of_adabmdca(tmp_path):
    """The figures are adabmDCA 1.0.0's, of its commands ``energies``, ``DMS`` and ``contacts`` in float64."""
    letters = list(enumerate("-ACGU"))
    lines = [
        f"J {i} {j} {a} {b} {np.sin(1 + 25 * (i + 2 * j) + 5 * m + n):.6f}"
        for i, j in combinations(range(4), 2)
        for m, a in letters
        for n, b in letters
    ]
    lines += [f"h {i} {a} {np.sin(7 * i + m):.6f}" for i in range(4) for m, a in letters]
    (tmp_path / "x.dat").write_text("\n".join(lines))
    machine = exchange.read(tmp_path / "x.dat").machine
    rows = torch.tensor([["-ACGU".index(letter) for letter in row] for row in ("ACGU", "G-UA", "UUCC")])
    v = machine.layers[0].from_digits(rows).double()
    np.testing.assert_allclose(energies(machine, v).numpy(), [-3.971159, -0.933214, 4.955094], atol=1e-9)
    ours = hm.tasks.mutations(machine, rows[0]).detach().numpy()
    theirs = [  # energies of the mutants above that of ACGU, by site and letter
        [3.669521, 0, 0.011082, 3.652075, 6.100908],
        [3.958060, 0.440801, 0, 3.277720, 6.251617],
        [1.881692, 0.279550, -0.751285, 0, 1.384910],
        [1.124366, 2.486924, 2.641716, 1.446426, 0],
    ]
    np.testing.assert_allclose(ours, -np.array(theirs), atol=1e-9)
    theirs = [0.6026163150, 0.6159022794, 0.6446767254, 0.6274211041, 0.6650118248, 0.6852603689]
    corrected, norms = (hm.tasks.contacts(machine, correct=correct).numpy() for correct in (True, False))
    pairs = np.triu_indices(4, 1)
    # The correction has means over 4 sites there, each beside itself too, and over the 3 others here.
    np.testing.assert_allclose((norms - corrected)[pairs] * 3 / 4, norms[pairs] - theirs, atol=1e-9)


# plmc
# ------------------------------------------------------------------------------------------------------


def write_plmc(path, *, precision=4, alphabet="-ACGU", target=None, spoil=None):
    """Writes parameters field by field, as plmc's ``OutputParametersFull`` does."""
    random = np.random.default_rng(2)
    sites, q, used, left = 4, len(alphabet), 6, 2
    real = f"<f{precision}"
    h = random.normal(size=(sites, q)).astype(real)
    J = {(i, j): random.normal(size=(q, q)).astype(real) for i in range(sites) for j in range(i + 1, sites)}
    if spoil:
        spoil(h, J)
    content = np.array([sites, q, used, left, 100], "<i4").tobytes()
    content += np.array([0.2, 0.01, 3.0, 0.0, 4.5], real).tobytes() + alphabet.encode()
    content += np.ones(used + left, real).tobytes() + (target or sites * alphabet[0]).encode()
    content += np.arange(11, 11 + sites, dtype="<i4").tobytes()
    content += np.full((sites, q), 1 / q, real).tobytes() + h.tobytes()
    content += b"".join(np.full((q, q), 1 / q**2, real).tobytes() for _ in J)
    content += b"".join(block.tobytes() for block in J.values())
    path.write_bytes(content)
    return h, J


@pytest.mark.parametrize("precision", [4, 8])
@pytest.mark.parametrize("alphabet", ["-ACGU", "ACDEFGHIKLMNPQRSTVWY", "ab"])
def test_parameters_of_plmc_have_the_energies_of_their_definition(alphabet, precision, tmp_path):
    h, J = write_plmc(tmp_path / "x.params", precision=precision, alphabet=alphabet, target=alphabet[1] * 4)
    found = exchange.read(tmp_path / "x.params")
    assert found.form == "plmc"
    layer, metadata = found.machine.layers[0], found.machine.metadata
    assert (layer.n_units, layer.n_states) == (4, len(alphabet))
    assert metadata["encoder"]["alphabet"] == alphabet
    assert metadata["origin"]["positions"] == [11, 12, 13, 14]
    assert metadata["origin"]["target"] == alphabet[1] * 4
    assert metadata["origin"]["effective_sequences"] == 4.5
    codes = np.random.default_rng(0).integers(0, len(alphabet), (30, 4))
    expected = [
        -sum(float(h[i, row[i]]) for i in range(4))
        - sum(float(block[row[i], row[j]]) for (i, j), block in J.items())
        for row in codes
    ]
    ours = energies(found.machine, layer.from_digits(torch.from_numpy(codes)).double())
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-6)


def test_parameters_of_plmc_that_are_cut_off_or_not_finite_are_refused(tmp_path):
    path = tmp_path / "x.params"
    write_plmc(path)
    content = path.read_bytes()
    for length in (len(content) - 1, len(content) // 2, 120):
        path.write_bytes(content[:length])
        with pytest.raises(
            ValueError, match=rf"{len(content)} .*4 sites of 5 letters, received {length}; .*cut"
        ):
            exchange.read(path)
    path.write_bytes(content + b"1234")
    with pytest.raises(ValueError, match=r"bytes for 4 sites of 5 letters, received"):
        exchange.read(path)
    path.write_bytes(content[:30])
    with pytest.raises(ValueError, match="known format"):
        exchange.read(path)
    with pytest.raises(ValueError, match="expected counts of sites"):
        exchange.read(path, form="plmc")
    write_plmc(path, spoil=lambda h, J: h.__setitem__((2, 1), np.nan))
    with pytest.raises(ValueError, match=r"layers\.0\.bias: .*finite"):
        exchange.read(path)
    write_plmc(path, spoil=lambda h, J: J[1, 3].__setitem__((0, 4), np.inf))
    with pytest.raises(ValueError, match=r"couplings\.0\.weight: .*finite"):
        exchange.read(path)


# Markov networks of UAI files
# ------------------------------------------------------------------------------------------------------


def write_uai(path, values, factors):
    lines = ["MARKOV", str(len(values)), " ".join(map(str, values)), str(len(factors))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in factors]
    for _, table in factors:
        lines += ["", str(table.size), " ".join(f"{x:.17g}" for x in table.flatten())]
    path.write_text("\n".join(lines) + "\n")


def network(values, seed=0):
    """Factors of none, one and two variables, some pairs twice and turned round."""
    random = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 0), (2, 1), (3, 0), (2, 3), (2, 3), (3, 1)]
    scopes = [(), (2,), (0,), (2,), *pairs]
    return [(scope, random.gamma(1, size=[values[i] for i in scope])) for scope in scopes]


def digits_of(machine, states):
    """Codes of all variables of a fully visible machine in the order of the file."""
    return exchange.values_of(machine, states).clip(min=0).astype(int)


@pytest.mark.parametrize("values", [(2, 2, 2, 2), (3, 3, 3, 3), (2, 3, 2, 4), (4, 2, 3, 2), (3, 2, 2, 3)])
def test_markov_networks_have_the_energies_of_their_tables(values, tmp_path):
    factors = network(values)
    write_uai(tmp_path / "x.uai", values, factors)
    found = exchange.read(tmp_path / "x.uai")
    assert found.form == "uai"
    states = found.machine.random_states(40, seed=0)
    expected = [
        -sum(np.log(table[tuple(row[i] for i in scope)]) for scope, table in factors)
        for row in digits_of(found.machine, states)
    ]
    ours = found.machine.energy(states).detach().numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-9)
    exchange.write(found.machine, tmp_path / "y.uai")
    again = exchange.read(tmp_path / "y.uai").machine
    assert again.metadata == found.machine.metadata
    np.testing.assert_allclose(again.energy(states).detach().numpy(), ours, atol=1e-9)


MARKOV = {
    "bits": lambda: drawn([hm.Bernoulli(4), hm.Bernoulli(3)]),
    "spins": lambda: drawn([hm.Spin(4)], {(0, 0): hm.Dense()}, [0]),
    "letters": lambda: drawn(
        [hm.Categorical(3, 4), hm.Spin(2)], {(0, 0): hm.Dense(), (0, 1): hm.Dense()}, [0]
    ),
    "alone": lambda: drawn([hm.Categorical(3, 4)], [], [0]),
}


@pytest.mark.parametrize("name", MARKOV)
def test_machines_as_markov_networks_have_equal_energies(name, tmp_path):
    machine = MARKOV[name]()
    exchange.write(machine, tmp_path / "x.uai")
    words = (tmp_path / "x.uai").read_text().split()
    assert words[:2] == ["MARKOV", str(sum(layer.n_units for layer in machine.layers))]
    again = exchange.read(tmp_path / "x.uai").machine
    states = again.random_states(30, seed=3)
    codes = torch.from_numpy(digits_of(again, states))
    parts = torch.split(codes, [layer.n_units for layer in machine.layers], 1)
    ours = machine.energy(
        [layer.from_digits(part).double() for layer, part in zip(machine.layers, parts, strict=True)]
    )
    torch.testing.assert_close(again.energy(states), ours, atol=1e-9, rtol=0)


UAI = "MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n0.5 0.5\n\n4\n1 2 3 4\n"
REFUSED_UAI = {
    "cut in a table": (UAI[:-6], "expected entry 1 of factor 1 after line 12, where the file ends"),
    "less than nothing": (
        UAI.replace("0.5 0.5", "0.5 -1"),
        "line 9: expected a finite number of at least 0, .* entry 1 of factor 0",
    ),
    "nan": (UAI.replace("1 2 3", "1 nan 3"), "line 12: .* entry 1 of factor 1, received 'nan'"),
    "twice": (UAI.replace("2 0 1", "2 1 1"), "line 6: expected different variables"),
    "three variables": (
        UAI.replace("2\n2 2", "3\n2 2 2").replace("2 0 1", "3 0 1 2"),
        "line 6: expected at most two variables for factor 1.*make one variable of two.*observe",
    ),
    "no such variable": (UAI.replace("2 0 1", "2 0 7"), "line 6: .* below 2 for factor 1"),
    "a short table": (UAI.replace("\n4\n", "\n3\n"), "line 11: expected 4 entries for factor 1, received 3"),
    "one value": (UAI.replace("2 2", "2 1", 1), "line 3: expected the values of variable 1, at least 2"),
    "more": (UAI + "7\n", "line 13: expected the end of the file, received '7'"),
    "too wide": ("MARKOV\n2\n999999999 999999999\n0\n", "values of 2 variables claims"),
}


@pytest.mark.parametrize("name", REFUSED_UAI)
def test_networks_that_are_no_machines_are_refused_with_their_line(name, tmp_path):
    content, message = REFUSED_UAI[name]
    (tmp_path / "x.uai").write_text(content)
    with pytest.raises(ValueError, match=message):
        exchange.read(tmp_path / "x.uai")


def test_energies_whose_exponentials_have_no_place_in_a_markov_network_are_refused(tmp_path):
    machine = drawn([hm.Spin(2)], {(0, 0): hm.Dense()}, [0])
    with torch.no_grad():
        machine.couplings[0].fill_(torch.tensor([[0.0, 800.0], [800.0, 0.0]]))
    with pytest.raises(ValueError, match=r"within ±700.*received 800 for units 0, 1"):
        exchange.write(machine, tmp_path / "x.uai")


def test_a_published_network_has_the_partition_function_of_its_answer():
    path = published("uai", "DBN_11.uai")
    machine = exchange.read(path).machine
    J, bias = machine.hamiltonian().J.matrix(0).detach().numpy(), machine.layers[0].bias.detach().numpy()
    half = len(bias) // 2  # a complete bipartite graph of two halves
    assert not J[:half, :half].any() and not J[half:, half:].any()
    codes = (np.arange(2**half)[:, None] >> np.arange(half)) & 1
    weights = [
        part @ bias[:half] + np.logaddexp(0, part @ J[:half, half:] + bias[half:]).sum(1)
        for part in np.array_split(codes, 64)
    ]
    log_z = np.logaddexp.reduce(np.concatenate(weights)) - machine.constant
    expected = float(path.with_name("DBN_11.uai.PR").read_text().split()[1])
    assert log_z / np.log(10) == pytest.approx(expected, abs=1e-3)


# scikit-learn and dimod
# ------------------------------------------------------------------------------------------------------


def test_scikit_learn_both_ways():
    from sklearn.neural_network import BernoulliRBM

    rows = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(float)
    rbm = BernoulliRBM(3, n_iter=5, random_state=0).fit(rows)
    machine = exchange.from_sklearn(rbm)
    ours = machine.free_energy(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(ours, rbm._free_energy(rows), atol=1e-10)
    again = exchange.to_sklearn(machine)
    np.testing.assert_allclose(again.transform(rows), rbm.transform(rows))
    assert again.get_feature_names_out().tolist() == rbm.get_feature_names_out().tolist()
    assert again.gibbs(rows).shape == rows.shape
    with pytest.raises(TypeError, match="components_"):
        exchange.from_sklearn(BernoulliRBM())


@pytest.mark.parametrize(
    "machine",
    [
        lambda: drawn([hm.Spin(3), hm.Spin(2)]),
        lambda: drawn([hm.Bernoulli(3), hm.Spin(2)]),
        lambda: drawn([hm.Spin(4), hm.Bernoulli(2)], {(0, 0): hm.Dense(), (0, 1): hm.Dense()}, [0]),
    ],
)
def test_dimod_has_the_same_energies_and_its_samples_become_states(machine):
    dimod = pytest.importorskip("dimod")
    machine = machine()
    model = exchange.to_dimod(machine)
    states = machine.random_states(10, seed=0)
    samples = [
        {
            (l, i): int(x[r, i]) if model.vartype is dimod.SPIN else int(x[r, i] > 0)
            for l, x in enumerate(states)
            for i in range(x.shape[1])
        }
        for r in range(10)
    ]
    ours = machine.energy(states).detach().numpy()
    np.testing.assert_allclose([model.energy(sample) for sample in samples], ours, atol=1e-10)
    found = dimod.SampleSet.from_samples_bqm(samples, model)
    back = exchange.states_from_dimod(machine, found)
    for x, y in zip(states, back, strict=True):
        torch.testing.assert_close(x, y)
    moved = hm.chains.run(machine, hm.chains.Gibbs(), back, 2, seed=0)
    assert moved[0].shape == states[0].shape


def test_a_discrete_model_of_dimod_becomes_a_machine_and_comes_back():
    dimod = pytest.importorskip("dimod")
    random, cases = np.random.default_rng(0), {"a": 3, "b": 2, "c": 4, "d": 2, "e": 3}
    model = dimod.DiscreteQuadraticModel()
    for name, count in cases.items():
        model.add_variable(count, label=name)
        model.set_linear(name, random.normal(size=count))
    for pair in ("ab", "cb", "bd", "ea", "dc", "ce"):
        u, v = pair
        model.set_quadratic(u, v, random.normal(size=(cases[u], cases[v])))
    model.set_quadratic("a", "d", {(0, 1): 1.5, (2, 0): -1.0})
    model.offset = 3.0
    machine = exchange.from_dimod(model)
    assert [str(layer) for layer in machine.layers] == [
        "Categorical(2, 3)",
        "Categorical(2, 2)",
        "Categorical(1, 4)",
    ]
    assert machine.metadata["variables"] == ["a", "b", "c", "d", "e"]
    states = machine.random_states(40, seed=0)
    codes = exchange.values_of(machine, states).astype(int)
    samples = [dict(zip("abcde", row, strict=True)) for row in codes.tolist()]
    ours = machine.energy(states).detach().numpy()
    np.testing.assert_allclose([model.energy(sample) for sample in samples], ours, atol=1e-10)
    back = exchange.to_dimod(machine)
    assert back.vartype.name == "DISCRETE" if hasattr(back, "vartype") else back.variables == model.variables
    again = [back.energy(sample) for sample in samples]
    np.testing.assert_allclose(again, ours, atol=1e-10)
    found = dimod.SampleSet.from_samples((codes, list("abcde")), "INTEGER", energy=again)
    for x, y in zip(states, exchange.states_from_dimod(machine, found), strict=True):
        torch.testing.assert_close(x, y)
    model.set_linear("b", [0.0, np.nan])
    with pytest.raises(ValueError, match=r"model: .*finite"):
        exchange.from_dimod(model)


@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
@pytest.mark.parametrize(
    "labels", ["abcd", [3, 0, 2, 1], [("q", i) for i in range(4)], ["x", 1, (2, "y"), 0.5], np.arange(4)]
)
def test_models_of_dimod_come_back_with_their_offset_labels_and_vartype(labels, vartype, tmp_path):
    dimod = pytest.importorskip("dimod")
    random = np.random.default_rng(0)
    model = dimod.BinaryQuadraticModel(vartype)
    model.add_linear_from((label, random.normal()) for label in labels)
    model.add_quadratic_from((u, v, random.normal()) for u, v in combinations(labels, 2))
    model.remove_interaction(labels[1], labels[2])
    model.offset = 7.125
    exchange.from_dimod(model).save(tmp_path / "m")
    machine = hm.load(tmp_path / "m")
    back = exchange.to_dimod(machine)
    assert back == model and list(back.variables) == list(model.variables)
    lowest = dimod.ExactSolver().sample(model).first
    found = hm.tasks.minimise(machine)
    samples = exchange.states_to_dimod(machine, found.states, found.counts)
    assert samples.first.sample == lowest.sample
    assert samples.first.energy == pytest.approx(lowest.energy)


def test_labels_that_no_file_keeps_are_refused():
    dimod = pytest.importorskip("dimod")
    with pytest.raises(TypeError, match="labels of text, numbers or tuples of them, received frozenset"):
        exchange.from_dimod(dimod.BinaryQuadraticModel({frozenset("a"): 1.0}, {}, 0.0, "SPIN"))


def test_damaged_names_of_variables_are_refused():
    for damage in ({"variables": ["a"]}, {"variables": [1, 2, 3], "units": [[0, 0], [0, 0], [0, 1]]}):
        machine = drawn([hm.Spin(3)], {(0, 0): hm.Dense()}, [0])
        machine.metadata |= damage
        with pytest.raises(ValueError, match="each of its 3 units once"):
            exchange.to_dimod(machine)


def test_dimod_has_no_place_for_real_units():
    pytest.importorskip("dimod")
    with pytest.raises(
        ValueError, match="expected units with two values or categories for dimod, received Gaussian"
    ):
        exchange.to_dimod(drawn([hm.Gaussian(3), hm.Bernoulli(2)]))


def test_blank_lines_are_looked_through_at_once(tmp_path):
    """An expression that splits blank lines in two ways takes twice as long for each further line."""
    (tmp_path / "x.txt").write_text("\n" * 4000 + "x")
    with pytest.raises(ValueError, match="path: "):
        exchange.read(tmp_path / "x.txt")


# What is refused
# ------------------------------------------------------------------------------------------------------


def test_every_format_says_its_form_and_is_found_by_its_own_files(tmp_path):
    assert set(FORMATS) == {"adabmdca", "plmc", "rbm.jl", "rbms", "text", "uai"}
    machine = drawn([hm.Categorical(3, 5)], {(0, 0): hm.Dense()}, [0])
    for form in ("text", "adabmdca", "uai"):
        exchange.write(machine, tmp_path / form, form=form)
        assert exchange.read(tmp_path / form).form == form


def test_a_file_is_not_replaced_unasked(tmp_path):
    machine = drawn([hm.Bernoulli(3), hm.Bernoulli(2)])
    exchange.write(machine, tmp_path / "x.txt")
    with pytest.raises(FileExistsError, match="overwrite"):
        exchange.write(machine, tmp_path / "x.txt")
    exchange.write(machine, tmp_path / "x.txt", overwrite=True)


@pytest.mark.parametrize(
    ("machine", "name", "message"),
    [
        (lambda: drawn([hm.Gaussian(3), hm.Bernoulli(2)]), "x.h5", "rbms"),
        (lambda: drawn([hm.Bernoulli(3), hm.Bernoulli(2), hm.Bernoulli(2)]), "x.h5", "rbms"),
        (lambda: drawn([hm.Binomial(3, 4), hm.Bernoulli(2)]), "x.hdf5", r"expected a visible .* for RBM\.jl"),
        (lambda: drawn([hm.Spin(3)], {(0, 0): hm.Dense()}, [0]), "x.hdf5", r"RBM\.jl"),
        (lambda: drawn([hm.Gaussian(3), hm.Bernoulli(2)]), "x.uai", "two values or categories for UAI"),
        (lambda: drawn([hm.Bernoulli(3), hm.Bernoulli(2)]), "x.dat", "adabmDCA"),
        (lambda: drawn([hm.Categorical(3, 7)], {(0, 0): hm.Dense()}, [0]), "x.dat", "alphabet"),
        (lambda: drawn([hm.Bernoulli(3), hm.Bernoulli(2)]), "x.xyz", r"\.h5"),
    ],
)
def test_a_machine_without_a_place_is_refused(machine, name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        exchange.write(machine(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_constant_without_a_place_is_refused(tmp_path):
    machine = drawn([hm.Bernoulli(3), hm.Bernoulli(2)])
    machine.constant = 1.0
    with pytest.raises(ValueError, match="no constant of the energy for"):
        exchange.write(machine, tmp_path / "x.h5")


def hostile_h5(change):
    def write(path):
        write_rbms(path)
        with h5py.File(path, "a") as file:
            change(file)

    return write


def relink(file):
    del file["update_20/params/vbias"]
    file["update_20/params/vbias"] = h5py.ExternalLink("/etc/hostname", "/")


def claim(file):
    del file["update_20/params/weight_matrix"]
    file["update_20/params"].create_dataset(
        "weight_matrix", shape=(100000, 1000, 1000), chunks=True, compression="gzip"
    )


def infinite(file):
    file["update_20/params/hbias"][0] = np.inf


def retype(file):
    del file["model_type"]
    file["model_type"] = "IGRBM"


REFUSED = {
    "nothing": (lambda path: path.write_bytes(b""), "known format"),
    "cut": (lambda path: (write_rbms(path), path.write_bytes(path.read_bytes()[:900])), "damaged"),
    "a link": (hostile_h5(relink), "link"),
    "more than it holds": (hostile_h5(claim), r"weight_matrix claims \d+ bytes"),
    "infinity": (hostile_h5(infinite), "finite"),
    "another kind": (hostile_h5(retype), "IGRBM"),
    "letters": (lambda path: path.write_text("h 0 A 1\nh 0 C x\n"), "line 2"),
    "no field": (lambda path: path.write_text("h 0 A 1\nh 0 C 1\nh 1 A 1\n"), "h 1 C"),
    "a site too far": (lambda path: path.write_text("h 0 A 1\nh 9999999 C 1\n"), "every site"),
    "a coupling of one": (lambda path: path.write_text("h 0 A 1\nh 0 C 1\nJ 0 0 A C 1\n"), "two sites"),
    "a coupling twice": (
        lambda path: path.write_text(
            "".join(f"h {i} {a} 1\n" for i in "01" for a in "AC") + "J 0 1 A C 1\nJ 1 0 C A 2\n"
        ),
        "once",
    ),
    "no JSON": (lambda path: path.write_text("# harmonium machine {\n"), "JSON"),
    "numbers": (
        lambda path: path.write_text('# harmonium machine {"layers": []}\nlayers.0.bias 3 1 2\n'),
        "line 2",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_damaged_is_refused_by_name(name, tmp_path):
    write, message = REFUSED[name]
    path = tmp_path / "given"
    write(path)
    with pytest.raises(ValueError, match=message) as caught:
        exchange.read(path)
    assert str(path) in str(caught.value)


def test_an_age_is_chosen_and_one_that_is_not_there_is_refused(cli, tmp_path):
    write_rbms(tmp_path / "x.h5")
    cli.succeed("convert", tmp_path / "x.h5", tmp_path / "y.safetensors", "--update", 3)
    assert hm.load(tmp_path / "y.safetensors").metadata["origin"]["update"] == 3
    with pytest.raises(ValueError, match=r"update: expected one of \[3, 20\], received 4"):
        exchange.read(tmp_path / "x.h5", update=4)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="none"):
        exchange.read(tmp_path / "none")


# The command
# ------------------------------------------------------------------------------------------------------


def test_convert_there_and_back(cli, tmp_path):
    machine = drawn([hm.Bernoulli(4), hm.Bernoulli(3)])
    machine.save(tmp_path / "machine.safetensors")
    cli.succeed("convert", tmp_path / "machine.safetensors", tmp_path / "rbm.h5")
    cli.succeed("convert", tmp_path / "rbm.h5", tmp_path / "again.safetensors")
    same(machine, hm.load(tmp_path / "again.safetensors"))
    result = cli.succeed("convert", tmp_path / "rbm.h5", tmp_path / "x.txt", "--json").json
    assert (result["read"], result["form"]) == ("rbms", "text")
    assert "--overwrite" in cli.refuse("convert", tmp_path / "rbm.h5", tmp_path / "again.safetensors")
    assert cli.refuse("convert", tmp_path / "no.h5", tmp_path / "z.safetensors").startswith("FILE: ")


def test_load_says_what_reads_a_file_of_another_program(tmp_path):
    write_rbms(tmp_path / "x.h5")
    with pytest.raises(ValueError, match=r"harmonium\.exchange\.read"):
        hm.load(tmp_path / "x.h5")
