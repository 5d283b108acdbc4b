"""Reports: image grids, plots, the quality of samples and the one-page summary of a run."""

from harmonium.report.baselines import Baselines, score_baselines
from harmonium.report.card import model_card
from harmonium.report.columns import compare_columns
from harmonium.report.equilibrium import Resampling, resampling
from harmonium.report.images import image_grid, image_panels, write_png
from harmonium.report.inside import draw_directions, draw_tree
from harmonium.report.landscape_maps import basin_map, embedding, free_energy_bands, solution_maps
from harmonium.report.links import Link, compare_links, compare_marginals
from harmonium.report.logos import draw_logos, unit_logos
from harmonium.report.moments import MomentErrors, moment_errors
from harmonium.report.plots import learning_curve, mixing_curve, plane
from harmonium.report.sample_quality import (
    KernelDistance,
    Neighbours,
    frechet_distance,
    kernel_distance,
    nearest_neighbours,
)
from harmonium.report.summary import write_summary

__all__ = [
    "Baselines",
    "KernelDistance",
    "Link",
    "MomentErrors",
    "Neighbours",
    "Resampling",
    "basin_map",
    "compare_columns",
    "compare_links",
    "compare_marginals",
    "draw_directions",
    "draw_logos",
    "draw_tree",
    "embedding",
    "frechet_distance",
    "free_energy_bands",
    "image_grid",
    "image_panels",
    "kernel_distance",
    "learning_curve",
    "mixing_curve",
    "model_card",
    "moment_errors",
    "nearest_neighbours",
    "plane",
    "resampling",
    "score_baselines",
    "solution_maps",
    "unit_logos",
    "write_png",
    "write_summary",
]
