"""Features of images from a small classifier, which stand in for the Inception network."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harmonium import _random

_ROWS = 1000  # images of a pass, which bounds its memory


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
        first = skip(nn.Conv2d, channels, 16, 5, stride=2, padding=2, device=where)
        second = skip(nn.Conv2d, 16, 32, 3, stride=2, padding=1, device=where)
        third = skip(nn.Linear, 32 * -(-h // 4) * -(-w // 4), self.num_features, device=where)
        self.last = skip(nn.Linear, self.num_features, n_classes, device=where)
        for layer in (first, second, third, self.last):
            bound = sqrt(6 / layer.weight[0].numel())
            nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
            nn.init.zeros_(layer.bias)
        self.body = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), third, nn.ReLU())
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
            epochs: passes over the images.
            batch_size: images of an update.
            seed: an int or a generator.
            device: where to train.
        """
        x, y = (torch.as_tensor(z) for z in (images, labels))
        x, y = x.to(device, torch.float32), y.to(device, torch.int64)
        shape = tuple(image_shape) if image_shape is not None else tuple(x.shape[1:])
        generator = _random.as_generator(seed, torch.device(device))
        h, w, channels = (int(n) for n in (*shape, 1)[:3])
        made = cls((h, w, channels), int(y.max()) + 1, generator).to(device)
        made.shift = x.mean()
        made.spread = x.std().clamp(min=1e-6)
        optimizer = torch.optim.Adam(made.parameters(), lr=2e-3)
        updates = epochs * -(-len(x) // batch_size)
        decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
        with torch.enable_grad():
            for _ in range(epochs):
                for rows in torch.split(_random.permutation(len(x), generator), batch_size):
                    optimizer.zero_grad()
                    cross_entropy(made.logits(x[rows]), y[rows]).backward()
                    optimizer.step()
                    decay.step()
        return made.requires_grad_(False).eval()

    def forward(self, images: Tensor) -> Tensor:
        """Returns features, (n, 64), of images, (n, …), in the units and of the size of ``fit``."""
        h, w, channels = self.image_shape
        x = images.to(self.last.weight).reshape(-1, h, w, channels).permute(0, 3, 1, 2)
        features: Tensor = self.body((x - self.shift) / self.spread)
        return features

    def logits(self, images: Tensor) -> Tensor:
        """Returns unnormalised log-probabilities of the labels, (n, n_classes)."""
        result: Tensor = self.last(self(images))
        return result

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """Returns the most probable label of every image, (n,) int64."""
        return torch.cat([self.logits(part).argmax(-1) for part in torch.split(images, _ROWS)])


def class_coverage(samples: Tensor, classifier: ClassifierFeatures) -> Tensor:
    """Returns the fraction of samples that the classifier gives to each class, (n_classes,).

    The exponential of its entropy is the number of classes that the samples use.

    Args:
        samples: images, (n, …), in the units that the classifier was trained on.
        classifier: made by ``ClassifierFeatures.fit``.
    """
    labels = classifier.predict(samples.to(classifier.last.weight))
    return torch.bincount(labels, minlength=classifier.n_classes) / len(labels)


@torch.no_grad()
def frechet_distance(data: Any, samples: Any, features: ClassifierFeatures) -> float:
    """Estimates the Fréchet distance of two sets in feature space (FID; Heusel et al. 2017)."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    identity: Any = nn.Identity()  # the features are computed here, batch by batch
    identity.num_features = features.num_features
    x, y = _features_of(data, features), _features_of(samples, features)
    metric = FrechetInceptionDistance(feature=identity).to(x.device)
    metric.set_dtype(torch.float64)
    metric.update(x, real=True)
    metric.update(y, real=False)
    return max(0.0, float(metric.compute()))


@torch.no_grad()
def kernel_distance(
    data: Any, samples: Any, features: ClassifierFeatures, *, subsets: int = 100, seed: int = 0
) -> tuple[float, float]:
    """Estimates the kernel distance of two sets (KID; Binkowski et al. 2018) and its standard error.

    The mean over subsets of at most 1,000 rows; the error is a little too small, as the subsets overlap.
    """
    from torchmetrics.image.kid import poly_mmd

    x, y = _features_of(data, features), _features_of(samples, features)
    generator, size = _random.as_generator(seed, x.device), min(1000, len(x), len(y))
    values = []
    for _ in range(subsets):
        one, other = (z[_random.permutation(len(z), generator)[:size]] for z in (x, y))
        values.append(poly_mmd(one, other))
    distances = torch.stack(values)
    return float(distances.mean()), float(distances.std()) / subsets**0.5


def _features_of(images: Any, features: ClassifierFeatures) -> Tensor:
    """Returns the features of a set in float64, (n, d)."""
    x = torch.as_tensor(images).to(next(features.parameters()))
    return torch.cat([features(part) for part in torch.split(x, _ROWS)]).double()
