"""Image grids and plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import harmonium as hm
from harmonium.report import image_grid, image_panels, learning_curve, write_png


def test_images_stand_in_reading_order(tmp_path: Path) -> None:
    images = np.arange(5 * 6, dtype=np.uint8).reshape(5, 6)
    grid = image_grid(images, (2, 3), columns=2, path=tmp_path / "g.png", enlarge=1)
    assert grid.shape == (3 * 3 + 1, 2 * 4 + 1) and grid.dtype == np.uint8
    for i in range(5):
        top, left = 1 + 3 * (i // 2), 1 + 4 * (i % 2)
        np.testing.assert_array_equal(grid[top : top + 2, left : left + 3], images[i].reshape(2, 3))
    with Image.open(tmp_path / "g.png") as image:
        np.testing.assert_array_equal(np.asarray(image), grid)


def test_small_images_are_enlarged() -> None:
    """To 48 pixels or more, with lines between them of half an enlarged pixel."""
    assert image_grid(np.zeros((4, 8, 8))).shape == (2 * 51 + 3, 2 * 51 + 3)
    assert image_grid(np.zeros((4, 28, 28))).shape == (2 * 57 + 1, 2 * 57 + 1)
    grid = image_grid(torch.tensor([[0.0, 1.0]]), (1, 2), enlarge=2)
    np.testing.assert_array_equal(grid[1:3, 1:5], [[0, 0, 255, 255]] * 2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 1]], dtype=np.uint8), [0, 255]),
        (np.array([[0, 200]], dtype=np.uint8), [0, 200]),
        (np.array([[0.0, 0.2]]), [0, 51]),
        (np.array([[-1.0, 1.0]]), [0, 255]),
        (np.array([[3.0, 3.0]]), [0, 0]),
    ],
)
def test_levels(values: np.ndarray, expected: list[int]) -> None:
    assert image_grid(values, (1, 2), enlarge=1)[1, 1:3].tolist() == expected


def test_colour() -> None:
    images = np.random.default_rng(0).integers(2, 256, size=(3, 4, 5, 3), dtype=np.uint8)
    grid = image_grid(images.reshape(3, -1), (4, 5, 3), enlarge=1)
    assert grid.shape == (2 * 5 + 1, 2 * 6 + 1, 3)
    np.testing.assert_array_equal(grid[1:5, 1:6], images[0])


def test_refused_images(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"image_shape: expected \(h, w\)"):
        image_grid(np.zeros((1, 6)))
    with pytest.raises(ValueError, match="images: expected at least one"):
        image_grid(np.zeros((0, 6)), (2, 3))
    with pytest.raises(ValueError, match="NaN"):
        image_grid(np.full((1, 6), np.nan), (2, 3))
    with pytest.raises(TypeError, match="numbers"):
        image_grid(np.array([["a"]]), (1, 1))
    with pytest.raises(ValueError, match=r"\.png"):
        write_png(np.zeros((2, 2), dtype=np.uint8), tmp_path / "x.jpg")


def test_panels_show_an_image_below_itself_with_labels_and_what_was_hidden() -> None:
    """Given over result, three images of one pixel; black and white are the limits, violet the hidden."""
    given, result = np.array([[0.0], [np.nan], [16.0]]), np.array([[-5.0], [8.0], [99.0]])
    picture = image_panels(
        {"given": given, "result": result}, (1, 1), columns=3, limits=(0, 16), enlarge=9,
        hidden={"given": np.isnan(given)},
    )  # fmt: skip
    side, gap = 9, 4
    height, width = (gap + side + gap), (3 * (side + gap) + gap)
    strips = picture[12 : 12 + 2 * height, -12 - width : -12]
    middles = [strips[gap + 4 + row * height, gap + 4 :: side + gap][:3].tolist() for row in (0, 1)]
    assert middles == [
        [[0] * 3, [120, 120, 190], [255] * 3],
        [[0] * 3, [128] * 3, [255] * 3],
    ]
    labels = picture[12 : 12 + 2 * height, : -12 - width]
    assert labels[:height].min() < 100 and labels[height:].min() < 100  # a name on the left of both strips
    bare = image_panels({"": result}, (1, 1), columns=3, limits=(0, 16), enlarge=9)
    assert bare.shape == (height + 24, width + 24, 3)
    titled = image_panels({"": result}, (1, 1), columns=3, limits=(0, 16), enlarge=9, title="word " * 60)
    assert titled.shape[1] == 360 and titled.shape[0] > bare.shape[0] + 60  # in several lines
    assert (titled[:, :12] == 255).all() and (titled[:, -12:] == 255).all()


def test_images_of_panels_go_on_below_in_all_states() -> None:
    images = np.arange(5 * 4).reshape(5, 4)
    picture = image_panels({"a": images, "b": 19 - images}, (2, 2), columns=2, enlarge=1)
    assert picture.shape[0] == 12 + 3 * 2 * (2 + 2) + 2 * 12 + 12
    assert image_panels({"a": images[:, :3]}, (1, 1, 3), enlarge=1)[13, -12 - 2].tolist() == [
        round(v / 18 * 255) for v in (16, 17, 18)
    ]


def test_refused_panels(tmp_path: Path) -> None:
    one, two = np.zeros((1, 4)), np.zeros((2, 4))
    for panels in ({}, {"a": one, "b": two}, {"a": two[:0]}):
        with pytest.raises(ValueError, match="panels: expected images, of one number"):
            image_panels(panels, (2, 2))
    with pytest.raises(ValueError, match=r"image_shape: .* of 4 values, received \(2, 3\)"):
        image_panels({"a": one}, (2, 3))
    with pytest.raises(ValueError, match="limits: expected a smaller"):
        image_panels({"a": one}, (2, 2), limits=(1, 1))


HISTORY = [
    {"step": step, "seconds": 0.1, "learning_rate": 0.1, "gradient_norm": 1.0 / step, **extra}
    for step, extra in ((1, {}), (2, {"likelihood": -3.0}), (3, {}), (4, {"likelihood": -2.0}))
]


def test_learning_curve_touches_nothing_global(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    loaded = "matplotlib.pyplot" in sys.modules
    learning_curve(HISTORY, tmp_path / "c.png", references={"baseline": -4.0})
    with Image.open(tmp_path / "c.png") as image:
        assert image.width > 300
    assert ("matplotlib.pyplot" in sys.modules) == loaded
    with pytest.raises(ValueError, match="history"):
        learning_curve([], tmp_path / "c.png")

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"learning_curve.*harmonium\[plot\]"):
        learning_curve(HISTORY, tmp_path / "c.png")


def test_real_columns_beside_sampled_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real pairs above the diagonal, sampled ones below; nothing is cut off, missing cells are left out."""
    pytest.importorskip("matplotlib")
    pandas = pytest.importorskip("pandas")
    kinds = pandas.Categorical(["b", "a", None] * 10, categories=["b", "a", "c"])
    real = pandas.DataFrame({"x": np.arange(30.0), "kind": kinds, "y": np.arange(30) % 2})
    sampled = pandas.DataFrame({"y": [0, 1], "kind": ["c", "b"], "x": [-50.0, np.nan]})
    figures: list[Any] = []
    module = sys.modules["harmonium.report.columns"]
    monkeypatch.setattr(module, "save_figure", lambda figure, path: figures.append(figure))
    hm.report.compare_columns(real, sampled, tmp_path / "c.png")
    grid = np.array(figures[0].axes).reshape(3, 3)
    points = [[len(panel.collections[0].get_offsets()) if panel.collections else None for panel in row]
              for row in grid]  # fmt: skip
    assert points == [[None, 20, 30], [1, None, 20], [1, 2, None]]
    assert grid[0, 1].get_xlim() == (-0.5, 2.5) and grid[1, 0].get_xlim()[0] < -50
    assert [text.get_text() for text in grid[2, 1].get_xticklabels()] == ["b", "a", "c"]
    bars = [bar.get_height() for bar in grid[1, 1].patches]
    assert bars == pytest.approx([0.5, 0.5, 0, 0.5, 0, 0.5])
    monkeypatch.undo()
    hm.report.compare_columns(np.eye(3), np.eye(3)[:2], tmp_path / "c.png", columns=[0])
    assert (tmp_path / "c.png").stat().st_size > 1000
    with pytest.raises(ValueError, match=r"samples: expected values in the columns \['x', 'z'\].*\['z'\]"):
        hm.report.compare_columns(real.assign(z=1), sampled, tmp_path / "c.png", columns=["x", "z"])
