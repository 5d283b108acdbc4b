"""Harmonium timed beside its peers: ``python -m benchmarks`` (or ``make bench``)."""
