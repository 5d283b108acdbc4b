"""Evaluations of small machines equal sums over all states, written out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import harmonium as hm

LAYERS = {
    "one hidden layer": [hm.Bernoulli(4), hm.Bernoulli(3)],
    "joined hidden layers": [hm.Bernoulli(4), hm.Bernoulli(3), hm.Spin(2)],
    "no hidden layer": [hm.Bernoulli(4)],
}


def make(name: str) -> hm.BoltzmannMachine:
    layers = LAYERS[name]
    machine = hm.BoltzmannMachine(layers, edges=[(0, 0)] if len(layers) == 1 else None)
    hm.machine.normal_(machine, 0.7, torch.Generator().manual_seed(0))
    return machine.double()


def log_probabilities(machine: hm.BoltzmannMachine) -> dict[tuple[float, ...], float]:
    """Returns ln p of every visible state, by the energies of all joint states."""
    values = [(-1.0, 1.0) if isinstance(layer, hm.Spin) else (0.0, 1.0) for layer in machine.layers]
    states = [
        torch.tensor(list(itertools.product(pair, repeat=layer.n_units)), dtype=torch.float64)
        for pair, layer in zip(values, machine.layers, strict=True)
    ]
    weights: dict[tuple[float, ...], list[float]] = {}
    for joint in itertools.product(*states):
        energy = float(machine.energy([x.unsqueeze(0) for x in joint]).detach())
        weights.setdefault(tuple(joint[0].tolist()), []).append(-energy)
    log_z = np.logaddexp.reduce([w for each in weights.values() for w in each])
    return {v: float(np.logaddexp.reduce(each) - log_z) for v, each in weights.items()}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("missing", [False, True])
def test_an_evaluation_equals_enumeration(name: str, missing: bool) -> None:
    machine = make(name)
    known = log_probabilities(machine)
    X = np.random.default_rng(0).integers(0, 2, (6, 4)).astype(np.float64)
    if missing:
        X[0, 1] = X[3, 0] = X[3, 2] = np.nan

    def shown(row: np.ndarray) -> float:
        fits = [value for v, value in known.items() if all(np.isnan(row) | (row == v))]
        return float(np.logaddexp.reduce(fits))

    expected = np.array([shown(row) for row in X])
    found = hm.likelihood.evaluate(machine, X)
    np.testing.assert_allclose(found.values, expected, atol=1e-9)
    assert found.mean == pytest.approx(expected.mean(), abs=1e-9) and not found.is_bound
    assert found.standard_error == pytest.approx(expected.std(ddof=1) / 6**0.5, abs=1e-9)
    assert found.log_partition.standard_error == 0 and found.lower == found.upper == found.mean
    # Independent columns: frequencies of the columns, as init_visible_biases_ smooths them.
    alone = hm.likelihood.separate(machine, torch.from_numpy(X))
    p = torch.sigmoid(alone.layers[0].bias).detach().numpy()
    by_column = np.where(np.isnan(X), 0.0, np.where(X == 1, np.log(p), np.log(1 - p)))
    assert found.independent == pytest.approx(by_column.sum(1).mean(), abs=1e-9)
    if missing or name == "joined hidden layers":
        assert found.pseudo is None and any(text.startswith("pseudo") for text in found.doubts)
        return
    pseudo = []
    for row in X:
        flipped = [[1 - x if i == j else x for j, x in enumerate(row)] for i in range(4)]
        own = known[tuple(row)]
        pseudo.append(sum(own - np.logaddexp(own, known[tuple(other)]) for other in flipped))
    assert found.pseudo is not None
    np.testing.assert_allclose(found.pseudo, pseudo, atol=1e-6)
    names = ["rows", "log_likelihood", "rows_standard_error", "log_partition_standard_error"]
    assert list(found.entries())[:4] == names and found.entries()["rows"] == 6


def test_bounds_of_ln_z_bound_the_mean() -> None:
    machine, X = make("one hidden layer"), np.eye(4)
    partition = hm.likelihood.ais(machine, 50, 20, data=X)
    found = hm.likelihood.evaluate(machine, X, partition)
    exact = hm.likelihood.evaluate(machine, X)
    assert found.mean + partition.value == pytest.approx(exact.mean + exact.log_partition.value)
    assert found.lower == pytest.approx(found.mean + partition.value - partition.upper)
    assert found.upper == pytest.approx(found.mean + partition.value - partition.lower)
    assert list(found.entries())[1:3] == ["log_likelihood_lower", "log_likelihood_upper"]
    assert hm.likelihood.evaluate(machine, X, partition.value).log_partition.value == partition.value


def test_a_value_that_rows_exceed_is_doubted() -> None:
    machine = make("one hidden layer")
    X = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    low = hm.likelihood.LogPartition(-5.0, 0.1, 10.0, -5.3, -4.7)
    found = hm.likelihood.evaluate(machine, X, low)
    exact = hm.likelihood.exact_log_partition(machine)
    assert any("the rows alone put ln Z at" in text for text in found.doubts)
    assert found.upper == pytest.approx(found.mean - (exact + 5.0), abs=2e-3)


def test_labels_and_units_of_the_data() -> None:
    """A real column of another scale, and a label that is told from it."""
    frame = pytest.importorskip("pandas").DataFrame({"x": [1.0, 12.0, 3.0, 14.0, 2.0, 11.0]})
    label = hm.data.Series("y", np.array(["a", "b", "a", "b", None, "a"], dtype=object), "str")
    codec = hm.tables.Codec.fit(frame).with_label(hm.tables.ColumnCodec.fit_label(label))
    machine = hm.BoltzmannMachine([*codec.layers, hm.Bernoulli(2)], edges=[(0, 2), (1, 2)], visible=[0, 1])
    hm.machine.normal_(machine, 0.5, torch.Generator().manual_seed(1))
    machine.metadata = codec.to_dict()
    codec = hm.tables.Codec.of(machine)
    rows = codec.rows(frame, machine.dtype, label, shown="anything", beyond="tail")
    found = hm.tasks.evaluate_rows(codec, frame, states=rows)
    states = rows.all()
    offsets = codec.log_slopes(states) + codec.log_shares(frame, machine).sum(1)
    expected = hm.likelihood.exact_log_likelihood(machine, states) + offsets
    np.testing.assert_allclose(found.values, expected.detach(), atol=1e-6)
    assert found.offset == pytest.approx(float(offsets.mean()))
    known, own = states[[0, 1, 2, 3, 5]], torch.tensor([0, 1, 0, 1, 0])
    each = []
    for state in torch.eye(2):
        v = known.clone()
        v[:, -2:] = state
        each.append(hm.likelihood.exact_log_likelihood(machine, v))
    log_p = torch.stack(each, 1).log_softmax(1)
    assert found.labels["label_accuracy"] == float((log_p.argmax(1) == own).double().mean())
    nats = float(log_p.gather(1, own.unsqueeze(1)).mean())
    assert found.labels["label_log_likelihood"] == pytest.approx(nats, abs=1e-6)
    assert found.labels["majority_class_accuracy"] == 0.6
    assert "label_accuracy: of the 5 rows with a label that training has seen" in found.doubts


def test_a_training_follows_the_likelihood_that_an_evaluation_has() -> None:
    machine, X = make("one hidden layer"), np.eye(4)
    metrics = hm.tasks.metrics_for(machine, X, "likelihood")
    run = hm.train(machine, X, rule="exact", updates=3, validation=X, metrics=metrics, progress=False)
    assert run.metrics["log_likelihood"] == pytest.approx(hm.likelihood.evaluate(machine, X).mean)
