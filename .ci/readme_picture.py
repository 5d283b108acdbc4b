"""Draws the strip at the top of the README: samples beside data, a table filled in, a map of contacts.

    HARMONIUM_DATA=../shared/data python .ci/readme_picture.py        (about a minute on one core)

Samples are the first of ``docs/images/mnist_samples.png``, which ``experiments/mnist_rbm.py`` makes, beside
the first test images of MNIST. The table is scikit-learn's wine with a tenth of its cells taken out, as in
the README. Contacts are those of the family PF00072 by pseudo-likelihood, learnt from a quarter of the
sequences in 300 updates; ``experiments/families.py`` has the long training.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_wine

import harmonium as hm

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
GRID = 6  # digits a side, of data and of samples
COLUMNS = {"alcohol": "alcohol", "flavanoids": "flavanoids", "proline": "proline", "target": "grape"}
NEAR, APART, PAIRS = 8.0, 4, 300  # Å, sites along the chain, pairs that are drawn


def data() -> Path:
    return Path(os.environ.get("HARMONIUM_DATA", "../shared/data"))


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns (side, side) grey images: test digits of MNIST cut at half intensity, and samples."""
    cell = 28
    with gzip.open(data() / "mnist" / "t10k-images-idx3-ubyte.gz") as file:
        real = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, cell, cell)
    samples = np.asarray(Image.open(IMAGES / "mnist_samples.png").convert("L"))
    step = (len(samples) - 1) // 10  # a line of one pixel lies between two images
    sampled = [
        samples[row * step + 1 :, column * step + 1 :][:cell, :cell]
        for row in range(GRID)
        for column in range(GRID)
    ]
    return _tiled(np.where(real[: GRID**2] >= 128, 255, 0)), _tiled(np.stack(sampled))


def _tiled(images: np.ndarray) -> np.ndarray:
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)), constant_values=70)
    return np.vstack([np.hstack(list(row)) for row in framed.reshape(GRID, GRID, *framed.shape[1:])])


def table() -> tuple[list[list[str]], np.ndarray, list[list[str]]]:
    """Returns cells as they are after filling in, which of them were missing, and their true values."""
    frame = load_wine(as_frame=True).frame.sample(frac=1, random_state=0)
    frame["target"] = frame["target"].map({0: "Barolo", 1: "Grignolino", 2: "Barbera"})
    missing = np.random.default_rng(0).random(frame.shape) < 0.1
    holes = frame.mask(missing)
    filled = hm.RBM(random_state=0).fit(holes).impute(holes)
    columns = [frame.columns.get_loc(name) for name in COLUMNS]
    rows = np.flatnonzero(missing[:, columns].sum(1) >= 1)[:7]
    texts = [
        [_text(made.iloc[row, column]) for column in columns] for made in (filled, frame) for row in rows
    ]
    return texts[: len(rows)], missing[np.ix_(rows, columns)], texts[len(rows) :]


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else f"{cell:.4g}"


def contacts() -> np.ndarray:
    """Returns scores of pairs of sites, (sites, sites)."""
    codes = hm.sequences.read_alignment(data() / "pf00072" / "train.fasta.gz", alphabet="protein").codes[::4]
    sites = hm.Categorical(codes.shape[1], 21)
    X, weights = (
        sites.from_digits(torch.from_numpy(codes)).float(),
        hm.sequences.similarity_weights(codes, 0.8),
    )
    machine = hm.BoltzmannMachine([sites], {(0, 0): hm.Dense()}, [0], seed=None)
    hm.machine.init_visible_biases_(machine, X, weights)
    hm.train(
        machine, X, rule="pseudo_likelihood", sample_weight=weights, updates=300, batch_size=500, seed=0,
        learning_rate=0.1, schedule="linear", weight_decay=0.02, progress=False,
    )  # fmt: skip
    return np.asarray(hm.tasks.contacts(machine))


def distances(sites: int) -> np.ndarray:
    """Returns Å between the residues of the known structure, NaN where there is none."""
    found = np.full((sites, sites), np.nan)
    with gzip.open(data() / "pf00072" / "distances.dat.gz", "rt") as file:
        for i, j, _, distance in map(str.split, file):
            a, b = int(float(i)) - 1, int(float(j)) - 1
            found[a, b] = found[b, a] = float(distance)
    return found


def draw_table(axes: Any) -> None:
    texts, missing, truth = table()
    axes.axis("off")
    axes.set(xlim=(0, len(COLUMNS)), ylim=(len(texts) + 0.75, -0.75))
    for column, name in enumerate(COLUMNS.values()):
        axes.text(column + 0.5, -0.3, name, ha="center", va="center", fontsize=8, weight="bold")
        for row, cells in enumerate(texts):
            cell, was = cells[column], truth[row][column]
            if missing[row, column]:
                axes.add_patch(_box(column, row))
                axes.text(
                    column + 0.5, row + 0.36, cell, ha="center", va="center", fontsize=8, color="#b34700"
                )
                axes.text(
                    column + 0.5,
                    row + 0.77,
                    f"true {was}",
                    ha="center",
                    va="center",
                    fontsize=5.5,
                    color="0.4",
                )
            else:
                axes.text(column + 0.5, row + 0.5, cell, ha="center", va="center", fontsize=8)


def _box(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column + 0.03, row + 0.05), 0.94, 0.9, color="#ffe3cc")


def draw_contacts(axes: Any) -> float:
    """Returns the share of contacts among the pairs that are drawn."""
    scores = contacts()
    known = distances(len(scores))
    i, j = np.triu_indices(len(scores), APART + 1)
    order = np.argsort(-scores[i, j])[:PAIRS]
    a, b = np.nonzero(np.triu(known < NEAR, APART + 1))
    axes.plot(a, b, "s", ms=1.4, color="0.6", label="below 8 Å")
    axes.plot(j[order], i[order], "s", ms=1.4, color="#1f6fb4", label="machine")
    axes.set(aspect="equal", xticks=[0, 50, 100], yticks=[0, 50, 100])
    axes.tick_params(labelsize=7)
    return float((known[i, j][order] < NEAR).mean())


def main() -> None:
    torch.set_num_threads(1)
    picture = Figure(figsize=(11.5, 2.75), layout="constrained")
    FigureCanvasAgg(picture)
    real, samples, cells, pairs = picture.subplots(1, 4, width_ratios=[1, 1, 1.5, 1])
    for axes, image, title in zip((real, samples), digits(), ("Digits", "Samples of a machine"), strict=True):
        axes.imshow(image, cmap="gray", interpolation="nearest")
        axes.set_title(title, fontsize=9)
        axes.axis("off")
    cells.set_title("A table filled in", fontsize=9)
    draw_table(cells)
    share = draw_contacts(pairs)
    pairs.set_title("Contacts of a protein: known, predicted", fontsize=9)
    picture.savefig(IMAGES / "strip.png", dpi=110, metadata={"Software": None})
    print(f"of the {PAIRS} strongest pairs {share:.0%} are contacts")


if __name__ == "__main__":
    main()
