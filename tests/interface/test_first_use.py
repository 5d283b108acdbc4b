"""What one meets first: rules by name, a run's folder as a file, a machine in words, what completes."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from inspect import isfunction, signature
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.couplings import Coupling
from harmonium.layers import Layer
from harmonium.learning.rules import BY_NAME, RECIPES
from harmonium.training import Update

X = np.random.default_rng(0).integers(0, 2, (20, 6)).astype(np.float32)


def machine() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4)])


# Rules by name ---------------------------------------------------------------------------------------------


def potts() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(6)], {(0, 0): hm.Dense()}, [0])


def plane() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(3)])


@pytest.mark.parametrize(("name", "make"), [("pseudo_likelihood", potts), ("quadrature", plane)])
def test_a_rule_for_some_machines_has_a_name_too(name: str, make: Callable[[], hm.BoltzmannMachine]) -> None:
    made = [make(), make()]
    width = made[0].visible_width
    rows = torch.bernoulli(torch.full((20, width), 0.4), generator=torch.Generator().manual_seed(0))
    for machine, rule in zip(made, (name, getattr(hm.rules, name)()), strict=True):
        hm.train(machine, rows, rule=rule, updates=3, progress=False)
    for found, expected in zip(*(machine.parameters() for machine in made), strict=True):
        assert torch.equal(found, expected)


def test_the_pseudo_likelihood_names_what_to_do_beside_hidden_units() -> None:
    with pytest.raises(ValueError, match=r"no hidden layers .*leave hidden units out \(--hidden 0\)"):
        hm.train(machine(), X, rule="pseudo_likelihood", updates=1, progress=False)


def test_a_rule_is_two_expectations_and_a_known_bias() -> None:
    given = hm.rules.cd()
    with pytest.raises(ValueError, match="bias: expected one of asymptotic, biased, exact, unbiased; rec"):
        replace(given, bias="fair")
    with pytest.raises(TypeError, match="free: expected an Expectation, received ABCMeta"):
        replace(given, free=type(given.free))


@pytest.mark.parametrize(
    ("pattern", "received"),
    [(torch.ones(4, 6, dtype=torch.bool), r"bool of shape \(4, 6\)"), (torch.ones(6, 4), "float32")],
)
def test_a_pattern_is_a_matrix_of_booleans(pattern: torch.Tensor, received: str) -> None:
    class Given(Coupling):
        def pattern(self, below: Layer, above: Layer) -> torch.Tensor:
            return pattern

    layers = [hm.Bernoulli(6), hm.Bernoulli(4)]
    with pytest.raises(TypeError, match="kind: expected one of Given, its name in files, received none"):
        hm.BoltzmannMachine(layers, edges={(0, 1): Given()})
    Given.kind = "given"
    with pytest.raises(ValueError, match=rf"pattern: expected .* \(6, 4\) from Given, .*{received}"):
        hm.BoltzmannMachine(layers, edges={(0, 1): Given()})


@pytest.mark.parametrize("name", BY_NAME)
def test_the_options_of_a_name_are_the_arguments_of_its_recipe(name: str) -> None:
    """Every one that is listed is taken, and any other refused with the list."""
    for option in hm.rules.options(name):
        signature(BY_NAME[name]).bind(**{option: None})
        if option in ("k", "chains"):
            assert hm.rules.from_options(name, **{option: 2}).name == RECIPES[name](**{option: 2}).name
    listed = ", ".join(hm.rules.options(name))
    with pytest.raises(
        ValueError, match=rf"^warmth: expected None with rule='{name}', .*{listed}.*received 3"
    ):
        hm.rules.from_options(name, warmth=3)


def test_a_rule_takes_no_options() -> None:
    rule = hm.rules.cd()
    assert hm.rules.from_options(rule) is rule
    with pytest.raises(ValueError, match=r"expected None with rule=cd\(1\), which takes no options"):
        hm.rules.from_options(rule, centred=True)
    with pytest.raises(ValueError, match=r"k: expected None .* once; received 3"):
        hm.rules.from_options("cd", sweeps=2, k=3)


def test_rules_complete_to_recipes_only() -> None:
    assert dir(hm.rules) == sorted(hm.rules.__all__)
    made = {
        name
        for name, value in vars(hm.rules).items()
        if isfunction(value)
        and value.__module__
        in (hm.rules.__name__, "harmonium.learning.discriminative", "harmonium.learning.ptt")
        and not name.startswith("_")
    }
    assert set(dir(hm.rules)) == made - {"from_options", "options"}
    assert set(hm.rules.__all__) - set(BY_NAME) == {"centred", "conditional", "hybrid"}  # put around a rule


# The folder of a run ---------------------------------------------------------------------------------------


def test_load_takes_the_folder_of_a_run(tmp_path: Path) -> None:
    trained = hm.train(machine(), X, rule="pcd", updates=3, run_dir=tmp_path / "run", progress=False).machine
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for folder in (tmp_path / "run", str(tmp_path / "run")):
            found = hm.load(folder)
            assert torch.equal(found.couplings[0].weight, trained.couplings[0].weight)


def test_load_says_that_a_run_has_not_ended(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def fail(update: Update) -> None:
        if update.step == 3:
            raise Stop

    with pytest.raises(Stop):
        hm.train(
            machine(), X, rule="pcd", updates=5, run_dir=tmp_path, checkpoint_every=2, callbacks=[fail],
            progress=False,
        )  # fmt: skip
    with pytest.raises(FileNotFoundError, match=r"path: the run in .* has not ended .*resume ends it"):
        hm.load(tmp_path)


def test_load_says_that_a_folder_holds_no_run(tmp_path: Path) -> None:
    expected = re.escape(f"path: {tmp_path} is not a file, nor the folder of a run: it holds no machine.safe")
    with pytest.raises(FileNotFoundError, match=expected):
        hm.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"path: .*nowhere is not a file"):
        hm.load(tmp_path / "nowhere")


def test_load_warns_where_a_run_went_on(tmp_path: Path) -> None:
    hm.train(machine(), X, rule="pcd", updates=3, run_dir=tmp_path, progress=False)
    after = (tmp_path / "machine.safetensors").stat().st_mtime + 10
    os.utime(tmp_path / "checkpoint.safetensors", (after, after))
    with pytest.warns(UserWarning, match="went on after it wrote machine.safetensors and has not ended"):
        hm.load(tmp_path)


# A machine in words ----------------------------------------------------------------------------------------


def test_a_graph_in_words() -> None:
    """Weights are counted once a pair and only where units are joined; a part says how many units it has."""
    chain = np.eye(6, k=1)
    semi = hm.BoltzmannMachine(
        [hm.Spin(6), hm.Categorical(1, 3), hm.Spin(2)],
        edges={(0, 0): hm.Masked(chain), (0, 2): hm.Dense(), (1, 2): hm.Dense()},
        visible=[1, 0],
    ).double()
    assert semi.describe().splitlines() == [
        "3 layers, 3 edges, 34 parameters in float64",
        "layers",
        "  0  visible  Spin(6)            6 columns",
        "  1  visible  Categorical(1, 3)  3 columns",
        "  2  hidden   Spin(2)            2 columns  summed out",
        "data: 9 columns, of layers 1, 0",
        "edges",
        "  0 - 0  Masked  5 of 36 weights",
        "  0 - 2  Dense   12 weights",
        "  1 - 2  Dense   6 weights",
        "a sweep of 3 colours: 0 (3 units) + 1 | 0 (3 units) | 2",
    ]
