"""The command line: ``harmonium train``, ``evaluate``, ``sample`` and ``data``."""

from harmonium.cli.app import app, main

__all__ = ["app", "main"]
