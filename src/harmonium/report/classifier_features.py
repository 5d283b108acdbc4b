"""A small classifier whose hidden layer serves as features of images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu

from harmonium import _checks, _random

_ROWS = 1000


@final
class ClassifierFeatures(nn.Module):
    """The last hidden layer of a small convolutional classifier, trained on a data set's own labels.

    It stands in for the Inception network where that is not at hand. Distances in these features
    (``frechet_distance``) are called "FID (classifier features)"; they depend on the classifier and cannot be
    set beside a published FID. Made by ``fit``.

    Attributes:
        num_features: width of the features.
        n_classes: number of labels.
        image_shape: (h, w, channels) of an image.
    """

    num_features = 64
    shift: Tensor
    spread: Tensor

    def __init__(self, image_shape: tuple[int, int, int], n_classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.n_classes = n_classes
        h, w, channels = image_shape
        # skip_init: torch's own initialisation would draw from the global generator.
        skip: Any = nn.utils.skip_init
        where = generator.device  # whose noise begins the weights
        self.first = skip(nn.Conv2d, channels, 16, 5, stride=2, padding=2, device=where)
        self.second = skip(nn.Conv2d, 16, 32, 3, stride=2, padding=1, device=where)
        quarter = -(-h // 4) * -(-w // 4)
        self.third = skip(nn.Linear, 32 * quarter, self.num_features, device=where)
        self.last = skip(nn.Linear, self.num_features, n_classes, device=where)
        for layer in (self.first, self.second, self.third, self.last):
            bound = sqrt(6 / layer.weight[0].numel())
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.zeros_(layer.bias)
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("spread", torch.ones(()))

    @classmethod
    def fit(
        cls,
        images: Any,
        labels: Any,
        *,
        image_shape: Sequence[int] | None = None,
        epochs: int = 3,
        batch_size: int = 100,
        seed: int | torch.Generator = 0,
        device: torch.device | str = "cpu",
    ) -> ClassifierFeatures:
        """Trains the classifier; the same seed, device and number of threads give the same bits.

        Args:
            images: (n, h * w * channels), (n, h, w) or (n, h, w, channels) numbers, such as intensities in
                [0, 1]; later images must be in the same units.
            labels: (n,) integers from 0.
            image_shape: (h, w) or (h, w, channels); None where ``images`` has it.
            epochs: passes over the images, at least 1.
            batch_size: images of an update, at least 1.
            seed: an int or a generator.
            device: where to train.

        Raises:
            TypeError, ValueError: images and labels of different lengths, labels that are no integers from 0,
                or shapes that do not fit.
        """
        x, y = (torch.as_tensor(z if isinstance(z, Tensor) else np.asarray(z)) for z in (images, labels))
        x = x.to(device, torch.float32)
        shape = tuple(image_shape) if image_shape is not None else tuple(x.shape[1:])
        if len(shape) not in (2, 3) or prod(shape) != prod(x.shape[1:]):
            raise ValueError(
                f"image_shape: expected (h, w) or (h, w, channels) of {prod(x.shape[1:])} values in all, "
                f"received {shape}"
            )
        if y.dim() != 1 or len(y) != len(x) or len(x) == 0:
            raise ValueError(
                f"labels: expected one for each of {len(x)} images, received shape {tuple(y.shape)}"
            )
        if y.is_floating_point() or int(y.min()) < 0:
            raise ValueError(f"labels: expected integers from 0, received {y.dtype} from {float(y.min()):g}")
        _checks.positive_int(epochs, "epochs")
        size = _checks.positive_int(batch_size, "batch_size")
        _checks.finite(x, "images")
        y = y.to(device, torch.int64)
        generator = _random.as_generator(seed, torch.device(device))
        side = (int(shape[0]), int(shape[1]), int(shape[2]) if len(shape) == 3 else 1)
        made = cls(side, int(y.max()) + 1, generator).to(device)
        made.shift = x.mean()
        made.spread = x.std().clamp(min=1e-6)
        optimizer = torch.optim.Adam(made.parameters(), lr=2e-3)
        updates = epochs * -(-len(x) // size)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        with torch.enable_grad():
            for _ in range(epochs):
                for rows in torch.split(_random.permutation(len(x), generator), size):
                    optimizer.zero_grad()
                    cross_entropy(made.logits(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    decay.step()
        return made.requires_grad_(False).eval()

    def forward(self, images: Tensor) -> Tensor:
        """Features of images: (n, …) in the units and with the number of values of ``fit``, (n, 64)."""
        h, w, channels = self.image_shape
        if images.dim() < 2 or prod(images.shape[1:]) != h * w * channels:
            raise ValueError(
                f"images: expected {h}x{w}x{channels} values each, received shape {tuple(images.shape)}"
            )
        x = images.to(self.last.weight).reshape(-1, h, w, channels).permute(0, 3, 1, 2)
        x = relu(self.first((x - self.shift) / self.spread))
        return relu(self.third(relu(self.second(x)).flatten(1)))

    def logits(self, images: Tensor) -> Tensor:
        """Unnormalised log-probabilities of the labels, (n, n_classes)."""
        result: Tensor = self.last(self(images))
        return result

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The most probable label of every image, (n,) int64."""
        return torch.cat([self.logits(part).argmax(-1) for part in torch.split(images, _ROWS)])
