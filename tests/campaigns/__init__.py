"""Campaigns: long searches for what a test of a few cases would not meet, each repeated by one command.

``python -m tests.campaigns`` lists them, ``python -m tests.campaigns NAME`` runs one. They are no part of the
test suite, but a short seeded run of most is.
"""
