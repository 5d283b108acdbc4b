"""What a notebook shows of machines and results: HTML beside the text, which stays as it is."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import harmonium as hm


def test_results_have_html_beside_their_text() -> None:
    machine = hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4), hm.Spin(3)], seed=0)
    X = machine.random_states(20, seed=0)[0]
    run = hm.train(machine, X, rule="pcd", updates=2, progress=False)
    annealed = hm.likelihood.ais(machine, chains=10, temperatures=10)
    meetings = hm.coupled.meet(machine, hm.coupled.Gibbs(), machine.random_states(5, seed=0), seed=0)
    results = [
        (machine, machine.describe().splitlines()[0]),
        (run, "completed"),
        (annealed, f"{annealed.lower:.3f} and {annealed.upper:.3f}"),
        (hm.likelihood.LogPartition.exact(1.5), "1.500"),
        (hm.meanfield.landscape(machine, X), "20 starts"),
        (meetings, "5 of 5 pairs"),
    ]
    for result, shown in results:
        text = result._repr_html_()
        assert shown in text
        ElementTree.fromstring(
            f"<div>{text}</div>"
        )  # every mark is closed, and what is not a mark is escaped


def test_what_is_not_a_mark_is_escaped() -> None:
    result = hm.likelihood.LogPartition(1, 1, 1, 0, 2, ("a < b & c",))
    assert "a &lt; b &amp; c" in result._repr_html_()
