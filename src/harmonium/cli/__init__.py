"""The command line, ``harmonium``: one file a command."""

from harmonium.cli.app import app, main

__all__ = ["app", "main"]
