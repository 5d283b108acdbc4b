"""The page that tells of a run: one HTML file that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harmonium.report.page.charts import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from harmonium.report.page.sections import Section


def html(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """The page.

    Args:
        title: its heading.
        facts: what stands first, short texts by name.
        sections: in their order; the first is the verdict.

    Raises:
        ImportError: the ``report`` extra is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("report: needs jinja2; pip install 'harmonium[report]'") from error
    loader = PackageLoader("harmonium.report", "page")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    sides = {"left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "low": HEIGHT - BOTTOM}
    frame = {"width": WIDTH, "height": HEIGHT, "colours": COLOURS, **sides}
    page = environment.get_template("page.html")
    return page.render(title=title, facts=facts, sections=sections, frame=frame)
