"""The page that tells of a run: one HTML file that asks the network for nothing."""

from __future__ import annotations

from typing import Any

from harmonium.report.page.charts import BOTTOM, COLOURS, HEIGHT, LEFT, RIGHT, TOP, WIDTH


def template() -> Any:
    """Returns the jinja2 template of a page.

    Raises:
        ImportError: the ``report`` extra is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("report: needs jinja2; pip install 'harmonium[report]'") from error
    loader = PackageLoader("harmonium.report", "page")
    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    sides = {"left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "low": HEIGHT - BOTTOM}
    environment = Environment(loader=loader, undefined=StrictUndefined, **settings)
    environment.globals["frame"] = {"width": WIDTH, "height": HEIGHT, "colours": COLOURS, **sides}
    return environment.get_template("page.html")
