"""Ladders that trainings keep: their averages, their spacing, ln Z of every rung, bounds, files and resume.

Failure rate on a fresh seed: |z| < 4 holds but for 6e-5 of all comparisons.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.ladder import KeptLadder, Ladder, lead_to, load_ladder, save_ladder
from harmonium.ladder.rungs import hamiltonian_of
from harmonium.sums import log_weights
from harmonium.training.seeds import stream_seed

from .test_ladder_partition import exact

BARS = torch.from_numpy(hm.data.bars_and_stripes(3)).float()


def small() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Bernoulli(9), hm.Bernoulli(8)], seed=0)


def deep() -> hm.BoltzmannMachine:
    return hm.BoltzmannMachine([hm.Spin(9), hm.Spin(6), hm.Spin(4)], seed=0)


def train(made: hm.BoltzmannMachine, X: Tensor = BARS, **changes: Any) -> Any:
    settings = {"updates": 1500, "learning_rate": 0.3, "batch_size": 16, "ladder": True, **changes}
    rule = settings.pop("rule", hm.rules.pcd(1, 100))
    return hm.train(made, X, rule=rule, progress=False, **settings)


@pytest.mark.parametrize("name", ["binary", "deep"])
@pytest.mark.nightly
def test_exchanges_succeed_as_asked_and_ln_z_of_every_age_is_right(name: str) -> None:
    made = small() if name == "binary" else deep()
    run = train(made) if name == "binary" else train(made, 2 * BARS - 1, updates=500, learning_rate=0.1)
    ladder = run.ladder
    assert len(ladder.rungs) >= 3 and ladder.ages[0] == 0 and run.updates / 2 < ladder.ages[-1] <= run.updates
    found = hm.ladder.log_partitions(made, ladder, chains=50, rounds=60, seed=1)
    seen, hamiltonian = found.traffic.acceptance, made.hamiltonian()
    assert bool(((seen[:-1] - 0.5).abs() < 0.2).all()) and seen[-1] > 0.3  # 200 pilots placed them
    truth = torch.tensor(
        [*(exact(hamiltonian_of(hamiltonian, rung)) for rung in ladder.rungs), exact(hamiltonian)]
    )
    error = (found.values - truth).abs()
    assert float(error.max()) < 0.2 and bool((error[1:] < 4 * found.standard_errors[1:]).all())
    if name == "binary":
        rungs = zip(hm.ladder.hamiltonians_along(made, ladder), found.values, strict=True)
        curve = [float(log_weights(rung, BARS).mean() - value) for rung, value in rungs]
        exact_one = hm.likelihood.exact_log_likelihood(made, BARS).mean()
        assert abs(float(curve[-1] - exact_one)) < 4 * found.standard_error
        assert float(curve[-1]) > float(curve[0]) + 1


def test_an_average_reaches_back_a_third_of_its_age() -> None:
    """Of parameters that grow as the updates, it is at three quarters: a' = 3 (t - a) / t."""
    made = hm.BoltzmannMachine([hm.Bernoulli(2), hm.Bernoulli(2)])
    kept = KeptLadder(Ladder(), partial(stream_seed, 0, "ladder"))
    kept.begin(made, ())
    for step in range(1, 3001):
        with torch.no_grad():
            made.layers[0].bias.fill_(step / 1000)
        kept(SimpleNamespace(step=step, total=3000, machine=made))
    assert float(kept.state_dict()["kept"].average[0][0]) == pytest.approx(0.75 * 3, rel=0.01)


def test_a_jump_of_the_parameters_is_filled() -> None:
    """Between two looks at them couplings grow at once: the rungs between are means."""
    made = hm.BoltzmannMachine([hm.Spin(10), hm.Spin(10)])
    kept = KeptLadder(Ladder(), partial(stream_seed, 0, "ladder"))
    kept.begin(made, ())
    kept(SimpleNamespace(step=1, total=2, machine=made))
    with torch.no_grad():
        made.couplings[0].weight.fill_(0.6)
    kept.finish(made)
    assert kept.ladder is not None and len(kept.ladder.rungs) > 3
    found = hm.ladder.log_partitions(made, kept.ladder, chains=40, rounds=30, seed=0)
    assert float(found.traffic.acceptance.min()) > 0.25


def test_a_ladder_changes_no_bit_of_the_training() -> None:
    with_one, without = small(), small()
    train(with_one, updates=400)
    train(without, updates=400, ladder=False)
    assert all(map(torch.equal, with_one.parameters(), without.parameters()))


@pytest.mark.mostly_nightly(1)
@pytest.mark.parametrize("cut", [7, 390])
def test_a_run_that_was_cut_goes_on_bit_by_bit(cut: int, tmp_path: Path) -> None:
    whole, parts = train(small(), updates=400, run_dir=tmp_path / "whole"), small()

    def stop(update: Any) -> None:
        if update.step == cut:
            raise KeyboardInterrupt

    settings = {"updates": 400, "run_dir": tmp_path / "parts", "checkpoint_every": 5}
    with pytest.raises(KeyboardInterrupt):
        train(parts, callbacks=[stop], **settings)
    again = train(parts, resume=True, **settings)
    assert again.ladder.ages == whole.ladder.ages
    for x, y in zip(again.ladder.rungs, whole.ladder.rungs, strict=True):
        assert all(map(torch.equal, x, y))
    name = "ladder.safetensors"
    assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_the_bound_is_kept_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"ladder: \d machines are kept and no more than 4 may be"):
        run = train(small(), ladder=Ladder(acceptance=0.7, max_rungs=4))
    assert len(run.ladder.rungs) <= 4 and run.ladder.rungs[0][2].abs().max() == 0
    found = hm.ladder.log_partitions(run.machine, run.ladder, chains=40, rounds=30, seed=0)
    assert 0.05 < float(found.traffic.acceptance.min()) < 0.6
    with warnings.catch_warnings(), pytest.raises(ValueError, match="expected room for more than 1 machines"):
        warnings.simplefilter("ignore")
        train(small(), ladder=Ladder(max_rungs=1), updates=400)


def test_files_and_what_they_are_refused_for(tmp_path: Path) -> None:
    run, path = train(small(), updates=400), tmp_path / "ladder.safetensors"
    save_ladder(path, run.ladder)
    again = load_ladder(path, run.machine)
    assert again.ages == run.ladder.ages and again.acceptance == run.ladder.acceptance
    assert all(map(torch.equal, again.rungs[-1], run.ladder.rungs[-1]))
    with pytest.raises(FileExistsError, match="overwrite replaces it"):
        save_ladder(path, run.ladder)
    with pytest.raises(ValueError, match="has the ladder of another machine"):
        load_ladder(path, deep())
    with pytest.raises(ValueError, match="expected one with rungs"):
        save_ladder(tmp_path / "none", Ladder())
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"damaged, or not a ladder of harmonium"):
        load_ladder(path, run.machine)
    with pytest.raises(ValueError, match="ages: expected one for each of"):
        Ladder(run.ladder.rungs, ages=[1.0])
    with pytest.raises(ValueError, match="ladder: expected settings alone"):
        train(small(), ladder=run.ladder)
    with pytest.raises(TypeError, match=r"ladder: expected True, False or a ladder\.Ladder"):
        train(small(), ladder="yes")


def test_a_ladder_leads_to_another_machine() -> None:
    """That of averaged parameters, and one that has learned on."""
    run = train(small(), updates=600, averaging=0.99)
    for machine in (run.averaged_machine, train(run.machine, updates=600, ladder=False).machine):
        ladder = lead_to(run.ladder, machine, seed=0)
        found = hm.ladder.log_partitions(machine, ladder, chains=40, rounds=50, seed=0)
        truth = float(hm.likelihood.exact_log_partition(machine))
        assert float(found.traffic.acceptance.min()) > 0.25
        assert abs(found.value - truth) < 4 * found.standard_error
