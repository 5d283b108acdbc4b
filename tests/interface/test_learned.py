"""Was a table learned: links, marginals and simple distributions beside a machine."""

from __future__ import annotations

import numpy as np
import pytest

from harmonium.report import Link, compare_links, compare_marginals
from harmonium.report.page.verdict import (
    REMEDY,
    gain_remarks,
    likelihood_remarks,
    link_remarks,
    marginal_remarks,
)

from .command_line import TINY, CommandLine

pd = pytest.importorskip("pandas")


def table(rows=2000, seed=0):
    random = np.random.default_rng(seed)
    first = random.integers(0, 3, rows)
    return pd.DataFrame(
        {
            "label": np.array(["a", "b", "c"])[first],
            "same": np.array(["x", "y", "z"])[first],
            "number": first + 0.5 * random.standard_normal(rows),
            "other": random.standard_normal(rows),
        }
    )


def test_links_are_known_correlations():
    frame = table()
    found = {(x.first, x.second): x for x in compare_links(frame, frame)}
    assert found["label", "same"].real == pytest.approx(1)
    pearson = abs(frame["number"].corr(frame["other"]))
    assert found["number", "other"].real == pytest.approx(pearson)
    means = frame.groupby("label")["number"].transform("mean")
    assert found["label", "number"].real == pytest.approx(means.std() / frame["number"].std())
    assert all(x.real == x.sampled for x in found.values())
    assert [x.real for x in compare_links(frame, frame)] == sorted(
        (x.real for x in found.values()), reverse=True
    )


def test_links_that_samples_lack_are_seen_and_missing_cells_left_out():
    frame = table()
    shuffled = frame.assign(same=frame["same"].sample(frac=1, random_state=1).to_numpy())
    shuffled.loc[::3, "number"] = np.nan
    found = {(x.first, x.second): x for x in compare_links(frame, shuffled)}
    assert found["label", "same"].sampled < 0.1
    assert found["label", "number"].sampled > 0.8
    (remark,) = link_remarks(compare_links(frame, shuffled), REMEDY)
    assert remark.level == "caution"
    assert "label and same: 1.00" in remark.text
    assert link_remarks(compare_links(frame, frame), REMEDY)[0].level == "good"


def test_a_column_without_a_cell_has_no_links():
    """Such as one that a table leaves out, whose cells are missing in every sample."""
    frame = table()
    bare = frame.assign(name=None)
    assert compare_links(bare, bare) == compare_links(frame, frame)
    assert compare_marginals(bare, bare) == compare_marginals(frame, frame)


def test_marginals_are_known_distances():
    frame = table()
    other = frame.assign(label="a", number=frame["number"] + 100)
    found = compare_marginals(frame, other)
    assert found["number"] == 1
    assert found["label"] == pytest.approx((frame["label"] != "a").mean())
    assert found["other"] == 0
    assert "number (1.00)" in marginal_remarks(found)[0].text
    assert marginal_remarks({"number": 0.01})[0].level == "good"


def test_other_columns_are_refused():
    with pytest.raises(ValueError, match="'other'"):
        compare_links(table(), table().drop(columns="other"))


def test_distances_of_dates_are_those_of_their_days():
    days = np.datetime64("2024-01-01") + np.arange(100).astype("timedelta64[D]")
    real = pd.DataFrame({"day": days, "x": np.arange(100.0)})
    sampled = real.assign(day=real["day"] + pd.Timedelta("5D"))
    assert compare_marginals(real, sampled)["day"] == pytest.approx(0.05)
    (link,) = compare_links(real, sampled)
    assert link.real == pytest.approx(1.0) and link.sampled == pytest.approx(1.0)


def test_the_gain_is_judged():
    assert gain_remarks(-5.0, -10.0, REMEDY)[0].level == "good"
    assert gain_remarks(-11.0, -10.0, REMEDY)[0].level == "caution"
    assert link_remarks([Link("a", "b", 0.1, 0.0)], REMEDY)[0].level == "note"


def test_an_estimate_outside_of_its_bounds_is_said():
    numbers = {"method": "ais", "value": 3.0, "lower": 1.0, "upper": 2.0, "ess": 90.0, "chains": 100}
    texts = [remark.text for remark in likelihood_remarks(numbers, None)]
    assert any("outside" in text for text in texts)
    assert not any("enclose" in text for text in texts)


@pytest.mark.nightly
def test_a_page_says_how_many_rows_it_is_made_from_and_what_was_learned(cli: CommandLine, tmp_path):
    frame = table(200)
    frame.loc[frame.index[:50], "number"] = np.nan
    frame.to_csv(tmp_path / "t.csv", index=False)
    cli.succeed("train", tmp_path / "t.csv", tmp_path / "run", *TINY)
    quick = ("--sweeps", 5, "--temperatures", 10, "--mixing-sweeps", 50, "--threads", 1)
    cli.succeed("report", tmp_path / "run", *quick)
    text = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "150 of its 200 rows" in text
    assert "than independent columns" in text
    assert "strong links of the data" in text


@pytest.mark.nightly
def test_a_page_of_a_table_rests_on_no_chain_and_counts_days(cli: CommandLine, tmp_path):
    frame = table(200).drop(columns="label")
    days = np.datetime64("2024-01-01") + np.arange(200).astype("timedelta64[D]")
    frame.assign(day=days, money=(1.005 - np.linspace(0, 1, 200)) ** -2.0).to_csv(
        tmp_path / "t.csv", index=False
    )
    cli.succeed("train", tmp_path / "t.csv", tmp_path / "run")
    cli.succeed("report", tmp_path / "run")
    text = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "1000 independent draws from the machine&#39;s distribution" in text
    assert "chains from noise" not in text
    assert "day (first" not in text and "money (tails in the outer bins)" in text
    assert "held-out rows" in text
