"""A plot of how fast chains mix."""

from __future__ import annotations

import os

import torch

from harmonium import _checks
from harmonium.couplings import Meetings, mixing_bound, mixing_limit
from harmonium.report._figure import new_figure, save_figure

_POINTS = 500  # a curve over more sweeps is drawn at so many of them


def mixing_curve(meetings: Meetings, path: str | os.PathLike[str]) -> None:
    """Draw over the sweeps how far chains may still be from the machine's law.

    The flip rate stands above: where it is near zero, chains are frozen and pairs that met soon had never
    parted. Dashed is the bound's upper 95 % limit, which ``couplings.mixing_limit`` says the assumption of;
    past the longest meeting time nothing else is left. With capped pairs nothing is bounded, and the fraction
    of pairs still apart is drawn instead.

    Args:
        meetings: from ``couplings.meet``, best with a lag near the longest meeting time at lag 1.
        path: PNG file; one that is there is replaced in one step.

    Raises:
        ImportError: the ``plot`` extra is not installed.
        TypeError: not ``Meetings``.
        OSError: it cannot be written; a file already there stays as it was.
    """
    _checks.instance(meetings, "meetings", Meetings, "the meetings of pairs of chains")
    figure = new_figure("mixing_curve", (6.4, 4.4))
    axis = figure.subplots()
    times, capped = meetings.times, meetings.capped
    bounded = not bool(capped.any())
    last = int(times.max()) - (meetings.lag if bounded else 0)
    steps = torch.linspace(0, last, min(last + 1, _POINTS), dtype=torch.float64).round().long()
    if bounded:
        heights, label = mixing_bound(meetings, steps), "bound on the total variation"
    else:
        apart = (times > steps.to(times.device).unsqueeze(-1)) | capped
        heights, label = apart.double().mean(-1), "pairs still apart (some never met: no bound)"
    axis.plot(steps, heights.cpu(), drawstyle="steps-post", label="estimate" if bounded else None)
    if bounded:
        limits = mixing_limit(meetings, steps).cpu()
        axis.plot(steps, limits, "--", drawstyle="steps-post", label="its upper 95 % limit")
        axis.legend(fontsize="small")
    axis.set(xlabel="sweeps", ylabel=label, yscale="log", ylim=(0.5 / len(times), 1.2))
    axis.set_title(
        f"{len(times)} pairs, lag {meetings.lag}; a sweep changes {meetings.flip_rate:.2%} of the units"
    )
    save_figure(figure, path)
