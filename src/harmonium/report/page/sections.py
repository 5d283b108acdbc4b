"""The sections of a page that look at the machine and its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from harmonium._random import as_generator, permutation
from harmonium.data import Encoder, Frame, Letters, frame_of, missing_half
from harmonium.likelihood import score_separate, separate
from harmonium.machine import BoltzmannMachine
from harmonium.meanfield import landscape
from harmonium.report.hidden_units import SETTLING, hidden_means, receptive_fields
from harmonium.report.images import (
    find_limits,
    image_grid,
    image_panels,
    is_drawable,
    mean_word,
    signed_pixels,
)
from harmonium.report.links import compare_links, compare_marginals, number_times
from harmonium.report.page.figures import histogram
from harmonium.report.page.parts import Grid, Picture, Remark, Section
from harmonium.report.page.verdict import (
    LABEL_REMEDY,
    REMEDY,
    activity_remarks,
    copy_remarks,
    gain_remarks,
    is_lost,
    link_remarks,
    marginal_remarks,
)
from harmonium.report.sample_quality import nearest_neighbours
from harmonium.tables import Table
from harmonium.tasks import GaussianChannel, SymmetricChannel, denoise, impute, noise_in_states, visible_means

_SHOWN = 10  # images of a strip and lines of a table: more would be too small on a phone, or too many to read
_ACROSS = 480  # pixels of a matrix, about
_FILTERS = 50  # five strips; the rest have the smaller weights
_COLUMNS = 24  # whose histograms are drawn
STARTS = 200  # rows from which mean field is solved
_WIDE = 512  # columns of a matrix that is drawn whole
_LINKED = 100  # columns, of which all pairs are looked at
_SURE = 0.01  # a unit that is active on fewer rows is never active
_FLIPS, _NOISE = 0.1, 0.5  # examples of denoising: units flipped, or noise as a share of the data's deviation


@dataclass
class Subject:
    """A machine with its data and samples.

    Attributes:
        machine: any machine.
        encoder: The encoder of its data.
        width: columns of its states that are data; what follows them is a label.
        shape: Shape of an image, or ().
        names: Names of the columns where there is no table.
        data: name of the data.
        rows: states of complete rows, (rows, visible_width), or None where no data are at hand.
        lacking: why there are none.
        training: rows that the machine was trained on, where ``rows`` are others; else None.
        samples: states for each layer, of chains from noise, or independent draws.
        sweeps: Sweeps of these chains; None: the draws are independent and exact.
        from_data: visible states of chains as long that started at rows of the data, or None.
        seed: Source of what is drawn here.
        weights: Row weights of ``rows``, (rows,); None means uniform.
        score: mean ln p of the rows, in nats of the states; None: it is not known.
    """

    machine: BoltzmannMachine
    encoder: Encoder
    width: int
    shape: tuple[int, ...]
    names: Sequence[str] | None
    data: str
    rows: Tensor | None
    lacking: str
    training: Tensor | None
    samples: list[Tensor]
    sweeps: int | None
    seed: int
    weights: Tensor | None = None
    score: float | None = None
    from_data: Tensor | None = None

    @property
    def exact(self) -> bool:
        """True if the samples are independent draws from the machine's distribution."""
        return self.sweeps is None

    @cached_property
    def seen(self) -> Tensor:
        """The visible layers of the samples, (samples, visible_width)."""
        return self.machine.hamiltonian().visible_states(self.samples)

    def spread(self, most: int) -> Tensor:
        """Returns at most so many of the ``known_rows``, evenly spaced."""
        count = len(self.known_rows)
        return self.known_rows[torch.linspace(0, count - 1, min(most, count), device="cpu").long()]

    @property
    def known_rows(self) -> Tensor:
        """The rows of the data.

        Raises:
            ValueError: none are at hand.
        """
        if self.rows is None:
            raise ValueError(self.lacking)
        return self.rows

    def decode(self, v: Tensor) -> NDArray[Any]:
        """Returns rows in the units of the data, without their label."""
        return np.asarray(self.encoder.decode(v[:, : self.width].cpu().numpy()))

    def cells(self, v: Tensor) -> Frame:
        """Returns rows in the units of the data by column, without the label and columns left out."""
        if isinstance(self.encoder, Table):
            frame = self.encoder.frame(v[:, : self.width].cpu().numpy())
            learned = {column.name for column in self.encoder.columns}
            return replace(frame, columns=tuple(cells for cells in frame.columns if cells.name in learned))
        values = self.decode(v)
        return frame_of(values, self.names or [f"column {i}" for i in range(values.shape[1])])

    def estimate(self, mean: Tensor, state: Tensor) -> NDArray[Any]:
        """Returns means decoded; of bit-planes, whose means are no grey levels, the states."""
        return self.decode(mean if self.encoder.takes_means else state)

    @cached_property
    def greys(self) -> tuple[float, float] | None:
        """The numbers that are black and white in images of rows; None where the rows are no images."""
        if isinstance(self.encoder, Table) or not is_drawable(self.shape):
            return None
        values = self.decode(self.seen if self.rows is None else self.rows)
        return find_limits(values) if prod(self.shape) == values.shape[1] else None

    def require_images(self) -> tuple[float, float]:
        """Returns the numbers that are black and white; ValueError: the rows are no images."""
        if self.greys is None:
            raise ValueError("the rows are no images.")
        return self.greys

    def draw(
        self,
        title: str,
        caption: str,
        panels: Mapping[str, NDArray[Any]],
        hidden: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> Picture:
        """Draws decoded rows as images, a strip for each panel, all with one black and white."""
        limits = self.require_images()
        pixels = image_panels(panels, self.shape, columns=_SHOWN, limits=limits, hidden=hidden)
        return Picture(title, caption, pixels)


def comparable(subject: Subject) -> str:
    """Returns a sentence on the likelihoods with which those of a page can be compared."""
    encoder, columns = subject.encoder, subject.decode(subject.seen[:1]).shape[1]
    density = not all(subject.machine.layers[l].discrete for l in subject.machine.visible)
    how = {
        "Threshold": f"binarised at {getattr(encoder, 'at', None)}",
        "BernoulliBinarise": "binarised at random by their intensity",
        "BitPlanes": "in all 256 grey levels",
        "Letters": f"of an alphabet of {encoder.width}",
        "OneHot": f"of {encoder.width} states",
    }.get(type(encoder).__name__, "as a density in the units of the data" if density else "not binarised")
    names = {True: "pixels", False: "sites" if isinstance(encoder, Letters) else "columns"}
    return (
        f"Comparable with likelihoods in nats a row of {columns} {names[subject.greys is not None]}, {how}."
    )


def fill_learned(section: Section, subject: Subject) -> None:
    """Fills the section on what was learned: likelihoods beside independent columns, links, worst columns."""
    if subject.greys is not None:
        raise ValueError("The rows are images: look at their samples.")
    rows, training, score = subject.known_rows, subject.training, subject.score
    alone = separate(subject.machine, (rows if training is None else training).double())
    independent = float(torch.stack(score_separate(alone, rows)).sum(0).mean())
    hybrid = subject.machine.metadata.get("objective") == "hybrid"
    remedy = LABEL_REMEDY if hybrid else REMEDY
    section.remarks = [] if score is None else gain_remarks(score, independent, remedy)
    fitted = "these rows" if training is None else "the training rows"
    section.lead = f"{len(rows)} rows of {subject.data}, beside independent columns, fitted to {fitted}."
    likelihoods = [["independent columns", f"{independent:.2f}"]]
    if score is not None:
        likelihoods.append(["the machine", f"{score:.2f}"])
    section.tables = [Grid(["mean ln p, nats of the states", ""], likelihoods)]
    if rows.shape[1] > _LINKED and not isinstance(subject.encoder, Table):
        section.lead += f" Links are shown of at most {_LINKED} columns."
        return
    real, drawn = subject.cells(rows), subject.cells(subject.seen)
    links, marginals = compare_links(real, drawn), compare_marginals(real, drawn)
    section.remarks += link_remarks(links, remedy) + marginal_remarks(marginals)
    strongest = [[f"{x.first}, {x.second}", f"{x.real:.2f}", f"{x.sampled:.2f}"] for x in links[:_SHOWN]]
    marked = [is_lost(link) for link in links[:_SHOWN]]
    section.tables.append(Grid(["strongest links", "data", "samples"], strongest, marked))
    worst = [[name, f"{value:.2f}"] for name, value in list(marginals.items())[:_SHOWN]]
    section.tables.append(Grid(["farthest columns", "distance"], worst))


def fill_samples(section: Section, subject: Subject) -> None:
    """Fills the section on samples, the rows nearest to them, and rows."""
    count = len(subject.seen)
    section.lead = f"{count} chains from noise, {subject.sweeps} Gibbs sweeps each."
    if subject.exact:
        section.lead = (
            f"{count} independent draws from the machine's distribution, by a sum over hidden states."
        )
    index = None
    if subject.rows is not None and not bool(subject.rows.isnan().any()):
        distances, index = nearest_neighbours(subject.seen, subject.rows)
        mixed = permutation(len(subject.rows), as_generator(subject.seed, subject.rows.device))
        probe, rest = mixed.tensor_split([min(100, len(mixed) // 10)])
        if len(probe):
            between, _ = nearest_neighbours(subject.rows[probe], subject.rows[rest])
            section.remarks = copy_remarks(float(distances.median()), float(between.median()))
    if subject.from_data is not None:
        section.lead += (
            " As many sweeps from rows of the data: where these look otherwise, chains do not mix."
        )
    if subject.greys is None:
        tables = {"samples": subject.seen, "samples from data": subject.from_data}
        tables["data"] = None if subject.rows is None else subject.spread(_SHOWN)
        section.tables = [_make_table(name, subject, v) for name, v in tables.items() if v is not None]
        section.lead += f" {subject.lacking}"
        return
    means = visible_means(subject.machine.hamiltonian(), subject.samples)
    word, some = mean_word(subject.machine), slice(2 * _SHOWN)
    panels = {"samples": subject.decode(subject.seen[some])}
    panels[f"their {word}"] = subject.estimate(means[some], subject.seen[some])
    about = f"Drawn states, and their {word} given the hidden units, which are smoother than anything drawn."
    if index is not None:
        panels["nearest rows"] = subject.decode(subject.known_rows[index[some]])
        about += f" Below them the nearest of {len(subject.known_rows)} rows: copies would be the same."
    if subject.from_data is not None:
        panels["from data"] = subject.decode(subject.from_data[some])
        about += " Last, chains that began at rows of the data."
    section.pictures.append(subject.draw("Samples", about, panels))
    if subject.rows is None:
        section.lead += " " + subject.lacking
    else:
        about = f"Evenly spaced rows of {subject.data}, in the same greys."
        rows = subject.decode(subject.spread(6 * _SHOWN))
        section.pictures.append(subject.draw("Data", about, {"": rows}))


def fill_filters(section: Section, subject: Subject) -> None:
    """Fills the section on the weights between each hidden unit and the data's columns."""
    machine = subject.machine
    fields = receptive_fields(machine)
    image = subject.greys is not None and prod(subject.shape) == subject.width
    for l, weights in fields.items():
        W = weights.detach().cpu().numpy()[:, : subject.width]
        largest = np.argsort(-np.abs(W).sum(1), kind="stable")[:_FILTERS]
        name = f"Layer {l}: {len(W)} units"
        if image and l in machine.hidden:
            about = "Weights to every pixel, red positive and blue negative, each unit on its own scale"
            about += f"; the {len(largest)} of largest weights." if len(largest) < len(W) else "."
            if all(l not in edge or not set(edge) & set(machine.visible) for edge in machine.edges):
                about += " A layer further off is seen through the layers between: products of weights."
            grid = image_grid(signed_pixels(W[largest], subject.shape), columns=_SHOWN)
            section.pictures.append(Picture(name, about, grid))
        elif max(W.shape) <= _WIDE:
            about = "Units of the layer downwards, columns of the data across; red positive, blue negative."
            names = [str(column.name) for column in subject.cells(subject.seen[:1]).columns]
            if isinstance(subject.encoder, Table):  # whose columns of a kind stand together
                names = [str(column.name) for column in subject.encoder.columns]
            about += f" Columns: {', '.join(names)}." if len(names) <= _COLUMNS else ""
            whole = signed_pixels(W.reshape(1, -1), W.shape)
            grid = image_grid(whole, columns=1, enlarge=-(-_ACROSS // max(W.shape)))
            section.pictures.append(Picture(name, about, grid))
    if not section.pictures:
        raise ValueError("No weights can be drawn: too many columns for a matrix, which are no image.")


def fill_activity(section: Section, subject: Subject) -> None:
    """Fills the section on the activity of hidden units on the data."""
    machine, rows = subject.machine, subject.known_rows
    if not machine.hidden:
        raise ValueError("The machine has no hidden units.")
    generator = as_generator(subject.seed, machine.device)
    means_of = hidden_means(machine, rows, generator)
    section.lead = f"Means of the hidden units given {len(rows)} rows of {subject.data}."
    if not machine.graph.independent:
        section.lead += (
            f" The hidden layers are drawn in turns, {SETTLING} sweeps long, as none is known alone."
        )
    never = always = units = 0
    sure = []
    for l, means in means_of.items():
        means = means.double()
        label = "mean over the rows"
        if (two := machine.layers[l].two_values) is not None:
            means = (means - two[0]) / (two[1] - two[0])
            label = "share of rows on which a unit is active"
            activity = means.mean(0)
            never, always = never + int((activity < _SURE).sum()), always + int((activity > 1 - _SURE).sum())
            units += means.shape[1]
            sure.append(((means < 0.01) | (means > 0.99)).double().mean().item())
        title = f"Layer {l}: {machine.layers[l]}"
        section.charts.append(
            histogram(title, {"units": means.mean(0).cpu().numpy()}, label, "share of units")
        )
    if units:
        section.remarks = activity_remarks(never, always, max(sure), units)
    else:
        section.lead += (
            " Its units have more than two values: which are never active is not a question for them."
        )


def fill_columns(section: Section, subject: Subject) -> None:
    """Fills the section of histograms of columns, of data and of samples."""
    if subject.greys is not None:
        raise ValueError("The rows are images; histograms are drawn for tables.")
    pairs = zip(subject.cells(subject.known_rows).columns, subject.cells(subject.seen).columns, strict=True)
    columns = [number_times(*pair) for pair in pairs]
    section.lead = (
        f"{len(subject.known_rows)} complete rows of {subject.data}, and {len(subject.seen)} samples."
    )
    if len(columns) > _COLUMNS:
        section.lead += f" The first {_COLUMNS} of {len(columns)} columns."
    for real, sampled, form in columns[:_COLUMNS]:
        groups = {"data": real.values, "samples": sampled.values}
        section.charts.append(histogram(str(real.name), groups, form=form))


def _make_table(title: str, subject: Subject, v: Tensor) -> Grid:
    """Returns some rows in the units of the data, with as many columns as are drawn elsewhere."""
    columns = subject.cells(v[:_SHOWN]).columns[:_COLUMNS]
    texts = [[f"{x:.4g}" if isinstance(x, float) else str(x) for x in y.values.tolist()] for y in columns]
    rows = [[str(i), *row] for i, row in enumerate(zip(*texts, strict=True), 1)]
    return Grid([title, *(str(column.name) for column in columns)], rows)


def fill_landscape(section: Section, subject: Subject, starts: int = STARTS) -> None:
    """Fills the section on the mean-field solutions that rows converge to."""
    rows = subject.spread(starts)
    solutions = landscape(subject.machine, rows)
    lost = int((solutions.basin < 0).sum())
    section.lead = (
        f"Mean field of the second order (TAP), from {len(rows)} rows of {subject.data}. Different "
        f"solutions: {len(solutions.counts)}, of which {float(solutions.admissible.double().mean()):.0%} are "
        f"admissible, minima where the expansion converges; rows that did not settle: {lost}. Solutions tell "
        "of modes."
    )
    section.remarks += [Remark("caution", f"{doubt[0].upper()}{doubt[1:]}.") for doubt in solutions.doubts]
    if subject.exact and not bool(solutions.admissible.any()):
        text = "Mean field is too rough for these couplings, so that its solutions tell little of modes."
        rest = "The likelihood and the samples of this page are exact, and do not rest on it."
        section.remarks = [Remark("note", f"{text} {rest}")]
    energies, admissible = solutions.free_energies.tolist(), solutions.admissible.tolist()
    numbered = enumerate(zip(solutions.counts.tolist(), energies, admissible, strict=True), 1)
    lines = [[f"{i}", f"{count}", f"{F:.5g}", "yes" if good else "no"] for i, (count, F, good) in numbered]
    section.tables.append(Grid(["solution", "rows", "free energy", "admissible"], lines[:_SHOWN]))
    if subject.greys is not None and subject.encoder.takes_means:
        means = subject.machine.hamiltonian().visible_states(solutions.solutions.means)[:_SHOWN]
        title = "Means of the solutions with most rows"
        section.pictures.append(subject.draw(title, "", {"": subject.decode(means)}))


def fill_completion(section: Section, subject: Subject) -> None:
    """Fills the section on rows with their lower half hidden: given, truth, result."""
    subject.require_images()
    machine, rows = subject.machine, subject.spread(_SHOWN)
    h, w, channels = (*subject.shape, 1)[:3]
    mask = missing_half(len(rows), (h, w * channels), "lower")
    units = sum(machine.layers[l].n_units for l in machine.visible)
    labels = int(subject.width < machine.visible_width)  # a label is given
    absent = mask.repeat(1, (units - labels) // mask.shape[1])
    absent = torch.cat([absent, absent.new_zeros(len(absent), labels)], 1)
    completed = impute(machine, rows, absent, draws=5, sweeps=200, seed=subject.seed)
    truth = subject.decode(rows)
    result = np.where(mask.numpy(), subject.estimate(completed.mean, completed.mode), truth)
    section.lead = (
        "The lower half of each image was hidden and filled in by Gibbs chains given the rest: the means of "
        "5 chains of 200 sweeps, probabilities where units have two values. The rows are of "
        f"{subject.data}, on which the machine may have been trained."
    )
    panels = {"given": truth, "truth": truth, "result": result}
    picture = subject.draw(
        "The lower half from the upper", "Violet is what was hidden.", panels, {"given": mask.numpy()}
    )
    section.pictures.append(picture)


def fill_denoising(section: Section, subject: Subject) -> None:
    """Fills the section on rows with noise on them: given, truth, result."""
    subject.require_images()
    machine, rows = subject.machine, subject.spread(_SHOWN)
    if len(machine.visible) > 1:
        raise ValueError("Denoising wants one visible layer, whose units share one kind of noise.")
    layer = machine.layers[machine.visible[0]]
    generator = as_generator(subject.seed, machine.device)
    truth = subject.decode(rows)
    if layer.discrete:
        noisy = SymmetricChannel(_FLIPS).corrupt(layer, rows, generator)
        cleaned = denoise(machine, noisy, _FLIPS, clean=subject.known_rows, seed=generator)
        noise = f"{_FLIPS:.0%} of the units were flipped"
    else:
        size = _NOISE * float(subject.decode(subject.known_rows).std())
        deviation = noise_in_states(size, subject.encoder)
        noisy = GaussianChannel(deviation).corrupt(layer, rows, generator)
        cleaned = denoise(machine, noisy, noise_std=deviation, clean=subject.known_rows, seed=generator)
        noise = f"Normal noise of deviation {size:.3g} was added, half that of the data"
    about = "the result is the posterior mean by TAP under the machine, which knows the noise."
    section.lead = f"{noise}; {about}"
    if not bool(cleaned.converged.all()):
        text = f"TAP had not converged for {int((~cleaned.converged).sum())} of {len(rows)} noisy images."
        section.remarks.append(Remark("note", text))
    result = subject.estimate(cleaned.mean, cleaned.mode)
    panels = {"given": subject.decode(noisy), "truth": truth, "result": result}
    section.pictures.append(subject.draw("Noisy images made clean", "", panels))


# In the order of the page, each with its title and what fills it in or says by a ValueError why not.
SECTIONS = (
    ("learned", "Was it learned?", fill_learned),
    ("samples", "Samples beside data", fill_samples),
    ("filters", "Receptive fields", fill_filters),
    ("activity", "Hidden activity", fill_activity),
    ("columns", "Columns of data and samples", fill_columns),
    ("landscape", "Landscape", fill_landscape),
    ("completion", "Completion", fill_completion),
    ("denoising", "Denoising", fill_denoising),
)
