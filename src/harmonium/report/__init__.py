"""Reports: image grids, plots and the one-page summary of a run."""

from harmonium.report.images import image_grid, write_png
from harmonium.report.plots import learning_curve
from harmonium.report.summary import write_summary

__all__ = ["image_grid", "learning_curve", "write_png", "write_summary"]
