"""A run in plain words, with the caveats that its numbers carry: which sentence of verdict.toml holds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harmonium.chains import Diagnosis
from harmonium.coupled import MixingTimes
from harmonium.likelihood import WITHOUT_DATA
from harmonium.report.equilibrium import Resampling
from harmonium.report.links import Link
from harmonium.report.page.parts import Remark
from harmonium.report.page.record import RunRecord, spell

REMEDY = (
    "Try another --seed, more units (--hidden), and with chains more --updates or a lower rate at the end."
)
LABEL_REMEDY = "It was trained to tell the label; --objective joint learns the other columns too."
_SENTENCES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _first(topic: str, rules: Mapping[str, object], **values: Any) -> list[Remark]:
    """Returns the remark of the first rule that holds, with values in its sentence; else none."""
    for name, holds in rules.items():
        if holds:
            level, text = _SENTENCES[topic][name].format(**values).split(": ", 1)
            return [Remark(level, text)]
    return []


def training_remarks(run: RunRecord) -> list[Remark]:
    """Judges the training by its record."""
    if not run.history:
        return _first("training", {"none": True})
    total = run.config.get("updates", run.updates)
    took = f"{run.seconds:.0f} s" if run.seconds >= 2 else f"{run.seconds:.2g} s"
    status = {"unfinished": not run.finished, "stopped": run.updates < total, "complete": True}
    remarks = _first("training", status, run=run, total=total, took=took)
    for name in run.metrics:
        remarks += _judge_trend(spell(name).lower(), run.points(name))
    return remarks + _first("training", {"unmeasured": not run.metrics}) + _judge_rule(run)


def _judge_trend(name: str, points: list[tuple[float, float]]) -> list[Remark]:
    """Judges whether a number still moved in its last third: a slope of over three standard errors."""
    from scipy.stats import linregress  # slow to import, and only needed here

    last = np.array(points[-max(len(points) // 3, 1) :])
    if len(last) < 4:
        return _first("training", {"few": True}, count=len(points), name=name)
    fit = linregress(*last.T)
    change = float(fit.slope * (last[-1, 0] - last[0, 0]))
    spread = float(np.ptp([value for _, value in points])) or 1.0
    level = abs(fit.slope) <= 3 * fit.stderr or abs(change) < 0.005 * spread
    advice = "more updates may still change it"
    if "likelihood" in name:
        falls = "too many updates, or too high a learning rate"
        advice = "more updates would raise it" if change > 0 else falls
    values = {
        "name": name,
        "last": last[-1, 1],
        "moved": "rose" if change > 0 else "fell",
        "size": abs(change),
    }
    return _first("training", {"level": level, "moves": True}, **values, advice=advice)


def _judge_rule(run: RunRecord) -> list[Remark]:
    """Judges the rule's diagnostics, as means over the last third of training."""
    late = {name: run.late(name) for record in run.history for name in record}
    remarks = []
    for name, value in late.items():
        if value is not None:
            rules = {
                "cut": name.endswith("capped") and value > 0,
                "met": name.endswith("capped"),
                "unconverged": name.endswith("mean_field_converged") and value < 0.99,
                "refused": name.endswith("acceptance") and value < 0.2,
            }
            remarks += _first("training", rules, late=value, rest=1 - value)
    clipped, norm = late.get("clipped"), late.get("gradient_norm")
    holds, limit = {"clipped": clipped and norm is not None}, run.config.get("clip_norm")
    remarks += _first("training", holds, clipped=clipped, norm=norm, limit=limit)
    return list(dict.fromkeys(remarks))


def likelihood_remarks(
    table: Mapping[str, Any], row: Mapping[str, Any] | None, mixing: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Returns remarks on how far ln Z and the likelihood can be trusted.

    The tables are those of ``harmonium evaluate``: on ln Z, on the data, and on the mixing.
    """
    remarks = []
    if row is not None and (value := likelihood(row, table, mixing)) is not None:
        bound = "a lower bound of " if row.get("log_likelihood") is None else ""
        between = None not in (row.get("log_likelihood_lower"), row.get("log_likelihood_upper"))
        remarks = _first("likelihood", {"between": between, "mean": True}, row=row, bound=bound, value=value)
    if table["method"] == "exact":
        return remarks + _first("likelihood", {"exact": True})
    together, doubts = annealing_remarks(table, mixing), table.get("doubts", ())
    sound = "note" if doubts or any(remark.level != "good" for remark in together) else "good"
    few = table["ess"] < max(10, 0.05 * table["chains"])
    lower, upper = table.get("lower", 0), table.get("upper")
    crossed = upper is None and table["method"] == "ais" and lower is None
    gap = None if upper is None else upper - lower
    outside = upper is not None and not lower <= table.get("value", upper) <= upper
    bounds = {"crossed": crossed, "outside": outside, "wide": (gap or 0) >= 1, "close": gap is not None}
    values = {"sound": sound, "ess": table["ess"], "chains": table["chains"], "gap": gap}
    for rules in ({"few": few, "runs": True}, bounds, {"blind": WITHOUT_DATA in doubts}):
        remarks += _first("likelihood", rules, **values)
    return remarks + together


def annealing_remarks(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> list[Remark]:
    """Judges an annealed ln Z by the mixing of chains; none where ln Z is exact, or the mixing unknown."""
    if table["method"] == "exact" or mixing is None:
        return []
    pairs, falls = mixing.get("pairs"), mixing.get("falls")
    rules = {"falls": falls, "apart": unmixed(table, mixing), "doubts": pairs and table.get("doubts")}
    values = {"value": table["value"], "peak": mixing.get("peak"), "pairs": pairs}
    return _first("likelihood", rules | {"met": pairs}, **values, apart=_count_apart(mixing))


def unmixed(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> bool:
    """Returns True if ln Z was annealed and has no known error.

    Pairs of chains did not meet, or the machine was trained out of equilibrium.
    """
    mixing = mixing or {}
    return table["method"] != "exact" and bool(mixing.get("given_up", 0) > 0 or mixing.get("falls"))


def _count_apart(mixing: Mapping[str, Any]) -> str:
    """Describes the number of pairs of chains that never met."""
    pairs = mixing.get("pairs", 0)
    apart, after = round(mixing.get("given_up", 0) * pairs), mixing.get("longest_meeting_time")
    return f"{apart} of {pairs} pairs of chains had not met after {after} sweeps"


def likelihood(
    row: Mapping[str, Any],
    table: Mapping[str, Any] | None = None,
    mixing: Mapping[str, Any] | None = None,
) -> str | None:
    """Returns the mean over rows and its error from their spread, or that of the variational bound.

    Without the error, and with a warning, where ln Z (``table``) has none that is known (``unmixed``).
    """
    scores = (row.get(name) for name in ("log_likelihood", "variational_bound"))
    value = next((score for score in scores if score is not None), None)
    if value is None:
        return None
    if table is not None and unmixed(table, mixing):
        why = "trained out of equilibrium" if mixing and mixing.get("falls") else "as chains do not mix"
        return f"{value:.2f} nats (error unknown, {why})"
    most = row.get("log_likelihood_upper")
    if most is not None and value > most:  # than discrete rows can have
        return f"at most {most:.2f} nats (ln Z is estimated too low)"
    text = f"{value:.2f} ± {row['rows_standard_error'] or 0:.2f} nats"
    cut = None if table is None else table.get("shortened")
    return text + (f" (by {cut}, and so likely too high)" if cut else "")


def mixing_remarks(times: MixingTimes, sweeps: int | None) -> list[Remark]:
    """Judges meeting times, and samples of chains of so many sweeps; None: the draws are exact."""
    near = times.sweeps_with_confidence or times.sweeps
    within = (
        f"Chains from noise are within {times.distance:g} (total variation) of the distribution after {near} "
        f"sweeps, by {times.pairs} pairs that all met; a mode that none of them found is not seen"
    )
    enough = near is not None and sweeps is not None and sweeps >= near
    rules = {"apart": times.given_up > 0, "unbounded": near is None, "exact": sweeps is None}
    values = {"times": times, "apart": _count_apart(times._asdict()), "within": within, "sweeps": sweeps}
    level = "note" if sweeps is None else "caution"
    return _first("mixing", rules | {"enough": enough, "few": True}, **values, level=level)


def convergence_remarks(diagnosis: Diagnosis) -> list[Remark]:
    """Judges R̂ and effective sample sizes; from an R̂ of 1.1 on chains disagree for anyone to see."""
    spread = (
        f"The largest R̂ of chains from noise is {diagnosis.r_hat:.3f}, and the smallest effective sample "
        f"size {diagnosis.ess:.0f} of {diagnosis.draws} draws"
    )
    level = "note" if diagnosis.r_hat <= 1.1 else "caution"
    return _first("mixing", {"converged": diagnosis.passed, "short": True}, spread=spread, level=level)


def equilibrium_remarks(curve: Resampling) -> list[Remark]:
    """Judges whether training kept to equilibrium."""
    last, sweeps = float(curve.correlation[-1]), int(curve.sweeps[-1])
    text = (
        "The covariances of pairs of units, of chains from noise, correlate with the data's by "
        f"{last:.2f} after {sweeps} sweeps (other rows of the data: {curve.data:.2f})"
    )
    rules = {"falls": curve.falls, "rises": curve.rises, "stays": True}
    values = {"curve": curve, "most": float(curve.correlation.max()), "last": last, "sweeps": sweeps}
    return _first("mixing", rules, **values, text=text, level="good" if last > 0.9 * curve.data else "note")


def activity_remarks(never: int, always: int, saturated: float, units: int) -> list[Remark]:
    """Judges the activity of two-valued hidden units on the data: constant ones, and saturation."""
    remarks = []
    for count, how in ((never, "never"), (always, "always")):
        level = "caution" if count > units / 10 else "note"
        remarks += _first("learned", {"constant": count}, level=level, count=count, units=units, how=how)
    remarks += _first("learned", {"active": not remarks}, units=units)
    return remarks + _first("learned", {"saturated": saturated > 0.9}, saturated=saturated)


def copy_remarks(samples: float, data: float) -> list[Remark]:
    """Judges whether samples copy rows, by the median distances of samples and rows to the nearest row."""
    text = f"The median sample lies {samples:.3g} from the nearest row, the median row {data:.3g}: "
    rules = {"copies": samples < 0.5 * data, "far": samples > 1.5 * data > 0, "apart": data > 0}
    return _first("learned", rules, distances=text)


def gain_remarks(score: float, independent: float, remedy: str) -> list[Remark]:
    """Judges a machine's mean ln p beside that of independent columns."""
    rules = {"better": score > independent, "worse": True}
    return _first("learned", rules, gain=abs(score - independent), remedy=remedy)


def is_lost(link: Link) -> bool:
    """Returns whether samples lack half of a strong link of the data."""
    return link.real >= 0.3 and link.sampled < 0.5 * link.real


def link_remarks(links: Sequence[Link], remedy: str) -> list[Remark]:
    """Judges whether samples show the strong links of the data."""
    strong, lost = sum(link.real >= 0.3 for link in links), [link for link in links if is_lost(link)]
    named = "; ".join(f"{x.first} and {x.second}: {x.real:.2f}, {x.sampled:.2f}" for x in lost[:3])
    rules = {"unlinked": not strong, "linked": not lost, "lost": True}
    return _first("learned", rules, strong=strong, lost=len(lost), named=named, remedy=remedy)


def marginal_remarks(marginals: Mapping[str, float]) -> list[Remark]:
    """Judges each column's distribution; distances over 0.15 look different to anyone."""
    far = [f"{name} ({value:.2f})" for name, value in marginals.items() if value > 0.15]
    return _first("learned", {"alike": not far, "unlike": True}, named=", ".join(far[:5]))
