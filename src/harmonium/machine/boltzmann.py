"""The Boltzmann machine: layers joined by couplings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from harmonium import _checks, _random, _storage
from harmonium._checks import Numbers
from harmonium.couplings import Coupling, Dense
from harmonium.layers import Layer
from harmonium.machine.coupling_matrices import CouplingMatrices
from harmonium.machine.forbidden import forbid, penalise
from harmonium.machine.graph import Edges, Graph, describe_graph, read_edges, read_visible
from harmonium.machine.hamiltonian import Hamiltonian, States

COMPUTED = (torch.float32, torch.float64)
"""The types that machines compute in. Others are good for storage alone."""

# Fields are sums of couplings, and variances, TAP and norms sum up their squares: all stay below 2^128, where
# float32 ends. The noise of machines in float64 is float32 too.
_LARGEST = 2.0**64


@final
class BoltzmannMachine(nn.Module):
    """A Boltzmann machine: a graph of layers of any kind of unit.

    Without ``edges`` and ``visible`` it is a chain, each layer joined to the next and the first one visible:
    one hidden layer makes it an RBM. Data are one matrix, the columns of the visible layers side by side.

    Args:
        layers: the layers; by default the visible one and at least one hidden layer.
        edges: pairs (l, m) of layers that are joined, l ≤ m; or a mapping from pairs to couplings
            (``hm.Dense()``, ``hm.Sparse(pairs)``, ``hm.Masked(mask)``, ``hm.Local(shape, window)``; a list
            makes all of them dense). (l, l) couples the units of a layer.
        visible: the layers that data are about, in the order of the data's columns.
        seed: where the first couplings come from, N(0, 0.01²): an int or a generator; None leaves them zero.
            See ``harmonium.machine`` for other initialisers.

    Attributes:
        layers: the layers, which own their parameters.
        edges: the pairs of layers that are joined, as a tuple.
        visible: the visible layers, as a tuple.
        couplings: One for every edge, with a learnable ``weight`` W, (width_l, width_m); J = W, divided by
            σ² on every Gaussian side (Liao, Eq. 1).
        constant: Constant of the energy, 0 by default: in energies, free energies and ln Z, and in no
            probability. It is a number, not a parameter: no rule learns it, no dtype rounds it.
        metadata: JSON-like values that travel with the machine's file, such as how its data were encoded.

    Raises:
        TypeError: something that is not a layer, or not a coupling.
        ValueError: no layers, or one layer object used twice; edges or visible layers that do not exist or
            come twice; a hidden layer without edges.

    Examples:
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Spin(2)])
        >>> machine.edges, machine.visible, machine.couplings[0].weight.shape
        (((0, 1),), (0,), torch.Size([3, 2]))
    """

    def __init__(
        self,
        layers: Iterable[Layer],
        edges: Edges | None = None,
        visible: Iterable[int] | None = None,
        *,
        seed: int | torch.Generator | None = 0,
    ) -> None:
        super().__init__()
        _checks.instance(layers, "layers", Iterable, "a list of layers")
        listed = list(layers)
        for i, layer in enumerate(listed):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{i}]: expected a harmonium layer, received {type(layer).__name__}")
        if len(listed) < (2 if edges is None else 1):
            raise ValueError(
                f"layers: expected a visible and at least one hidden layer, received {len(listed)} layer(s)"
            )
        if len({id(layer) for layer in listed}) < len(listed):
            raise ValueError("layers: expected distinct layer objects, received the same object twice")
        joined = read_edges(pairwise(range(len(listed))) if edges is None else edges, len(listed))
        self.edges = tuple(joined)
        self.visible = read_visible((0,) if visible is None else visible, len(listed))
        for l in set(range(len(listed))) - set(self.visible) - {l for edge in joined for l in edge}:
            raise ValueError(f"edges: expected one for every hidden layer, received none for layers[{l}]")
        for (l, m), coupling in joined.items():
            coupling.join(listed[l], listed[m])
        for coupling in joined.values():
            coupling.owned = True
        self.layers: Sequence[Layer] = nn.ModuleList(listed)  # type: ignore[assignment]
        self.couplings: Sequence[Coupling] = nn.ModuleList(joined.values())  # type: ignore[assignment]
        self._graph: Graph | None = None
        self.constant = 0.0
        self.metadata: dict[str, Any] = {}
        if seed is not None:
            generator = _random.as_generator(seed, self.device)
            for coupling in self.couplings:
                coupling.draw_(0.01, generator)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def graph(self) -> Graph:
        """The layers as nodes and the couplings as edges, with the order of a sweep."""
        if self._graph is None:
            couplings = [*enumerate(self.couplings)]
            patterns = {
                edge: coupling.sparsity for edge, coupling in couplings if coupling.sparsity is not None
            }
            joined = {edge: coupling.joined for edge, coupling in couplings if edge not in patterns}
            self._graph = Graph(list(self.layers), self.edges, self.visible, joined, patterns)
        if not (self._graph.inner or self._graph.sparse):
            return self._graph
        moved = self._graph.to(self.device, self.dtype)
        if self.device.type != "meta":  # where its indices would be lost
            self._graph = moved
        return moved

    @property
    def hidden(self) -> tuple[int, ...]:
        """The layers that are not visible."""
        return self.graph.hidden

    @property
    def visible_width(self) -> int:
        """Columns of the data."""
        return sum(self.layers[l].width for l in self.visible)

    @property
    def unit_of_column(self) -> Tensor:
        """The unit of each visible column, counted over the visible layers, (visible_width,) int64."""
        layers = [self.layers[l] for l in self.visible]
        sizes = [layer.columns_per_unit for layer in layers for _ in range(layer.n_units)]
        return torch.arange(len(sizes), device=self.device).repeat_interleave(
            torch.tensor(sizes, device=self.device)
        )

    def split(self, v: Tensor) -> dict[int, Tensor]:
        """Splits data into the columns of the visible layers.

        Args:
            v: (rows, visible_width).

        Returns:
            For every visible layer, in their order, (rows, width_l).
        """
        widths = [self.layers[l].width for l in self.visible]
        if not isinstance(v, Tensor) or v.dim() != 2 or v.shape[1] != sum(widths):
            received = tuple(v.shape) if isinstance(v, Tensor) else type(v).__name__
            raise ValueError(f"v: expected a tensor (rows, {sum(widths)}), received {received}")
        return dict(zip(self.visible, torch.split(v, widths, -1), strict=True))

    def check_rows(self, v: Tensor, name: str, *, missing: bool = False) -> None:
        """Refuses data of the wrong shape, type or support, naming the place.

        Args:
            v: (rows, visible_width).
            name: what to call it in messages.
            missing: whether NaN is allowed, as an entry that was not observed: all columns of a unit.
        """
        _checks.numeric(v, name)
        missing = missing and not _checks.observed(v)
        if len(self.visible) == 1:
            layer = self.layers[self.visible[0]]
            layer.check_rows(layer.observed(v, name)[1] if missing else v, name)
            return
        if v.dim() != 2 or v.shape[1] != self.visible_width or len(v) == 0:
            raise ValueError(
                f"{name}: expected (rows, {self.visible_width}) with at least one row, the columns of layers "
                f"{', '.join(map(str, self.visible))} side by side, received shape {tuple(v.shape)}"
            )
        for l, x in self.split(v).items():
            check = self.layers[l].observed if missing else self.layers[l].check_rows
            check(x, f"{name} (layer {l})")

    def check_batch(self, v: Tensor, numbers: Iterable[int], name: str) -> None:
        """Refuses observed entries outside the support, naming the row by its number in the data.

        Args:
            v: (rows, visible_width), NaN where it was not observed.
            numbers: Numbers of these rows in the data, (rows,).
            name: Name of the data, for messages.
        """
        try:
            self.check_rows(v, name, missing=True)
        except ValueError:
            # A layer counts rows within what it is given; one row at a time tells which of the data it is.
            for row, number in zip(v, numbers, strict=True):
                for l, x in self.split(row.unsqueeze(0)).items():
                    self.layers[l].observed(x.squeeze(0), f"{name}[{int(number)}]")
            raise

    @property
    def support(self) -> tuple[str, ...]:
        """The visible units in words: rows once found in their support are in it."""
        return tuple(str(self.layers[l]) for l in self.visible)

    def check_condition(self, condition_on: Iterable[int]) -> tuple[int, ...]:
        """Returns the layers that a distribution is conditional on: some, not all, of the visible ones."""
        _checks.instance(condition_on, "condition_on", Iterable, "a list of visible layers")
        listed = tuple(condition_on)
        if not all(type(l) is int and l in self.visible for l in listed) or not 0 < len(set(listed)) == len(
            listed
        ) < len(self.visible):
            raise ValueError(
                f"condition_on: expected some, not all, of the visible layers {list(self.visible)}, each "
                f"once, received {list(listed)}"
            )
        return listed

    def hamiltonian(self, *, checked: bool = True, forbidden: bool = False) -> Hamiltonian:
        """Returns the machine in natural parameters, differentiable in the learnable ones.

        Args:
            checked: whether to look at the numbers. Training, which watches them itself, does without.
            forbidden: whether fields and couplings of discrete units without values below 0 may be -inf: a
                state, or a pair of states, of probability 0.

        Raises:
            TypeError: parameters of 16 bits, which can be kept and saved but not computed with.
            ValueError: parameters that are not finite, or too large for sums of their squares; inside
                ``torch.autocast``.
        """
        _checks.outside_autocast(self.device.type)
        parameters = dict(self.named_parameters())
        for name, parameter in parameters.items():
            if parameter.dtype not in COMPUTED:
                raise TypeError(
                    f"machine: expected parameters in float32 or float64, received {name} in "
                    f"{parameter.dtype}, in which sums and probabilities lose their digits; "
                    "compute with machine.float()"
                )
        layers = tuple(self.layers)
        scales = [layer.scale for layer in layers]
        couplings = [
            coupling.natural(scales[l], scales[m])
            for (l, m), coupling in zip(self.edges, self.couplings, strict=True)
        ]
        thetas = tuple(layer.natural() for layer in layers)
        J = CouplingMatrices(couplings)
        hamiltonian = Hamiltonian(
            layers, self.graph, thetas, J, constant=_checks.real(self.constant, "machine.constant")
        )
        if checked and self.device.type != "meta":
            _require_finite(hamiltonian, parameters, forbidden=forbidden)
        return hamiltonian

    def energy(self, states: Sequence[Numbers]) -> Tensor:
        """Returns E of joint states (FORMULAS §1), without the constants of the layers' own normalisers.

        Args:
            states: for each layer (batch, width_l).

        Returns:
            (batch,), float64; infinite where a state is forbidden.

        Examples:
            >>> import torch
            >>> import harmonium as hm
            >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=None)
            >>> machine.couplings[0].fill_(torch.ones(3, 2))
            >>> machine.energy([torch.ones(1, 3), torch.ones(1, 2)]).item()
            -6.0
        """
        hamiltonian, penalty = penalise(self.hamiltonian(forbidden=True))
        return -forbid(-hamiltonian.energy(self.check_states(states)), penalty)

    def free_energy(
        self,
        states: Sequence[Numbers] | Numbers,
        summed: Literal["even", "odd"] | Collection[int] | None = None,
    ) -> Tensor:
        """Returns F = -ln Σ exp(-E), summed over all states of some layers.

        Args:
            states: for each layer (batch, width_l), entries of summed layers are not read and may be None;
                or, where no two hidden layers are joined, the visible states alone, (batch, visible_width).
            summed: the layers that are summed out, no two of them joined and none with inner edges; "odd" or
                "even" ones of a chain; None for ``graph.summed``, the odd layers of a chain.

        Returns:
            (batch,), float64.

        Raises:
            ValueError: layers that cannot be summed out together, or states that do not fit.

        Examples:
            >>> import torch
            >>> import harmonium as hm
            >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)], seed=None)  # J = 0
            >>> round(machine.free_energy(torch.zeros(1, 3)).item(), 4)  # -2 ln 2
            -1.3863
        """
        out = self.graph.read_summed(summed)
        hamiltonian, penalty = penalise(self.hamiltonian(forbidden=True))
        if isinstance(states, Tensor | np.ndarray):
            if set(out) != set(self.hidden):
                raise ValueError(
                    "states: expected one tensor for each layer (visible states alone do where all hidden "
                    f"layers can be summed out), received one tensor for {len(self.layers)} layers"
                )
            v = self.visible_rows(states, "states[0]" if self.visible == (0,) else "states")
            free_energy = hamiltonian.free_energy(hamiltonian.split(v), out)
        else:
            free_energy = hamiltonian.free_energy(self.check_states(states, skip=out), out)
        return -forbid(-free_energy, penalty)

    def check_states(
        self, states: Sequence[Numbers], skip: Sequence[int] = (), name: str = "states"
    ) -> States:
        """Returns joint states on the machine's device and in its dtype, as ``visible_rows`` does for data.

        Args:
            states: for each layer (rows, width_l), arrays or tensors of any real dtype.
            skip: layers that are not read; they come back as they are.
            name: what to call them in messages.

        Raises:
            TypeError: what is no array or tensor of real numbers.
            ValueError: another number of layers, shape or support; the message names the place.
        """
        one = isinstance(states, Tensor | np.ndarray)
        _checks.instance(states, name, Sequence | Tensor | np.ndarray, "a list of tensors")
        if one or len(states) != len(self.layers):
            received = "one tensor" if one else f"{len(states)} entries"
            raise ValueError(
                f"{name}: expected one tensor for each of {len(self.layers)} layers, received {received}"
            )
        checked: list[Any] = list(states)
        rows = None
        for l, layer in enumerate(self.layers):
            if l in skip:
                continue
            x = checked[l] = _checks.tensor(states[l], f"{name}[{l}]", self.dtype, self.device)
            layer.check_rows(x, f"{name}[{l}]")
            if rows is not None and len(x) != rows:
                raise ValueError(
                    f"{name}[{l}]: expected {rows} rows as in the other layers, received {len(x)}"
                )
            rows = len(x)
        return checked

    def visible_rows(
        self, X: Numbers, name: str, *, missing: bool = False, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Returns X as visible states, (rows, visible_width), on the machine's device and in its dtype.

        Args:
            X: at least one row: an array or tensor of any real dtype, on any device.
            name: what to call X in messages.
            missing: whether NaN is allowed, as an entry that was not observed.
            dtype: where something is computed in another one than the machine's.

        Raises:
            TypeError: not an array or dense tensor of real numbers.
            ValueError: another shape, or values outside the support or beyond the dtype.
        """
        x = _checks.tensor(X, name, dtype or self.dtype, self.device)
        self.check_rows(x, name, missing=missing)
        return x

    @torch.no_grad()
    def random_states(self, rows: int, *, seed: int | torch.Generator) -> States:
        """Draws uniform discrete units and standard normal real ones, for each layer (rows, width_l).

        Args:
            rows: number of states, at least 1.
            seed: source of noise: an int, or a generator to advance.

        Examples:
            >>> import harmonium as hm
            >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Gaussian(2)])
            >>> [tuple(x.shape) for x in machine.random_states(4, seed=0)]
            [(4, 3), (4, 2)]
        """
        rows = _checks.positive_int(rows, "rows")
        generator = _random.as_generator(seed, self.device)
        hamiltonian = self.hamiltonian(forbidden=True)
        return [hamiltonian.pure_noise(l, rows, generator) for l in range(len(self.layers))]

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the machine to a safetensors file with a JSON header.

        Args:
            path: the file; its folder must exist.
            overwrite: whether a file already there may be replaced.

        Raises:
            FileExistsError: the file exists and ``overwrite`` is False.
            OSError: it cannot be written; a file already there stays as it was.
            ValueError: a parameter is not finite, and no forbidden state; such a file could not be read back.
            TypeError: metadata that JSON does not have.

        Examples:
            >>> from tempfile import TemporaryDirectory
            >>> import harmonium as hm
            >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
            >>> with TemporaryDirectory() as folder:
            ...     machine.save(f"{folder}/machine.safetensors")
            ...     hm.load(f"{folder}/machine.safetensors").layers[0]
            Bernoulli(3)
        """
        header = {**self.config(), "metadata": self.metadata}
        refuse_infinite(self, forbidden=True)
        _storage.write(Path(path), self.state_dict(), header, overwrite=overwrite)

    def describe(self) -> str:
        """Describes layers, data, edges with their weights, and the colours of a sweep, as text.

        Weights are those that may differ from 0, a pair of units of one layer counted once.
        """
        return describe_graph(self.graph, self.layers, self.couplings)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.describe())}</pre>"

    def config(self) -> dict[str, Any]:
        """Returns layers, edges and visible layers as JSON has them; with the parameters, the machine."""
        config: dict[str, Any] = {"layers": [{"kind": layer.kind, **layer.config()} for layer in self.layers]}
        if not self.graph.is_chain or not all(isinstance(coupling, Dense) for coupling in self.couplings):
            pairs = zip(self.edges, self.couplings, strict=True)
            config["edges"] = [{"layers": list(e), "kind": c.kind, **c.config()} for e, c in pairs]
            config["visible"] = list(self.visible)
        if self.constant:
            config["constant"] = _checks.real(self.constant, "machine.constant")
        return config


@torch.no_grad()
def _require_finite(
    hamiltonian: Hamiltonian, parameters: Mapping[str, Tensor], *, forbidden: bool = False
) -> None:
    """Refuses parameters that are not finite, or whose squares sum up to more than float32 holds.

    Args:
        hamiltonian: the machine in natural parameters.
        parameters: its learnable parameters by name, as ``named_parameters`` has them.
        forbidden: whether fields and couplings of discrete units without values below 0 may be -inf: a state,
            or a pair of states, of probability 0.

    Raises:
        ValueError: naming the parameter, its first such entry, and what to do.
    """
    known = {x.data_ptr() for x in parameters.values()}
    thetas = [(f"layers.{l}", x) for l, theta in enumerate(hamiltonian.thetas) for x in theta]
    natural = [*thetas, *((f"couplings.{edge}", J) for edge, J in enumerate(hamiltonian.J))]
    # Those that are made of others, such as 1/σ², may overflow where σ does not.
    natural_parameters = [
        (f"the natural parameters of {name}", x) for name, x in natural if x.data_ptr() not in known
    ]
    listed = [*parameters.items(), *natural_parameters]
    norms = torch._foreach_norm([x for _, x in listed])
    if float(torch.stack(norms).max()) <= _LARGEST:  # not so for NaN
        return
    for name, x in listed:
        forbids = _may_forbid(hamiltonian, name)
        if forbidden and forbids:
            x = x.masked_fill(x == -inf, 0.0)
        if float(x.double().norm()) <= _LARGEST:
            continue
        bad = ~x.isfinite()
        index = (bad if bool(bad.any()) else x.abs() == x.abs().max()).nonzero()[0].tolist()
        value = x[tuple(index)].item()
        expected, remedy = "finite parameters", "write a number"
        if isfinite(value):  # itself too large, or one of many whose squares sum up to too much
            expected, remedy = "parameters of a norm below 2^64", "divide all parameters by one number"
        if name not in parameters:
            remedy = "bring the parameters that they are computed from nearer to 0"
        elif value == -inf and forbids:
            remedy = "exact sums and minimise take it, as a forbidden state; elsewhere write -50"
        elif value in (inf, -inf):
            remedy = f"write {50 if value > 0 else -50}, which is as good as certain"
        raise ValueError(f"machine: expected {expected}, received {value:g} in {name} at {index}; {remedy}")


def refuse_infinite(machine: BoltzmannMachine, *, forbidden: bool) -> None:
    """Refuses parameters of any dtype that are not finite; ``forbidden`` as in ``hamiltonian``."""
    for name, parameter in machine.named_parameters():
        x = parameter.detach()
        if forbidden and _may_forbid(machine, name):
            x = x.masked_fill(x == -inf, 0.0)
        _checks.finite(x, name)


def _may_forbid(machine: Hamiltonian | BoltzmannMachine, name: str) -> bool:
    """Returns whether -inf among parameters means that a state or a pair of states has probability 0."""
    kind, number = name.rsplit(" ", 1)[-1].split(".")[:2]
    ends = machine.graph.edges[int(number)] if kind == "couplings" else (int(number),)
    layers = [machine.layers[l] for l in ends]
    return all(layer.discrete and float(layer.values().min()) >= 0 for layer in layers)
