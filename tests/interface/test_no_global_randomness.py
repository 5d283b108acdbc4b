"""Every draw in the library names its source of noise: a generator, or a seed at the outermost layer.

The sources are parsed, not searched, so that comments and docstrings may say `torch.rand`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

GLOBAL_STATE = {
    *(f"torch.{name}" for name in ("manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state")),
    *(f"torch.random.{name}" for name in ("manual_seed", "seed", "fork_rng", "set_rng_state")),
    *(f"torch.cuda.{name}" for name in ("manual_seed", "manual_seed_all", "seed", "seed_all")),
    "torch.mps.manual_seed",
    "torch.xpu.manual_seed",
}
TORCH_DRAWS = {
    *("bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like"),
    *("randint", "randint_like", "randn", "randn_like", "randperm"),
}
# The loader draws from the global generator even when it does not shuffle.
LOADERS = {f"torch.utils.data.{name}" for name in ("DataLoader", "RandomSampler", "random_split")}
NEVER_SEEDED = {f"torch.nn.functional.{name}" for name in ("dropout", "gumbel_softmax", "rrelu")}
DETERMINISTIC_INIT = {"constant_", "dirac_", "eye_", "ones_", "zeros_"}
TENSOR_METHODS = {
    *("bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_"),
}
NUMPY_SEEDED = {
    "Generator",
    "MT19937",
    "PCG64",
    "PCG64DXSM",
    "Philox",
    "RandomState",
    "SFC64",
    "SeedSequence",
    "default_rng",
}


def imported_names(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for, e.g. {"np": "numpy", "F": "torch.nn.functional"}."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
    return names


def dotted_name(function: ast.expr, names: dict[str, str]) -> str | None:
    """The full name of a called function, or None where it does not start at an imported name."""
    parts = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name) and function.id in names:
        return ".".join([names[function.id], *reversed(parts)])
    return None


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_unseeded(call: ast.Call, names: dict[str, str]) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    generator = given.get("generator")
    has_generator = generator is not None and not is_none(generator)
    name = dotted_name(call.func, names)
    if name is None:
        return isinstance(call.func, ast.Attribute) and call.func.attr in TENSOR_METHODS and not has_generator

    module, _, function = name.rpartition(".")
    if name in GLOBAL_STATE | NEVER_SEEDED or name.startswith("torch.distributions."):
        return True
    if (module == "torch" and function in TORCH_DRAWS) or name in LOADERS:
        return not has_generator
    if module == "torch.nn.init":
        return function not in DETERMINISTIC_INIT and not has_generator
    if module == "numpy.random":
        seed = [*call.args, *given.values()]
        return function not in NUMPY_SEEDED or not seed or is_none(seed[0])
    if module == "random":
        return function != "Random" or not call.args
    return False


def unseeded_calls(source: str) -> list[tuple[int, str]]:
    """Line and text of every call that would draw from, or set, global random state."""
    tree = ast.parse(source)
    names = imported_names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_unseeded(node, names)]
    return sorted((call.lineno, ast.unparse(call)) for call in calls)


@pytest.mark.nightly
def test_no_draw_without_a_generator() -> None:
    assert SOURCES
    calls = [
        (path.relative_to(ROOT), *call)
        for path in SOURCES
        for call in unseeded_calls(path.read_text("utf-8"))
    ]
    found = "\n".join(f"{path}:{line}: {text}" for path, line, text in calls)
    assert not found, f"pass a generator (or an explicit seed):\n{found}"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.rand(3)",
        "import torch.nn.functional as F\nF.dropout(x)",
        "x.uniform_(0, 1)",
        "import numpy as np\nnp.random.rand(3)",
        "import random\nrandom.random()",
    ],
)
def test_the_check_catches(source: str) -> None:
    assert unseeded_calls(source)


@pytest.mark.parametrize(
    "source",
    [
        "# torch.rand(3)\n'''torch.manual_seed(0)'''",
        "x.uniform_(0, 1, generator=g)",
        "import numpy as np\nnp.random.default_rng(seed=0).normal()",
    ],
)
def test_the_check_lets_pass(source: str) -> None:
    assert not unseeded_calls(source)
