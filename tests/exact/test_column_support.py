"""Cells beyond what was seen: densities that fall and sum to 1, limits, rare labels, most probable states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import harmonium as hm
from harmonium.data import encoder_from_dict
from harmonium.machine import BoltzmannMachine
from harmonium.sums import HiddenStates
from harmonium.tables import Codec, ColumnCodec as Column, Table
from harmonium.tables.tails import tails_of

pandas = pytest.importorskip("pandas")

ROWS = 240
RANDOM = np.random.default_rng(54)
SIDE = RANDOM.integers(0, 2, ROWS)
NUMBERS: dict[str, tuple[np.ndarray, Any]] = {
    "line": (RANDOM.normal(3 + 4 * SIDE, 0.7), {"kind": "gaussian", "transform": "none"}),
    "logarithm": (np.exp(RANDOM.normal(1 + SIDE, 0.6)), {"kind": "gaussian", "transform": "log"}),
    "quantiles": (RANDOM.standard_t(2, ROWS) + 5 * SIDE, {"kind": "gaussian", "transform": "quantile"}),
    "interval": (RANDOM.beta(2, 3, ROWS) * 50, "truncated_gaussian"),
    "half line": (RANDOM.gamma(2, 3, ROWS), "relu"),
    "zeros": (np.where(RANDOM.random(ROWS) < 0.4, 0.0, RANDOM.gamma(2, 3 + SIDE, ROWS)), None),
}
WHOLE: dict[str, tuple[np.ndarray, Any]] = {
    "counts": (RANDOM.poisson(2 + 3 * SIDE).astype(float), "binomial"),
    "ranks": (RANDOM.choice([0.5, 1, 20, 70], ROWS), {"kind": "binomial", "values": [0.5, 1, 20, 70]}),
    "two": (RANDOM.choice([0.0, 1.0], ROWS), "bernoulli"),
    "one beside many": (np.where(np.arange(ROWS) == 7, 3.0, RANDOM.choice([0.0, 1, 2], ROWS)), "binomial"),
}


def machine_of(codec: Codec, hidden: int, seed: int = 0) -> BoltzmannMachine:
    """A machine of the states with couplings that matter, or independent units without hidden ones."""
    layers = [*codec.layers, *([hm.Bernoulli(hidden)] if hidden else [])]
    edges = [(l, len(layers) - 1) for l in range(len(codec.layers))] if hidden else []
    visible = tuple(range(len(codec.layers)))
    made = BoltzmannMachine(layers, edges, visible, seed=seed).double()
    if not hidden:  # one state that does nothing, so that the same sums serve
        made = BoltzmannMachine([*codec.layers, hm.Bernoulli(1)], [(visible[0], len(layers))], seed=seed)
        made = made.double()
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for coupling in made.couplings:
            for p in coupling.parameters():
                p.copy_(
                    torch.randn(p.shape, generator=random, dtype=torch.float64) * (0.8 if hidden else 0.0)
                )
    return made


def log_density(codec: Codec, machine: BoltzmannMachine, cells: np.ndarray) -> np.ndarray:
    """ln p of the cells of one column, by the sum over hidden states."""
    frame = pandas.DataFrame({"x": cells})
    states = codec.rows(frame, torch.float64, keep=False, beyond="tail").all()
    found = HiddenStates.of(machine).log_likelihood(states) + codec.log_slopes(states)
    shares = codec.log_shares(frame, machine)
    assert shares is not None
    return (found + shares.sum(1)).numpy()


def codec_of(name: str) -> tuple[Codec, Column]:
    x, kind = (NUMBERS | WHOLE)[name]
    codec = Codec.fit(pandas.DataFrame({"x": x}), kinds={} if kind is None else {"x": kind})
    (column,) = codec.columns()
    return codec, column


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.mostly_nightly(2)
def test_the_density_of_a_column_integrates_to_1_with_its_tails(name: str, hidden: int) -> None:
    codec, column = codec_of(name)
    machine = machine_of(codec, hidden)
    assert column.ends is not None
    (low, high), nodes = column.ends, np.polynomial.legendre.leggauss(60)
    tail = np.unique(np.concatenate([np.linspace(0, 4, 20), np.geomspace(4, 1e6, 80)]))
    fall = [min(end.room, 1.0) / end.slope for end in tails_of(column)]
    fall[0] = 1.0 if column.kind == "truncated_gauss_bernoulli" else fall[0]
    corners = np.concatenate(
        [low - fall[0] * tail[::-1], *codings_corners(column, low, high), high + fall[1] * tail]
    )
    corners = np.unique(corners)
    middles, halves = (corners[1:] + corners[:-1]) / 2, np.diff(corners) / 2
    cells = middles[:, None] + halves[:, None] * nodes[0]
    density = np.exp(log_density(codec, machine, cells.ravel())).reshape(cells.shape)
    total = halves @ (density @ nodes[1])
    if column.kind == "truncated_gauss_bernoulli":
        total += np.exp(log_density(codec, machine, np.array([0.0])))[0]
    np.testing.assert_allclose(total, 1, atol=2e-4)


SKEWED = {
    "lognormal": lambda random, n: np.exp(2 * random.normal(size=n)),
    "waiting times": lambda random, n: random.gamma(0.3, 1, n),
    "both ends": lambda random, n: random.beta(0.3, 0.3, n),
    "heavy, below": lambda random, n: -random.pareto(1, n),
}


@pytest.mark.parametrize("name", SKEWED)
def test_a_skewed_column_has_one_cell_of_probability_beyond_its_ends(name: str) -> None:
    """Of n + 1 cells about one lies beyond each end, by scores and by draws, and the median is where it was.

    Integrals of ln-spaced distances miss less than 1e-3. The mass of a normal tail beyond n cells is above
    5 / n once in 150 columns; 4,000 draws of a share of 0.01 are within 0.007 but once in 10^5.
    """
    n, random = 200, np.random.default_rng(5)
    x = SKEWED[name](random, n)
    frame = pandas.DataFrame({"x": x, "kind": np.where(random.random(n) < 0.5, "u", "d")})
    rbm = hm.RBM(2, random_state=0).fit(frame)

    def density(cells: np.ndarray) -> np.ndarray:
        rows = [pandas.DataFrame({"x": cells, "kind": kind}) for kind in "ud"]
        return sum(np.exp(rbm.score_samples(each)) for each in rows)

    low, high = x.min(), x.max()
    out = np.concatenate([[0], np.geomspace(1e-12, 1e6, 4000)]) * (high - low)
    drawn = rbm.sample(4000, random_state=1)["x"]
    for cells, share in ((low - out[::-1], (drawn < low).mean()), (high + out, (drawn > high).mean())):
        mass = np.trapezoid(density(cells), cells)
        assert mass < 5 / n and abs(mass - share) < 0.007
    middle = np.quantile(x, [0.4, 0.6])
    assert density(np.linspace(*middle, 50)).mean() == pytest.approx(0.2 / np.ptp(middle), rel=0.6)
    beyond, median = density(np.array([low - 0.05 * x.std(), np.median(x)]))
    assert beyond < median / 100
    if name == "waiting times":
        judge = hm.RBMOutlier(random_state=0).fit(frame)
        rows = pandas.DataFrame({"x": [-0.05, -0.01, np.median(x)], "kind": "u"})
        assert judge.predict(rows).tolist() == [-1, -1, 1] and (np.diff(judge.score_samples(rows)) > 0).all()


def test_a_real_column_given_the_others_integrates_to_1_in_rows_at_its_ends() -> None:
    """The others move its distribution to an end and beyond, for every coding that has a tail."""
    random = np.random.default_rng(3)
    z = random.normal(size=120)
    frame = pandas.DataFrame(
        {
            "plain": z + 0.1 * random.normal(size=120),
            "skewed": np.exp(2 * z + 0.1 * random.normal(size=120)),
            "ranked": -np.exp(1.5 * z) + 0.1 * random.normal(size=120),
            "other": z + 0.1 * random.normal(size=120),
        }
    )
    rbm = hm.RBM(3, random_state=0).fit(frame)
    for name in ("plain", "skewed", "ranked"):
        x = frame[name]
        out = np.concatenate([[0], np.geomspace(1e-9, 1e5, 1500)]) * np.ptp(x)
        within = np.concatenate(
            [np.linspace(x.min(), x.max(), 2000), np.quantile(x, np.linspace(0, 1, 1000))]
        )
        cells = np.unique(np.concatenate([x.min() - out, within, x.max() + out]))
        order = np.argsort(x)
        for row in (order[0], order[60], order[119]):
            rows = frame.iloc[[row] * len(cells)].assign(**{name: cells})
            given = frame.iloc[[row]].assign(**{name: np.nan})
            total = np.trapezoid(np.exp(rbm.score_samples(rows) - rbm.score_samples(given)), cells)
            assert total == pytest.approx(1, abs=0.01), (name, row)


def codings_corners(column: Column, low: float, high: float) -> Iterator[np.ndarray]:
    """Where a piecewise density has corners, and points between them."""
    points = getattr(column, "points", ())
    yield np.unique([*np.linspace(low, high, 40), *(x for x in points if low < x < high), high])
    if low == 0:
        yield np.array([1e-12])


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("name", WHOLE)
def test_the_probabilities_of_counts_sum_to_1_with_those_never_seen(name: str, hidden: int) -> None:
    codec, column = codec_of(name)
    machine = machine_of(codec, hidden)
    assert column.ends is not None and column.grid is not None
    low, high = column.ends
    inside = np.unique(column.cells_of(np.arange(column.n_states, dtype=float)))
    steps = column.grid * np.arange(1, 20_000)
    p = np.exp(log_density(codec, machine, inside))
    total = p.sum() + np.exp(log_density(codec, machine, np.concatenate([low - steps, high + steps]))).sum()
    unseen = 1 / (column.seen + 1)  # of the states between the ends, for numbers between the steps
    np.testing.assert_allclose(total, 1 - unseen / (1 - unseen) * p[1:-1].sum(), atol=1e-6)


@pytest.mark.filterwarnings("ignore:X. values never seen in training")
@pytest.mark.parametrize("hidden", [0, 3])
def test_the_probabilities_of_labels_sum_to_1_with_one_never_seen(hidden: int) -> None:
    common = RANDOM.choice(["a", "b"], 200)
    rare = [f"r{i}" for i in range(30)] + [f"r{i}" for i in range(10)]
    for cells in (np.array([*common, *rare]), common):
        codec = Codec.fit(pandas.DataFrame({"x": cells}))
        machine = machine_of(codec, hidden)
        p = np.exp(log_density(codec, machine, np.array(["a", "b", "never seen"])))
        np.testing.assert_allclose(p.sum(), 1, atol=1e-12)
        if len(cells) > len(common):  # rare labels and new ones share a state
            same = np.exp(log_density(codec, machine, np.array(["r3", "r20", "other"])))
            np.testing.assert_allclose(same, p[-1], rtol=1e-12)
        else:
            np.testing.assert_allclose(p[-1], 1 / (len(cells) + 1), rtol=1e-9)


@pytest.mark.parametrize("name", [*NUMBERS, *WHOLE])
def test_further_out_is_more_unusual(name: str) -> None:
    codec, column = codec_of(name)
    assert column.ends is not None
    low, high = column.ends
    out = np.geomspace(1e-3, 1e6, 40) * (high - low)
    for seed in range(5):
        machine = machine_of(codec, 4, seed)
        for cells in (np.array([high, *(high + out)]), np.array([low, *(low - out)])):
            assert (np.diff(log_density(codec, machine, cells)) < 0).all(), (name, seed)
    again = encoder_from_dict(codec.encoder.to_dict())
    assert isinstance(again, Table) and again == codec.encoder


@pytest.mark.nightly
def test_no_cell_beyond_the_range_raises_a_score_or_is_filled_in_or_drawn() -> None:
    """Over random tables of every kind of column, by estimators as they are trained."""
    random = np.random.default_rng(7)
    for number in range(3):
        frame = random_table(random, rows=60 + 30 * number)
        rbm = hm.RBM(3, random_state=number).fit(frame)
        outlier = hm.RBMOutlier.from_machine(rbm.machine_, frame)
        numeric = [c.name for c in rbm.encoder_.columns if c.ends is not None]
        rows = frame.dropna().iloc[:5]
        for name in numeric:
            low, high = frame[name].min(), frame[name].max()
            for start, sign in ((high, 1), (low, -1)):
                moved = [
                    rows.assign(**{name: start + sign * d * (high - low)}) for d in (0, 0.01, 0.3, 9, 1e5)
                ]
                for scores in (rbm.score_samples, outlier.decision_function):
                    assert (np.diff([scores(x) for x in moved], axis=0) < 0).all(), (number, name, sign)
        holes = frame.mask(random.random(frame.shape) < 0.4)
        holes.iloc[0, 1:] = np.nan
        extreme = holes.copy()
        extreme[numeric[0]] = frame[numeric[0]].max() * 50
        for filled in (
            rbm.impute(holes), rbm.impute(extreme, value="mean"), *rbm.imputations(extreme, 3, random_state=1)
        ):  # fmt: skip
            for name in numeric[1:]:
                assert filled[name].between(frame[name].min(), frame[name].max()).all(), (number, name)
        drawn = rbm.sample(300, random_state=number)
        for column in rbm.encoder_.columns:
            if column.drawn is not None:
                assert drawn[column.name].between(*column.drawn).all(), (number, column.name)
                if frame[column.name].min() >= 0:
                    assert drawn[column.name].min() >= 0


def random_table(random: np.random.Generator, rows: int) -> Any:
    side = random.integers(0, 2, rows)
    return pandas.DataFrame(
        {
            "normal": random.normal(side * 3, 1),
            "positive": np.exp(random.normal(side, 1)),
            "tenths": np.round(random.normal(20 + side, 4), 1),
            "counts": random.poisson(1 + 3 * side).astype(float),
            "zeros": np.where(random.random(rows) < 0.5, 0.0, random.gamma(1, 2 + side)),
            "label": np.where(random.random(rows) < 0.8, np.where(side, "a", "b"), "c"),
        }
    )


@pytest.mark.nightly
def test_filled_and_drawn_cells_keep_the_decimals_of_their_column() -> None:
    frame = random_table(np.random.default_rng(1), 120)
    rbm = hm.RBM(2, random_state=0).fit(frame)
    holes = frame.assign(tenths=frame["tenths"].where(np.arange(120) % 3 > 0))
    for made in (rbm.impute(holes), rbm.impute(holes, value="draw"), rbm.sample(50, random_state=0)):
        assert (made["tenths"] == made["tenths"].round(1)).all()
        assert (made["counts"] == made["counts"].round()).all()
        assert (made["normal"] != made["normal"].round(3)).any()


@pytest.mark.nightly
def test_a_further_fit_widens_what_a_column_may_hold() -> None:
    random = np.random.default_rng(0)
    frame = pandas.DataFrame({"x": random.normal(size=80), "y": random.normal(size=80)})
    rbm = hm.RBM(2, random_state=0, visible="gaussian").partial_fit(frame)
    rbm.partial_fit(frame * 3)
    column = rbm.encoder_.columns[0]
    assert column.ends == (3 * frame["x"].min(), 3 * frame["x"].max()) and column.seen == 160
    assert encoder_from_dict(rbm.machine_.metadata["encoder"]) == rbm.encoder_


def test_ordered_columns_are_filled_in_with_means_as_their_numbers_are() -> None:
    """By default: whole ones, tenths, and the likeliest labels, against the probabilities of their states.

    Means of ranks are those of 100 draws: 120 of them lie beyond five standard errors once in 10,000 runs.
    """
    random = np.random.default_rng(0)
    z = random.normal(size=400)
    frame = pandas.DataFrame(
        {
            "count": random.poisson(np.exp(z)).clip(max=5).astype(float),
            "dose": np.array([0.5, 1.0, 2.0, 5.0])[np.clip(np.round(1.5 + z), 0, 3).astype(int)],
            "price": np.array([10.0, 20.0, 50.0, 1000.0])[np.clip(np.round(1.5 - z), 0, 3).astype(int)],
            "label": np.where(z + random.normal(size=400) > 0, "a", "b"),
        }
    )
    learner = hm.RBM(4, method="chains", epochs=20, random_state=0)
    rbm = learner.fit(frame)
    table, codec = HiddenStates.of(rbm._fitted.double()), Codec.of(rbm.machine_)
    modes = {}
    for name, decimals in (("count", 0), ("dose", 1), ("price", 0), ("label", None)):
        holes = frame.iloc[:60].assign(**{name: None if name == "label" else np.nan})
        found = rbm.impute(holes)[name].to_numpy()
        place, v = codec.unit_of(name), torch.from_numpy(rbm.encoder_.encode(holes))
        p = table.posterior(v).unit_probabilities(place.layer, place.unit).numpy()
        values = np.arange(p.shape[1]) if name == "count" else np.array(place.column.values)
        if decimals is None:
            assert (found == values[p.argmax(1)]).all()
            continue
        mean, step = p @ values, 10.0**-decimals
        noise = 0.0 if name == "count" else 5 * np.sqrt(p @ values**2 - mean**2) / 10  # of 100 draws
        assert (np.abs(found - mean) <= step / 2 + noise + 1e-3).all(), name
        assert np.allclose(found, np.round(found, decimals)), name
        modes[name] = (found != values[p.argmax(1)]).mean()
    assert min(modes.values()) > 0.1, modes
    assert (
        hm.RBMImputer(learner)
        .fit(frame)
        .transform(frame.assign(dose=np.nan))
        .equals(rbm.impute(frame.assign(dose=np.nan)))
    )


def test_counts_of_arrays_are_filled_in_with_the_count_nearest_to_their_mean() -> None:
    """Of a count that is 0 or 4 that is 2. The mean of 1,000 chains has a standard error of 0.06."""
    machine = hm.BoltzmannMachine([hm.Binomial(1, 4), hm.Bernoulli(1)], seed=0).double()
    for parameter, value in ((machine.layers[0].bias, -4.0), (machine.layers[1].bias, -16.0)):
        parameter.data.fill_(value)
    machine.couplings[0].weight.data.fill_(8.0)
    v, hole = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[True]])
    states = [torch.arange(5.0, dtype=torch.float64).repeat(2)[:, None], torch.arange(10)[:, None] // 5 * 1.0]
    p = (-machine.energy(states).detach()).softmax(0).view(2, 5).sum(0)
    assert int(p.argmax()) != 2 and round(float(p @ torch.arange(5.0).double())) == 2
    for method in ("exact", "gibbs"):
        done = hm.tasks.impute(machine, v, hole, method, draws=1000, sweeps=10)
        assert done.mode.item() == 2


@pytest.mark.filterwarnings("ignore:X. cells that nothing in training")
def test_a_row_of_nothing_but_a_new_label_has_a_score() -> None:
    frame = pandas.DataFrame({"x": RANDOM.normal(size=60), "g": RANDOM.choice(["u", "v", "w"], 60)})
    rbm = hm.RBM(2, random_state=0).fit(frame)
    alone = pandas.DataFrame({"x": [np.nan], "g": ["new"]})
    np.testing.assert_allclose(rbm.score_samples(alone), np.log(1 / 61), rtol=1e-6)
    with pytest.raises(ValueError, match="row 0"):
        rbm.score_samples(alone.assign(g=None))


def test_a_gap_between_two_crowds_of_cells_holds_next_to_nothing() -> None:
    """Two modes far apart: the density at each is as by counting, and about one cell lies between them."""
    random = np.random.default_rng(3)
    x = np.concatenate([random.normal(-10, 1, 1000), random.normal(10, 1, 1000)])
    (column,) = Codec.fit(
        pandas.DataFrame({"x": x}), kinds={"x": {"kind": "gaussian", "transform": "quantile"}}
    ).columns()
    between = torch.special.ndtr(torch.from_numpy(column.states_of(np.array([-6.0, 6.0]))))
    assert 0 < float(between.diff()) < 2 / len(x)
    for mode in (-10.0, 10.0):
        states = column.states_of(mode + np.linspace(-0.3, 0.3, 61))
        densities = np.exp(column.log_slopes_of(states) - states**2 / 2) / np.sqrt(2 * np.pi)
        counted = np.mean(np.abs(x - mode) < 0.3) / 0.6
        assert abs(np.log(densities.mean() / counted)) < 0.15
