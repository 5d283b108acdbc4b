"""Sample quality: distances between sets in feature space, memorised data, and missing classes.

Every function takes sets of images or rows as tensors or arrays whose first axis counts them. ``features`` is
any ``torch`` module from a batch of them to (n, d): ``ClassifierFeatures`` where nothing better is at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

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
        if y.shape != (len(x),) or len(x) == 0:
            received = f"received shape {tuple(y.shape)}"
            raise ValueError(f"labels: expected one for each of {len(x)} images, {received}")
        if y.is_floating_point() or int(y.min()) < 0:
            raise ValueError(f"labels: expected integers from 0, received {y.dtype} from {float(y.min()):g}")
        _checks.positive_int(epochs, "epochs")
        size = _checks.positive_int(batch_size, "batch_size")
        _checks.finite(x, "images")
        y = y.to(device, torch.int64)
        generator = _random.as_generator(seed, torch.device(device))
        h, w, channels = (int(n) for n in (*shape, 1)[:3])
        made = cls((h, w, channels), int(y.max()) + 1, generator).to(device)
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
        """Returns features, (n, 64), of images, (n, …), in the units and of the size of ``fit``."""
        h, w, channels = self.image_shape
        if images.dim() < 2 or prod(images.shape[1:]) != h * w * channels:
            raise ValueError(
                f"images: expected {h}x{w}x{channels} values each, received shape {tuple(images.shape)}"
            )
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


class KernelDistance(NamedTuple):
    """A kernel distance.

    Attributes:
        value: mean over the subsets.
        standard_error: of the mean; the subsets overlap, so it is a little too small.
    """

    value: float
    standard_error: float


class Neighbours(NamedTuple):
    """The nearest row of a data set for every sample.

    Attributes:
        distances: Euclidean, (samples,).
        indices: of the nearest rows, (samples,) int64.
    """

    distances: Tensor
    indices: Tensor


@torch.no_grad()
def frechet_distance(real: Any, generated: Any, features: nn.Module) -> float:
    """Estimates the Fréchet distance of two sets in feature space (FID; Heusel et al. 2017), by torchmetrics.

    |m - m'|² + tr(C + C' - 2 (C C')^½) of the features' means and covariances. With few samples it is too
    large; compare sets of equal size. The distance of held-out data from the same ``real`` is the floor.

    Args:
        real: data, (n, …), at least two.
        generated: samples, (m, …), at least two.
        features: what looks at them. With ``ClassifierFeatures`` call the result "FID (classifier features)".

    Raises:
        ImportError: the ``metrics`` extra is not installed.
        ValueError: too few rows, or features that are not finite.
    """
    try:
        from torchmetrics.image.fid import FrechetInceptionDistance
    except ImportError as error:
        raise _name_missing("frechet_distance") from error
    x, y = _compute_features(real, features, "real"), _compute_features(generated, features, "generated")
    # The features are computed here, so that any module will do; torchmetrics sees the identity.
    identity: Any = nn.Identity()
    identity.num_features = x.shape[1]
    metric = FrechetInceptionDistance(feature=identity).to(x.device)
    metric.set_dtype(torch.float64)
    metric.update(x, real=True)
    metric.update(y, real=False)
    return max(0.0, float(metric.compute()))


@torch.no_grad()
def kernel_distance(
    real: Any,
    generated: Any,
    features: nn.Module,
    *,
    subsets: int = 100,
    subset_size: int | None = None,
    seed: int | torch.Generator = 0,
) -> KernelDistance:
    """Estimates the kernel distance of two sets in feature space (KID; Binkowski et al. 2018; torchmetrics).

    The unbiased squared maximum mean discrepancy with the kernel (x·y/d + 1)³, which may be negative,
    averaged over random subsets. Unlike the Fréchet distance it has no bias from the number of samples.

    Args:
        real: data, (n, …).
        generated: samples, (m, …).
        features: what looks at them.
        subsets: how many, at least 2.
        subset_size: rows of each, from 2 to the smaller of n and m; None: 1000, or that number if it is less.
        seed: of the subsets: an int or a generator.

    Raises:
        ImportError: the ``metrics`` extra is not installed.
        ValueError: too few rows, or features that are not finite.
    """
    try:
        from torchmetrics.image.kid import poly_mmd
    except ImportError as error:
        raise _name_missing("kernel_distance") from error
    _checks.positive_int(subsets, "subsets", minimum=2)
    x, y = _compute_features(real, features, "real"), _compute_features(generated, features, "generated")
    generator = _random.as_generator(seed, x.device)
    largest = min(len(x), len(y))
    size = min(1000, largest) if subset_size is None else _checks.positive_int(subset_size, "subset_size", 2)
    if size > largest:
        raise ValueError(f"subset_size: expected at most {largest} rows, received {size}")
    values = []
    for _ in range(subsets):
        one, other = (z[_random.permutation(len(z), generator)[:size]] for z in (x, y))
        values.append(poly_mmd(one, other))
    found = torch.stack(values)
    return KernelDistance(float(found.mean()), float(found.std()) / subsets**0.5)


@torch.no_grad()
def nearest_neighbours(samples: Any, data: Any) -> Neighbours:
    """Finds the nearest row of the data for every sample, which shows copies of the training set.

    Distances mean little by themselves: set those of the samples beside those of held-out data. Samples that
    lie much nearer to the training data than held-out data do are memorised.

    Args:
        samples: (n, …).
        data: (m, …), rows of the same number of values.
    """
    x, y = _read_set(samples, "samples").flatten(1), _read_set(data, "data").flatten(1)
    _checks.finite(x, "samples")
    _checks.finite(y, "data")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"samples: expected {y.shape[1]} values a row as in data, received {x.shape[1]}")
    y = y.to(x.device)
    # ‖y‖² - 2xy orders the rows, best about their mean; the winner's distance is taken without cancellation.
    mean = y.mean(0)
    centred = (y - mean).t()
    norms = centred.square().sum(0)
    index = torch.cat([(norms - 2 * ((part - mean) @ centred)).argmin(-1) for part in torch.split(x, _ROWS)])
    return Neighbours((x - y[index]).norm(dim=-1), index)


def class_coverage(samples: Any, classifier: ClassifierFeatures) -> Tensor:
    """Returns the fraction of samples that the classifier gives to each class, (n_classes,).

    The exponential of its entropy is the number of classes that the samples use.

    Args:
        samples: images, (n, …), in the units that the classifier was trained on.
        classifier: made by ``ClassifierFeatures.fit``.
    """
    _checks.instance(classifier, "classifier", ClassifierFeatures, "a ClassifierFeatures")
    images = _read_set(samples, "samples")
    _checks.finite(images, "samples")
    labels = classifier.predict(images.to(classifier.last.weight))
    return torch.bincount(labels, minlength=classifier.n_classes) / len(labels)


def _compute_features(images: Any, features: nn.Module, name: str) -> Tensor:
    """Returns the features of a set in float64, (n, d)."""
    _checks.instance(features, "features", nn.Module, "a torch module")
    x = _read_set(images, name)
    if len(x) < 2:
        raise ValueError(f"{name}: expected at least two rows, received {len(x)}")
    parameter = next(features.parameters(), None)
    if parameter is not None:
        x = x.to(parameter)
    values = torch.cat([features(part) for part in torch.split(x, _ROWS)])
    if values.dim() != 2 or len(values) != len(x):
        raise ValueError(
            f"features: expected a matrix of {len(x)} rows for {name}, received shape {tuple(values.shape)}"
        )
    _checks.finite(values, f"features of {name}")
    return values.double()


def _read_set(x: Any, name: str) -> Tensor:
    """Returns a set as a floating tensor of at least one row."""
    values = x if isinstance(x, Tensor) else np.asarray(x)
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "biuf":
            raise TypeError(
                f"{name}: expected numbers, received {values.dtype}; encode a table, "
                "as by hm.data.Table.fit(frame).encode(frame)"
            )
        values = torch.from_numpy(values)
    if values.dim() < 2 or len(values) == 0:
        raise ValueError(
            f"{name}: expected at least one row of at least one value, received {tuple(values.shape)}"
        )
    return values if values.is_floating_point() else values.float()


def _name_missing(function: str) -> ImportError:
    """Returns the error for a function that lacks the ``metrics`` extra."""
    return ImportError(f"{function}: needs torchmetrics; pip install 'harmonium[metrics]'")
