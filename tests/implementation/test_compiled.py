"""Compiled code has the distribution of the eager code beside it, whatever the number of threads.

Failure rate of every test on a fresh seed: at most 1e-3, shared over its comparisons.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from machines import with_normal_parameters
from scipy import stats
from statistical.support import FAILURE_RATE, all_states, exact_states
from statistical.test_coupled import p_value, visible_kernel

import harmonium as hm
from harmonium.backends import calls, choice
from harmonium.chains import GibbsLangevin
from harmonium.coupled import Block, Gibbs, Maximal, run_pairs
from harmonium.coupled.kernels import ChainState
from harmonium.machine import Part, Statistics

pytest.importorskip("numba")
pytestmark = pytest.mark.statistical
ROWS = 20_000


def machine(*layers: hm.layers.Layer, scale: float = 0.8) -> hm.BoltzmannMachine:
    return with_normal_parameters(hm.BoltzmannMachine(list(layers)), scale)


def grid(*layers: hm.layers.Layer) -> torch.Tensor:
    """All joint states of some layers side by side, float64."""
    whole = torch.zeros(1, 0, dtype=torch.float64)
    for layer in layers:
        states = all_states(layer)
        whole = torch.cat([whole.repeat_interleave(len(states), 0), states.repeat(len(whole), 1)], 1)
    return whole


# Every path returns what it drew, (rows, units), with all states and their distribution by enumeration.


def half_step(made, generator):
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    field = hamiltonian.field(l, made.random_states(1, seed=generator))
    x = hamiltonian.sample(l, field.expand(ROWS, -1), generator)
    yield x, *conditional(made.layers[l], field)


def coupled_half_step(made, generator):
    hamiltonian, l = made.hamiltonian(), len(made.layers) - 1
    fields = [hamiltonian.field(l, made.random_states(1, seed=generator)) for _ in range(2)]
    p, q = (Block(hamiltonian, (Part(l),), (field.expand(ROWS, -1),)) for field in fields)
    drawn = Maximal(common_noise=True).draw(p, q, generator)
    distributions = [conditional(made.layers[l], field) for field in fields]
    yield drawn.x[0], *distributions[0]
    yield drawn.y[0], *distributions[1]
    overlap = torch.minimum(distributions[0][1], distributions[1][1]).sum()
    together = (drawn.x[0] == drawn.y[0]).all(-1, keepdim=True)
    yield together.double(), torch.eye(2)[:, 1:].double(), torch.stack((1 - overlap, overlap))


def coupled_sweep(made, generator):
    """Both chains of pairs in the machine's distribution, after a sweep."""
    x, y = (equilibrium_states(made, generator) for _ in range(2))
    both = ChainState([torch.cat(pair) for pair in zip(x, y, strict=True)], {})
    place, _ = Gibbs().coupled(made.hamiltonian(), both, generator)
    exact = made.hamiltonian().to(torch.float64)
    states = grid(*made.layers)
    distribution = (
        -exact.energy(list(torch.split(states, [layer.width for layer in made.layers], 1)))
    ).softmax(0)
    for half in zip(*(x.chunk(2) for x in place.states), strict=True):
        yield torch.cat(half, 1), states, distribution


def small_pairs(made, generator):
    """The first chains after three sweeps, two of them coupled, from one state."""
    start = made.random_states(1, seed=generator)
    end = run_pairs(
        made.hamiltonian(), Gibbs(), [x.repeat(ROWS, 1) for x in start], k=3, m=3, lag=1, max_sweeps=None,
        generator=generator,
    ).states[0]  # fmt: skip
    v, _, P = visible_kernel(made.double())
    here = (v == start[0].double()).all(-1).nonzero().item()
    yield end, v, torch.linalg.matrix_power(P, 3)[here]


def small_chains(made, generator):
    """Hidden states after sweeps with a Metropolis test from the machine's own distribution."""
    hamiltonian, start = made.hamiltonian(), equilibrium_states(made, generator)
    kernel, into = GibbsLangevin(0.2, 5, "metropolis"), Statistics(hamiltonian)
    state = kernel.init(hamiltonian, start, generator)
    if choice.small_chains(hamiltonian):
        from harmonium.chains import relax_alone

        end, _ = relax_alone(hamiltonian, kernel, state, 6, generator, into=into, weight=1.0, burn_in=0)
    else:
        end = hm.chains.run_kernel(hamiltonian, kernel, state, 6, generator)
    h = grid(made.layers[1])
    free = hamiltonian.to(torch.float64).free_energy([torch.empty(0), h], (0,))
    yield end.states[1], h, (-free).softmax(0)


def equilibrium_states(made, generator):
    return [x.float() for x in exact_states(deepcopy(made).double(), ROWS, generator)]


def conditional(layer, field):
    states = all_states(layer)
    log_p = layer.double().log_conditional(states, field.double().expand_as(states)).sum(-1)
    return states, log_p.softmax(0)


TWO_VALUED = {
    "bernoulli": lambda: machine(hm.Bernoulli(4), hm.Bernoulli(3)),
    "spin": lambda: machine(hm.Spin(4), hm.Spin(3), scale=0.5),
    "both": lambda: machine(hm.Bernoulli(4), hm.Spin(3), scale=1.5),
}
GAUSSIAN = {
    "bernoulli": lambda: machine(hm.Gaussian(2), hm.Bernoulli(4)),
    "spin": lambda: machine(hm.Gaussian(3), hm.Spin(3), scale=0.5),
    "one": lambda: machine(hm.Gaussian(1), hm.Spin(4)),
}
PATHS = {
    half_step: TWO_VALUED,
    coupled_half_step: TWO_VALUED,
    coupled_sweep: TWO_VALUED,
    small_pairs: TWO_VALUED,
    small_chains: GAUSSIAN,
}


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", range(3))
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
@pytest.mark.mostly_nightly(4)
def test_every_path_has_the_enumerated_distribution(request, monkeypatch, path, name, compiled):
    """By χ²; compiled paths draw the same bits on one thread and on two."""
    if "small" in path.__name__:
        monkeypatch.setattr(choice, "WORTHWHILE", 1 << 60)
    else:
        request.getfixturevalue("always")
    monkeypatch.setattr(choice, "COMPILED", compiled)
    make = list(PATHS[path].values())[name]
    before, runs = torch.get_num_threads(), []
    try:
        for threads in (1, 2) if compiled else (1,):
            torch.set_num_threads(threads)
            with torch.no_grad():
                runs.append(list(path(make(), torch.Generator().manual_seed(1))))
    finally:
        torch.set_num_threads(before)
    for drawn, states, distribution in runs[0]:
        assert p_value(drawn.double(), states, distribution) > FAILURE_RATE / len(runs[0])
    assert all(torch.equal(a[0], b[0]) for a, b in zip(runs[0], runs[-1], strict=True))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_the_paths_are_compiled(always, monkeypatch, path):
    """So that the test above compares what it says."""
    if "small" in path.__name__:
        monkeypatch.undo()
        made = next(iter(PATHS[path].values()))().hamiltonian()
        assert choice.small_chains(made) if path is small_chains else choice.small_pairs(made)
        return
    names, over = [], calls.over

    def noted(name, *rest):
        names.append(name)
        over(name, *rest)

    monkeypatch.setattr(calls, "over", noted)
    with torch.no_grad():
        list(path(TWO_VALUED["both"](), torch.Generator().manual_seed(1)))
    expected = {
        half_step: "per_row.draw",
        coupled_half_step: "per_row.couple",
        coupled_sweep: "per_row.couple",
    }
    assert expected[path] in names


@pytest.mark.nightly
def test_normal_noise_is_normal_to_its_tails():
    """By its distribution function and by how many of 2^24 variates lie beyond 4.5 and 5 deviations."""
    from harmonium.backends.noise import fill_normal, room_for, seed, stream

    n = 1 << 24
    out, state = np.empty(n), stream()
    seed(state, np.uint64(7), 3)
    fill_normal(out, room_for(2 * n + 2), state)
    first, second = out[: n // 2], out[n // 2 :]  # of the same radius
    for part in (first, second):
        assert stats.kstest(part[: 1 << 19], "norm").pvalue > FAILURE_RATE / 4
    for limit in (4.5, 5.0):
        beyond = int((abs(out) > limit).sum())
        assert stats.binomtest(beyond, n, 2 * stats.norm.sf(limit)).pvalue > FAILURE_RATE / 4
    for f in (np.abs, np.asarray):
        assert abs(np.corrcoef(f(first), f(second))[0, 1]) < 4 / (n / 2) ** 0.5


@pytest.mark.parametrize("n", [1, 2, 7, 100_001])
def test_normal_noise_is_the_transform_of_uniform_noise(n):
    from harmonium.backends.noise import fill, fill_normal, room_for, seed, stream

    out, noise, state = np.empty(n), room_for(2 * n + 2), stream()
    seed(state, np.uint64(7), 3)
    fill(noise, state)
    half = (n + 1) // 2
    high, low, turn = noise.astype(float)[: 3 * half].reshape(3, half)
    radius, angle = np.sqrt(-2 * np.log(high + (low - 0.5) * 2.0**-23)), 2 * np.pi * (turn - 0.5)
    expected = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:n]
    seed(state, np.uint64(7), 3)
    fill_normal(out, noise, state)
    assert np.abs(out - expected).max() < 1e-4  # where the radius is small
    assert np.quantile(np.abs(out - expected), 0.99) < 1e-6
