"""Reports: image grids, plots, the quality of samples and the one-page summary of a run."""

from harmonium.report.classifier_features import ClassifierFeatures
from harmonium.report.images import image_grid, write_png
from harmonium.report.mixing_curve import mixing_curve
from harmonium.report.plane import plane
from harmonium.report.plots import learning_curve
from harmonium.report.sample_quality import (
    KernelDistance,
    Neighbours,
    class_coverage,
    frechet_distance,
    kernel_distance,
    nearest_neighbours,
)
from harmonium.report.summary import write_summary

__all__ = [
    "ClassifierFeatures",
    "KernelDistance",
    "Neighbours",
    "class_coverage",
    "frechet_distance",
    "image_grid",
    "kernel_distance",
    "learning_curve",
    "mixing_curve",
    "nearest_neighbours",
    "plane",
    "write_png",
    "write_summary",
]
