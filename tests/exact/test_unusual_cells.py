"""Unusual cells against enumeration: what each value in the place of a cell does to its row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.data import frame_of
from harmonium.machine import BoltzmannMachine, join_layers
from harmonium.tables import Codec

torch.set_num_threads(1)


def spread(machine: BoltzmannMachine) -> BoltzmannMachine:
    """Returns the machine in float64 with parameters that matter."""
    machine, generator = machine.double(), torch.Generator().manual_seed(0)
    for name, parameter in machine.named_parameters():
        if "log" not in name:
            parameter.data += 0.7 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return machine


@torch.no_grad()
def log_weight(machine: BoltzmannMachine, row: Tensor, places: Sequence[tuple[slice, Tensor]] = ()) -> float:
    """Returns ln Σ exp(-E) over the hidden states, and over the discrete units that a row lacks."""
    rows = [row]
    for place, values in places:
        if bool(row[place].isnan().any()):
            rows = [torch.cat([x[: place.start], y, x[place.stop :]]) for x in rows for y in values]
    hidden = [[y for y in machine.layers[l].values().double()] for l in machine.hidden]
    each = [
        product(values, repeat=machine.layers[l].n_units)
        for values, l in zip(hidden, machine.hidden, strict=True)
    ]
    listed = [[torch.cat(units) for units in layers] for layers in product(*each)]
    v = torch.stack([x for x in rows for _ in listed])
    states = dict(machine.split(v))
    for k, l in enumerate(machine.hidden):
        states[l] = torch.stack([layers[k] for _ in rows for layers in listed])
    energies = machine.energy([states[l] for l in range(len(machine.layers))])
    return float((-energies.double()).logsumexp(0))


MACHINES = {
    "one hidden layer": lambda: BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)], seed=0),
    "spins": lambda: BoltzmannMachine([hm.Spin(3), hm.Categorical(1, 3)], seed=0),
    "deep": lambda: BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2), hm.Bernoulli(2)], seed=0),
    "no hidden units": lambda: BoltzmannMachine([hm.Spin(4)], edges=[(0, 0)], seed=0),
}  # fmt: skip


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("lacking", [False, True])
def test_nats_of_two_valued_cells(name: str, lacking: bool) -> None:
    """The expected value is the likelier one, and the nats are what ln p(row) gains by it."""
    machine = spread(MACHINES[name]())
    v = machine.hamiltonian().visible_states(machine.random_states(6, seed=1)).double()
    if lacking:
        v[::2, 0] = torch.nan
    found = hm.tasks.unusual_cells(machine, v.numpy(), max_cells=9)
    assert [*found] == sorted(found, key=lambda cell: (cell.row, -cell.nats))
    cells = {(cell.row, int(cell.column)): cell for cell in found}
    values = machine.layers[0].values().double()
    places = [(slice(j, j + 1), values) for j in range(v.shape[1])]
    for i, row in enumerate(v):
        for j in range(len(row)):
            if bool(row[j].isnan()):
                assert (i, j) not in cells
                continue
            other = row.clone()
            other[j] = values.sum() - row[j]
            gain = log_weight(machine, other, places) - log_weight(machine, row, places)
            assert ((i, j) in cells) == (gain > 0)
            if gain > 0:
                cell = cells[i, j]
                assert (cell.value, cell.expected) == (float(row[j]), float(other[j]))
                assert cell.nats == pytest.approx(gain, abs=1e-9)


def table_machine(table: object, hidden: int) -> tuple[Codec, BoltzmannMachine]:
    """Returns a codec for a table, and a machine that keeps it."""
    codec = Codec.fit(table)
    machine = join_layers(codec.layers, [hm.Bernoulli(hidden)], seed=0)
    machine.metadata |= codec.to_dict()
    return codec, spread(machine)


@torch.no_grad()
def score(codec: Codec, machine: BoltzmannMachine, rows: object) -> Tensor:
    """Returns ln p of rows of a table but for ln Z, summed over the labels and counts that they lack."""
    places = [codec.unit_of(str(column.name)) for column in codec.columns()]
    every = [[row] for row in codec.rows(rows, torch.float64).all()]
    for place in (place for place in places if machine.layers[place.layer].discrete):
        start, stop = place.states.start, place.states.stop
        values = machine.layers[place.layer].values().double()
        for row in every:
            if bool(row[0][start:stop].isnan().any()):
                row[:] = [torch.cat([x[:start], y, x[stop:]]) for x in row for y in values]
    totals = torch.stack([(-machine.free_energy(torch.stack(row))).logsumexp(0) for row in every])
    return totals + torch.from_numpy(codec.encoder.log_shares(frame_of(rows)).sum(1))


@pytest.mark.filterwarnings("ignore:X. values never seen in training")
@pytest.mark.parametrize("hidden", [3, 14])
def test_nats_of_the_labels_and_counts_of_a_table(hidden: int) -> None:
    """Rare and new labels are among them; hidden states are few enough to be listed, or too many."""
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    texts = [f"t{k}" for k in random.permutation([*range(6)] * 9 + [*range(6, 40)])]
    table = pandas.DataFrame({"text": texts, "kind": random.choice([*"abc"], len(texts))})
    table["visits"], table["member"] = random.integers(0, 4, len(texts)), random.random(len(texts)) < 0.5
    codec, machine = table_machine(table, hidden)
    (shared,) = (column for column in codec.columns() if column.name == "text")
    assert getattr(shared, "shared", False)
    rows = table.iloc[:5].copy()
    rows.iloc[1, 1], rows.iloc[2, 2], rows.iloc[3, 1] = None, None, "new"
    cells = {(cell.row, cell.column): cell for cell in hm.tasks.unusual_cells(machine, rows, max_cells=4)}
    values = {"text": shared.values, "kind": [*"abc"], "visits": range(4), "member": [False, True]}
    for i, name in product(range(len(rows)), table.columns):
        row = rows.iloc[[i]]
        if row[name].isna().item():
            assert (i, name) not in cells
            continue
        others = row.loc[row.index.repeat(len(values[name]))].assign(**{name: [*values[name]]})
        scores = score(codec, machine, others)
        best, gain = others[name].iloc[int(scores.argmax())], float(scores.max() - score(codec, machine, row))
        assert ((i, name) in cells) == (gain > 1e-9)
        if gain > 1e-9:
            cell = cells[i, name]
            assert (cell.value, cell.expected) == (row[name].item(), best)
            assert cell.nats == pytest.approx(gain, abs=1e-6)


def test_nats_of_real_cells() -> None:
    """The expected number is the mean given the rest; a number beyond the range counts by its distance."""
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(0)
    table = pandas.DataFrame({"size": random.normal(5.0, 2.0, 60), "kind": random.choice([*"ab"], 60)})
    codec, machine = table_machine(table, 3)
    rows = table.iloc[:4].copy()
    rows.iloc[0, 0] = table["size"].max() + 10.0
    cells = {(cell.row, cell.column): cell for cell in hm.tasks.unusual_cells(machine, rows)}
    column = codec.unit_of("size")
    for i in range(len(rows)):
        row = rows.iloc[[i]]
        v = codec.rows(row, torch.float64).all()
        grid = v.repeat(4001, 1)
        grid[:, column.states] = torch.linspace(-20.0, 20.0, 4001, dtype=torch.float64).unsqueeze(1)
        with torch.no_grad():
            weights = -machine.free_energy(grid)
            mean = float(weights.softmax(0) @ grid[:, column.states].squeeze(1))
            v[:, column.states] = mean
            gain = float(-machine.free_energy(v)) - score(codec, machine, row)
        gain += float(codec.encoder.log_shares(frame_of(row.assign(size=5.0))).sum())
        cell = cells[i, "size"]
        expected = column.column.decode(np.array([[mean]])).item()
        assert cell.value == row["size"].item() and cell.expected == pytest.approx(expected, rel=1e-5)
        assert cell.nats == pytest.approx(gain, abs=1e-4)
        assert i > 0 or cell.nats > 10.0  # as far beyond the largest, of which a deviation is 1.8


def test_columns_of_several_units_are_refused() -> None:
    machine = BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(2)], seed=0)
    machine.metadata |= hm.tables.Codec.fit(np.arange(12.0).reshape(4, 3), binarise="bit-planes").to_dict()
    with pytest.raises(ValueError, match="expected one with a unit for each column, received one without"):
        hm.tasks.unusual_cells(machine, np.zeros((1, 3)))
    with pytest.raises(ValueError, match="max_cells"):
        hm.tasks.unusual_cells(BoltzmannMachine([hm.Bernoulli(2)], edges=[]), [[0.0, 1.0]], max_cells=0)
