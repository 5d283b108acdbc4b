"""Annealing without data is not wrong in silence; ``tests.campaigns annealing`` has more machines."""

from __future__ import annotations

import warnings
from math import exp, log
from pathlib import Path

import pytest
import torch
from campaigns.annealing import machine, read

import harmonium as hm
from harmonium.likelihood import WITHOUT_DATA, ais, exact_log_partition
from harmonium.likelihood.annealing import count_heavier, draw_likely_modes

from .support import machine as small_machine


@pytest.mark.parametrize("number", [5, 10, 12])
@pytest.mark.nightly
def test_a_missed_mode_is_told(number: int) -> None:
    """Machines of couplings up to 4 whose forward run missed a mode of 0.4 to 17 nats more weight.

    A failure needs bounds that exclude ln Z and no warning. Of the campaign's 400 runs none had that.
    """
    made = machine(number, strong=True)
    truth = exact_log_partition(made)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", RuntimeWarning)
        found = ais(made, seed=1)
    assert told or found.lower - 0.05 < truth < found.upper + 0.05
    assert bool(told) == (found.doubts != (WITHOUT_DATA,))


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("number", range(3))
def test_right_annealing_is_not_doubted(number: int) -> None:
    """Couplings so weak that annealing is right; the campaign has the share of these that are doubted."""
    made = machine(number, strong=False)
    found = ais(made, temperatures=300, seed=0)
    assert found.doubts == (WITHOUT_DATA,)
    assert found.lower - 0.05 < exact_log_partition(made) < found.upper + 0.05


def two_modes(layers: list[hm.layers.Layer], edges: dict | None = None) -> hm.BoltzmannMachine:
    """All units up, or all down and e² times lighter."""
    made = hm.BoltzmannMachine(layers, edges=edges, visible=[0]).double()
    with torch.no_grad():
        for coupling in made.couplings:
            coupling.weight.fill_(1.0)
        made.layers[0].bias.fill_(1 / layers[0].width)
    return made


MACHINES = {
    "two layers": lambda: two_modes([hm.Spin(6), hm.Spin(6)]),
    "inner edges": lambda: two_modes([hm.Spin(6)], {(0, 0): hm.Dense()}),
    "three colours": lambda: two_modes(
        [hm.Spin(4), hm.Spin(4), hm.Spin(4)], {pair: hm.Dense() for pair in ((0, 1), (0, 2), (1, 2))}
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_modes_are_drawn_by_their_weight(name: str) -> None:
    """Of 4,000 draws the share of the heavier mode is within 4 standard errors: 6e-5 for each machine."""
    hamiltonian = MACHINES[name]().hamiltonian()
    generator = torch.Generator().manual_seed(0)
    down = [-torch.ones(10, layer.width, dtype=torch.float64) for layer in hamiltonian.layers]
    x = draw_likely_modes(hamiltonian, [down], 4000, 5, generator)[0]
    assert set(x.sum(1).tolist()) <= {-float(x.shape[1]), float(x.shape[1])}
    share = float((x[:, 0] > 0).double().mean())
    expected = 1 / (1 + exp(-2))
    assert abs(share - expected) < 4 * (expected * (1 - expected) / 4000) ** 0.5


@pytest.mark.parametrize("name", ["gaussian-bernoulli", "binomial-relu", "sparse-bernoulli"])
def test_machines_of_real_and_truncated_units_have_starts(name: str) -> None:
    made = small_machine(name)
    hamiltonian = made.hamiltonian()
    x = draw_likely_modes(hamiltonian, [], 7, 3, torch.Generator().manual_seed(0))
    made.check_states(x)
    assert [len(each) for each in x] == [7] * len(hamiltonian.layers)


def test_reverse_runs_that_are_heavier_are_counted() -> None:
    forward = torch.tensor([0.0, 2.0])
    assert count_heavier(torch.tensor([-5.0, 2.0, 2.9, 3.1, 9.0]), forward) == 2


TRIANGLE = [(0, 1), (1, 2), (0, 2)]


@pytest.mark.parametrize("edges", [TRIANGLE, TRIANGLE[:2]], ids=["one layer", "two layers"])
def test_files_of_the_competition_are_read(tmp_path: Path, edges: list[tuple[int, int]]) -> None:
    tables = torch.rand(len(edges), 4, generator=torch.Generator().manual_seed(0)).double() + 0.1
    unary = [0.5, 2.0]
    lines = ["MARKOV", "3", "2 2 2", str(1 + len(edges)), "1 1"]
    lines += [f"2 {i} {j}" for i, j in edges]
    lines += ["2", " ".join(map(str, unary))]
    lines += [f"4 {' '.join(map(repr, table))}" for table in tables.tolist()]
    total = 0.0
    for x in torch.cartesian_prod(*[torch.arange(2)] * 3).tolist():
        weight = unary[x[1]]
        for (i, j), table in zip(edges, tables.tolist(), strict=True):
            weight *= table[2 * x[i] + x[j]]
        total += weight
    path = tmp_path / "made.uai"
    path.write_text("\n".join(lines))
    path.with_name("made.uai.PR").write_text(f"PR\n{log(total) / log(10)!r}\n")
    made, truth = read(path)
    assert exact_log_partition(made) == pytest.approx(truth, abs=1e-5)
