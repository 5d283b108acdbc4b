"""Couplings stored by pair: the distribution is that of a matrix with zeros; nothing has its size."""

from __future__ import annotations

import pickle
import resource
from collections.abc import Callable
from copy import deepcopy
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch

import harmonium as hm
from harmonium.backends import SparseMatrix, SparsityPattern, choice
from harmonium.backends.colouring import colour_nodes
from harmonium.machine.coupling_matrices import CouplingMatrices

from .graphs import with_drawn_parameters

KINDS = {
    "spins": (hm.Spin(5), hm.Spin(5)),
    "states": (hm.Categorical(5, 3), hm.Categorical(5, 3)),
    "spins and states": (hm.Spin(5), hm.Categorical(4, 3)),
}


def both(name: str, inner: bool) -> tuple[SparsityPattern, torch.Tensor, torch.Tensor]:
    """A pattern with random entries, in float64, and its matrix, made entry by entry."""
    below, above = KINDS[name]
    above = below if inner else above
    pairs = torch.tensor([(0, 1), (1, 3), (0, 3), (2, 3)])
    p, q = below.columns_per_unit, above.columns_per_unit
    pattern = SparsityPattern(pairs, (below.n_units, above.n_units), (p, q), inner)
    values = torch.randn(len(pattern), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    W = torch.zeros(below.width, above.width, dtype=torch.float64)
    for number, (i, j) in enumerate(pairs.tolist()):
        for a, b in product(range(p), range(q)):
            W[i * p + a, j * q + b] = values[(number * p + a) * q + b]
            if inner:
                W[j * q + b, i * p + a] = W[i * p + a, j * q + b]
    return pattern, values, W


@pytest.mark.parametrize(("name", "inner"), [(name, inner) for name in KINDS for inner in (False, True)])
def test_products_are_those_of_the_matrix(name: str, inner: bool) -> None:
    if inner and name == "spins and states":
        return
    pattern, values, W = both(name, inner)
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(7, n, generator=generator, dtype=torch.float64) for n in W.shape)
    torch.testing.assert_close(pattern.dense(values), W)
    torch.testing.assert_close(pattern.times(x, values), x @ W)
    torch.testing.assert_close(pattern.times(y, values, True), y @ W.T)
    whole = x.T @ y
    torch.testing.assert_close(pattern.products(x, y), pattern.gather(whole + whole.T if inner else whole))
    x.requires_grad_(), y.requires_grad_(), values.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, J: pattern.times(x, J), (x, values))
    assert torch.autograd.gradcheck(lambda y, J: pattern.times(y, J, True), (y, values))
    assert torch.autograd.gradgradcheck(lambda x, J: pattern.times(x, J), (x, values))
    assert torch.autograd.gradcheck(pattern.products, (x, y))


@pytest.mark.parametrize(
    ("units", "block"), [((3, 8), (1, 1)), ((8, 3), (1, 1)), ((2, 3), (1, 3)), ((3, 3), (3, 1))]
)
def test_products_with_wide_and_tall_patterns(units: tuple[int, int], block: tuple[int, int]) -> None:
    """Most pairs of layers of unlike width, in no order, from either side and for some columns alone."""
    generator = torch.Generator().manual_seed(2)
    pairs = torch.cartesian_prod(torch.arange(units[0]), torch.arange(units[1]))
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[: len(pairs) - 1]]
    pattern = SparsityPattern(pairs, units, block, False)
    values = torch.randn(len(pattern), generator=generator, dtype=torch.float64)
    W = torch.zeros(pattern.shape, dtype=torch.float64)
    for row, column, value in zip(pattern.rows, pattern.columns, values, strict=True):
        W[row, column] = value
    x, y = (torch.randn(7, n, generator=generator, dtype=torch.float64) for n in W.shape)
    torch.testing.assert_close(pattern.times(x, values), x @ W)
    torch.testing.assert_close(pattern.times(y, values, True), y @ W.T)
    for columns in (torch.tensor([1, 0]), torch.tensor([1])):
        one, other = (SparseMatrix(values, pattern, columns, side) for side in (False, True))
        torch.testing.assert_close(one.times(x), x @ W[:, columns])
        torch.testing.assert_close(other.times(y), y @ W[columns].T)


@pytest.mark.parametrize("name", ["spins", "states"])
def test_training_is_that_of_a_mask(name: str) -> None:
    """Equal gradients of every rule that draws nothing, with and without centring, and equal penalties."""
    pairs = [(0, 1), (1, 2), (3, 2), (0, 4)]
    mask = torch.zeros(5, 5)
    mask[tuple(zip(*pairs, strict=True))] = 1
    kind = KINDS[name][0]
    made = []
    for coupling in (hm.Sparse(pairs), hm.Masked(mask)):
        layer = type(kind)(**kind.config())
        machine = hm.BoltzmannMachine([layer], {(0, 0): coupling}, [0], seed=None).double()
        made.append(machine)
    with_drawn_parameters(made[0], 0.7)
    made[1].layers[0].load_state_dict(made[0].layers[0].state_dict())
    made[1].couplings[0].fill_(made[0].couplings[0].matrix())
    v = made[0].random_states(40, seed=3)[0]
    for rule in (
        hm.rules.exact(), hm.rules.centred(hm.rules.exact()), hm.rules.pseudo_likelihood(), hm.rules.tap(),
        hm.rules.mean_field(), hm.rules.centred(hm.rules.pseudo_likelihood()),
    ):  # fmt: skip
        for machine in made:
            hm.train(
                machine, v, rule=rule, updates=3, batch_size=40, learning_rate=0.1, progress=False,
                penalties=[hm.training.L2(0.1), hm.training.GroupLasso(0.05)], seed=0,
            )  # fmt: skip
        torch.testing.assert_close(made[0].couplings[0].matrix(), made[1].couplings[0].matrix())
        torch.testing.assert_close(made[0].layers[0].bias, made[1].layers[0].bias)


def test_files_keep_pairs_in_their_order(tmp_path: Path) -> None:
    pairs = np.random.default_rng(0).permutation([(i, j) for i in range(9) for j in range(i)])
    machine = hm.BoltzmannMachine([hm.Spin(9)], {(0, 0): hm.Sparse(pairs[:20])}, [0], seed=4)
    machine.save(tmp_path / "machine.safetensors")
    again = hm.load(tmp_path / "machine.safetensors")
    assert torch.equal(again.couplings[0].weight, machine.couplings[0].weight)
    assert torch.equal(again.couplings[0].matrix(), machine.couplings[0].matrix())
    assert torch.equal(machine.couplings[0].pairs, torch.from_numpy(np.sort(pairs[:20], 1)))


def test_graphs_and_matrices_of_others_come_in_as_they_are() -> None:
    ring = nx.cycle_graph(6)
    matrix = scipy.sparse.coo_array(np.triu(nx.to_numpy_array(ring)))
    edges = {tuple(sorted(edge)) for edge in ring.edges}
    for given in (ring, matrix, list(edges), torch.tensor(sorted(edges)), np.array(sorted(edges), np.uint8)):
        machine = hm.BoltzmannMachine([hm.Spin(6)], {(0, 0): hm.Sparse(given)}, [0])
        assert {tuple(pair) for pair in machine.couplings[0].pairs.tolist()} == edges
        assert len(machine.graph.colours) == 2
    assert hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Sparse([])}, [0]).energy([torch.ones(1, 3)]) == 0


def test_a_matrix_with_values_fills_a_machine() -> None:
    """Energies of J given whole, by one half, in another order and format, beside -xᵀJx/2."""
    generator = np.random.default_rng(0)
    upper = np.triu(generator.normal(size=(7, 7)) * (generator.random((7, 7)) < 0.5), 1)
    whole = scipy.sparse.csr_matrix(upper + upper.T)
    states = torch.from_numpy(generator.choice([-1.0, 1.0], (20, 7)))
    expected = -np.einsum("ri,ij,rj->r", states, upper, states)
    lower = scipy.sparse.coo_array(upper.T)
    turned = scipy.sparse.coo_array((lower.data[::-1], (lower.row[::-1], lower.col[::-1])), lower.shape)
    for pattern in (whole, lower, scipy.sparse.csc_array(upper), np.argwhere(upper)):
        machine = hm.BoltzmannMachine([hm.Spin(7)], {(0, 0): hm.Sparse(pattern)}, [0]).double()
        assert len(machine.couplings[0].pairs) == np.count_nonzero(upper)
        for values in (whole, lower, turned, scipy.sparse.dok_array(upper)):
            machine.couplings[0].draw_(1.0, torch.Generator().manual_seed(0))
            machine.couplings[0].fill_(values)
            assert machine.energy([states]).detach().numpy() == pytest.approx(expected)

    between = scipy.sparse.csr_array(upper + upper.T)  # of two layers both orders are pairs of their own
    pair = hm.BoltzmannMachine([hm.Spin(7), hm.Spin(7)], {(0, 1): hm.Sparse(between)}).double()
    pair.couplings[0].fill_(between)
    assert pair.couplings[0].matrix().detach().numpy() == pytest.approx(between.toarray())

    potts = hm.BoltzmannMachine([hm.Categorical(7, 3)], {(0, 0): hm.Sparse(whole)}, [0]).double()
    potts.couplings[0].fill_(whole)
    assert potts.couplings[0].matrix().detach().numpy() == pytest.approx(
        np.kron(upper + upper.T, np.ones((3, 3)))
    )


def test_matrices_that_do_not_fit_are_refused_by_name() -> None:
    def matrix(*entries: tuple[int, int, float], size: int = 3) -> scipy.sparse.coo_array:
        rows, columns, values = zip(*entries, strict=True)
        return scipy.sparse.coo_array((values, (rows, columns)), (size, size))

    twice = matrix((0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0))
    with pytest.raises(ValueError, match=r"received \(0, 1\) twice; scipy\.sparse\.triu\(matrix\)"):
        hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Sparse(twice)}, [0])
    made = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Sparse([(1, 2), (0, 1)])}, [0])
    for wrong, message in (
        (matrix((0, 1, 1.0)), r"an entry for every pair, received none for \(1, 2\)"),
        (matrix((0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)), r"at the pairs alone, received one at \(0, 2\)"),
        (
            matrix((0, 1, 1.0), (1, 2, 1.0), (2, 1, 2.0)),
            r"equal halves in a layer, .* two values for \(1, 2\)",
        ),
        (matrix((0, 1, 1.0), (1, 2, 1.0), size=4), r"of shape \(3, 3\), received \(4, 4\)"),
    ):
        before = made.couplings[0].weight.clone()
        with pytest.raises(ValueError, match=f"values: expected .*{message}"):
            made.couplings[0].fill_(wrong)
        assert torch.equal(made.couplings[0].weight, before)


@pytest.mark.parametrize("make", [hm.Dense, lambda: hm.Masked(torch.ones(4, 4)), lambda: hm.Sparse([(0, 1)])])
def test_a_coupling_is_of_one_machine(make: Callable[[], hm.couplings.Coupling]) -> None:
    made = make()
    with pytest.raises(ValueError, match="a coupling of its own for every edge, received one twice"):
        hm.BoltzmannMachine([hm.Spin(4), hm.Spin(4)], {(0, 0): made, (0, 1): made})
    with pytest.raises(
        ValueError, match="pairs: expected units below 4"
    ):  # a machine that is refused has none
        hm.BoltzmannMachine([hm.Spin(4), hm.Spin(4)], {(0, 0): made, (0, 1): hm.Sparse([(0, 4)])})
    machine = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): made})
    assert machine.couplings[0].matrix().shape == (4, 4)
    with pytest.raises(
        ValueError, match=f"a {type(made).__name__} that belongs to another machine; make a new"
    ):
        hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): made})


@pytest.mark.parametrize(
    ("pairs", "error", "message"),
    [
        ([(0, 1), (1, 0)], ValueError, r"every pair of units once, received \(0, 1\) twice"),
        ([(0, 0)], ValueError, r"different units for a coupling in a layer, received \(0, 0\) as pair 0"),
        ([(0, 6)], ValueError, "units below 6 of Spin"),
        ([(-1, 2)], ValueError, "units from 0 to .*, received -1"),
        ([(0.5, 2)], TypeError, "whole numbers, received float64; take pairs.astype"),
        ([(0, 1, 2)], ValueError, r"pairs of units, \(pairs, 2\)"),
        ([(0, 1), (2,)], ValueError, "pairs of units"),
        (3, TypeError, "pairs of units"),
        (nx.grid_2d_graph(2, 2), TypeError, "convert_node_labels_to_integers"),
    ],
)
def test_pairs_that_join_nothing_are_refused(pairs: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hm.BoltzmannMachine([hm.Spin(6)], {(0, 0): hm.Sparse(pairs)}, [0])


def test_memory_grows_with_pairs_and_states() -> None:
    """A lattice of 25,600 spins: a matrix would take 2.6 GB."""
    side = 160
    place = np.arange(side * side).reshape(side, side)
    right = np.stack([place, np.roll(place, -1, 1)], -1).reshape(-1, 2)
    below = np.stack([place, np.roll(place, -1, 0)], -1).reshape(-1, 2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    machine = hm.BoltzmannMachine(
        [hm.Spin(side * side)], {(0, 0): hm.Sparse(np.concatenate([right, below]))}, [0], seed=0
    )
    rows = machine.random_states(64, seed=1)
    states = hm.chains.run(machine, hm.chains.Gibbs(), rows, 2, seed=2)
    hm.train(machine, rows[0], rule=hm.rules.pcd(1), updates=2, batch_size=64, progress=False)
    assert machine.energy(states).shape == (64,)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    # States of 64 rows take 7 MB, the numbers of a pair (weight, gradient, places both ways) 80 bytes, 4 MB.
    assert grown < 400e6
    assert len(machine.graph.colours) == 2


def test_the_zero_sum_gauge_of_blocks_is_that_of_the_matrix() -> None:
    pairs = [(0, 1), (2, 1), (3, 0)]
    mask = torch.zeros(4, 4)
    mask[tuple(zip(*pairs, strict=True))] = 1
    bipartite = torch.tensor([(0, 1), (3, 0), (2, 2)])
    other = torch.zeros(4, 3)
    other[tuple(bipartite.T)] = 1
    made = []
    for inner, between in ((hm.Sparse(pairs), hm.Sparse(bipartite)), (hm.Masked(mask), hm.Masked(other))):
        layers = [hm.Categorical(4, 3), hm.Spin(3)]
        made.append(hm.BoltzmannMachine(layers, {(0, 0): inner, (0, 1): between}, [0]).double())
    with_drawn_parameters(made[0], 0.8)
    for one, two in zip(made[0].couplings, made[1].couplings, strict=True):
        two.fill_(one.matrix())
    for one, two in zip(made[0].layers, made[1].layers, strict=True):
        two.load_state_dict(one.state_dict())
    x = made[0].random_states(6, seed=1)
    before = made[0].energy(x)
    for machine in made:
        hm.machine.to_zero_sum_(machine)
    for one, two in zip(made[0].couplings, made[1].couplings, strict=True):
        torch.testing.assert_close(one.matrix(), two.matrix())
    for one, two in zip(made[0].layers, made[1].layers, strict=True):
        torch.testing.assert_close(one.state_dict(), two.state_dict())
    difference = made[0].energy(x) - before
    torch.testing.assert_close(difference, difference[0].expand(6))


def test_pairs_are_let_go_and_taken_up_by_pair() -> None:
    pairs = [(0, 1), (2, 1), (3, 0), (2, 3)]
    machine = hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): hm.Sparse(pairs)}, [0], seed=None)
    machine.couplings[0].fill_(torch.tensor([0.1, -2.0, 0.3, 1.0]))
    kept = hm.tasks.decimate(machine, 2)
    assert kept.couplings[0].pairs.tolist() == [[1, 2], [2, 3]]
    assert kept.couplings[0].weight.tolist() == [-2.0, 1.0]
    rows = torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1]]).repeat(10, 1)
    rows[:, 3] = torch.tensor([1.0, -1]).repeat_interleave(10)  # unit 0 goes with 1 and 2, which are joined
    draws = kept.random_states(500, seed=0)
    draws = hm.chains.run(kept, hm.chains.Gibbs(), draws, 30, seed=1)[0]
    taken = hm.tasks.activate(kept, 1, rows, draws)
    assert taken.couplings[0].pairs.tolist()[:2] == [[1, 2], [2, 3]]
    assert taken.couplings[0].pairs.tolist()[2][0] == 0 and taken.couplings[0].weight[2] == 0


def test_directions_are_those_of_the_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = (torch.rand(30, 20, generator=generator) < 0.2).nonzero()
    machine = hm.BoltzmannMachine([hm.Spin(30), hm.Spin(20)], {(0, 1): hm.Sparse(pairs)}, seed=3)
    found = machine.hamiltonian().J.directions(0, 4)
    expected = torch.linalg.svd(machine.couplings[0].matrix().detach().double())[0][:, :4]
    assert found.shape == (30, 4)
    torch.testing.assert_close((found.T @ expected).abs(), torch.eye(4).double(), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("name", "inner"), [("spins", True), ("states", True), ("spins and states", False)])
def test_chosen_columns_take_gradients(name: str, inner: bool) -> None:
    pattern, values, W = both(name, inner)
    values.requires_grad_()
    for transposed, columns in product((False, True), (torch.tensor([3, 0]), torch.tensor([2]))):
        x = torch.randn(3, W.shape[transposed], dtype=torch.float64, requires_grad=True)
        matrix = SparseMatrix(values, pattern, columns, transposed)
        torch.testing.assert_close(matrix.times(x), x @ (W.T if transposed else W)[:, columns])
        assert torch.autograd.gradcheck(
            lambda x, J, at=columns, t=transposed: SparseMatrix(J, pattern, at, t).times(x), (x, values)
        )


def test_a_copy_of_a_pattern_has_its_own_chosen_columns() -> None:
    """Identities of the original's columns, which others can have once it is gone, mean nothing to a copy."""
    pattern, values, W = both("spins", True)
    x = torch.eye(5, dtype=torch.float64)
    chosen = [torch.tensor([0]) for _ in range(64)]
    for columns in chosen:
        SparseMatrix(values, pattern, columns)
    copied, read = deepcopy(pattern), pickle.loads(pickle.dumps(pattern))
    del pattern, chosen, columns
    for columns in [torch.tensor([3]) for _ in range(256)]:
        for again in (copied, read):
            torch.testing.assert_close(SparseMatrix(values, again, columns).times(x), W[:, columns])


def test_a_copy_of_matrices_has_its_own_chosen_columns() -> None:
    W = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    matrices, chosen = CouplingMatrices([W]), [torch.tensor([0]) for _ in range(64)]
    matrices.patterns = (None,)
    for columns in chosen:
        matrices.columns(0, False, columns)
    copied = deepcopy(matrices)
    del matrices, chosen, columns
    for columns in [torch.tensor([3]) for _ in range(256)]:
        assert torch.equal(copied.columns(0, False, columns).times(torch.eye(5)), W[:, columns])


def test_a_machine_is_pickled_without_what_sampling_made() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(5)], {(0, 0): hm.Sparse([(0, 1), (1, 3), (2, 4)])}, [0]).double()
    pattern = machine.couplings[0].sparsity
    before = pickle.dumps(pattern)
    hm.chains.run(machine, hm.chains.Gibbs(), machine.random_states(3, seed=0), 2, seed=1)
    assert pickle.dumps(pattern) == before


@pytest.mark.parametrize("unit", [2**31 - 1, 2**63 + 5, -1])
def test_a_unit_that_no_layer_can_have_is_refused(unit: int) -> None:
    pairs = np.array([(0, unit)], np.int64 if unit < 2**63 else np.uint64)
    with pytest.raises(
        ValueError, match=rf"^pairs: expected units from 0 to 2,147,483,646, received {unit:,}"
    ):
        hm.Sparse(pairs)


def test_more_neighbours_than_places_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harmonium.machine.graph._LARGEST", 5)
    hm.BoltzmannMachine([hm.Spin(5)], {(0, 0): hm.Sparse([(0, 1), (1, 3)])}, [0]).hamiltonian()
    machine = hm.BoltzmannMachine([hm.Spin(5)], {(0, 0): hm.Sparse([(0, 1), (1, 3), (2, 4)])}, [0])
    with pytest.raises(ValueError, match=r"^edges: expected at most 2 pairs .* within Spin\(5\), received 3"):
        machine.hamiltonian()


def test_a_hub_among_many_units_takes_two_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours times the units are more than an int32 holds."""
    units, leaves = 60_000, 40_000
    assert leaves * units > 2**31
    starts = np.cumsum([0, leaves, *[1] * leaves, *[0] * (units - leaves - 1)]).astype(np.int32)
    others = np.concatenate([np.arange(1, leaves + 1), np.zeros(leaves)]).astype(np.int32)
    monkeypatch.setattr(choice, "COMPILED", False)
    with np.errstate(over="raise"):
        colours = colour_nodes(starts, others)
    assert colours[0] == 0 and bool((colours[1 : leaves + 1] == 1).all())


def test_rung_0_of_a_ladder_has_no_couplings_by_pair() -> None:
    machine = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Sparse([(0, 1), (1, 2)])}, [0], seed=0)
    ladder = hm.ladder.Ladder([machine])
    with pytest.raises(ValueError, match=r"^rungs\[0\]: expected a machine whose couplings are all 0"):
        hm.chains.run(machine, ladder, machine.random_states(4, seed=1), 2, seed=2)
