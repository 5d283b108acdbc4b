"""A folder of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
# Pillow's modes that are kept, and those that turn into one of them without loss.
_KEPT = {"L", "RGB", "I;16", "I", "F"}
_CONVERTED = {"1": "L", "P": "RGB"}


def read_images(folder: Path) -> tuple[Any, Any]:
    """All pictures in the order of their names; every other file is passed over."""
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not paths:
        raise ValueError(f"it holds no image ({', '.join(sorted(_SUFFIXES))})")
    first = _pixels(paths[0])
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
        with Image.open(path) as image:
            if image.mode not in _KEPT | set(_CONVERTED):
                raise ValueError(
                    f"expected grey levels or RGB without transparency, received mode {image.mode}"
                )
            return np.asarray(image.convert(_CONVERTED.get(image.mode, image.mode)))
    except Exception as error:  # decoders of damaged files raise almost anything
        raise ValueError(f"{path.name}: {error or type(error).__name__}") from error
