"""Wrong arguments of the core: each is refused by name, with what was received and what was expected."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm

chains, likelihood, rules, naive = hm.chains, hm.likelihood, hm.rules, hm.meanfield.naive
nan, inf = float("nan"), float("inf")
V = torch.tensor([[0.0, 1, 1, 0], [1, 0, 1, 1]])
H = torch.tensor([[0.0, 1, 1], [1, 0, 1]])
Call = Callable[[], Any]
Case = tuple[str, str, Call]


HUGE = torch.full((2, 4), 1e200, dtype=torch.float64)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rbm() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)])


def deep() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3), hm.Bernoulli(2)])


def of(visible: torch.nn.Module, hidden: torch.nn.Module) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([visible, hidden])


def at(value: float, row: int = 1, column: int = 2) -> torch.Tensor:
    """V with one entry replaced."""
    x = V.clone()
    x[row, column] = value
    return x


def real() -> hm.BoltzmannMachine:
    return of(hm.Gaussian(4), hm.Bernoulli(3))


def meet(x: Any, m: hm.BoltzmannMachine | None = None, **named: Any) -> Any:
    given = {"pair_kernel": hm.coupled.Gibbs(), "max_sweeps": 5, "seed": generator()} | named
    return hm.coupled.meet(m or rbm(), start=x, **given)


def run(**named: Any) -> Any:
    given = {"kernel": chains.Gibbs(), "start": V, "sweeps": 2, "seed": generator()} | named
    return chains.run(given.pop("machine", None) or rbm(), **given)


def gradient(v: Any = V, rule: Any = None, **named: Any) -> Any:
    return (rule or rules.cd()).gradient(rbm(), v, **({"seed": generator()} | named))


def ais(**named: Any) -> Any:
    return likelihood.ais(rbm(), **({"chains": 4, "temperatures": 4} | named))


def refused(case: Case) -> None:
    """A message that begins with the argument and holds the words, split by "|"."""
    words, argument, call = case
    with pytest.raises((TypeError, ValueError)) as caught:
        call()
    message = str(caught.value)
    assert message.startswith((f"{argument}:", f"{argument}[")), message
    for word in words.split("|"):
        assert word in message


def of_every(cases: dict[str, Case]) -> pytest.MarkDecorator:
    """One test a case."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases)


# Layers and machines ---------------------------------------------------------------------------------------

BUILDING: dict[str, Case] = {
    "a step of 1e30": ("less than 2|received 1e+30", "step", lambda: chains.GibbsLangevin(1e30)),
    "no units": ("at least 1|received 0", "n_units", lambda: hm.Bernoulli(0)),
    "half a unit": ("int|float|2.5", "n_units", lambda: hm.Spin(2.5)),
    "true units": ("int|bool", "n_units", lambda: hm.Spin(True)),
    "one state": ("at least 2|received 1", "n_states", lambda: hm.Categorical(3, 1)),
    "no layer": ("hidden|received 0", "layers", lambda: hm.BoltzmannMachine([])),
    "one layer": ("hidden|received 1", "layers", lambda: hm.BoltzmannMachine([hm.Spin(2)])),
    "a bare layer": ("layer|received Spin", "layers", lambda: hm.BoltzmannMachine(hm.Spin(2))),
    "a torch module": ("layer|received Linear", "layers[1]", lambda: of(hm.Spin(2), torch.nn.Linear(2, 2))),
    "the same layer twice": ("distinct|twice", "layers", lambda: hm.BoltzmannMachine([hm.Spin(2)] * 2)),
}


@of_every(BUILDING)
def test_building(case: Case) -> None:
    refused(case)


# Values outside the support, for every kind and every entrance ---------------------------------------------

ONE_HOT = torch.tensor([[1.0, 0, 0, 0, 1, 0], [0, 0, 1, 1, 0, 0]])


def with_entry(x: torch.Tensor, value: float) -> torch.Tensor:
    x = x.clone()
    x[1, 2] = value
    return x


OUTSIDE = {
    "bernoulli 0.37": (hm.Bernoulli(4), at(0.37), "{0, 1}", "0.37"),
    "spin 0": (hm.Spin(4), with_entry(2 * V - 1, 0.0), "{-1, +1}", "0"),
    "categorical none hot": (hm.Categorical(2, 3), with_entry(ONE_HOT, 0.0), "one-hot blocks of 3", "0"),
    "categorical negative": (
        hm.Categorical(2, 3),
        torch.tensor([[1.0, 0, 0, 0, 1, 0], [1, 1, -1, 1, 0, 0]]),
        "one-hot",
        "",
    ),
    "categorical two hot": (
        hm.Categorical(2, 3),
        torch.tensor([[1.0, 0, 0, 0, 1, 0], [1, 0, 1, 1, 0, 0]]),
        "one-hot",
        "",
    ),
}
for kind, layer in {"bernoulli": hm.Bernoulli(4), "spin": hm.Spin(4), "gaussian": hm.Gaussian(4)}.items():
    start = V if kind != "spin" else 2 * V - 1
    for value in (nan, inf):
        OUTSIDE[f"{kind} {value}"] = (layer, with_entry(start, value), "finite", str(value))
OUTSIDE["categorical nan"] = (hm.Categorical(2, 3), with_entry(ONE_HOT, nan), "finite", "nan")

ENTRANCES: dict[str, tuple[str, Callable[[hm.BoltzmannMachine, torch.Tensor], Any]]] = {
    "energy": ("states", lambda m, x: m.energy([x, H])),
    "free_energy": ("states", lambda m, x: m.free_energy(x)),
    "log_likelihood": ("X", lambda m, x: likelihood.log_likelihood(m, x, 0.0)),
    "exact_log_likelihood": ("X", lambda m, x: likelihood.exact_log_likelihood(m, x)),
    "pseudo_log_likelihood": ("X", lambda m, x: likelihood.pseudo_log_likelihood(m, x)),
    "ais": ("data", lambda m, x: likelihood.ais(m, 4, 4, data=x)),
    "run": ("start", lambda m, x: chains.run(m, chains.Gibbs(), x, 1, seed=generator())),
    "gradient": ("v", lambda m, x: rules.cd().gradient(m, x, seed=generator())),
}
MISSING = torch.tensor([[True, False, False, False]])
FURTHER_ENTRANCES: dict[str, tuple[str, Callable[[hm.BoltzmannMachine, torch.Tensor], Any]]] = {
    "meet": ("start", lambda m, x: meet(x, m)),
    "variational_bound": ("X", lambda m, x: likelihood.variational_bound(m, x, 0.0)),
    "tap": ("start", lambda m, x: hm.meanfield.tap(m, x)),
    "naive": ("start", lambda m, x: naive(m, x)),
    "landscape": ("start", lambda m, x: hm.meanfield.landscape(m, x)),
    "impute": ("X", lambda m, x: hm.tasks.impute(m, x, MISSING)),
    "denoise": ("noisy", lambda m, x: hm.tasks.denoise(m, x, 0.1)),
}
OF_WHAT_IS_OBSERVED = ("log_likelihood", "exact_log_likelihood", "gradient")


@pytest.mark.parametrize(
    ("name", "entrance"),
    [
        (name, entrance)
        for name in OUTSIDE
        for entrance in ENTRANCES
        if (entrance, name.split()[0]) != ("pseudo_log_likelihood", "gaussian")  # refused for its kind
        and not (name.endswith(" nan") and entrance in OF_WHAT_IS_OBSERVED)
        and (entrance != "gradient" or OUTSIDE[name][2] == "finite")  # the trainer checks the support, once
    ],
)
def test_values_outside_the_support(name: str, entrance: str) -> None:
    """The message names the argument, the value, its place and the support."""
    layer, x, expected, received = OUTSIDE[name]
    argument, call = ENTRANCES[entrance]
    made = of(type(layer)(*layer.config().values()), hm.Bernoulli(3))
    refused((f"{expected}|received {received}|(1, ", argument, lambda: call(made, x)))


# Shapes, types and numbers of states -----------------------------------------------------------------------

SHAPES: dict[str, Case] = {}
for entrance, (argument, call) in (ENTRANCES | FURTHER_ENTRANCES).items():
    for what, (x, words) in {
        "width": (H, "4|(2, 3)"),
        "vector": (V[0], "4|(4,)"),
        "empty": (V[:0], "(0, 4)"),
        "complex": (V.to(torch.complex64), "real|torch.complex64"),
        "sparse": (V.to_sparse(), "torch.sparse_coo"),
        "list": (V.tolist(), "tensor|list"),
    }.items():
        SHAPES[f"{entrance} {what}"] = (words, argument, lambda call=call, x=x: call(rbm(), x))


@of_every(SHAPES)
def test_shapes_and_types(case: Case) -> None:
    refused(case)


@pytest.mark.parametrize("entrance", ENTRANCES | FURTHER_ENTRANCES)
def test_no_rows_of_units_of_several_columns(entrance: str) -> None:
    argument, call = (ENTRANCES | FURTHER_ENTRANCES)[entrance]
    made = of(hm.Categorical(4, 3), hm.Bernoulli(3))
    refused(("expected |(0, 12)", argument, lambda: call(made, torch.zeros(0, 12))))


BEYOND: dict[str, Case] = {  # finite in double precision, and infinite in the machine's
    name: ("expected finite values, received inf at (0, 0)", argument, lambda call=call: call(real(), HUGE))
    for name, argument, call in (
        ("log_likelihood", "X", lambda m, x: likelihood.log_likelihood(m, x, 0.0)),
        ("variational_bound", "X", lambda m, x: likelihood.variational_bound(m, x, 0.0)),
        ("denoise", "noisy", lambda m, x: hm.tasks.denoise(m, x, noise_std=0.1)),
    )
}


@of_every(BEYOND)
def test_numbers_beyond_the_precision_of_the_machine(case: Case) -> None:
    refused(case)


@pytest.mark.parametrize("solve", [hm.meanfield.tap, naive, hm.meanfield.landscape])
def test_numbers_whose_squares_overflow_give_no_solution(solve: Callable[..., Any]) -> None:
    for made in (rbm(), real()):
        refused(
            ("values whose squares torch.float32 can hold", "start", lambda made=made: solve(made, at(1e30)))
        )


STATES: dict[str, Case] = {
    "one tensor": ("2 layers|one tensor", "states", lambda: rbm().energy(V)),
    "too few": ("2 layers|1 entries", "states", lambda: rbm().energy([V])),
    "in the wrong order": ("4 columns|(2, 3)", "states[0]", lambda: rbm().energy([H, V])),
    "rows differ": ("2 rows|received 1", "states[1]", lambda: rbm().energy([V, H[:1]])),
    "hidden values": ("{0, 1}|received 2|(0, 1)", "states[1]", lambda: rbm().energy([V, 2 * H])),
    "unknown parity": ("even|odd|'both'", "summed", lambda: rbm().free_energy([V, H], summed="both")),
    "visible alone, deep": ("3 layers", "states", lambda: deep().free_energy(V)),
    "missing layer of the kept parity": (
        "tensor|NoneType",
        "states[0]",
        lambda: rbm().free_energy([None, H], summed="odd"),
    ),
}


@of_every(STATES)
def test_states(case: Case) -> None:
    refused(case)


# Chains ----------------------------------------------------------------------------------------------------


def betas(*values: float) -> Call:
    return lambda: chains.Tempering(betas=values)


CATEGORICAL = of(hm.Categorical(2, 3), hm.Bernoulli(3))
TWO_HOT = torch.tensor([[1.0, 1, 0, nan, nan, nan]] * 2)
HALF_HELD = torch.tensor([[nan, 1.0, nan, nan, nan, nan]] * 2)
START_1 = "start at 1|decrease|received"

CHAINS: dict[str, Case] = {
    "pairs of another kernel": (
        "a pair kernel|Gibbs",
        "pair_kernel",
        lambda: meet(V, pair_kernel=chains.Gibbs()),
    ),
    "pairs and a seed in words": ("an int or a torch.Generator|str", "seed", lambda: meet(V, seed="3")),
    "states of no rows": ("int|0", "rows", lambda: rbm().random_states(0, seed=generator())),
    "negative sweeps": ("at least 0|received -1", "sweeps", lambda: run(sweeps=-1)),
    "a kernel in words": ("kernel|str", "kernel", lambda: run(kernel="gibbs")),
    "no seed": ("Generator|NoneType", "seed", lambda: run(seed=None)),
    "values beyond the machine's precision": (
        "finite|inf",
        "start",
        lambda: run(start=1e300 * V.double(), machine=of(hm.Gaussian(4), hm.Bernoulli(3))),
    ),
    "empty metropolis": ("row|0", "start", lambda: run(start=[V[:0], H[:0]], kernel=chains.Metropolis())),
    "clamp rows": ("(2, 4)|(1, 4)", "clamp[0]", lambda: run(clamp=V[:1])),
    "clamp of hidden columns": ("(2, 3)|(2, 4)", "clamp[1]", lambda: run(clamp={1: V})),
    "clamp layer 2": ("0..1|received 2", "clamp", lambda: run(clamp={2: H})),
    "clamp layer -1": ("0..1|received -1", "clamp", lambda: run(clamp={-1: H})),
    "clamp layer in words": ("0..1|'v'", "clamp", lambda: run(clamp={"v": V})),
    "clamp list": ("tensor|list", "clamp", lambda: run(clamp=[V, H])),
    "clamp value": ("{0, 1}|0.37|(1, 2)", "clamp[0]", lambda: run(clamp=at(0.37))),
    "partial clamp value": ("{0, 1}|received 2|(0, 1)", "clamp[0]", lambda: run(clamp=at(nan) * 2)),
    "partial clamp two hot": (
        "one-hot|(0, 0)",
        "clamp[0]",
        lambda: run(machine=CATEGORICAL, start=ONE_HOT, clamp=TWO_HOT),
    ),
    "partial clamp within a unit": (
        "whole|(0, 0)",
        "clamp[0]",
        lambda: run(machine=CATEGORICAL, start=ONE_HOT, clamp=HALF_HELD),
    ),
    "betas rise": (f"{START_1} [1.0, 0.5, 0.6]", "betas", betas(1, 0.5, 0.6)),
    "betas start below 1": (f"{START_1} [0.9, 0.1]", "betas", betas(0.9, 0.1)),
    "betas below 0": (f"{START_1} [1.0, -0.1]", "betas", betas(1, -0.1)),
    "betas nan": (f"{START_1} [1.0, nan, 0.0]", "betas", betas(1, nan, 0)),
    "one beta": (f"{START_1} [1.0]", "betas", betas(1)),
    "overlaps of other chains": ("2 chains|received 1", "others", lambda: chains.overlaps(rbm(), V, V[:1])),
    "one replica": ("at least 2|received 1", "replicas", lambda: chains.Tempering(1)),
    "inner kernel in words": ("kernel|str", "kernel", lambda: chains.Tempering(kernel="gibbs")),
    "tempering within tempering": (
        "Tempering",
        "kernel",
        lambda: chains.Tempering(3, kernel=chains.Tempering(2)),
    ),
    "unknown scope": ("state|unit|'row'", "scope", lambda: chains.Metropolis("row")),
    "no step": ("received 0.0", "step", lambda: chains.Metropolis(step=0)),
}


@of_every(CHAINS)
def test_chains(case: Case) -> None:
    refused(case)


# Likelihood ------------------------------------------------------------------------------------------------


def temperatures(value: Any) -> Call:
    return lambda: ais(temperatures=value)


RISE = "rise from 0 to 1|received"
LIKELIHOOD: dict[str, Case] = {
    "deep log_likelihood": (
        "one hidden layer|received 2|exact_log_likelihood",
        "machine",
        lambda: likelihood.log_likelihood(deep(), V, 0.0),
    ),
    "deep pseudo": (
        "one hidden layer|received 2",
        "machine",
        lambda: likelihood.pseudo_log_likelihood(deep(), V),
    ),
    "real pseudo": (
        "discrete|Gaussian(4)",
        "machine",
        lambda: likelihood.pseudo_log_likelihood(of(hm.Gaussian(4), hm.Spin(2)), V),
    ),
    "no draws": (
        "at least 1|received 0",
        "sampled",
        lambda: likelihood.pseudo_log_likelihood(rbm(), V, sampled=0, seed=generator()),
    ),
    "ln Z is nan": ("finite|nan", "log_partition", lambda: likelihood.log_likelihood(rbm(), V, nan)),
    "one chain": ("at least 2|received 1", "chains", lambda: ais(chains=1)),
    "no temperature": ("at least 1|received 0", "temperatures", temperatures(0)),
    "temperatures fall": (f"{RISE} [0.0, 0.5, 0.4, 1.0]", "temperatures", temperatures([0, 0.5, 0.4, 1])),
    "temperatures from 0.1": (f"{RISE} [0.1, 1.0]", "temperatures", temperatures([0.1, 1])),
    "temperatures to 2": (f"{RISE} [0.0, 2.0]", "temperatures", temperatures([0, 2])),
    "temperatures nan": (f"{RISE} [0.0, nan, 1.0]", "temperatures", temperatures([0, nan, 1])),
    "temperatures as a float": ("1000.0", "temperatures", temperatures(1000.0)),
}


@of_every(LIKELIHOOD)
def test_likelihood(case: Case) -> None:
    refused(case)


def test_temperatures_may_be_a_numpy_count() -> None:
    assert ais(temperatures=np.int64(4)) == ais(temperatures=4)


TOO_LARGE = {
    "31 and 31": ([hm.Bernoulli(31), hm.Spin(31)], "2^31 "),
    "real visible": ([hm.Gaussian(3), hm.Bernoulli(31)], "2^31 "),
    "deep": ([hm.Bernoulli(16), hm.Bernoulli(34), hm.Bernoulli(16)], "2^32 "),
    "real in both parities": ([hm.ReLU(2), hm.ReLU(2)], "received real units|discrete"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_too_large_for_enumeration(name: str) -> None:
    """Refused before anything is enumerated, with both counts, the limit and what to use instead."""
    layers, words = TOO_LARGE[name]
    made = hm.BoltzmannMachine(layers)
    v = made.random_states(2, seed=generator())[0]
    began = time.process_time()
    for call in (
        lambda: likelihood.exact_log_partition(made),
        lambda: likelihood.exact_log_likelihood(made, v),
        lambda: rules.exact().gradient(made, v, seed=generator()),
    ):
        refused((f"2^35|{words}|likelihood.ais", "machine", call))
    # No measurement of speed: enumerating any of these would take minutes at least.
    assert time.process_time() - began < 5


# Learning --------------------------------------------------------------------------------------------------

RULES: dict[str, Case] = {
    "cd 0": ("at least 1|received 0", "k", lambda: rules.cd(0)),
    "pcd -1": ("at least 1|received -1", "k", lambda: rules.pcd(-1)),
    "pcd without chains": ("at least 1|received 0", "chains", lambda: rules.pcd(1, 0)),
    "pcd kernel": ("kernel|str", "kernel", lambda: rules.pcd(1, kernel="gibbs")),
    "tempered_pcd replicas": ("at least 2|received 1", "replicas", lambda: rules.tempered_pcd(replicas=1)),
    "noise_cd burns all": ("fewer than the 3|received 3", "burn_in", lambda: rules.noise_cd(3, burn_in=3)),
    "noise_cd burns less": ("at least 0|received -1", "burn_in", lambda: rules.noise_cd(3, burn_in=-1)),
    "mean_field_pcd tolerance": ("received 0", "tolerance", lambda: rules.mean_field_pcd(tolerance=0)),
    "mean_field_pcd sweeps": (
        "at least 1|received 0",
        "max_sweeps",
        lambda: rules.mean_field_pcd(max_sweeps=0),
    ),
    "centred by name": ("Rule|str", "rule", lambda: rules.centred("pcd")),
    "values beyond the machine's precision": ("finite|inf", "v", lambda: gradient(1e300 * V.double())),
    "state of a deeper machine": (
        "[(4,), (3,)]|[(4,), (3,), (3,)]",
        "state",
        lambda: gradient(rule=rules.pcd(), state=[V, H, H]),
    ),
}


@of_every(RULES)
def test_rules(case: Case) -> None:
    refused(case)


@pytest.mark.parametrize("recipe", rules.RECIPES)
def test_unknown_arguments_of_rules(recipe: str) -> None:
    with pytest.raises(TypeError, match="'warmth'"):
        rules.RECIPES[recipe](warmth=3)


MEAN_FIELD: dict[str, Case] = {
    "start width": ("(batch, 4)|(2, 3)", "start", lambda: naive(rbm(), H)),
    "start inf": ("finite|inf|(1, 2)", "start", lambda: naive(rbm(), at(inf))),
    "clamp width": ("(2, 4)|(2, 3)", "clamp[0]", lambda: naive(rbm(), V, clamp=H)),
    "clamp value": ("2|(1, 2)", "clamp[0]", lambda: naive(rbm(), V, clamp=at(2.0))),
    "clamp layer": ("0..1|2", "clamp", lambda: naive(rbm(), V, clamp={2: V})),
    "no tolerance": ("received 0", "tolerance", lambda: naive(rbm(), V, tolerance=0)),
    "full damping": ("received 1", "damping", lambda: naive(rbm(), V, damping=1)),
    "negative damping": ("received -0.5", "damping", lambda: naive(rbm(), V, damping=-0.5)),
    "damping word": ("adaptive|'much'", "damping", lambda: naive(rbm(), V, damping="much")),
    "order": ("1, 2 or 3|4", "order", lambda: hm.meanfield.tap(rbm(), V, order=4)),
    "no sweeps": ("at least 1|received 0", "max_sweeps", lambda: naive(rbm(), V, max_sweeps=0)),
}


@of_every(MEAN_FIELD)
def test_mean_field(case: Case) -> None:
    refused(case)


# Initialisation --------------------------------------------------------------------------------------------


def from_data(visible: torch.nn.Module, X: Any) -> Call:
    return lambda: hm.machine.init_visible_biases_(of(visible, hm.Spin(2)), hm.data.Rows.of(X))


INITIALISATION: dict[str, Case] = {
    "negative std": ("received -1", "std", lambda: hm.machine.normal_(rbm(), -1.0, generator())),
    "nan gain": ("received nan", "gain", lambda: hm.machine.orthogonal_(rbm(), nan, generator())),
    "negative scale": (
        "received -1",
        "scale",
        lambda: hm.machine.logistic_biases_(rbm(), generator(), scale=-1),
    ),
    "nan location": (
        "received nan",
        "location",
        lambda: hm.machine.logistic_biases_(rbm(), generator(), location=nan),
    ),
    "a seed that is no number": ("Generator|float", "seed", lambda: hm.machine.normal_(rbm(), 1.0, 0.5)),
    "data in a list": ("array|list", "rows", lambda: hm.machine.init_visible_biases_(rbm(), V.tolist())),
    "data of three columns": ("4 columns|received 3", "rows", from_data(hm.Bernoulli(4), H)),
    "data outside the support": ("{0, 1}", "rows", from_data(hm.Bernoulli(4), 3 * V - 1)),
    "spin data of zeros": ("{-1, +1}", "rows", from_data(hm.Spin(4), V)),
}


@of_every(INITIALISATION)
def test_initialisation(case: Case) -> None:
    refused(case)
