"""A plot of how fast chains mix."""

from __future__ import annotations

import os

import torch
from torch import Tensor

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
    times, bounded = meetings.times, not bool(meetings.capped.any())
    steps, heights, limits = mixing_heights(meetings)
    label = "bound on the total variation" if bounded else "pairs still apart (some never met: no bound)"
    axis.plot(steps, heights, drawstyle="steps-post", label="estimate" if bounded else None)
    if limits is not None:
        axis.plot(steps, limits, "--", drawstyle="steps-post", label="its upper 95 % limit")
        axis.legend(fontsize="small")
    axis.set(xlabel="sweeps", ylabel=label, yscale="log", ylim=(0.5 / len(times), 1.2))
    axis.set_title(
        f"{len(times)} pairs, lag {meetings.lag}; a sweep changes {meetings.flip_rate:.2%} of the units"
    )
    save_figure(figure, path)


def mixing_heights(meetings: Meetings) -> tuple[Tensor, Tensor, Tensor | None]:
    """Sweeps, the bound on the total variation there, and its upper 95 % limit.

    With capped pairs the fraction of pairs still apart, and None.
    """
    times, capped = meetings.times, meetings.capped
    bounded = not bool(capped.any())
    last = int(times.max()) - (meetings.lag if bounded else 0)
    steps = torch.linspace(0, last, min(last + 1, _POINTS), dtype=torch.float64).round().long()
    if bounded:
        return steps, mixing_bound(meetings, steps).cpu(), mixing_limit(meetings, steps).cpu()
    apart = (times > steps.to(times.device).unsqueeze(-1)) | capped
    return steps, apart.double().mean(-1).cpu(), None
