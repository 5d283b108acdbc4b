"""What a fresh interpreter imports: a command or a name costs what it needs, and not the whole package."""

from __future__ import annotations

import ast
import inspect
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.cli.app import command_names, summary
from harmonium.layers import Layer
from harmonium.training.optimizers import Ascent, OptimizerFactory

SLOW = {
    *("torch", "scipy.sparse", "scipy.special", "scipy.stats", "sklearn", "pandas", "matplotlib", "numba"),
    *("sympy", "torch._dynamo", "PIL", "h5py", "harmonium.data"),
}


def loaded_by(*steps: str) -> list[set[str]]:
    """The slow modules, and the data beside machines, that a program has loaded after each of its steps."""
    told = f"import sys; print('\\nloaded', *({SLOW!r} & sys.modules.keys()))"
    code = "\n".join(f"{step}\n{told}" for step in steps)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded")]


def command(*arguments: object) -> str:
    return f"from harmonium.cli import main; assert main({[str(a) for a in arguments]!r}) == 0"


def test_the_package_and_the_list_of_commands_need_no_torch() -> None:
    assert loaded_by("import harmonium", command("--help"), command("--version")) == [set()] * 3


@pytest.mark.nightly
def test_names_and_commands_import_what_they_need(tmp_path: Path) -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(16), hm.Bernoulli(5)], seed=0)
    machine.save(tmp_path / "machine.safetensors")
    every = [kind.plain(2) for kind in Layer.registry.values()]
    hm.BoltzmannMachine(every, edges=[], visible=range(len(every))).save(tmp_path / "every.safetensors")
    steps = [
        "import harmonium as hm; hm.BoltzmannMachine([hm.Bernoulli(3), hm.Spin(2)])",
        f"hm.load({str(tmp_path / 'every.safetensors')!r})",
        "from harmonium import rules; import harmonium.tasks",
        "hm.data.digits()",
        command("evaluate", tmp_path / "machine.safetensors", "bars-and-stripes"),
    ]
    expected = [{"torch"}] * 2 + [{"torch", "harmonium.data"}] * 3
    binary, real = ["--optimizer", "sgd", "--binarise", "threshold"], ["--optimizer", "adam"]
    steps += [
        command("train", "digits", tmp_path / name, "--hidden", 5, "--updates", 3, *options)
        for name, options in (("binary", binary), ("real", real))
    ]
    loaded = loaded_by(*steps)
    assert loaded[:5] == expected
    for modules in loaded[5:]:
        assert not modules & {"torch._dynamo", "sklearn", "sympy"}


def test_names_are_the_same_for_the_interpreter_and_for_type_checkers() -> None:
    tree = ast.parse(inspect.getsource(hm))
    (checked,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    homes = {
        alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(homes) == sorted(hm.__all__)
    for name, home in homes.items():
        assert getattr(hm, name) is getattr(import_module(str(home)), name)


def test_completion_lists_the_names_that_are_there() -> None:
    assert dir(hm) == sorted([*hm.__all__, "__version__"])
    with pytest.raises(AttributeError, match="module 'harmonium' has no attribute 'boltzmann'"):
        _ = hm.boltzmann


def test_commands_are_listed_with_what_their_own_help_begins_with() -> None:
    for name in command_names():
        described = inspect.getdoc(getattr(import_module(f"harmonium.cli.commands.{name}"), name))
        assert described is not None and " ".join(described.split("\n\n")[0].split()) == summary(name)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    found = hm.data.digits()
    assert np.array_equal(found[0], (images / 16).astype(np.float32))
    assert np.array_equal(found[1], labels)


@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.9), ("adam", 0.0)])
def test_a_named_optimizer_is_torchs_own(name: str, momentum: float) -> None:
    given: dict[str, OptimizerFactory] = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, 0.9, fused=True),
        "adam": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    }
    ours, theirs = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))
    ascents = Ascent(name, [ours], 0.1, momentum), Ascent(given[name], [theirs], 0.1, momentum)
    generator = torch.Generator().manual_seed(0)
    for step in range(5):
        gradient = torch.randn(4, generator=generator)
        for ascent in ascents:
            ascent.step([gradient.clone()], 1 / (1 + step))
    # Momentum is added up by three operations of torch, which its fused step makes in one.
    rounding = 0.0 if name == "adam" else 1e-6
    torch.testing.assert_close(ours, theirs, rtol=rounding, atol=0.0)
    one, other = (ascent.optimizer.state_dict() for ascent in ascents)
    assert one["param_groups"] == other["param_groups"]
    torch.testing.assert_close(one["state"][0], dict(other["state"][0]), rtol=rounding, atol=0.0)
    again = pickle.loads(pickle.dumps(ascents[0].optimizer))
    assert type(again) is type(ascents[0].optimizer) and isinstance(again, type(ascents[1].optimizer))
