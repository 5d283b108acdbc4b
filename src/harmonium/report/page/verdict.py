"""A run in plain words, with the caveats that its numbers carry."""

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

_FEW = 10  # annealing runs that carry the estimate of ln Z
_GAP = 1.0  # nats between two bounds that are still close
_R_HAT = 1.1  # from which on chains disagree for anyone to see; up to 1.01 is what is recommended
_AGREES = 0.9  # of the data's own correlation
_STRONG, _KEPT = 0.3, 0.5  # Of links of at least 0.3 in the data, draws have to show half.
_FAR = 0.15  # Distributions of a column that are further apart than this look different to anyone.
REMEDY = (
    "Try another --seed, more units (--hidden), and with chains more --updates or a lower rate at the end."
)
LABEL_REMEDY = "It was trained to tell the label; --objective joint learns the other columns too."


def training_remarks(run: RunRecord) -> list[Remark]:
    """Judges the training by its record."""
    if not run.history:
        return [Remark("note", "There is no history of the training: only the machine is judged.")]
    total, seconds = run.config.get("updates", run.updates), run.history[-1]["seconds"]
    took = f"in {seconds:.0f} s" if seconds >= 2 else f"in {seconds:.2g} s"
    if not run.finished:
        text = f"The run is unfinished: {run.updates} of {total} updates. This is its last checkpoint."
        remarks = [Remark("caution", text)]
    elif run.updates < total:
        remarks = [Remark("note", f"The run was stopped after {run.updates} of {total} updates, {took}.")]
    else:
        remarks = [Remark("good", f"The run made all of its {total} updates, {took}.")]
    for name in run.metrics:
        remarks.append(_trend(spell(name).lower(), run.points(name)))
    if not run.metrics:
        text = "No measure was followed on held-out data (--validation), so the record cannot"
        remarks.append(Remark("note", f"{text} tell whether the machine still improved."))
    return remarks + _rule_remarks(run)


def _trend(name: str, points: list[tuple[float, float]]) -> Remark:
    """Judges whether a number still moved in its last third: a slope of over three standard errors."""
    last = np.array(points[-max(len(points) // 3, 1) :])
    if len(last) < 4:
        return Remark("note", f"{len(points)} values of {name} are too few to tell whether it still moved.")
    x, y = last[:, 0] - last[:, 0].mean(), last[:, 1]
    slope = float(x @ y / (x @ x))
    scatter = y - y.mean() - slope * x
    error = float(np.sqrt(scatter @ scatter / (len(x) - 2) / (x @ x)))
    change = slope * float(x[-1] - x[0])
    spread = float(np.ptp([value for _, value in points])) or 1.0
    if abs(slope) <= 3 * error or abs(change) < 0.005 * spread:
        return Remark("good", f"At the end the {name} had levelled off, at {y[-1]:.4g}.")
    direction, advice = "rose" if change > 0 else "fell", "more updates may still change it"
    if "likelihood" in name:
        falls = "too many updates, or too high a learning rate"
        advice = "more updates would raise it" if change > 0 else falls
    text = f"At the end the {name} still {direction}, by {abs(change):.3g} in a third of the run: {advice}."
    return Remark("caution", text)


def _rule_remarks(run: RunRecord) -> list[Remark]:
    """Judges the rule's diagnostics, as means over the last third of training."""
    remarks = []
    late = {name: run.late(name) for name in dict.fromkeys(name for record in run.history for name in record)}
    for name, value in late.items():
        if value is None:
            continue
        if name.endswith("capped") and value > 0:
            text = f"{value:.1%} of the pairs of chains were cut before they met"
            remarks.append(Remark("caution", f"{text}: that biased the gradient."))
        elif name.endswith("capped"):
            remarks.append(Remark("good", "All pairs of chains met: no gradient was cut short."))
        elif name.endswith("mean_field_converged") and value < 0.99:
            text = f"Mean field had not converged for {1 - value:.0%} of the rows of an update."
            remarks.append(Remark("caution", text))
        elif name.endswith("acceptance") and value < 0.2:
            text = f"Only {value:.0%} of the proposals were accepted"
            remarks.append(Remark("caution", f"{text}: a smaller step moves the chains further."))
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
    if row is not None:
        what = "a lower bound of " if row.get("log_likelihood") is None else ""
        text = f"On {row['data']}, {what}the mean log-likelihood is {likelihood(row, table, mixing)} a row"
        ends = [row.get(f"log_likelihood_{end}") for end in ("lower", "upper")]
        if None not in ends:
            text += f", and between {ends[0]:.2f} and {ends[1]:.2f} by the bounds of ln Z"
        if likelihood(row) is not None:
            remarks.append(Remark("note", f"{text}."))
    if table["method"] == "exact":
        return [*remarks, Remark("good", "ln Z is exact: all states were counted.")]
    trusted = annealing_remark(table, mixing)
    sound = "good" if trusted is None or trusted.level == "good" else "note"
    if table.get("doubts"):
        sound = "note"
    few = table["ess"] < max(_FEW, 0.05 * table["chains"])
    text = f"ln Z is estimated: {table['ess']:.0f} of {table['chains']} annealing runs carry the estimate"
    remarks.append(Remark("caution" if few else sound, text + (", too few to trust it." if few else ".")))
    upper = table.get("upper")
    if upper is not None:
        gap = upper - table["lower"]
        level = sound if gap < _GAP else "caution"
        text = f"Two bounds enclose ln Z within {gap:.2g} nats."
        if not table["lower"] <= table.get("value", upper) <= upper:
            level = "caution"
            text = f"Two bounds of ln Z are {gap:.2g} nats apart, and the estimate lies outside of them."
        remarks.append(Remark(level, text))
    elif table["method"] == "ais" and table.get("lower", 0) is None:
        text = "The bounds of ln Z crossed, as chains have not mixed: nothing bounds it."
        remarks.append(Remark("caution", text))
    if WITHOUT_DATA in table.get("doubts", ()):
        text = "Annealing had no data to start from: a mode that no run found is missing in both bounds."
        remarks.append(Remark("caution", text))
    return remarks if trusted is None else [*remarks, trusted]


def annealing_remark(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> Remark | None:
    """Returns a remark that puts an annealed ln Z and the mixing of chains together.

    None where ln Z is exact, or nothing is known of the mixing.
    """
    if table["method"] == "exact" or mixing is None:
        return None
    text = f"Annealing gives ln Z = {table['value']:.2f}, "
    if mixing.get("falls"):
        text += (
            "but the machine was trained out of equilibrium: chains from noise agree best with the data "
            f"after {mixing['peak']} sweeps. So its standard error and its bounds cannot be trusted, "
            "however small: likelihoods are those of a distribution that its best samples do not follow."
        )
        return Remark("caution", text)
    if unmixed(table, mixing):
        text += (
            f"but {_count_apart(mixing)}. So its standard error and its upper bound cannot be trusted: "
            "modes that no run reached are missing. ln Z may be higher, and likelihoods lower. "
            "Compare more temperatures, other seeds, and a base of training rows."
        )
        return Remark("caution", text)
    if "pairs" not in mixing:
        return None
    text += f"and all {mixing['pairs']} pairs of chains from noise met"
    if table.get("doubts"):
        return Remark("note", f"{text}, but annealing itself left doubts.")
    return Remark("good", f"{text}: nothing speaks against its bounds.")


def unmixed(table: Mapping[str, Any], mixing: Mapping[str, Any] | None) -> bool:
    """Returns True if ln Z was annealed and has no known error.

    Pairs of chains did not meet, or the machine was trained out of equilibrium.
    """
    if table["method"] == "exact" or mixing is None:
        return False
    return mixing.get("given_up", 0) > 0 or bool(mixing.get("falls"))


def _count_apart(mixing: Mapping[str, Any]) -> str:
    """Describes the number of pairs of chains that never met."""
    apart = round(mixing["given_up"] * mixing["pairs"])
    after = mixing["longest_meeting_time"]
    return f"{apart} of {mixing['pairs']} pairs of chains had not met after {after} sweeps"


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


def mixing_remark(found: MixingTimes, sweeps: int | None = None) -> Remark:
    """Returns a remark on meeting times, and on samples of chains of so many sweeps; None: there are none."""
    if found.given_up > 0:
        text = (
            f"{_count_apart(found._asdict())}: nothing bounds how far chains from noise are from the "
            "machine's distribution. Start chains at data or temper them (hm.chains.Tempering); more sweeps "
            "help where pairs still met near the end."
        )
        return Remark("note" if sweeps is None else "caution", text)
    near = found.sweeps_with_confidence or found.sweeps
    if near is None:
        text = f"All pairs of chains met, but they bound no distance below {found.distance:g}."
        return Remark("note", text)
    text = (
        f"Chains from noise are within {found.distance:g} (total variation) of the distribution after {near} "
        f"sweeps, by {found.pairs} pairs that all met; a mode that none of them found is not seen"
    )
    if sweeps is None:
        return Remark("good", f"{text}.")
    enough = sweeps >= near
    text += f". The samples here took {sweeps}{'' if enough else ', too few'}."
    return Remark("good" if enough else "caution", text)


def convergence_remark(found: Diagnosis) -> Remark:
    """Returns a remark on R̂ and effective sample sizes."""
    text = (
        f"The largest R̂ of chains from noise is {found.r_hat:.3f}, and the smallest effective sample size "
        f"{found.ess:.0f} of {found.draws} draws"
    )
    if found.passed:
        return Remark("good", f"{text}.")
    level = "note" if found.r_hat <= _R_HAT else "caution"
    return Remark(level, f"{text}: averages over chains this long are not yet those of the machine.")


def equilibrium_remark(found: Resampling) -> Remark:
    """Returns a remark on training out of equilibrium."""
    last, sweeps = float(found.correlation[-1]), int(found.sweeps[-1])
    if found.falls:
        text = (
            "Trained out of equilibrium: covariances of chains from noise correlate with the data's by "
            f"{float(found.correlation.max()):.2f} after {found.peak} sweeps, and by {last:.2f} after "
            f"{sweeps}. The best samples are not from the machine's distribution. Train on with a lower rate "
            "and more sweeps (rule pcd, schedule linear)."
        )
        return Remark("caution", text)
    text = (
        "The covariances of pairs of units, of chains from noise, correlate with the data's by "
        f"{last:.2f} after {sweeps} sweeps (other rows of the data: {found.data:.2f})"
    )
    if found.rises:
        return Remark("note", f"{text}, and still rising: more sweeps would bring them nearer.")
    return Remark("good" if last > _AGREES * found.data else "note", f"{text}, and did not fall on the way.")


def activity_remarks(never: int, always: int, saturated: float, units: int) -> list[Remark]:
    """Judges the activity of two-valued hidden units on the data: constant ones, and saturation."""
    remarks = []
    for count, how in ((never, "never"), (always, "always")):
        if count:
            text = f"{count} of {units} hidden units are {how} active on the data"
            level = "caution" if count > units / 10 else "note"
            remarks.append(Remark(level, f"{text}: they carry no information about the rows."))
    if not remarks:
        remarks.append(Remark("good", f"All {units} hidden units are active on some rows and not on others."))
    if saturated > 0.9:
        share = f"{saturated:.0%} of their probabilities below 1 % or above 99 %"
        remarks.append(Remark("note", f"The hidden units are saturated, {share}."))
    return remarks


def copy_remarks(samples: float, data: float) -> list[Remark]:
    """Judges whether samples copy rows, by the median distances of samples and rows to the nearest row."""
    if data == 0:
        return []
    text = f"The median sample lies {samples:.3g} from the nearest row, the median row {data:.3g}: "
    if samples < 0.5 * data:
        return [Remark("caution", text + "many samples are near copies of rows.")]
    if samples > 1.5 * data:
        return [Remark("note", text + "samples lie farther off than rows do.")]
    return [Remark("good", text + "samples are neither copies nor far off.")]


def gain_remark(score: float, independent: float, remedy: str = REMEDY) -> Remark:
    """Judges a machine's mean ln p beside that of independent columns; a caution ends with a remedy."""
    gain = score - independent
    word = "better" if gain > 0 else "worse"
    text = f"The machine tells a row {abs(gain):.2f} nats {word} than independent columns"
    if gain <= 0:
        return Remark("caution", f"{text}: it has learned nothing of what joins the columns. {remedy}")
    return Remark("good", f"{text}.")


def is_lost(link: Link) -> bool:
    """Returns whether samples lack a link that the data have."""
    return link.real >= _STRONG and link.sampled < _KEPT * link.real


def link_remark(links: Sequence[Link], remedy: str = REMEDY) -> Remark:
    """Judges whether samples show the strong links of the data; a caution ends with a remedy."""
    strong = [link for link in links if link.real >= _STRONG]
    missing = [link for link in strong if is_lost(link)]
    if not strong:
        return Remark("note", "No two columns hang together by more than 0.3.")
    if not missing:
        return Remark("good", f"Samples show all {len(strong)} strong links of the data.")
    first = "; ".join(f"{x.first} and {x.second}: {x.real:.2f}, {x.sampled:.2f}" for x in missing[:3])
    text = f"Samples lack {len(missing)} of {len(strong)} strong links of the data ({first})"
    return Remark("caution", f"{text}: the table is not learned. {remedy}")


def marginal_remark(marginals: Mapping[str, float]) -> Remark:
    """Judges the distributions of the columns by themselves."""
    far = [f"{name} ({value:.2f})" for name, value in marginals.items() if value > _FAR]
    if not far:
        return Remark("good", "Every column of the samples is distributed as in the data.")
    return Remark("caution", f"Columns that samples have otherwise than the data: {', '.join(far[:5])}.")
