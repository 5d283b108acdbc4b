"""The section that says whether a machine has learned its columns, beside the simplest laws of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harmonium.report.baselines import Baselines, score_baselines
from harmonium.report.links import Link, compare_links, compare_marginals
from harmonium.report.page.parts import Grid, Remark, Section
from harmonium.report.page.sections import Subject
from harmonium.tables import Table

_SHOWN = 10  # links and columns
_WIDE = 100  # columns, of which all pairs are looked at
_STRONG, _KEPT = 0.3, 0.5  # a link that draws have to show, and the share of it
_FAR = 0.15  # distance of a column's distribution that anyone sees
_HALF = 0.5  # of what a Gaussian gains on independent columns


def fill_learned(scores: Mapping[str, float], section: Section, subject: Subject) -> None:
    """Fills the section: likelihoods beside simple laws, the strongest links, the worst columns.

    Args:
        scores: under "mean" the machine's mean ln p of the rows, in nats of its states, where it is known.
        section: to fill.
        subject: the machine with its data and samples.
    """
    if subject.greys is not None:
        section.absent = "The rows are images: their samples stand below."
        return
    rows, training, score = subject.given, subject.training, scores.get("mean")
    found = score_baselines(subject.machine, rows, rows if training is None else training)
    section.remarks = [] if score is None else [gain_remark(score, found)]
    own = "They were fitted to these rows" if training is None else "They were fitted to the training rows"
    section.lead = f"{len(rows)} rows of {subject.data}, beside laws that know less. {own}."
    likelihoods = [["independent columns", f"{found.independent:.2f}"]]
    if found.gaussian is not None:
        likelihoods.append(["a Gaussian of the real columns", f"{found.gaussian:.2f}"])
    if score is not None:
        likelihoods.append(["the machine", f"{score:.2f}"])
    section.tables = [Grid(["mean ln p, nats of the states", ""], likelihoods)]
    if rows.shape[1] > _WIDE and not isinstance(subject.encoder, Table):
        section.lead += f" Links are shown of at most {_WIDE} columns."
        return
    real, drawn = subject.cells(rows), subject.cells(subject.seen)
    links, marginals = compare_links(real, drawn), compare_marginals(real, drawn)
    section.remarks += [link_remark(links), marginal_remark(marginals)]
    each = [[f"{x.first}, {x.second}", f"{x.real:.2f}", f"{x.sampled:.2f}"] for x in links[:_SHOWN]]
    marked = [lost(link) for link in links[:_SHOWN]]
    section.tables.append(Grid(["strongest links", "data", "samples"], each, marked))
    worst = [[name, f"{value:.2f}"] for name, value in list(marginals.items())[:_SHOWN]]
    section.tables.append(Grid(["farthest columns", "distance"], worst))


def gain_remark(score: float, found: Baselines) -> Remark:
    """Judges a machine's mean ln p beside those of simple laws."""
    gain = score - found.independent
    word = "better" if gain > 0 else "worse"
    text = f"The machine tells a row {abs(gain):.2f} nats {word} than independent columns"
    if found.gaussian is not None:
        text += f", a Gaussian of its real columns {found.gaussian - found.independent:.2f} nats better"
    reach = 0.0 if found.gaussian is None else found.gaussian - found.independent
    if gain <= 0:
        return Remark("caution", f"{text}: it has learned nothing of what joins the columns.")
    if gain < _HALF * reach:
        return Remark("caution", f"{text}: it has learned little of what joins them.")
    return Remark("good", f"{text}.")


def lost(link: Link) -> bool:
    """Returns whether samples lack a link that the data have."""
    return link.real >= _STRONG and link.sampled < _KEPT * link.real


def link_remark(links: Sequence[Link]) -> Remark:
    """Judges whether samples show the strong links of the data."""
    strong = [link for link in links if link.real >= _STRONG]
    missing = [link for link in strong if lost(link)]
    if not strong:
        return Remark("note", "No two columns hang together by more than 0.3.")
    if not missing:
        return Remark("good", f"Samples show all {len(strong)} strong links of the data.")
    first = "; ".join(f"{x.first} and {x.second}: {x.real:.2f}, {x.sampled:.2f}" for x in missing[:3])
    text = f"Samples lack {len(missing)} of {len(strong)} strong links of the data ({first})"
    return Remark("caution", f"{text}: the table is not learned.")


def marginal_remark(marginals: dict[str, float]) -> Remark:
    """Judges the distributions of the columns by themselves."""
    far = [f"{name} ({value:.2f})" for name, value in marginals.items() if value > _FAR]
    if not far:
        return Remark("good", "Every column of the samples is distributed as in the data.")
    return Remark("caution", f"Columns that samples have otherwise than the data: {', '.join(far[:5])}.")
