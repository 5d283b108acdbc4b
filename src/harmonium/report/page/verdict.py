"""A run in plain words, with the caveats of its numbers: tables of rules, of which the first holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def _first(*rules: tuple[object, str, str]) -> list[Remark]:
    """Returns the remark of the first rule that holds, each a condition, a level and a sentence."""
    return next(([Remark(level, text)] for holds, level, text in rules if holds), [])


def training_remarks(run: RunRecord) -> list[Remark]:
    """Judges the training by its record."""
    if not run.history:
        return [Remark("note", "There is no history of the training: only the machine is judged.")]
    done, total = run.updates, run.config.get("updates", run.updates)
    took = f"{run.seconds:.0f} s" if run.seconds >= 2 else f"{run.seconds:.2g} s"
    remarks = _first(
        (
            not run.finished,
            "caution",
            f"The run is unfinished: {done} of {total} updates. This is its last checkpoint.",
        ),
        (done < total, "note", f"The run was stopped after {done} of {total} updates, in {took}."),
        (True, "good", f"The run made all of its {total} updates, in {took}."),
    )
    for name in run.metrics:
        remarks += _judge_trend(spell(name).lower(), run.points(name))
    if not run.metrics:
        text = "No measure was followed on held-out data (--validation), so the record cannot"
        remarks.append(Remark("note", f"{text} tell whether the machine still improved."))
    return remarks + _judge_rule(run)


def _judge_trend(name: str, points: list[tuple[float, float]]) -> list[Remark]:
    """Judges whether a number still moved in its last third: a slope of over three standard errors."""
    last = np.array(points[-max(len(points) // 3, 1) :])
    if len(last) < 4:
        return [Remark("note", f"{len(points)} values of {name} are too few to tell whether it still moved.")]
    x, y = last[:, 0] - last[:, 0].mean(), last[:, 1]
    slope = float(x @ y / (x @ x))
    scatter = y - y.mean() - slope * x
    error = float(np.sqrt(scatter @ scatter / (len(x) - 2) / (x @ x)))
    change = slope * float(x[-1] - x[0])
    spread = float(np.ptp([value for _, value in points])) or 1.0
    level = abs(slope) <= 3 * error or abs(change) < 0.005 * spread
    moved = f"At the end the {name} still {'rose' if change > 0 else 'fell'}, by {abs(change):.3g}"
    moved += " in a third of the run: "
    return _first(
        (level, "good", f"At the end the {name} had levelled off, at {y[-1]:.4g}."),
        ("likelihood" not in name, "caution", f"{moved}more updates may still change it."),
        (change > 0, "caution", f"{moved}more updates would raise it."),
        (True, "caution", f"{moved}too many updates, or too high a learning rate."),
    )


def _judge_rule(run: RunRecord) -> list[Remark]:
    """Judges the rule's diagnostics, as means over the last third of training."""
    late = {name: run.late(name) for record in run.history for name in record}
    remarks = []
    for name, value in late.items():
        if value is not None:
            capped, converged = name.endswith("capped"), name.endswith("mean_field_converged")
            cut = f"{value:.1%} of the pairs of chains were cut before they met: that biased the gradient."
            lost = f"Mean field had not converged for {1 - value:.0%} of the rows of an update."
            few = f"Only {value:.0%} of the proposals were accepted: a smaller step moves the chains further."
            remarks += _first(
                (capped and value > 0, "caution", cut),
                (capped, "good", "All pairs of chains met: no gradient was cut short."),
                (converged and value < 0.99, "caution", lost),
                (name.endswith("acceptance") and value < 0.2, "caution", few),
            )
    clipped, norm = late.get("clipped"), late.get("gradient_norm")
    if clipped and norm is not None:
        text = f"{clipped:.0%} of the updates were clipped at a norm of {run.config['clip_norm']:g}"
        remarks.append(Remark("note", f"{text}; the mean norm was {norm:.3g}."))
    return list(dict.fromkeys(remarks))


def likelihood_remarks(
    table: Mapping[str, Any], row: Mapping[str, Any] | None, mixing: Mapping[str, Any] | None = None
) -> list[Remark]:
    """Returns remarks on how far ln Z and the likelihood can be trusted.

    The tables are those of ``harmonium evaluate``: on ln Z, on the data, and on the mixing.
    """
    remarks = []
    if row is not None and (value := likelihood(row, table, mixing)) is not None:
        what = "a lower bound of " if row.get("log_likelihood") is None else ""
        text = f"On {row['data']}, {what}the mean log-likelihood is {value} a row"
        low, high = (row.get(f"log_likelihood_{end}") for end in ("lower", "upper"))
        if low is not None and high is not None:
            text += f", and between {low:.2f} and {high:.2f} by the bounds of ln Z"
        remarks.append(Remark("note", f"{text}."))
    if table["method"] == "exact":
        return [*remarks, Remark("good", "ln Z is exact: all states were counted.")]
    together, doubts = annealing_remark(table, mixing), table.get("doubts", ())
    sound = "note" if doubts or (together and together.level != "good") else "good"
    carry = f"ln Z is estimated: {table['ess']:.0f} of {table['chains']} annealing runs carry the estimate"
    remarks += _first(
        (table["ess"] < max(10, 0.05 * table["chains"]), "caution", f"{carry}, too few to trust it."),
        (True, sound, f"{carry}."),
    )
    lower, upper = table.get("lower", 0), table.get("upper")
    if upper is not None:
        gap, outside = upper - lower, not lower <= table.get("value", upper) <= upper
        apart = f"Two bounds of ln Z are {gap:.2g} nats apart, and the estimate lies outside of them."
        close = f"Two bounds enclose ln Z within {gap:.2g} nats."
        remarks += _first((outside, "caution", apart), (gap >= 1, "caution", close), (True, sound, close))
    crossed = "The bounds of ln Z crossed, as chains have not mixed: nothing bounds it."
    blind = "Annealing had no data to start from: a mode that no run found is missing in both bounds."
    remarks += _first((upper is None and table["method"] == "ais" and lower is None, "caution", crossed))
    remarks += _first((WITHOUT_DATA in doubts, "caution", blind))
    return [*remarks, together] if together else remarks


def annealing_remark(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> Remark | None:
    """Returns a remark that puts an annealed ln Z and the mixing of chains together.

    None where ln Z is exact, or nothing is known of the mixing.
    """
    if table["method"] == "exact" or mixing is None:
        return None
    text, pairs = f"Annealing gives ln Z = {table['value']:.2f}", mixing.get("pairs")
    met = f"{text}, and all {pairs} pairs of chains from noise met"
    found = _first(
        (
            mixing.get("falls"),
            "caution",
            f"{text}, but the machine was trained out of equilibrium: chains from noise agree best with the "
            f"data after {mixing.get('peak')} sweeps. So its standard error and its bounds cannot be "
            "trusted, however small: likelihoods are those of a distribution that its best samples do not "
            "follow.",
        ),
        (
            unmixed(table, mixing),
            "caution",
            f"{text}, but {_count_apart(mixing)}. So its standard error and its upper bound cannot be "
            "trusted: modes that no run reached are missing. ln Z may be higher, and likelihoods lower. "
            "Compare more temperatures, other seeds, and a base of training rows.",
        ),
        (pairs and table.get("doubts"), "note", f"{met}, but annealing itself left doubts."),
        (pairs, "good", f"{met}: nothing speaks against its bounds."),
    )
    return found[0] if found else None


def unmixed(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> bool:
    """Returns True if ln Z was annealed and has no known error.

    Pairs of chains did not meet, or the machine was trained out of equilibrium.
    """
    if table["method"] == "exact" or mixing is None:
        return False
    return mixing.get("given_up", 0) > 0 or bool(mixing.get("falls"))


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


def mixing_remarks(found: MixingTimes, sweeps: int | None) -> list[Remark]:
    """Judges meeting times, and samples of chains of so many sweeps; None: the draws are exact."""
    near = found.sweeps_with_confidence or found.sweeps
    within = (
        f"Chains from noise are within {found.distance:g} (total variation) of the distribution after {near} "
        f"sweeps, by {found.pairs} pairs that all met; a mode that none of them found is not seen"
    )
    apart = (
        f"{_count_apart(found._asdict())}: nothing bounds how far chains from noise are from the machine's "
        "distribution. Start chains at data or temper them (hm.chains.Tempering); more sweeps help where "
        "pairs still met near the end."
    )
    none = f"All pairs of chains met, but they bound no distance below {found.distance:g}."
    took = f"{within}. The samples here took {sweeps}"
    return _first(
        (found.given_up > 0, "note" if sweeps is None else "caution", apart),
        (near is None, "note", none),
        (sweeps is None, "good", f"{within}."),
        ((sweeps or 0) >= (near or 0), "good", f"{took}."),
        (True, "caution", f"{took}, too few."),
    )


def convergence_remarks(found: Diagnosis) -> list[Remark]:
    """Judges R̂ and effective sample sizes; from an R̂ of 1.1 on chains disagree for anyone to see."""
    text = (
        f"The largest R̂ of chains from noise is {found.r_hat:.3f}, and the smallest effective sample size "
        f"{found.ess:.0f} of {found.draws} draws"
    )
    short = f"{text}: averages over chains this long are not yet those of the machine."
    return _first(
        (found.passed, "good", f"{text}."), (found.r_hat <= 1.1, "note", short), (True, "caution", short)
    )


def equilibrium_remarks(found: Resampling) -> list[Remark]:
    """Judges whether training kept to equilibrium."""
    last, sweeps = float(found.correlation[-1]), int(found.sweeps[-1])
    falls = (
        "Trained out of equilibrium: covariances of chains from noise correlate with the data's by "
        f"{float(found.correlation.max()):.2f} after {found.peak} sweeps, and by {last:.2f} after {sweeps}. "
        "The best samples are not from the machine's distribution. Train on with a lower rate and more "
        "sweeps (rule pcd, schedule linear)."
    )
    text = (
        "The covariances of pairs of units, of chains from noise, correlate with the data's by "
        f"{last:.2f} after {sweeps} sweeps (other rows of the data: {found.data:.2f})"
    )
    stays = f"{text}, and did not fall on the way."
    return _first(
        (found.falls, "caution", falls),
        (found.rises, "note", f"{text}, and still rising: more sweeps would bring them nearer."),
        (last > 0.9 * found.data, "good", stays),
        (True, "note", stays),
    )


def activity_remarks(never: int, always: int, saturated: float, units: int) -> list[Remark]:
    """Judges the activity of two-valued hidden units on the data: constant ones, and saturation."""
    remarks = []
    for count, how in ((never, "never"), (always, "always")):
        text = f"{count} of {units} hidden units are {how} active on the data"
        level = "caution" if count > units / 10 else "note"
        remarks += _first((count, level, f"{text}: they carry no information about the rows."))
    remarks = remarks or [
        Remark("good", f"All {units} hidden units are active on some rows and not on others.")
    ]
    share = f"{saturated:.0%} of their probabilities below 1 % or above 99 %"
    return remarks + _first((saturated > 0.9, "note", f"The hidden units are saturated, {share}."))


def copy_remarks(samples: float, data: float) -> list[Remark]:
    """Judges whether samples copy rows, by the median distances of samples and rows to the nearest row."""
    text = f"The median sample lies {samples:.3g} from the nearest row, the median row {data:.3g}: "
    return _first(
        (samples < 0.5 * data, "caution", f"{text}many samples are near copies of rows."),
        (samples > 1.5 * data > 0, "note", f"{text}samples lie farther off than rows do."),
        (data > 0, "good", f"{text}samples are neither copies nor far off."),
    )


def gain_remarks(score: float, independent: float, remedy: str) -> list[Remark]:
    """Judges a machine's mean ln p beside that of independent columns."""
    text = f"The machine tells a row {abs(score - independent):.2f} nats"
    none = (
        f"{text} worse than independent columns: it has learned nothing of what joins the columns. {remedy}"
    )
    return _first(
        (score > independent, "good", f"{text} better than independent columns."), (True, "caution", none)
    )


def is_strong(link: Link) -> bool:
    """Returns whether the data have a strong link."""
    return link.real >= 0.3


def is_lost(link: Link) -> bool:
    """Returns whether samples lack half of a strong link of the data."""
    return is_strong(link) and link.sampled < 0.5 * link.real


def link_remarks(links: Sequence[Link], remedy: str) -> list[Remark]:
    """Judges whether samples show the strong links of the data."""
    strong, lost = ([link for link in links if holds(link)] for holds in (is_strong, is_lost))
    named = "; ".join(f"{x.first} and {x.second}: {x.real:.2f}, {x.sampled:.2f}" for x in lost[:3])
    text = f"Samples lack {len(lost)} of {len(strong)} strong links of the data ({named})"
    return _first(
        (not strong, "note", "No two columns hang together by more than 0.3."),
        (not lost, "good", f"Samples show all {len(strong)} strong links of the data."),
        (True, "caution", f"{text}: the table is not learned. {remedy}"),
    )


def marginal_remarks(marginals: Mapping[str, float]) -> list[Remark]:
    """Judges each column's distribution; distances over 0.15 look different to anyone."""
    far = [f"{name} ({value:.2f})" for name, value in marginals.items() if value > 0.15]
    return _first(
        (not far, "good", "Every column of the samples is distributed as in the data."),
        (True, "caution", f"Columns that samples have otherwise than the data: {', '.join(far[:5])}."),
    )
