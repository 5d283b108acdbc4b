"""A folder of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harmonium.data._claims import check_claim

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
# Pillow knows many more, and starts other programs for some: what a file is called must be what it is.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
# Pillow's modes that are kept, and those that turn into one of them without loss.
_KEPT = {"L": 1, "RGB": 3, "I;16": 2, "I": 4, "F": 4}  # bytes of a pixel
_CONVERTED = {"1": "L", "P": "RGB"}
_LINE = 8  # bytes that Pillow keeps for every line, which in narrow pictures are most


def read_images(folder: Path) -> tuple[Any, Any]:
    """All pictures in the order of their names; every other file is passed over."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not paths:
        raise ValueError(f"it holds no image ({', '.join(sorted(_SUFFIXES))})")
    first = _pixels(paths[0])
    size = sum(path.stat().st_size for path in paths)
    check_claim(len(paths) * first.nbytes, size, f"{len(paths)} images of shape {first.shape}")
    samples = np.empty((len(paths), *first.shape), dtype=first.dtype)
    for i, path in enumerate(paths):
        pixels = _pixels(path)
        if (pixels.shape, pixels.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"{path.name}: expected shape {first.shape} and dtype {first.dtype} like {paths[0].name}, "
                f"received {pixels.shape} and {pixels.dtype}"
            )
        samples[i] = pixels
    return samples, None


def _pixels(path: Path) -> Any:
    from PIL import Image  # slow to import, and only needed here

    try:
        with Image.open(path, formats=_FORMATS) as image:
            mode = _CONVERTED.get(image.mode, image.mode)
            if mode not in _KEPT:
                raise ValueError(
                    f"expected grey levels or RGB without transparency, received mode {image.mode}"
                )
            claimed = image.height * (image.width * _KEPT[mode] + _LINE)
            check_claim(claimed, path.stat().st_size, f"the size {image.width}x{image.height}")
            return np.asarray(image if image.mode == mode else image.convert(mode))
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"{path.name}: {error or type(error).__name__}") from error
