"""Randomness by ``seed``: an int or a generator, for everything that a user calls."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.ladder.rungs import as_rung

from .faces import names_of

ROWS = torch.randint(0, 2, (12, 6), generator=torch.Generator().manual_seed(0)).float()
REAL = np.random.default_rng(0).normal(size=(12, 6))


def machine(real: bool = False) -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(6) if real else hm.Bernoulli(6), hm.Bernoulli(4)], seed=3)


def strong() -> hm.BoltzmannMachine:
    made = machine()
    hm.machine.normal_(made, 2.0, seed=0)
    return made


OBJECTIVE = hm.training.Objective([0], 0.1)


def filled(fill: Callable[..., None], *arguments: Any, **named: Any) -> list[Tensor]:
    made = machine(real=True)
    fill(made, *arguments, **named)
    return list(made.parameters())


def filled_exactly(**named: Any) -> list[Tensor]:
    made = small()
    hm.training.train_exact_until_best(made, ROWS, validation=ROWS, max_updates=3, **named)
    return list(made.parameters())


def small() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(2)])


def labelled() -> hm.BoltzmannMachine:
    layers = [hm.Bernoulli(6), hm.Categorical(1, 2), hm.Bernoulli(3)]
    return hm.BoltzmannMachine(layers, [(0, 2), (1, 2)], [0, 1])


def trained(call: Callable[..., Any], *layers: hm.layers.Layer, **named: Any) -> list[Tensor]:
    made = hm.BoltzmannMachine(layers)
    call(made, ROWS, rule="pcd", updates=3, batch_size=5, progress=False, **named)
    return list(made.parameters())


STATES = machine().random_states(12, seed=1)
HOLED = torch.cat([ROWS[:, :5], torch.full((12, 1), torch.nan)], 1)
LOGARITHMS = hm.tables.Table.fit(np.exp(REAL[:, :1]), {0: {"kind": "gaussian", "transform": "log"}})
LABELLED = torch.cat([ROWS, torch.eye(2)[ROWS[:, 0].long()]], 1)


def wide() -> hm.BoltzmannMachine:
    """Returns a machine whose ln Z is annealed."""
    made = hm.BoltzmannMachine([hm.Bernoulli(24), hm.Bernoulli(24)])
    hm.machine.normal_(made, 0.3, torch.Generator().manual_seed(0))
    return made


def words_on_collapse(**seed: Any) -> Any:
    """What is found of a machine of random couplings, whose ln Z is annealed: letters, as a tensor."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(40), hm.Bernoulli(40)])
    hm.machine.normal_(machine, 1.0, torch.Generator().manual_seed(0))
    found = hm.tables.find_collapse(machine, (torch.arange(2400).view(60, 40) % 7 < 2).float(), **seed)
    return torch.tensor([*(found or "nothing").encode()])


def standardised() -> hm.BoltzmannMachine:
    """Returns a machine of real columns with more hidden units than are summed out."""
    made = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(13)], seed=0)
    made.metadata["encoder"] = hm.data.Standardise.fit(ROWS[:, :2].double().numpy()).to_dict()
    return made


def along_a_curve() -> hm.BoltzmannMachine:
    """Returns a machine of one column along a curve, with quantiles of the errors of its cells."""
    made = hm.BoltzmannMachine([hm.Gaussian(1), hm.Bernoulli(2)], seed=0)
    quantiles = torch.linspace(-0.1, 0.1, 199, dtype=torch.float64).unsqueeze(1)
    hm.tables.Intervals(quantiles, torch.zeros(1).double()).keep_in(made)
    return made


CALLS: dict[str, Callable[..., Any]] = {
    "BoltzmannMachine": lambda **s: list(hm.BoltzmannMachine([hm.Spin(5), hm.Spin(4)], **s).parameters()),
    "join_layers": lambda **s: list(hm.machine.join_layers([hm.Spin(5)], [hm.Spin(4)], **s).parameters()),
    "random_states": lambda **s: machine().random_states(7, **s),
    "normal_": lambda **s: filled(hm.machine.normal_, 0.3, **s),
    "orthogonal_": lambda **s: filled(hm.machine.orthogonal_, 0.3, **s),
    "logistic_biases_": lambda **s: filled(hm.machine.logistic_biases_, **s),
    "init_by_name_": lambda **s: filled(hm.machine.init_by_name_, "orthogonal,logistic", REAL, **s),
    "init_from_data_": lambda **s: filled(hm.machine.init_from_data_, hm.data.Rows.of(REAL), **s),
    "run": lambda **s: hm.chains.run(machine(), hm.chains.Gibbs(), ROWS, 3, **s),
    "local_search": lambda **s: hm.chains.local_search(machine(), STATES, **s),
    "meet": lambda **s: hm.coupled.meet(machine(), hm.coupled.Gibbs(), ROWS, **s).times,
    "mixing_times": lambda **s: hm.coupled.mixing_times(machine(), pairs=20, **s).meetings.times,
    "gradient": lambda **s: list(hm.rules.cd().gradient(machine(), ROWS, **s).parameters.values()),
    "pseudo_log_likelihood": lambda **s: hm.likelihood.pseudo_log_likelihood(
        machine(), ROWS, sampled=2, **s
    ),
    "predictive_log_score": lambda **s: hm.likelihood.predictive_log_score(machine(), ROWS, **s),
    "evaluate": lambda **s: hm.likelihood.evaluate(wide(), ROWS.repeat(1, 4), **s).values,
    "evaluate_rows": lambda **s: hm.tasks.evaluate_rows(
        hm.tables.Codec.of(wide()), ROWS.repeat(1, 4).numpy(), **s
    ).values,
    "metrics_for": lambda **s: torch.tensor(
        hm.tasks.metrics_for(machine(), ROWS, "predictive", **s)["predictive_log_score"](machine(), ROWS)
    ),
    "pair_correlation": lambda **s: torch.tensor(
        hm.report.pair_correlation(machine(), ROWS, **s)["pair_correlation"](machine(), ROWS)
    ),
    "ais": lambda **s: torch.tensor(hm.likelihood.ais(machine(), 9, 9, **s)[:5]),
    "log_partitions": lambda **s: hm.ladder.log_partitions(machine(), chains=10, rounds=20, **s).values,
    "lead_to": lambda **s: hm.ladder.lead_to(
        hm.ladder.Ladder([[x * (x.dim() == 1) for x in as_rung(strong())]]), strong(), **s
    ).rungs[1],
    "ladder_of": lambda **s: hm.ladder.ladder_of(
        machine(), hm.rules.ptt(1, 8).gradient(machine(), ROWS, seed=0).state, **s
    ).memory.states[1][1],
    "tap_log_partition": lambda **s: torch.tensor(
        hm.likelihood.tap_log_partition(machine(), ROWS, **s).value
    ),
    "annealed_bound": lambda **s: hm.likelihood.annealed_bound(
        hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4), hm.Bernoulli(3)]), ROWS, 0.0, **s
    ),
    "impute": lambda **s: hm.tasks.impute(machine(), ROWS, ROWS > 0, sweeps=3, **s).draws,
    "sample": lambda **s: hm.tasks.sample(machine(), 9, **s).rows,
    "minimise": lambda **s: hm.tasks.minimise(machine(), 9, sweeps=1, method="anneal", **s).states,
    "denoise": lambda **s: hm.tasks.denoise(machine(), ROWS, 0.1, method="gibbs", sweeps=3, **s).mean,
    "predict": lambda **s: hm.tasks.predict(
        hm.BoltzmannMachine([hm.Bernoulli(6), hm.Spin(2), hm.Spin(3)], [(0, 2), (1, 2)], [0, 1]),
        torch.cat((ROWS, torch.ones(12, 2)), 1), 1, "gibbs", sweeps=3, **s,
    ),
    "impute_cells": lambda **s: hm.tasks.impute_cells(
        machine(), hm.data.Identity(), ROWS, ROWS > 0, "gibbs", "draw", draws=2, sweeps=3, **s
    )[1],
    "log_probabilities": lambda **s: hm.tasks.log_probabilities(machine(), HOLED, 0, 1, "gibbs", 3, **s)[0],
    "predict_column": lambda **s: hm.tasks.predict_column(
        machine(), HOLED, 0, 1, "gibbs", sweeps=3, **s
    ).probabilities,
    "unusual_cells": lambda **s: torch.tensor(
        [cell.nats for cell in hm.tasks.unusual_cells(standardised(), ROWS[:, :2].double().numpy(), **s)]
    ),
    "train_exact_until_best": lambda **s: filled_exactly(**s),
    "train_exact": lambda **s: filled(hm.training.train_exact, ROWS, updates=2, learning_rate=0.1, **s),
    "train_table": lambda **s: list(hm.tables.train_table(small(), ROWS, **s).machine.parameters()),
    "train_table with labels": lambda **s: list(
        hm.tables.train_table(labelled(), LABELLED, objective=OBJECTIVE, **s).machine.parameters()
    ),
    "fill_cells": lambda **s: hm.tables.fill_cells(along_a_curve(), LOGARITHMS, HOLED[:, 5:], **s).mean,
    "find_intervals": lambda **s: torch.tensor(
        [cell.high for cell in hm.tables.find_intervals(along_a_curve(), LOGARITHMS, HOLED[:, 5:], **s)]
    ),
    "train": lambda **s: trained(hm.train, hm.Bernoulli(6), hm.Bernoulli(4), **s),
    "split_by_similarity": lambda **s: hm.sequences.split_by_similarity(
        torch.arange(400).view(40, 10) % 97, 0.5, **s
    )[1],
    "missing_at_random": lambda **s: hm.data.missing_at_random(9, 9, 0.5, **s),
    "bernoulli_binarise": lambda **s: hm.data.bernoulli_binarise(torch.full((9, 9), 0.5), **s),
    "gaussian_mixture": lambda **s: torch.as_tensor(hm.data.gaussian_mixture(9, **s)),
    "planted_glass": lambda **s: torch.as_tensor(hm.data.planted_glass(4, **s)[1]),
    "find_collapse": words_on_collapse,
    "thermodynamics": lambda **s: hm.chains.thermodynamics(
        machine(), [1.0, 0.5], chains=8, sweeps=200, **s
    ).values["energy"].mean,
    "protein_family": lambda **s: torch.as_tensor(hm.data.protein_family(9, **s).samples),
    "diagnose_chains": lambda **s: torch.tensor(
        list(hm.chains.diagnose_chains(machine(), chains=5, sweeps=40, **s).quantities.values())
    ),
    "resampling": lambda **s: hm.report.resampling(machine(), ROWS, chains=40, sweeps=2, **s).correlation,
}  # fmt: skip


def alike(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(alike(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("call", CALLS)
def test_a_seed_is_an_int_or_a_generator(call: str) -> None:
    """An int is a generator with that seed; a run, which keeps its seed, draws one of the generator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the few annealing runs
        by_number = CALLS[call](seed=5)
        generators = [torch.Generator().manual_seed(5) for _ in range(2)]
        by_generator = [CALLS[call](seed=generator) for generator in generators]
    assert alike(*by_generator)
    if call != "train":
        assert alike(by_number, by_generator[0])
    if call != "init_from_data_" and call != "local_search":
        assert not torch.equal(generators[0].get_state(), torch.Generator().manual_seed(5).get_state())


@pytest.mark.parametrize("call", sorted(CALLS.keys() - {"missing_at_random"}))
def test_what_is_no_seed_is_named(call: str) -> None:
    for wrong, error in (("5", TypeError), (True, TypeError), (0.5, TypeError), (-1, ValueError)):
        with pytest.raises(error, match=r"^seed: expected "):
            CALLS[call](seed=wrong)


def test_a_generator_of_another_device_is_refused_by_name() -> None:
    somewhere = machine().to("meta")
    with pytest.raises(ValueError, match=r"^seed: expected a generator on meta, received one on cpu"):
        somewhere.random_states(3, seed=torch.Generator())


def all_public() -> dict[str, Any]:
    public = {
        f"{module.__name__}.{name}": getattr(module, name)
        for module in (getattr(hm, name) for name in hm.__all__)
        if inspect.ismodule(module)
        for name in names_of(module)
    }
    public |= {f"BoltzmannMachine.{name}": value for name, value in vars(hm.BoltzmannMachine).items()}
    return public | {f"Rule.{name}": value for name, value in vars(hm.learning.Rule).items()}


def test_all_that_a_user_calls_takes_a_seed() -> None:
    """What takes a machine or data takes ``seed``; ``generator`` is for what rules are made of."""
    public = all_public()
    inside = {
        name
        for name, value in public.items()
        if inspect.isroutine(value) and callable(value) and "generator" in inspect.signature(value).parameters
    }
    assert inside == {
        "harmonium.chains.initial_states",
        "harmonium.chains.fill_hidden",
        "harmonium.chains.run_kernel",
        "harmonium.chains.search",
        "harmonium.chains.relax_alone",
        "harmonium.coupled.run_pairs",
        "harmonium.learning.begin",
        "Rule.estimate",
    }
    for name in inside:
        assert {"hamiltonian", "parametrisation"} & inspect.signature(
            public[name]
        ).parameters.keys()  # not a machine
    for name, value in public.items():
        if inspect.isroutine(value) and callable(value) and "seed" in inspect.signature(value).parameters:
            annotation = str(inspect.signature(value).parameters["seed"].annotation)
            assert annotation.replace("torch._C.", "torch.").startswith("int | torch.Generator"), name
            assert name.rpartition(".")[2] in CALLS.keys() | {"__init__"}, name
