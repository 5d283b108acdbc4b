"""What a notebook shows of machines and results: HTML beside the text, which stays as it is."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

import harmonium as hm


def graphs() -> dict[str, hm.BoltzmannMachine]:
    return {
        "chain": hm.BoltzmannMachine([hm.Bernoulli(6), hm.Bernoulli(4), hm.Spin(3)], seed=0),
        "label": hm.BoltzmannMachine(
            [hm.Bernoulli(6), hm.Categorical(1, 3), hm.Bernoulli(4)], [(0, 2), (1, 2)], [0, 1], seed=0
        ),
        "inner": hm.BoltzmannMachine([hm.Spin(4)], {(0, 0): hm.Masked(torch.eye(4).roll(1, 1))}, seed=0),
        "visible joined": hm.BoltzmannMachine([hm.Spin(4), hm.Spin(3)], [(0, 1)], [0, 1], seed=0),
        "apart": hm.BoltzmannMachine([hm.Spin(4), hm.Spin(3), hm.Spin(2)], [(1, 2)], [0], seed=0),
    }


@pytest.mark.parametrize("name", graphs())
def test_a_drawing_has_every_layer_and_edge(name: str) -> None:
    machine = graphs()[name]
    root = ElementTree.fromstring(machine.draw().svg)
    of = {tag: root.findall(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("rect", "path", "text")}
    assert len(of["rect"]) == len(machine.layers) and len(of["path"]) == len(machine.edges)
    assert {str(layer) for layer in machine.layers} <= {text.text for text in of["text"]}
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    boxes = [tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height")) for rect in of["rect"]]
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in boxes)
    assert len(set(boxes)) == len(boxes)


def test_layers_that_are_drawn_at_once_have_one_colour() -> None:
    root = ElementTree.fromstring(graphs()["chain"].draw().svg)
    colours = [rect.attrib["stroke"] for rect in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert colours[0] == colours[2] != colours[1]


def test_a_drawing_is_saved_and_replaces_nothing_unasked(tmp_path: Path) -> None:
    drawing = graphs()["label"].draw()
    drawing.save(tmp_path / "machine.svg")
    assert (tmp_path / "machine.svg").read_text("utf-8") == drawing.svg
    with pytest.raises(FileExistsError, match="overwrite replaces it"):
        drawing.save(tmp_path / "machine.svg")


def test_results_have_html_beside_their_text() -> None:
    machine = graphs()["chain"]
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
