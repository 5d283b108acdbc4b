"""Input that once crashed inside torch or came back as NaN: each is refused by name, or answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import harmonium as hm

V = torch.tensor([[0.0, 1, 1, 0], [1, 0, 1, 1]])
MISSING = torch.tensor([[True, False, False, False]])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rbm(visible: hm.layers.Layer | None = None) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([visible or hm.Bernoulli(4), hm.Bernoulli(3)])


def meet(x: Any, m: hm.BoltzmannMachine | None = None, **named: Any) -> Any:
    given = {"pair_kernel": hm.coupled.Gibbs(), "max_sweeps": 5, "seed": generator()} | named
    return hm.coupled.meet(m or rbm(), start=x, **given)


TAKES: dict[str, tuple[str, Callable[[hm.BoltzmannMachine, Any], Any]]] = {
    "run": ("start", lambda m, x: hm.chains.run(m, hm.chains.Gibbs(), x, 1, seed=generator())),
    "meet": ("start", lambda m, x: meet(x, m)),
    "gradient": ("v", lambda m, x: hm.rules.cd().gradient(m, x, seed=generator())),
    "log-likelihood": ("X", lambda m, x: hm.likelihood.log_likelihood(m, x, 0.0)),
    "exact": ("X", lambda m, x: hm.likelihood.exact_log_likelihood(m, x)),
    "pseudo": ("X", lambda m, x: hm.likelihood.pseudo_log_likelihood(m, x)),
    "variational bound": ("X", lambda m, x: hm.likelihood.variational_bound(m, x, 0.0)),
    "tap": ("start", lambda m, x: hm.meanfield.tap(m, x)),
    "naive": ("start", lambda m, x: hm.meanfield.naive(m, x)),
    "landscape": ("start", lambda m, x: hm.meanfield.landscape(m, x)),
    "impute": ("X", lambda m, x: hm.tasks.impute(m, x, MISSING)),
    "denoise": ("noisy", lambda m, x: hm.tasks.denoise(m, x, 0.1)),
    "denoise by data": ("clean", lambda m, x: hm.tasks.denoise(m, V, 0.1, method="pointwise", clean=x)),
    "free energy": ("states[0]", lambda m, x: m.free_energy(x)),
}
takes = pytest.mark.parametrize("take", TAKES)


@takes
@pytest.mark.parametrize("odd", [V.to_sparse(), V.to(torch.complex64)], ids=["sparse", "complex"])
def test_sparse_and_complex_states_are_refused(take: str, odd: torch.Tensor) -> None:
    argument, call = TAKES[take]
    with pytest.raises(TypeError) as caught:
        call(rbm(), odd)
    assert str(caught.value).startswith(f"{argument}: expected a ")
    assert str(odd.layout) in str(caught.value) or str(odd.dtype) in str(caught.value)


@pytest.mark.parametrize("values", [V.to_sparse(), V.to(torch.complex64)], ids=["sparse", "complex"])
def test_sparse_and_complex_clamps_are_refused(values: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"clamp\[0\]: expected a dense tensor of real numbers, received"):
        hm.chains.run(rbm(), hm.chains.Gibbs(), V, 1, values, seed=generator())


@takes
def test_no_rows_are_refused_by_units_of_several_columns_too(take: str) -> None:
    argument, call = TAKES[take]
    machine = rbm(hm.Categorical(4, 3))
    if take == "denoise by data":
        given = machine.random_states(2, seed=generator())[0]

        def call(m: hm.BoltzmannMachine, x: torch.Tensor) -> Any:
            return hm.tasks.denoise(m, given, 0.1, method="pointwise", clean=x)

    with pytest.raises(ValueError) as caught:
        call(machine, torch.zeros(0, 12))
    assert str(caught.value).startswith(f"{argument}: expected ") and "(0, 12)" in str(caught.value)


def test_pairs_of_another_coupling_are_refused() -> None:
    with pytest.raises(TypeError, match=r"pair_kernel: expected a pair kernel such as .*, received Gibbs"):
        meet(V, pair_kernel=hm.chains.Gibbs())
    with pytest.raises(TypeError, match=r"seed: expected an int or a torch.Generator, received str"):
        meet(V, seed="3")
    assert meet(V, lag=torch.tensor(2)).lag == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: hm.likelihood.log_likelihood(m, x, 0.0),
        lambda m, x: hm.likelihood.variational_bound(m, x, 0.0),
        lambda m, x: hm.tasks.denoise(m, x, noise_std=0.1, method="pointwise", clean=x),
    ],
)
def test_numbers_beyond_the_machine_s_type_are_refused(call: Callable[..., Any]) -> None:
    """Finite in double precision, and infinite in the machine's."""
    x = torch.full((2, 4), 1e200, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"(X|noisy|data): expected finite values, received inf at \(0, 0\)"):
        call(rbm(hm.Gaussian(4)), x)


def test_numbers_whose_squares_overflow_give_no_solution() -> None:
    """Solutions say that every number in them is finite."""
    x = V.clone()
    x[1, 1] = 1e30
    for visible in (hm.Bernoulli(4), hm.Gaussian(4)):
        for solve in (hm.meanfield.tap, hm.meanfield.naive, hm.meanfield.landscape):
            with pytest.raises(
                ValueError, match=r"start: expected values whose squares torch.float32 can hold"
            ):
                solve(rbm(visible), x)
    with pytest.raises(ValueError, match=r"noisy: expected values whose squares .* received 1e\+30"):
        hm.tasks.denoise(rbm(hm.TruncatedGaussian(4, 0.0, 1.0)), x, noise_std=0.1)


@pytest.mark.parametrize("rows", [0, -1, 2.5, None])
def test_random_states_of_no_rows(rows: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="rows: expected an int"):
        rbm().random_states(rows, seed=generator())
