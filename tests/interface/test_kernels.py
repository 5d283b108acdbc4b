"""Kernels from outside the package: a state of their own that rules and checkpoints keep, and a name."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium._states import leaves, map_leaves, require_alike
from harmonium.chains import Gibbs, Kernel, KernelState, Langevin, Metropolis, Tempering
from harmonium.chains.langevin import Annealing
from harmonium.chains.tempering import Replicas
from harmonium.distributed import Group
from harmonium.training.checkpoint import read_checkpoint, write_checkpoint
from harmonium.training.state import deal

from .command_line import CommandLine
from .faces import names_of

pytestmark = pytest.mark.usefixtures("one_thread")


class Adaptive(Kernel):
    """Metropolis moves whose step follows their acceptance."""

    invariant = False

    def init(self, hamiltonian, states, generator, planned=None):
        return KernelState(list(states), 0, {"step": 1.0, "mean": [torch.zeros(x.shape[1]) for x in states]})

    def step(self, hamiltonian, state, generator):
        size, means = state.memory["step"], state.memory["mean"]
        after, info = Metropolis(step=size).step(hamiltonian, state, generator)
        size *= math.exp((float(info["acceptance"]) - 0.6) / math.sqrt(after.sweeps))
        means = [(mean + x.mean(0)) / 2 for mean, x in zip(means, after.states, strict=True)]
        return after._replace(memory={"step": size, "mean": means}), {**info, "step_size": size}


class Counting(Kernel):
    """Gibbs sampling that counts by itself, beside the count that it is given."""

    invariant = True
    seen: ClassVar[list[tuple[int, int]]] = []

    def init(self, hamiltonian, states, generator, planned=None):
        return KernelState(list(states), 0, {"count": 0})

    def step(self, hamiltonian, state, generator):
        after, info = Gibbs().step(hamiltonian, state, generator)
        count = state.memory["count"] + 1
        self.seen.append((count, after.sweeps))
        return after._replace(memory={"count": count}), info


ANNEALED = Langevin(0.3, adjust=11, anneal=True)  # adjusted from the middle of update 6 on
KERNELS = (Adaptive(), Counting(), Tempering(3), Tempering(3, kernel=Counting()), ANNEALED)
X = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Kinds of a test are its own, and so are counts."""
    before = dict(Kernel.registry)
    Counting.seen.clear()
    yield
    for kind in Kernel.registry.keys() - before.keys():
        del Kernel.registry[kind]


def real() -> hm.BoltzmannMachine:
    made = hm.BoltzmannMachine([hm.Gaussian(4), hm.Bernoulli(3)])
    hm.machine.normal_(made, 0.5, seed=0)
    return made


def train(kernel: Kernel, run_dir: Path | None = None, **changes: Any) -> hm.training.TrainingRun:
    settings: dict[str, Any] = {"rule": hm.rules.pcd(2, 6, kernel=kernel), "updates": 8, "batch_size": 6}
    settings |= {"checkpoint_every": 2, "record_every": 1, "progress": False, "run_dir": run_dir}
    return hm.train(real(), X, **(settings | changes))


def crash(update: hm.training.Update) -> None:
    if update.step == 5:
        raise InterruptedError


def assert_same(a: Any, b: Any) -> None:
    """The same bits, in the same build."""
    require_alike(a, b, "state")
    for (place, x), (_, y) in zip(leaves(a), leaves(b), strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y, place


# A state that is kept whole --------------------------------------------------------------------------------


def test_a_kernel_counts_through_all_updates() -> None:
    run = train(Counting(), updates=4)
    assert Counting.seen == [(n, n) for n in range(1, 9)]
    assert (run.rule_state.sweeps, run.rule_state.memory) == (8, {"count": 8})


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_run_resumes_bit_for_bit_and_another_goes_on(kernel: Kernel, tmp_path: Path) -> None:
    """After a crash in update 5, from the checkpoint of update 4; ``Rule.gradient`` takes the state whole."""
    rule = hm.rules.centred(hm.rules.pcd(2, 6, kernel=kernel))
    whole = train(kernel, rule=rule)
    with pytest.raises(InterruptedError):
        train(kernel, tmp_path, rule=rule, callbacks=[crash])
    resumed = train(kernel, tmp_path, rule=rule, resume=True)
    assert_same(dict(whole.machine.state_dict()), dict(resumed.machine.state_dict()))
    assert_same(whole.rule_state, resumed.rule_state)
    for a, b in zip(whole.history, resumed.history, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    kept = copy.deepcopy(resumed.rule_state)
    assert rule.gradient(real(), X, resumed.rule_state, seed=0).state.sweeps == 18
    assert_same(kept, resumed.rule_state)  # what was handed in is not written over
    assert train(kernel, updates=2, rule_state=resumed.rule_state).rule_state.sweeps == 20


def test_chains_of_other_processes_begin_what_the_kernel_keeps() -> None:
    two = [train(Counting(), updates=1, seed=seed).rule_state for seed in range(2)]
    assert deal(two[:1], Group()) is two[0]
    assert_same(
        deal(two, Group()), [torch.cat(x) for x in zip(*(state.states for state in two), strict=True)]
    )


@pytest.mark.parametrize("kernel", [Adaptive(), Tempering(3), Langevin(0.3, anneal=True)], ids=repr)
def test_chains_without_what_the_kernel_keeps_begin_it(kernel: Kernel, tmp_path: Path) -> None:
    """From a list of chains, in memory and in a checkpoint."""
    with pytest.raises(InterruptedError):
        train(kernel, tmp_path, callbacks=[crash])
    path = tmp_path / "checkpoint.safetensors"
    content = read_checkpoint(path)
    chains, rule = content["rule"].states, hm.rules.pcd(2, kernel=kernel)
    assert rule.gradient(real(), X, chains, seed=0).state.sweeps == 2
    write_checkpoint(path, {**content, "rule": chains})
    assert train(kernel, tmp_path, resume=True).rule_state.sweeps == 8


@pytest.mark.parametrize(
    ("kernel", "memory", "message"),
    [
        (Gibbs(), {"step": 1.0}, r"state.memory: expected NoneType"),
        (Adaptive(), {"step": 1.0}, r"state.memory: expected \['step', 'mean'\]"),
        (
            Adaptive(),
            {"step": 1, "mean": [torch.zeros(4), torch.zeros(3)]},
            r"\['step'\]: expected float, received int",
        ),
        (Langevin(0.3, anneal=True), Annealing(0), r"memory.planned: expected an int of at least 1"),
        (
            Tempering(2),
            Replicas([torch.zeros(12, 4), 0.5 * torch.ones(12, 3)], None),
            r"state\[1\]: expected values in \{0, 1\}",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_state_that_a_kernel_did_not_return_is_refused(
    kernel: Kernel, memory: Any, message: str, tmp_path: Path
) -> None:
    """By the rule, at the start of a run and from a checkpoint."""
    state = KernelState([torch.zeros(6, 4), torch.zeros(6, 3)], 4, memory, {})
    with pytest.raises(ValueError, match=message):
        hm.rules.pcd(2, kernel=kernel).gradient(real(), X, state, seed=0)
    with pytest.raises(ValueError, match=message):
        train(kernel, rule_state=state)
    train(kernel, tmp_path, updates=4)
    path = tmp_path / "checkpoint.safetensors"
    write_checkpoint(path, {**read_checkpoint(path), "rule": state})
    (tmp_path / "checkpoint-previous.safetensors").unlink()
    with pytest.raises(ValueError, match=message):
        train(kernel, tmp_path, resume=True)


@pytest.mark.parametrize("kernel", [Gibbs(), Langevin(0.3), Tempering(3)], ids=repr)
def test_what_a_sweep_has_computed_ends_with_the_distribution(kernel: Kernel) -> None:
    """Chains go on in a machine that has learned, as chains do of which nothing is known but themselves."""
    machine = real()
    with torch.no_grad():
        state = kernel.init(machine.hamiltonian(), machine.random_states(30, seed=0), torch.Generator())
    state = hm.chains.run(machine, kernel, state, 2, seed=1)
    assert state.fields or state.cache is not None
    hm.machine.normal_(machine, 0.5, seed=2)
    known = hm.chains.run(machine, kernel, state, 1, seed=3)
    afresh = hm.chains.run(machine, kernel, KernelState(*state[:3]), 1, seed=3)
    assert_same(known.states, afresh.states)


ALL = (*KERNELS, *(kernel() for kernel in Kernel.registry.values()), Tempering(3, kernel=Langevin(0.3)))


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("kernel", ALL, ids=repr)
@torch.no_grad()
def test_a_step_changes_nothing_that_it_was_given(kernel: Kernel, held: bool) -> None:
    """States, memory and caches are the same bits, in the same containers, after each of three sweeps."""
    machine, generator = real(), torch.Generator().manual_seed(0)
    v = torch.zeros(20, 4) if held else None
    hamiltonian = machine.hamiltonian().clamp(v, 20)
    state = kernel.init(
        hamiltonian, hamiltonian.clamp_states(machine.random_states(20, seed=0)), generator, 3
    )
    for _ in range(3):
        given = [state.states, state.memory, dict(state.fields)]
        before = map_leaves(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, given)
        after, _ = kernel.step(hamiltonian, state, generator)
        assert_same(before, given)
        assert dict(state.fields).keys() == before[2].keys()
        state = after


@pytest.mark.parametrize("place", [0, slice(None)], ids=["state", "list"])
def test_what_is_no_pair_of_a_state_and_diagnostics_is_refused(place: Any) -> None:
    class Short(Kernel):
        invariant = True

        def step(self, hamiltonian, state, generator):
            return list(Gibbs().step(hamiltonian, state, generator))[place]

    with pytest.raises(TypeError, match=r"kernel: expected step of Short\(\) to return a pair, .* received"):
        train(Short())
    made = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
    with pytest.raises(TypeError, match=r"kernel: expected step of Short\(\) to return a pair, .* received"):
        hm.chains.run(made, Short(), made.random_states(4, seed=0), 1, seed=0)


# A name ----------------------------------------------------------------------------------------------------


def test_every_kernel_of_the_package_is_registered_and_needs_no_arguments() -> None:
    assert Kernel.registry.keys() == {
        "gibbs",
        "metropolis",
        "langevin",
        "gibbs-langevin",
        "ladder",
        "tempered",
    }
    for kind, kernel in Kernel.registry.items():
        assert kernel.kind == kind and isinstance(kernel(), kernel)
    exported = {getattr(room, name) for room in (hm.chains, hm.ladder) for name in names_of(room)}
    kernels = {each for each in exported if isinstance(each, type) and issubclass(each, Kernel)}
    assert set(Kernel.registry.values()) == kernels - {Kernel}


@pytest.mark.parametrize("tiny", [0.0, 1e-50])
def test_numbers_that_a_machine_in_float32_takes_for_0_are_refused(tiny: float) -> None:
    for kind in (Langevin, hm.chains.GibbsLangevin):
        for numbers in ({"step": tiny}, {"step": 0.1, "temperature": tiny}):
            with pytest.raises(ValueError, match="expected a finite number above 0"):
                kind(**numbers)


def test_the_kind_of_a_kernel_of_the_package_is_taken() -> None:
    with pytest.raises(ValueError, match=r"kind: expected another for .*Own than 'gibbs', .*gibbs\.Gibbs"):

        class Own(Counting):
            kind = "gibbs"

    assert Kernel.registry["gibbs"] is Gibbs


def test_the_command_takes_what_is_registered(cli: CommandLine, tmp_path: Path) -> None:
    class Noting(Kernel):
        kind = "noting"
        invariant = True
        steps: ClassVar[list[float]] = []

        def __init__(self, step: float = 0.1) -> None:
            self.size = step

        def step(self, hamiltonian, state, generator):
            self.steps.append(self.size)
            return Gibbs().step(hamiltonian, state, generator)

    cli.train("bars-and-stripes", tmp_path / "run", "--kernel", "noting", "--kernel-option", "step=0.5")
    assert set(Noting.steps) == {0.5}
    Noting.steps.clear()
    sample = ("sample", tmp_path / "run", "--rows", 4, "--sweeps", 3, "--out", tmp_path / "s.npy")
    cli.succeed(*sample, "--kernel", "noting")
    assert Noting.steps == [0.1] * 3
    assert "noting" in cli.refuse(*sample, "--kernel", "other", "--overwrite")
    message = cli.refuse(*sample, "--kernel", "noting", "--kernel-option", "inner=3", "--overwrite")
    assert message == "--kernel-option: expected NAME=VALUE with NAME one of step, received 'inner=3'"
