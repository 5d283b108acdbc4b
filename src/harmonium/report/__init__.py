"""Reports: image grids, plots, the quality of samples and the page of a run."""

from harmonium.report.columns import compare_columns as compare_columns
from harmonium.report.equilibrium import (
    Resampling as Resampling,
    pair_correlation as pair_correlation,
    resampling as resampling,
)
from harmonium.report.images import (
    image_grid as image_grid,
    image_panels as image_panels,
    write_png as write_png,
)
from harmonium.report.landscape_maps import (
    basin_map as basin_map,
    embedding as embedding,
    free_energy_bands as free_energy_bands,
    solution_maps as solution_maps,
)
from harmonium.report.links import (
    Link as Link,
    compare_links as compare_links,
    compare_marginals as compare_marginals,
)
from harmonium.report.logos import draw_logos as draw_logos
from harmonium.report.plots import (
    draw_directions as draw_directions,
    draw_tree as draw_tree,
    learning_curve as learning_curve,
    observables_by_temperature as observables_by_temperature,
)
from harmonium.report.sample_quality import (
    Neighbours as Neighbours,
    nearest_neighbours as nearest_neighbours,
)
from harmonium.report.sites import (
    draw_contacts as draw_contacts,
    draw_mutations as draw_mutations,
    draw_precision as draw_precision,
)
