"""Data, states, clamps: arrays and tensors of any real dtype are taken everywhere, all else refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm

ROWS = torch.randint(0, 2, (6, 5), generator=torch.Generator().manual_seed(0)).float()
ABSENT = torch.arange(30).view(6, 5) % 4 == 0
HIDDEN = torch.randint(0, 2, (6, 4), generator=torch.Generator().manual_seed(1)).float()
GIBBS = hm.chains.Gibbs()


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(5), hm.Bernoulli(4)], seed=3)


def labelled() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine(
        [hm.Bernoulli(3), hm.Bernoulli(2), hm.Spin(4)], [(0, 2), (1, 2)], [0, 1], seed=3
    )


def parameters(call: Callable[[hm.BoltzmannMachine], object]) -> list[Tensor]:
    made = machine()
    call(made)
    return list(made.parameters())


def trained(**named: Any) -> list[Tensor]:
    settings = {"X": ROWS, "rule": "cd", "updates": 3, "batch_size": 4, "progress": False} | named
    return parameters(lambda m: hm.train(m, **settings))


TAKES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "visible_rows": ("X", lambda x: machine().visible_rows(x, "X")),
    "free_energy": ("states[0]", lambda x: machine().free_energy(x)),
    "energy": ("states[0]", lambda x: machine().energy([x, HIDDEN])),
    "free_energy of states": ("states[0]", lambda x: machine().free_energy([x, None], [1])),
    "run": ("start", lambda x: hm.chains.run(machine(), GIBBS, x, 2, seed=0)),
    "run states": ("start[0]", lambda x: hm.chains.run(machine(), GIBBS, [x, HIDDEN], 2, seed=0)),
    "clamp": ("clamp", lambda x: hm.chains.run(machine(), GIBBS, ROWS, 2, x, seed=0)),
    "clamp of two layers": ("clamp", lambda x: hm.chains.run(labelled(), GIBBS, ROWS, 2, x, seed=0)),
    "clamp of a layer": ("clamp[0]", lambda x: hm.chains.run(machine(), GIBBS, ROWS, 2, {0: x}, seed=0)),
    "local_search": ("start[0]", lambda x: hm.chains.local_search(machine(), [x, HIDDEN], seed=0)),
    "meet": ("start", lambda x: hm.coupled.meet(machine(), hm.coupled.Gibbs(), x, seed=0).times),
    "gradient": ("v", lambda x: list(hm.rules.cd().gradient(machine(), x, seed=0).parameters.values())),
    "naive": ("start", lambda x: hm.meanfield.naive(machine(), x).means),
    "tap": ("start", lambda x: hm.meanfield.tap(machine(), x, x).free_energy),
    "adatap": ("start", lambda x: hm.meanfield.tap(machine(), x, solver="adatap").means),
    "relaxed_bp": ("start", lambda x: hm.meanfield.tap(machine(), x, solver="relaxed_bp").means),
    "landscape": ("start", lambda x: hm.meanfield.landscape(machine(), x).solutions.free_energy),
    "log_likelihood": ("X", lambda x: hm.likelihood.log_likelihood(machine(), x, 0.0)),
    "exact_log_likelihood": ("X", lambda x: hm.likelihood.exact_log_likelihood(machine(), x)),
    "conditional": ("X", lambda x: hm.likelihood.conditional_log_likelihood(labelled(), x, [0])),
    "pseudo_log_likelihood": ("X", lambda x: hm.likelihood.pseudo_log_likelihood(machine(), x)),
    "variational_bound": ("X", lambda x: hm.likelihood.variational_bound(machine(), x, 0.0)),
    "annealed_bound": ("X", lambda x: hm.likelihood.annealed_bound(machine(), x, 0.0)),
    "tap_log_likelihood": ("X", lambda x: hm.likelihood.tap_log_likelihood(machine(), x, 0.0)),
    "ais": ("data", lambda x: torch.tensor(hm.likelihood.ais(machine(), 4, 9, data=x)[:5])),
    "impute": ("X", lambda x: hm.tasks.impute(machine(), x, ABSENT, sweeps=2)),
    "denoise": ("noisy", lambda x: hm.tasks.denoise(machine(), x, 0.1)),
    "denoise by data": (
        "clean", lambda x: hm.tasks.denoise(machine(), ROWS, 0.1, method="pointwise", clean=x),
    ),
    "predict": ("X", lambda x: hm.tasks.predict(labelled(), x, 1)),
    "train": ("X", lambda x: trained(X=x)),
    "validation": ("validation", lambda x: trained(validation=x, metrics={"sum": lambda m, X: X.sum()})),
    "init_from_data_": ("rows", lambda x: parameters(lambda m: hm.machine.init_from_data_(m, x, 0))),
    "init_visible_biases_": ("rows", lambda x: parameters(lambda m: hm.machine.init_visible_biases_(m, x))),
}  # fmt: skip
GIVEN: dict[str, Callable[[Tensor], Any]] = {
    "a float64 tensor": lambda x: x.double(),
    "a float16 tensor": lambda x: x.half(),
    "an integer tensor": lambda x: x.long(),
    "a boolean tensor": lambda x: x.bool(),
    "a float32 array": lambda x: x.numpy(),
    "a float64 array": lambda x: x.double().numpy(),
    "bytes": lambda x: x.byte().numpy(),
    "booleans": lambda x: x.bool().numpy(),
    "big-endian columns": lambda x: np.asfortranarray(x.numpy().astype(">f8")),
    "a view backwards": lambda x: x.flip(0).numpy()[::-1],
    "what is read-only": lambda x: read_only(x.numpy().copy()),
}
REFUSED: dict[str, Callable[[Tensor], Any]] = {
    "a list": lambda x: x.tolist(),
    "a tuple": lambda x: tuple(map(tuple, x.tolist())),
    "complex numbers": lambda x: x.numpy().astype(complex),
    "a complex tensor": lambda x: x.to(torch.complex64),
    "objects": lambda x: x.numpy().astype(object),
    "words": lambda x: x.numpy().astype(str),
    "a masked array": lambda x: np.ma.masked_equal(x.numpy(), 1),
    "a sparse tensor": lambda x: x.to_sparse(),
}


def read_only(x: Any) -> Any:
    x.setflags(write=False)
    return x


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, Sequence) and not isinstance(one, str):
        return len(one) == len(other) and all(alike(x, y) for x, y in zip(one, other, strict=True))
    return bool(one == other)


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "log_partition: few annealing runs")
        warnings.filterwarnings("ignore", "training ended")
        yield


# All take what is given by one function, so that all kinds of data are tried on one of them.
EVERY = [(take, given) for take in TAKES for given in ("a float64 array", "bytes")]
EVERY += [("visible_rows", given) for given in GIVEN if given not in ("a float64 array", "bytes")]
NONE = [(take, given) for take in TAKES for given in ("a list", "objects")]
NONE += [("visible_rows", given) for given in REFUSED if given not in ("a list", "objects")]


@pytest.mark.parametrize(("take", "given"), EVERY)
def test_arrays_and_tensors_of_any_real_dtype_are_taken(take: str, given: str) -> None:
    """The same bits come out as of a tensor in the machine's dtype; what was given stays as it was."""
    _, call = TAKES[take]
    x = GIVEN[given](ROWS)
    assert alike(call(x), call(ROWS))
    kept = x if isinstance(x, Tensor) else torch.from_numpy(x.astype(np.float32))
    assert torch.equal(kept.float(), ROWS)


@pytest.mark.parametrize(("take", "given"), NONE)
def test_all_else_is_refused_by_name(take: str, given: str) -> None:
    argument, call = TAKES[take]
    x = REFUSED[given](ROWS)
    # A list is one entry for each layer where joint states are taken.
    states = argument in ("states", "states[0]", "start") and isinstance(x, Sequence)
    with pytest.raises((TypeError, ValueError) if states else TypeError) as caught:
        call(x)
    assert str(caught.value).startswith(f"{argument.removesuffix('[0]')}"), caught.value
    assert ": expected " in str(caught.value)


@pytest.mark.parametrize("take", TAKES)
def test_the_support_is_looked_at_after_conversion(take: str) -> None:
    """What only float64 tells from 1 is 1 in float32; what float32 cannot hold is refused."""
    argument, call = TAKES[take]
    if take in ("exact_log_likelihood", "conditional", "predict", "init_from_data_", "init_visible_biases_"):
        pytest.skip("computes in float64, and looks at the rows in that")
    near = ROWS.double() * (1 + 1e-12)
    assert alike(call(near), call(ROWS))
    with pytest.raises(ValueError, match=rf"^{argument.partition('[')[0]}.*: expected"):
        call(ROWS.double() * 1e300)


MEANS = ("gradient", "naive", "tap", "adatap", "relaxed_bp", "landscape")  # which take values between states


@pytest.mark.parametrize("take", TAKES)
def test_other_shapes_and_values_are_refused_by_name(take: str) -> None:
    argument, call = TAKES[take]
    between = [] if take in MEANS else [(ROWS - 0.37).abs()]
    for wrong in (ROWS[:, :3], ROWS[0], ROWS[:0], *between):
        with pytest.raises(ValueError, match=rf"^{argument.partition('[')[0]}.*: expected"):
            call(wrong)


def test_what_is_missing_may_be_an_array() -> None:
    for mask in (ABSENT, ABSENT.numpy()):
        found = hm.tasks.impute(machine(), ROWS.numpy(), mask, sweeps=2).draws
        assert alike(found, hm.tasks.impute(machine(), ROWS, ABSENT, sweeps=2).draws)
    with pytest.raises(TypeError, match="missing: expected booleans, received int64"):
        hm.tasks.impute(machine(), ROWS, ABSENT.numpy().astype(np.int64))


def test_deviations_of_noise_may_be_an_array() -> None:
    deviations = np.linspace(0.1, 0.5, 5)
    found = [
        hm.tasks.denoise(machine(), ROWS, noise_std=given, method=method, clean=ROWS).mean
        for method in ("tap", "pointwise")
        for given in (deviations, torch.from_numpy(deviations).float())
    ]
    assert alike(found[0], found[1]) and alike(found[2], found[3])


def test_a_fitting_tensor_is_not_copied() -> None:
    """The training loop pays nothing for the conversion."""
    assert machine().visible_rows(ROWS, "X") is ROWS
    assert machine().check_states([ROWS, HIDDEN])[1] is HIDDEN


def test_a_tensor_that_is_the_negative_of_what_it_shows_is_taken() -> None:
    x = torch.zeros(5, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    hm.Bernoulli(4).check(x, "x")
    assert torch.equal(hm.data.bernoulli_binarise(x, 0), torch.zeros(5, 4))
