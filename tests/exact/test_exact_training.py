"""Training by exact gradients ends where held-out rows are told best, and can be made again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import harmonium as hm
from harmonium.training import Objective
from harmonium.training.exact_training import train_exact


def mixed(seed: int) -> hm.BoltzmannMachine:
    """Two 0/1 columns, a category of three and two real ones, beside three hidden units."""
    visible = [hm.Bernoulli(2), hm.Categorical(1, 3), hm.Gaussian(2)]
    return hm.machine.join_layers(visible, [hm.Bernoulli(3)], seed).double()


def planted(rows: int) -> tuple[hm.BoltzmannMachine, Tensor]:
    truth = mixed(1)
    hm.machine.normal_(truth, 2.5, 5)
    return truth, hm.tasks.sample(truth, rows, seed=2).rows


def mean_score(machine: hm.BoltzmannMachine, v: Tensor) -> float:
    return float(hm.likelihood.exact_log_likelihood(machine, v).mean())


def independent(rows: Tensor) -> hm.BoltzmannMachine:
    """Columns that nothing joins, at the means of the rows."""
    made = mixed(3)
    with torch.no_grad():
        for coupling in made.couplings:
            coupling.weight.zero_()
    hm.machine.init_visible_biases_(made, rows)
    return made


def test_a_planted_machine_is_found() -> None:
    truth, rows = planted(3000)
    shown = rows[:2000].clone()
    hole = torch.rand(2000, 2, generator=torch.Generator().manual_seed(3)) < 0.2
    shown[:, 5:] = shown[:, 5:].masked_fill(hole, torch.nan)
    made = independent(shown)
    alone = mean_score(made, rows[2000:])
    done = hm.training.train_exact_until_best(made, shown[:1700], validation=shown[1700:], seed=1)
    assert done.score == pytest.approx(mean_score(made, shown[1700:]), abs=1e-9)
    assert done.score == max(record["validation_score"] for record in done.history)
    best = mean_score(truth, rows[2000:])
    assert best - alone > 0.15  # there is something to learn
    assert best - mean_score(made, rows[2000:]) < 0.03


def test_the_history_leads_to_the_best_look_and_goes_on_from_there() -> None:
    rows = planted(500)[1]
    made = independent(rows)
    done = hm.training.train_exact_until_best(made, rows[:400], validation=rows[400:], max_updates=25, seed=4)
    steps = [record["step"] for record in done.history]
    assert steps == [10, 20, 25][: len(steps)] and done.score == done.history[-1]["validation_score"]
    run = train_exact(made, rows, updates=7, learning_rate=0.01, earlier=done.history, record_every=100)
    assert run.history[:-1] == done.history and run.updates == steps[-1] + 7 == run.history[-1]["step"]


def test_which_state_is_called_1_does_not_matter() -> None:
    """Couplings move while the means of units stay: flipped columns give the flipped machine."""
    generator = torch.Generator().manual_seed(6)
    rows = (torch.rand(300, 4, generator=generator) < torch.tensor([0.1, 0.2, 0.5, 0.9])).double()
    rows[:, 3] = torch.where(rows[:, 0] > 0, rows[:, 0], rows[:, 3])
    scores = []
    for v in (rows, 1 - rows):
        made = hm.BoltzmannMachine([hm.Bernoulli(4), hm.Bernoulli(2)]).double()
        hm.machine.init_visible_biases_(made, v)
        sign = 1.0 if v is rows else -1.0
        made.couplings[0].fill_(torch.zeros(4, 2))
        with torch.no_grad():
            drawn = 0.1 * torch.randn(4, 2, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        with pytest.MonkeyPatch.context() as patch:
            draw = lambda self, std, noise, W=sign * drawn: self.weight.data.copy_(W)  # noqa: E731
            patch.setattr(hm.couplings.Coupling, "draw_", draw)
            hm.training.train_exact_until_best(made, v, validation=v, max_updates=30)
        scores.append(mean_score(made, v))
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)


def test_correlated_columns_by_their_roots() -> None:
    generator = torch.Generator().manual_seed(8)
    base = torch.randn(600, 1, generator=generator).double()
    rows = torch.cat([base, base + 0.2 * torch.randn(600, 1, generator=generator).double()], 1)
    mean, covariance = hm.tables.fit_normal(rows)
    root = torch.linalg.cholesky(covariance)
    made = hm.BoltzmannMachine([hm.Gaussian(2), hm.Bernoulli(2)]).double()
    columns = torch.linalg.solve_triangular(root, rows.t(), upper=False).t()
    hm.machine.init_visible_biases_(made, columns)
    done = hm.training.train_exact_until_best(
        made, rows[:500], validation=rows[500:], roots={0: root}, seed=1
    )
    assert done.score == pytest.approx(mean_score(hm.tables.fold(made, {0: root}), rows[500:]), abs=1e-8)
    normal = torch.distributions.MultivariateNormal(mean, covariance).log_prob(rows[500:]).mean()
    assert done.score > float(normal) - 0.05


def test_each_coupling_has_its_own_decay() -> None:
    """Equal decays are one number, and one that weighs all else down keeps its coupling alone near 0."""
    rows = planted(300)[1]
    made = [independent(rows) for _ in range(3)]
    for machine, decay in zip(made, (0.0, [0.0, 0.0, 0.0], [0.0, 10.0, 0.0]), strict=True):
        hm.training.train_exact_until_best(machine, rows, validation=rows, max_updates=40, weight_decay=decay)
    for one, other in zip(made[0].parameters(), made[1].parameters(), strict=True):
        assert torch.equal(one, other)
    norms = [float(coupling.weight.detach().norm()) for coupling in made[2].couplings]
    assert norms[1] < 0.1 * min(norms[0], norms[2])
    with pytest.raises(ValueError, match="weight_decay: expected one number, or one for each of 3 couplings"):
        hm.training.train_exact_until_best(made[0], rows, validation=rows, weight_decay=[0.1, 0.1])


@pytest.mark.parametrize(
    ("joint", "joined", "whole"),
    [(0.0, True, False), (0.0, False, True), (0.03, False, False), (1.0, True, False), (1.0, False, True)],
)
@pytest.mark.mostly_nightly(1)
def test_conditional_gradient_is_that_of_enumerated_labels(joint: float, joined: bool, whole: bool) -> None:
    """ln p(y | x) is a softmax over whole rows with each label, whatever x lacks."""
    machine = mixed(1)
    hm.machine.normal_(machine, 1.0, 5)
    v = hm.tasks.sample(machine, 12, seed=2).rows
    if not whole:
        v[:6, [0, 6]] = torch.nan
        v[3:8, 5] = torch.nan
    v[9, 2:5] = torch.nan  # no label
    weights = torch.linspace(0.5, 2.0, 12, dtype=torch.float64)
    roots = {2: torch.tensor([[1.0, 0.0], [0.8, 0.5]]).double()} if joined else {}
    inputs, label = [0, 2], slice(2, 5)

    def objective() -> float:
        folded = hm.tables.fold(machine, roots) if joined else machine
        score = hm.likelihood.exact_log_likelihood
        each = []
        for y in torch.eye(3).double():
            x = v.clone()
            x[:, label] = y
            each.append(score(folded, x))
        of_labels = torch.stack(each, 1)
        chosen = (of_labels * v[:, label].nan_to_num(0.0)).sum(1)
        both = torch.where(v[:, 2].isnan(), of_labels.logsumexp(1), chosen)
        per_row = both - (1 - joint) * of_labels.logsumexp(1)
        return float(per_row @ weights / weights.sum())

    if joint == 0:
        score = hm.training.mean_score(machine, v, weights=weights, roots=roots, objective=Objective(inputs))
        assert score == pytest.approx(objective(), abs=1e-9)
    rule = hm.rules.hybrid(hm.rules.exact(roots=roots), inputs, joint)
    gradient = rule.gradient(machine, v, seed=0, weights=weights).parameters
    step, generator = 1e-5, torch.Generator().manual_seed(4)
    for name, p in machine.named_parameters():
        along = torch.randn(p.shape, generator=generator, dtype=torch.float64)
        before, ends = p.detach().clone(), []
        for sign in (1, -1):
            p.data.copy_(before + sign * step * along)
            ends.append(objective())
        p.data.copy_(before)
        slope = float((gradient[name] * along).sum())
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6), name


def test_conditional_fit_keeps_what_tells_labels_best() -> None:
    rows = planted(1200)[1]
    odds = torch.stack([3 * rows[:, 0], 2 * rows[:, 5], torch.zeros(1200)], 1)
    chosen = odds.softmax(1).multinomial(1, generator=torch.Generator().manual_seed(1))
    rows[:, 2:5] = torch.eye(3).double()[chosen[:, 0]]
    best = float(odds.log_softmax(1)[800:].gather(1, chosen[800:]).mean())
    rows[:600:3, 5] = torch.nan
    made = independent(rows[:800])
    inputs, label = [0, 2], slice(2, 5)
    done = hm.training.train_exact_until_best(
        made, rows[:600], validation=rows[600:800], objective=Objective(inputs, 0.05), seed=1
    )

    def label_score(machine: hm.BoltzmannMachine, v: Tensor) -> float:
        x = v.clone()
        x[:, label] = torch.nan
        return mean_score(machine, v) - mean_score(machine, x)

    assert done.score == pytest.approx(label_score(made, rows[600:800]), abs=1e-9)
    blind, ours = (label_score(m, rows[800:]) for m in (independent(rows[:800]), made))
    assert best - blind > 0.1  # there is something to learn
    assert ours > blind + 0.7 * (best - blind)


@pytest.mark.parametrize("layers", [[7], [0, 1, 2]])
def test_layers_to_condition_on_are_some_of_the_visible_ones(layers: list[int]) -> None:
    with pytest.raises(ValueError, match="condition_on: expected some, not all, of the visible layers"):
        train_exact(mixed(1), planted(3)[1], updates=1, learning_rate=0.1, objective=Objective(layers, 0.5))
