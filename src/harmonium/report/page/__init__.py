"""The page that tells of a run: one HTML file that asks the network for nothing."""

from __future__ import annotations

from typing import Any


def template() -> Any:
    """Returns the jinja2 template of a page.

    Raises:
        ImportError: the ``report`` extra is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(f"report: needs {error.name}; pip install 'harmonium[report]'") from error
    loader = PackageLoader("harmonium.report", "page")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html")
