"""Wrong arguments are refused by name, with what was received, what was expected and what to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm

chains, likelihood, rules, naive = hm.chains, hm.likelihood, hm.rules, hm.meanfield.naive
logistic_biases_ = hm.machine.logistic_biases_
nan, inf = float("nan"), float("inf")
V = torch.tensor([[0.0, 1, 1, 0], [1, 0, 1, 1]])
H = torch.tensor([[0.0, 1, 1], [1, 0, 1]])
Call = Callable[[], Any]
Case = tuple[str, str, Call]


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


# Layers and machines ---------------------------------------------------------------------------------------

BUILDING: dict[str, Case] = {
    "no units": ("at least 1|received 0", "n_units", lambda: hm.Bernoulli(0)),
    "a step of 1e30": ("less than 2|received 1e+30", "step", lambda: chains.GibbsLangevin(1e30)),
    "half a unit": ("int|float|2.5", "n_units", lambda: hm.Spin(2.5)),
    "true units": ("int|bool", "n_units", lambda: hm.Spin(True)),
    "one state": ("at least 2|received 1", "n_states", lambda: hm.Categorical(3, 1)),
    "no layer": ("hidden|received 0", "layers", lambda: hm.BoltzmannMachine([])),
    "one layer": ("hidden|received 1", "layers", lambda: hm.BoltzmannMachine([hm.Spin(2)])),
    "a bare layer": ("layer|received Spin", "layers", lambda: hm.BoltzmannMachine(hm.Spin(2))),
    "a torch module": ("layer|received Linear", "layers[1]", lambda: of(hm.Spin(2), torch.nn.Linear(2, 2))),
    "the same layer twice": ("distinct|twice", "layers", lambda: hm.BoltzmannMachine([hm.Spin(2)] * 2)),
}


# Values outside the support, for every kind -----------------------------------------------------------------

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


@pytest.mark.parametrize("name", OUTSIDE)
def test_values_outside_the_support(name: str) -> None:
    """The message names the argument, the value, its place and the support."""
    layer, x, expected, received = OUTSIDE[name]
    made = of(layer, hm.Bernoulli(3))
    refused((f"{expected}|received {received}|(1, ", "states", lambda: made.free_energy(x)))


# Shapes, types and numbers of states -----------------------------------------------------------------------


def test_no_rows_of_units_of_several_columns() -> None:
    made, nothing = of(hm.Categorical(4, 3), hm.Bernoulli(3)), torch.zeros(0, 12)
    refused(("expected |(0, 12)", "start", lambda: naive(made, nothing)))
    refused(("expected |(0, 12)", "X", lambda: likelihood.log_likelihood(made, nothing, 0.0)))


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
    "states of no rows": ("int|0", "rows", lambda: rbm().random_states(0, seed=generator())),
    "negative sweeps": ("at least 0|received -1", "sweeps", lambda: run(sweeps=-1)),
    "a kernel in words": ("kernel|str", "kernel", lambda: run(kernel="gibbs")),
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
    "no step": ("received 0.0", "step", lambda: chains.Metropolis(step=0)),
}


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
    "deep pseudo": ("one hidden layer", "machine", lambda: likelihood.pseudo_log_likelihood(deep(), V)),
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
    # No measurement of speed, which has compilation in it: enumerating any of these would take minutes.
    assert time.process_time() - began < 30


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
    "centred by name": ("Rule|str", "rule", lambda: rules.centred("pcd")),
    "state of a deeper machine": (
        "[(4,), (3,)]|[(4,), (3,), (3,)]",
        "state",
        lambda: gradient(rule=rules.pcd(), state=[V, H, H]),
    ),
}


@pytest.mark.parametrize("recipe", rules.RECIPES)
def test_unknown_arguments_of_rules(recipe: str) -> None:
    with pytest.raises(TypeError, match="'warmth'"):
        rules.RECIPES[recipe](warmth=3)


MEAN_FIELD: dict[str, Case] = {
    "clamp value": ("2|(1, 2)", "clamp[0]", lambda: naive(rbm(), V, clamp=at(2.0))),
    "no tolerance": ("received 0", "tolerance", lambda: naive(rbm(), V, tolerance=0)),
    "full damping": ("received 1", "damping", lambda: naive(rbm(), V, damping=1)),
    "negative damping": ("received -0.5", "damping", lambda: naive(rbm(), V, damping=-0.5)),
    "no sweeps": ("at least 1|received 0", "max_sweeps", lambda: naive(rbm(), V, max_sweeps=0)),
    "damping word": ("adaptive|'much'", "damping", lambda: naive(rbm(), V, damping="much")),
    "order": ("1, 2 or 3|4", "order", lambda: hm.meanfield.tap(rbm(), V, order=4)),
}


# Initialisation --------------------------------------------------------------------------------------------


def from_data(visible: torch.nn.Module, X: Any) -> Call:
    return lambda: hm.machine.init_visible_biases_(of(visible, hm.Spin(2)), hm.data.Rows.of(X))


INITIALISATION: dict[str, Case] = {
    "negative std": ("received -1", "std", lambda: hm.machine.normal_(rbm(), -1.0, generator())),
    "nan gain": ("received nan", "gain", lambda: hm.machine.orthogonal_(rbm(), nan, generator())),
    "negative scale": ("received -1", "scale", lambda: logistic_biases_(rbm(), generator(), scale=-1)),
    "nan location": ("received nan", "location", lambda: logistic_biases_(rbm(), generator(), nan)),
    "data of three columns": ("4 columns|received 3", "rows", from_data(hm.Bernoulli(4), H)),
    "data outside the support": ("{0, 1}", "rows", from_data(hm.Bernoulli(4), 3 * V - 1)),
}


EVERY = (BUILDING, STATES, CHAINS, LIKELIHOOD, RULES, MEAN_FIELD, INITIALISATION)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name) for cases in EVERY for name, case in cases.items()]
)
def test_what_is_wrong_is_named(case: Case) -> None:
    refused(case)


torch.set_num_threads(1)

RANDOM = np.random.default_rng(0)
BITS = (RANDOM.random((12, 4)) < 0.5).astype(float)
GREY = RANDOM.random((12, 4))


def estimator(**settings) -> hm.RBM:
    return hm.RBM(3, **{"max_updates": 1, "random_state": 0, **settings})


def classifier(**settings) -> hm.RBMClassifier:
    return hm.RBMClassifier(3, **{"max_updates": 1, "random_state": 0, **settings})


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)])


def train(X, **settings):
    return hm.train(machine(), X, **{"rule": "pcd", "updates": 1, "progress": False, **settings})


MISTAKES = {
    # The estimators
    "a column without values": (
        lambda: estimator().fit(np.where(np.arange(4) == 2, np.nan, BITS)),
        r"X: expected at least one value in every column, all of column 2 is missing.*drop it",
    ),
    "a row without values": (
        lambda: estimator().fit(BITS).transform(np.where(np.arange(12)[:, None] == 5, np.nan, BITS)),
        r"X: expected at least one value in every row, all of row 5 is missing.*drop such rows",
    ),
    "grey levels for bits": (
        lambda: estimator(visible="bernoulli").fit(GREY),
        r'X: for visible="bernoulli": expected values in \{0, 1\}, received 0\.\d+; hm\.data\.threshold',
    ),
    "a dict for a table": (
        lambda: estimator().fit({"a": [1, 2]}),
        r"X: expected a data frame, .* received a dict; .*pandas\.DataFrame takes a mapping",
    ),
    "an unknown rule": (
        lambda: estimator(rule="contrastive divergence").fit(BITS),
        r"rule: expected one of .*cd, .*received 'contrastive divergence'",
    ),
    "Adam with the centred gradient": (
        lambda: estimator(optimizer="adam", centred=True).fit(BITS),
        r'centred: expected False with optimizer="adam", which rescales',
    ),
    "real numbers for classes": (
        lambda: classifier().fit(BITS, RANDOM.normal(size=12)),
        r"Unknown label type: continuous",
    ),
    # The library
    "a rule that is none": (
        lambda: train(BITS, rule="backprop"),
        r"rule: expected a rule such as harmonium\.rules\.pcd\(\), or one of the names .*received 'backprop'",
    ),
    "no rule": (
        lambda: hm.train(machine(), BITS, updates=1),
        r"rule: expected one, received none\. Rule that estimates .*harmonium\.rules\.pcd\(\)",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_by_what_to_do(mistake: str) -> None:
    make, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError, OSError), match=message):
        make()
