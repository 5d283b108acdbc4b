"""Tasks refuse rows that are none of the machine's, by every method alike."""

from __future__ import annotations

import pytest
import torch

import harmonium as hm

NAN = float("nan")


@pytest.mark.parametrize("method", ["exact", "gibbs", "auto"])
@pytest.mark.parametrize("cell", [-1.0, 0.5, 7.0, float("inf")])
def test_predictions_take_rows_in_the_support_alone(cell: float, method: str) -> None:
    layers = [hm.Bernoulli(3), hm.Categorical(1, 2), hm.Bernoulli(2)]
    machine = hm.BoltzmannMachine(layers, [(0, 2), (1, 2)], (0, 1), seed=0)
    row = torch.tensor([[cell, 1.0, 0.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match=r"X \(layer 0\): expected"):
        hm.tasks.predict(machine, row, 1, method=method)
    own = torch.tensor([[0.0, 1.0, 0.0, cell, NAN]])  # cells of what is asked for are not read
    assert hm.tasks.predict(machine, own, 1, method=method).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["exact", "gibbs"])
def test_predictions_refuse_units_given_in_part(method: str) -> None:
    layers = [hm.Categorical(1, 3), hm.Bernoulli(1), hm.Bernoulli(2)]
    machine = hm.BoltzmannMachine(layers, [(0, 2), (1, 2)], (0, 1), seed=0)
    with pytest.raises(ValueError, match="given in part"):
        hm.tasks.predict(machine, torch.tensor([[1.0, NAN, 0.0, 0.0]]), 1, method=method)


@pytest.mark.parametrize("flips", [0.0, 0.1])
@pytest.mark.parametrize("first", [[0.0, 0.0, NAN], [NAN, 0.0, 0.0], [1.0, NAN, 0.0]])
def test_denoising_refuses_units_erased_in_part(first: list[float], flips: float) -> None:
    machine = hm.BoltzmannMachine([hm.Categorical(2, 3), hm.Bernoulli(2)], seed=0)
    with pytest.raises(ValueError, match=r"as a whole, received one given in part at \(0, 0\)"):
        hm.tasks.denoise(machine, torch.tensor([[*first, 0.0, 1.0, 0.0]]), flips)


@pytest.mark.parametrize("weights", [[0.0] * 4, [NAN] * 4, [-1.0] * 4, [1.0, -1.0] * 2, [1.0] * 3])
def test_activation_refuses_weights_that_are_none(weights: list[float]) -> None:
    mask = torch.zeros(3, 3, dtype=torch.bool)
    machine = hm.BoltzmannMachine([hm.Spin(3)], {(0, 0): hm.Masked(mask)}, [0], seed=None)
    X = torch.ones(4, 3)
    with pytest.raises(ValueError, match="weights"):
        hm.tasks.activate(machine, 1, X, X, weights=torch.tensor(weights))


@pytest.mark.parametrize("kind", [hm.TruncatedGaussian, hm.TruncatedGaussBernoulli])
def test_a_program_of_truncated_hidden_units_is_refused_in_one_line(kind: type) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(3), kind(2, -1.0, 1.0)], seed=1)
    with pytest.raises(ValueError, match=r"^machine: expected hidden units that torch\.export takes.*$"):
        hm.exchange.to_program(machine)
