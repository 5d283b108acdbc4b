"""The command line, ``harmonium``: one file a command."""

from harmonium.cli.app import app as app, main as main
