"""Clamping and the run loop: what is held stays, arguments stay, and the bits follow from the generator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from covering import covering_product
from torch import Tensor

import harmonium as hm
from harmonium.chains import Gibbs, Info, Kernel, KernelState, Metropolis, Tempering

from .machines import build, tensors
from .specifications import ADJACENT, SPECIFICATIONS, Specification, random_states

KERNELS: dict[str, Kernel] = {
    "gibbs": Gibbs(),
    "metropolis": Metropolis(),
    "tempering": Tempering(3),
    "tempered metropolis": Tempering(betas=[1, 0.7, 0.1], kernel=Metropolis()),
}
kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
NAMES = (
    *("bernoulli-bernoulli", "gaussian-spin-gaussian wide", "categorical-spin-categorical-bernoulli"),
    *("bernoulli-gaussian-categorical", "gaussian-categorical"),
)
MACHINES = [*(s for s in SPECIFICATIONS if s.name in NAMES), ADJACENT]


def covered(name: str, values: list[Any]) -> pytest.MarkDecorator:
    """Machines, kernels and a third argument: every two values of these meet."""
    cases = covering_product(MACHINES, KERNELS, values)
    return pytest.mark.parametrize(
        ("specification", "kernel", name),
        [pytest.param(s, KERNELS[k], x, id=f"{s.name}-{k}-{x}") for s, k, x in cases],
    )


machines = pytest.mark.parametrize("specification", MACHINES, ids=lambda s: s.name)
ROWS, SWEEPS = 7, 4


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def states(specification: Specification, rows: int = ROWS) -> list[Tensor]:
    return tensors(random_states(specification, rows))


def run(
    machine: hm.BoltzmannMachine, kernel: Kernel, start: list[Tensor] | Tensor, **named: Any
) -> list[Tensor]:
    return hm.chains.run(machine, kernel, start, **({"sweeps": SWEEPS, "seed": generator()} | named))


def partly_free(machine: hm.BoltzmannMachine, layer: int, x: Tensor, seed: int = 0) -> Tensor:
    """x with about half of its units free: NaN in all their columns."""
    made = machine.layers[layer]
    free = torch.rand(len(x), made.n_units, 1, generator=generator(seed)) < 0.5
    return made.by_unit(x).masked_fill(free, torch.nan).flatten(-2)


def other(specification: Specification) -> list[Tensor]:
    """States of the same layers that differ from `states`."""
    return [x.roll(3, 0) for x in states(specification)]


class Recorder:
    """An observer that keeps what it saw; of replicas, all of them."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.states: list[list[Tensor]] = []

    def __call__(self, number: int, state: KernelState, info: Info) -> None:
        self.numbers.append(number)
        seen = state.states if state.memory is None else state.memory.states
        self.states.append([x.clone() for x in seen])


def assert_held(clamp: dict[int, Tensor], seen: list[Tensor]) -> None:
    for l, values in clamp.items():
        held = ~torch.isnan(values)
        copies = len(seen[l]) // len(values)
        assert torch.equal(seen[l][held.repeat(copies, 1)], values.repeat(copies, 1)[held.repeat(copies, 1)])


# Held entries ----------------------------------------------------------------------------------------------


@covered("whole", [True, False])
def test_held_entries_never_move_and_free_ones_do(
    specification: Specification, kernel: Kernel, whole: bool
) -> None:
    """In every layer in turn, after every sweep, in every replica; states stay in the support."""
    machine = build(specification)
    wanted = other(specification)
    for l in range(len(machine.layers)):
        clamp = {l: wanted[l] if whole else partly_free(machine, l, wanted[l])}
        recorder = Recorder()
        end = run(machine, kernel, states(specification), sweeps=6, clamp=clamp, observer=recorder)
        for seen in (*recorder.states, end):
            assert_held(clamp, seen)
            machine.check_states(seen)
        moved = [
            bool((a[k] != b[k]).any())
            for a, b in pairwise(recorder.states)
            for k in range(len(machine.layers))
            if k != l
        ]
        assert any(moved)
        if not whole:
            free = torch.isnan(clamp[l]).repeat(len(recorder.states[0][l]) // ROWS, 1)
            assert any(bool((a[l] != b[l])[free].any()) for a, b in pairwise(recorder.states))


@machines
@kernels
def test_all_layers_held(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    wanted = other(specification)
    end = run(machine, kernel, states(specification), clamp=dict(enumerate(wanted)))
    for a, b in zip(end, wanted, strict=True):
        assert torch.equal(a, b)


@machines
@kernels
def test_a_tensor_is_a_mapping_of_the_visible_layer(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    clamp = partly_free(machine, 0, other(specification)[0])
    ends = [run(machine, kernel, states(specification), clamp=c) for c in (clamp, {0: clamp})]
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


@machines
@kernels
def test_all_free_is_no_clamp(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    start = states(specification)
    free = {l: torch.full_like(x, torch.nan) for l, x in enumerate(start)}
    for clamp in (free, {}, {0: free[0]}):
        for a, b in zip(run(machine, kernel, start, clamp=clamp), run(machine, kernel, start), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("specification", [s for s in MACHINES if s.hidden_layers == 1], ids=lambda s: s.name)
def test_a_held_visible_layer_gives_exact_draws_of_one_hidden_layer(specification: Specification) -> None:
    """One Gibbs sweep is then a draw from p(h | v), with the noise that a single layer takes."""
    machine = build(specification)
    v = other(specification)[0]
    end = run(machine, Gibbs(), states(specification), sweeps=1, clamp=v)
    hamiltonian = machine.hamiltonian()
    field = hamiltonian.field(1, [v, v])
    assert torch.equal(end[1], hamiltonian.sample(1, field, generator()).detach())


# The run loop ----------------------------------------------------------------------------------------------


@covered("sweeps", [0, 1, SWEEPS])
def test_arguments_are_not_modified(specification: Specification, kernel: Kernel, sweeps: int) -> None:
    machine = build(specification)
    start = states(specification)
    clamp = {0: partly_free(machine, 0, other(specification)[0]), 1: other(specification)[1]}
    given = [*start, *clamp.values(), *machine.parameters()]
    kept = [x.detach().clone() for x in given]
    run(machine, kernel, start, clamp=clamp, sweeps=sweeps)
    assert len(start) == len(machine.layers)
    for x, before in zip(given, kept, strict=True):
        assert torch.equal(torch.nan_to_num(x.detach(), 9), torch.nan_to_num(before, 9))


@covered("sweeps", [0, 1, SWEEPS])
def test_the_result_is_new(specification: Specification, kernel: Kernel, sweeps: int) -> None:
    """Writing into it reaches no argument, whether or not the layer ever moved."""
    machine = build(specification)
    start = states(specification)
    kept = [x.clone() for x in start]
    for x in run(machine, kernel, start, sweeps=sweeps):
        x.fill_(99.0)
    visible = start[0].clone()
    for x in run(machine, kernel, visible, sweeps=sweeps):
        x.fill_(99.0)
    for x, before in zip([*start, visible], [*kept, kept[0]], strict=True):
        assert torch.equal(x, before)


@machines
@pytest.mark.parametrize("kernel", [Gibbs(), Metropolis()], ids=repr)
def test_the_result_shares_nothing_with_the_clamp(specification: Specification, kernel: Kernel) -> None:
    clamp = other(specification)[0]
    kept = clamp.clone()
    for x in run(build(specification), kernel, states(specification), clamp=clamp):
        x.fill_(99.0)
    assert torch.equal(clamp, kept)


@covered("sweeps", [0, 1, 5])
def test_the_observer_counts_from_one(specification: Specification, kernel: Kernel, sweeps: int) -> None:
    """And sees what `run` returns: the last step, of which the first rows are the chains."""
    recorder = Recorder()
    machine = build(specification)
    end = run(machine, kernel, states(specification), sweeps=sweeps, observer=recorder)
    assert recorder.numbers == list(range(1, sweeps + 1))
    if sweeps:
        for a, b in zip(end, recorder.states[-1], strict=True):
            assert torch.equal(a, b[:ROWS])
    watched = run(machine, kernel, states(specification), sweeps=sweeps)
    for a, b in zip(end, watched, strict=True):
        assert torch.equal(a, b)


@machines
@kernels
def test_no_sweeps_return_the_start(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    start = states(specification)
    noise = generator()
    before = noise.get_state()
    for a, b in zip(run(machine, kernel, start, sweeps=0, seed=noise), start, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(noise.get_state(), before)
    wanted = other(specification)[0]
    end = run(machine, kernel, start, sweeps=0, clamp=wanted)
    assert torch.equal(end[0], wanted)
    assert torch.equal(end[1], start[1])


@machines
@kernels
def test_the_generator_decides_every_bit(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    start = states(specification)
    first, second, third = (run(machine, kernel, start, seed=generator(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, third, strict=True))


@pytest.mark.nightly
def test_the_generator_decides_every_bit_of_a_large_machine() -> None:
    """Noise from the streams that large draws open, on one thread or two."""
    machine = hm.BoltzmannMachine([hm.Bernoulli(300), hm.Gaussian(200)], seed=1)
    start = machine.random_states(1000, seed=generator())
    ends = []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        ends.append(run(machine, Gibbs(), start, sweeps=2, seed=generator(7))[0])
    torch.set_num_threads(1)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@machines
@pytest.mark.parametrize("kernel", [KERNELS[name] for name in ("gibbs", "metropolis")], ids=repr)
def test_sweeps_in_two_runs_are_one_run(specification: Specification, kernel: Kernel) -> None:
    """Chains go on from the states returned; replicas, which are not among them, begin anew."""
    machine = build(specification)
    noise = generator(5)
    halves = states(specification)
    for sweeps in (2, 3):
        halves = run(machine, kernel, halves, sweeps=sweeps, seed=noise)
    whole = run(machine, kernel, states(specification), sweeps=5, seed=generator(5))
    for a, b in zip(halves, whole, strict=True):
        assert torch.equal(a, b)


@covered("whole", [True, False])
def test_a_kernel_state_goes_in_and_comes_back(
    specification: Specification, kernel: Kernel, whole: bool
) -> None:
    """Two runs that hand it on are one run, replicas included; what is held may change between them."""
    machine = build(specification)
    noise, clamp = generator(5), None if whole else {0: other(specification)[0]}
    with torch.no_grad():
        state = kernel.init(machine.hamiltonian(), states(specification), generator())
    for sweeps in (2, 0, 3):
        kept = [x.clone() for x in state.states]
        after = hm.chains.run(machine, kernel, state, sweeps, clamp, seed=noise)
        assert isinstance(after, KernelState)
        for a, b in zip(state.states, kept, strict=True):
            assert torch.equal(a, b)
        state = after
    assert state.sweeps == 5
    once = run(machine, kernel, states(specification), sweeps=5, seed=generator(5), clamp=clamp)
    for a, b in zip(state.states, once, strict=True):
        assert torch.equal(a, b)
    recorder = Recorder()
    held = {1: other(specification)[1]}
    end = hm.chains.run(machine, kernel, state, 1, held, seed=noise, observer=recorder)
    for seen in (end.states, recorder.states[0]):
        assert_held(held, seen)


def test_a_state_of_another_kernel_is_refused() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(3)])
    hamiltonian, start = machine.hamiltonian(), machine.random_states(5, seed=0)
    replicas = Tempering(3).init(hamiltonian, start, generator())
    for kernel, state, message in (
        (Gibbs(), replicas, r"state\.memory: expected NoneType"),
        (Tempering(4), replicas, r"state\.memory\.states\[0\]: expected .*\(20, 4\)"),
        (Tempering(3), Gibbs().init(hamiltonian, start, generator()), r"state\.memory: expected Replicas"),
        (Gibbs(), KernelState(start[:1], 0), "state: expected chains of width"),
        (Gibbs(), KernelState(start, -1), r"state\.sweeps: expected an int of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            hm.chains.run(machine, kernel, state, 1, seed=0)
    with pytest.raises(ValueError, match="no KernelState with distributed"):
        hm.chains.run(machine, Tempering(3), replicas, 1, seed=0, distributed="auto")  # type: ignore[call-overload]


@machines
@kernels
def test_visible_states_alone_are_completed_upwards(specification: Specification, kernel: Kernel) -> None:
    machine = build(specification)
    v = states(specification)[0]
    end = run(machine, kernel, v, sweeps=0)
    assert torch.equal(end[0], v)
    assert [tuple(x.shape) for x in end] == [(ROWS, layer.width) for layer in machine.layers]
    machine.check_states(end)


@machines
@kernels
def test_diagnostics_are_rates(specification: Specification, kernel: Kernel) -> None:
    """Between 0 and 1, with everything held too."""
    machine = build(specification)
    start = states(specification)
    seen: list[float] = []
    for clamp in (None, dict(enumerate(start))):
        run(
            machine,
            kernel,
            start,
            clamp=clamp,
            observer=lambda number, state, info: seen.extend(info.values()),
        )
    assert all(0.0 <= value <= 1.0 for value in seen)


# Chains that persist ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [2, 10, 25])
@pytest.mark.parametrize(
    "rule", [hm.rules.pcd(), hm.rules.tempered_pcd(replicas=4), hm.rules.mean_field_pcd()], ids=repr
)
def test_persistent_chains_keep_their_number(rule: hm.learning.Rule, rows: int) -> None:
    """As many as the first batch had rows; a batch of another size changes neither them nor their weight.

    The free mean that a gradient implies, E[x | v] minus the gradient of the bias, is then the mean of the
    chains' visible states.
    """
    machine = build(next(s for s in SPECIFICATIONS if s.name == "bernoulli-bernoulli"))
    v = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (30, 6)).astype(float))
    noise = generator(3)
    first = rule.gradient(machine, v[:10], seed=noise)
    batch = v[:rows]
    second = rule.gradient(machine, batch, first.state, seed=noise)
    before, chains = first.state.states, second.state.states
    assert [x.shape for x in chains] == [x.shape for x in before]
    implied = batch.mean(0) - second.parameters["layers.0.bias"]
    torch.testing.assert_close(implied, chains[0][:10].mean(0))
