"""The Boltzmann machine: layers joined by couplings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from harmonium import _checks, _random
from harmonium.layers import Layer
from harmonium.machine import storage
from harmonium.machine.hamiltonian import Hamiltonian, Parity, States
from harmonium.machine.initialisation import normal_

COMPUTED = (torch.float32, torch.float64)
"""The types that machines compute in. Others are good for storage alone."""


@final
class BoltzmannMachine(nn.Module):
    """A Boltzmann machine of any depth and with any kind of unit; one hidden layer makes it an RBM.

    Layer 0 is visible. Even and odd layers are independent given each other.

    Args:
        layers: the visible layer and at least one hidden layer.
        seed: where the first couplings come from, N(0, 0.01²): an int or a generator; None leaves them zero.
            See ``harmonium.machine`` for other initialisers.

    Attributes:
        layers: the layers, which own their parameters.
        couplings: learnable W_l, (width_l, width_{l+1}); J_l = W_l, divided by σ² on every Gaussian side
            (Liao, Eq. 1).
        metadata: JSON-like values that travel with the machine's file, such as how its data were encoded.

    Raises:
        TypeError: something that is not a layer.
        ValueError: fewer than two layers, or one layer object used twice.
    """

    def __init__(self, layers: Iterable[Layer], *, seed: int | torch.Generator | None = 0) -> None:
        super().__init__()
        _checks.instance(layers, "layers", Iterable, "a list of layers")
        given = list(layers)
        for i, layer in enumerate(given):
            if not isinstance(layer, Layer):
                raise TypeError(f"layers[{i}]: expected a harmonium layer, received {type(layer).__name__}")
        if len(given) < 2:
            raise ValueError(
                f"layers: expected a visible and at least one hidden layer, received {len(given)} layer(s)"
            )
        if len({id(layer) for layer in given}) < len(given):
            raise ValueError("layers: expected distinct layer objects, received the same object twice")
        self.layers: Sequence[Layer] = nn.ModuleList(given)  # type: ignore[assignment]
        self.couplings: Sequence[nn.Parameter] = nn.ParameterList(  # type: ignore[assignment]
            torch.zeros(below.width, above.width) for below, above in pairwise(given)
        )
        self.metadata: dict[str, Any] = {}
        if seed is not None:
            normal_(self, 0.01, _random.as_generator(seed))

    @property
    def dtype(self) -> torch.dtype:
        return self.couplings[0].dtype

    @property
    def device(self) -> torch.device:
        return self.couplings[0].device

    def hamiltonian(self) -> Hamiltonian:
        """The machine in natural parameters, differentiable in the learnable ones.

        Raises:
            TypeError: parameters of 16 bits, which can be kept and saved but not computed with.
        """
        for name, parameter in self.named_parameters():
            if parameter.dtype not in COMPUTED:
                raise TypeError(
                    f"machine: expected parameters in float32 or float64, received {name} in "
                    f"{parameter.dtype}, in which sums and probabilities lose their digits; "
                    "compute with machine.float()"
                )
        layers = tuple(self.layers)
        scales = [layer.scale for layer in layers]
        couplings = []
        for W, (below, above) in zip(self.couplings, pairwise(scales), strict=True):
            J = W if below is None else W * below.unsqueeze(-1)
            couplings.append(J if above is None else J * above)
        return Hamiltonian(layers, tuple(layer.natural() for layer in layers), tuple(couplings))

    def energy(self, states: Sequence[Tensor]) -> Tensor:
        """E of joint states (FORMULAS §1), without the constants of the layers' own normalisers.

        Args:
            states: for each layer (batch, width_l).

        Returns:
            (batch,), float64.
        """
        hamiltonian = self.hamiltonian()
        self.check_states(states)
        return hamiltonian.energy(states)

    def free_energy(self, states: Sequence[Tensor] | Tensor, summed: Parity = "odd") -> Tensor:
        """F = -ln Σ exp(-E), summed over all states of the odd or of the even layers.

        Args:
            states: for each layer (batch, width_l), entries of summed layers are not read and may be None;
                or, with one hidden layer and ``summed="odd"``, the visible states alone.
            summed: the parity summed out.

        Returns:
            (batch,), float64.
        """
        _checks.one_of(summed, "summed", ("even", "odd"))
        if isinstance(states, Tensor):
            if len(self.layers) != 2 or summed != "odd":
                raise ValueError(
                    'states: expected one tensor for each layer (visible states alone do with summed="odd" '
                    f"and one hidden layer), received one tensor for {len(self.layers)} layers"
                )
            states = [states, states]
        hamiltonian = self.hamiltonian()
        out = hamiltonian.parity(summed)
        self.check_states(states, skip=out)
        return hamiltonian.free_energy(states, out)

    def check_states(self, states: Sequence[Tensor], skip: Sequence[int] = ()) -> None:
        """Refuses states of the wrong number of layers, shape, type or support, naming the place."""
        _checks.instance(states, "states", Sequence | Tensor, "a list of tensors")
        if isinstance(states, Tensor) or len(states) != len(self.layers):
            received = "one tensor" if isinstance(states, Tensor) else f"{len(states)} entries"
            raise ValueError(
                f"states: expected one tensor for each of {len(self.layers)} layers, received {received}"
            )
        rows = None
        for l, (layer, x) in enumerate(zip(self.layers, states, strict=True)):
            if l in skip:
                continue
            layer.check_rows(x, f"states[{l}]")
            if x.dtype != self.dtype:
                raise TypeError(f"states[{l}]: expected the machine's {self.dtype}, received {x.dtype}")
            if rows is not None and len(x) != rows:
                raise ValueError(
                    f"states[{l}]: expected {rows} rows as in the other layers, received {len(x)}"
                )
            rows = len(x)

    def visible_rows(self, X: Tensor, name: str) -> Tensor:
        """X as visible states, (rows, width_0), on the machine's device and in its dtype.

        Args:
            X: floating, of at least one row.
            name: what to call X in messages.

        Raises:
            TypeError: not a dense floating tensor.
            ValueError: another shape, or values outside the support or beyond the machine's dtype.
        """
        self.layers[0].check_rows(X, name)
        converted = X.to(self.device, self.dtype)
        if converted.dtype != X.dtype:
            _checks.finite(converted, name)
        return converted

    @torch.no_grad()
    def random_states(self, rows: int, *, generator: torch.Generator) -> States:
        """Pure noise: uniform discrete units, standard normal real ones; for each layer (rows, width_l)."""
        rows = _checks.positive_int(rows, "rows")
        hamiltonian = self.hamiltonian()
        return [
            layer.sample(
                torch.zeros(rows, layer.width, dtype=self.dtype, device=self.device),
                hamiltonian.noise(l, rows, generator),
                layer.reference(),
            )
            for l, layer in enumerate(hamiltonian.layers)
        ]

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Writes the machine to a safetensors file with a JSON header.

        Args:
            path: the file; its folder must exist.
            overwrite: whether a file already there may be replaced.

        Raises:
            FileExistsError: the file exists and ``overwrite`` is False.
            OSError: it cannot be written; a file already there stays as it was.
            ValueError: a parameter is not finite; such a file could not be read back.
            TypeError: metadata that JSON does not know.
        """
        header = {
            "layers": [{"kind": layer.kind, **layer.config()} for layer in self.layers],
            "metadata": self.metadata,
        }
        storage.write(Path(path), self.state_dict(), header, overwrite=overwrite)
