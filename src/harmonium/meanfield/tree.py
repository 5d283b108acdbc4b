"""The tree of mean-field solutions over the ages of a training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from harmonium._checks import Numbers
from harmonium.machine import BoltzmannMachine, Hamiltonian
from harmonium.meanfield.fixed_point import prepare, solve
from harmonium.meanfield.plefka import Plefka
from harmonium.meanfield.tap_landscape import distinct, find_first


class Node(NamedTuple):
    """A solution, and those of later ages that it splits into.

    Attributes:
        age: the last at which it is one.
        rows: Number of rows that lie in it.
        children: none for a solution of the last age.
    """

    age: float
    rows: int
    children: tuple[Node, ...]

    def newick(self, earlier: float | None = None) -> str:
        """Returns the node as Newick text: leaves by their rows, branches by their length in age."""
        inner = f"({','.join(child.newick(self.age) for child in self.children)})" if self.children else ""
        length = f":{self.age - earlier:g}" if earlier is not None else ";"
        return f"{inner}{self.rows}{length}"


class SolutionTree(NamedTuple):
    """The solutions of the last machine as leaves, which merge in those of earlier ones.

    Attributes:
        root: Root of the tree, at the first age.
        solutions: how many there are at every age, (ages,) int64.
        basin: leaf of every row, (rows,) int64, from 0 in the order of first appearance.
        newick: the tree as text, as programs for phylogenies read it.
    """

    root: Node
    solutions: Tensor
    basin: Tensor
    newick: str


@torch.no_grad()
def solution_tree(
    machine: BoltzmannMachine,
    hamiltonians: Sequence[Hamiltonian],
    ages: Sequence[float],
    X: Numbers,
    *,
    order: int = 2,
) -> SolutionTree:
    """Follows the TAP solutions of a trained machine back to the first of its training.

    Rows flow to solutions of the last machine; these flow to solutions of the machine before, where some are
    the same, and so on (Decelle, Rosset & Seoane 2023). Solutions differ as in ``landscape``. Starts
    that do not converge stay where they are after 1,000 sweeps.

    Args:
        machine: gives the form of the rows.
        hamiltonians: its distributions at rising ages, the last its own: ``ladder.hamiltonians_along(machine,
            ladder)``.
        ages: Ages of the distributions, not falling, such as updates.
        X: visible states, (rows, visible_width).
        order: see ``tap``; 1 is naive mean field.

    Raises:
        ValueError: numbers of distributions and ages that differ, ages that fall, or rows that do not fit.
    """
    if len(hamiltonians) != len(ages) or not hamiltonians or list(ages) != sorted(ages):
        raise ValueError(
            f"ages: expected one for each of {len(hamiltonians)} hamiltonians, not falling, "
            f"received {list(ages)!r}"
        )
    _, starts = prepare(machine, X, None)
    basin, nodes, numbers = torch.zeros(len(starts), dtype=torch.int64), list[Node](), list[int]()
    for index in range(len(hamiltonians) - 1, -1, -1):
        hamiltonian, age = hamiltonians[index], float(ages[index])
        solution = solve(Plefka(hamiltonian, order), starts, tolerance=1e-5, damping="adaptive")
        group = distinct(solution.means, 0.01).cpu()
        groups, first, sizes = find_first(group)
        if index == len(hamiltonians) - 1:
            basin, nodes = group, [Node(age, size, ()) for size in sizes.tolist()]
        else:
            nodes = [_join(age, [nodes[i] for i in (group == g).nonzero().flatten()]) for g in groups]
        numbers.append(len(groups))
        starts = hamiltonian.visible_states([x[first] for x in solution.means])
    root = nodes[0] if len(nodes) == 1 else Node(float(ages[0]), len(basin), tuple(nodes))
    return SolutionTree(root, torch.tensor(numbers[::-1]), basin, root.newick())


def _join(age: float, nodes: list[Node]) -> Node:
    """Returns what some solutions are one age earlier: the same node, or one that splits into them."""
    return nodes[0] if len(nodes) == 1 else Node(age, sum(node.rows for node in nodes), tuple(nodes))
