"""HDF5 files of RestrictedBoltzmannMachines.jl, format 1.0.0: plain, centred and standardised machines.

Julia's axes come reversed. A layer's parameters are stacked on Julia's first axis: θ of units with states; θ
and γ of Gaussian and rectified units, with exponent θx - |γ|x²/2; θ₊, θ₋, γ₊, γ₋ of double rectified ones.
These come in three more parametrisations, pReLU, xReLU and nsReLU: θ, γ (1 in the last), Δ and an asymmetry.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from harmonium.data.files import import_h5py
from harmonium.exchange import _hdf5
from harmonium.exchange._format import Exchanged, Format, misfit
from harmonium.layers import (
    Bernoulli,
    Categorical,
    DoubleReLU,
    Gaussian,
    Layer,
    ReLU,
    Spin,
)
from harmonium.machine import BoltzmannMachine

_VERSION = "rbm_hdf5_file_format_version"
_KINDS = ("RBM", "CenteredRBM", "StandardizedRBM")


def _recognises(path: Path) -> bool:
    return _VERSION in _hdf5.names_of(path)


def _read(path: Path) -> Exchanged:
    with import_h5py().File(path, "r") as file:
        version, name = _hdf5.text(file, _VERSION), _hdf5.text(file, "rbm_type")
        if version is None or version.split(".")[0] != "1":
            raise ValueError(f"{_VERSION}: expected 1, received {version!r}")
        if name not in _KINDS:
            raise ValueError(f"rbm_type: expected one of {', '.join(_KINDS)}, received {name!r}")
        sides = [_read_side(file, side) for side in ("visible", "hidden")]
        n, m = (layer.width for _, layer, _ in sides)
        J = _read_flat(file, "weights", n * m).view(m, n).t()  # whose axes come hidden first
        offsets, scales = (
            [_read_flat(file, f"{what}_{s}", width, usual) for s, width in (("v", n), ("h", m))]
            for what, usual in (("offset", 0.0), ("scale", 1.0))
        )
    if not all(bool((scale > 0).all()) for scale in scales):
        raise ValueError("scale_v, scale_h: expected numbers above 0")
    J = J / scales[0].unsqueeze(1) / scales[1]
    machine = BoltzmannMachine([layer for _, layer, _ in sides], seed=None).double()
    for (kind, layer, theta), field in zip(sides, (J @ offsets[1], J.t() @ offsets[0]), strict=True):
        moved = [x - field.view_as(x) if i < kind.linear else x for i, x in enumerate(theta)]
        layer.set_finite_(**kind.values(*moved))
    for (_, layer, _), axis in zip(sides, (1, 0), strict=True):
        if layer.scale is not None:
            J = J / layer.scale.detach().double().unsqueeze(axis)
    machine.couplings[0].fill_(J)
    machine.metadata["origin"] = {"form": "rbm.jl", "rbm_type": name}
    return Exchanged(machine, None, "rbm.jl")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    kinds = [name for x in machine.layers for units, name in _WRITTEN.items() if isinstance(x, units)]
    if machine.edges != ((0, 1),) or machine.visible != (0,) or len(kinds) < len(machine.layers):
        units = "Bernoulli, Spin, Categorical, Gaussian, ReLU or DoubleReLU units"
        raise misfit(machine, f"a visible layer beside a hidden one, of {units}, for RBM.jl")
    hamiltonian, shapes = machine.hamiltonian(), list[tuple[int, ...]]()
    buffer = io.BytesIO()
    with import_h5py().File(buffer, "w") as file:
        file[_VERSION], file["rbm_type"] = "1.0.0", "RBM"
        for side, name, layer, natural in zip(
            ("visible", "hidden"), kinds, machine.layers, hamiltonian.thetas, strict=True
        ):
            shapes.append((layer.n_units, layer.columns_per_unit) if layer.one_hot else (layer.width,))
            if name == "dReLU":  # θ₊ and θ₋ of their mean and half their difference
                natural = (natural[0] + natural[1], natural[0] - natural[1], *natural[2:])
            par = torch.stack([x.view(shapes[-1]) for x in natural], -1)
            file[f"{side}_type"], file[f"{side}_par"] = name, par.cpu().numpy()
        file["weights"] = hamiltonian.J[0].t().reshape(*shapes[1], *shapes[0]).cpu().numpy()
    return buffer.getvalue()


def _bias(bias: Tensor) -> dict[str, Tensor]:
    return {"bias": bias}


def _gaussian(theta: Tensor, gamma: Tensor) -> dict[str, Tensor]:
    return {"mean": theta / gamma.abs(), "log_variance": -gamma.abs().log()}


def _relu(theta: Tensor, gamma: Tensor) -> dict[str, Tensor]:
    return {"linear": theta, "log_quadratic": gamma.abs().log()}


def _double_relu(up: Tensor, down: Tensor, gamma_up: Tensor, gamma_down: Tensor) -> dict[str, Tensor]:
    return {
        "linear": (up + down) / 2,
        "absolute": (up - down) / 2,
        "log_quadratic_positive": gamma_up.abs().log(),
        "log_quadratic_negative": gamma_down.abs().log(),
    }


def _prelu(theta: Tensor, gamma: Tensor, delta: Tensor, eta: Tensor) -> dict[str, Tensor]:
    if not bool((eta.abs() < 1).all()):
        raise ValueError("par: expected asymmetries η of pReLU units between -1 and 1")
    up, down = 1 / (1 + eta), 1 / (1 - eta)
    return _double_relu(theta + delta * up, theta - delta * down, gamma * up, gamma * down)


def _xrelu(theta: Tensor, gamma: Tensor, delta: Tensor, xi: Tensor) -> dict[str, Tensor]:
    return _prelu(theta, gamma, delta, xi / (1 + xi.abs()))


def _nsrelu(theta: Tensor, delta: Tensor, xi: Tensor) -> dict[str, Tensor]:
    return _xrelu(theta, torch.ones_like(theta), delta, xi)


class _Kind(NamedTuple):
    """A kind of layer of the format.

    Attributes:
        make: the class of the layer here, of so many units.
        linear: its parameters that a field moves, which come first.
        parameters: their number.
        values: Returns the layer's own parameters by them.
    """

    make: Callable[..., Layer]
    linear: int
    parameters: int
    values: Callable[..., dict[str, Tensor]]


_LAYERS = {
    "Binary": _Kind(Bernoulli, 1, 1, _bias),
    "Spin": _Kind(Spin, 1, 1, _bias),
    "Potts": _Kind(Categorical, 1, 1, _bias),
    "PottsGumbel": _Kind(Categorical, 1, 1, _bias),
    "Gaussian": _Kind(Gaussian, 1, 2, _gaussian),
    "ReLU": _Kind(ReLU, 1, 2, _relu),
    "dReLU": _Kind(DoubleReLU, 2, 4, _double_relu),
    "pReLU": _Kind(DoubleReLU, 1, 4, _prelu),
    "xReLU": _Kind(DoubleReLU, 1, 4, _xrelu),
    "nsReLU": _Kind(DoubleReLU, 1, 3, _nsrelu),
}
# Kinds of layers that are written; the natural parameters of a Gaussian layer are θ and γ in all its forms.
_WRITTEN: dict[type[Any], str] = {
    Bernoulli: "Binary",
    Spin: "Spin",
    Categorical: "Potts",
    Gaussian: "Gaussian",
    ReLU: "ReLU",
    DoubleReLU: "dReLU",
}


def _read_side(file: Any, side: str) -> tuple[_Kind, Layer, list[Tensor]]:
    """Returns a layer, and its parameters by unit or, of categorical units, by unit and state."""
    name, par = _hdf5.text(file, f"{side}_type"), _hdf5.array(file, f"{side}_par")
    if name not in _LAYERS:
        raise ValueError(f"{side}_type: expected one of {', '.join(_LAYERS)}, received {name!r}")
    kind = _LAYERS[name]
    states = kind.make is Categorical
    shortest = 3 if states else 2
    if par.dim() < shortest or par.shape[-1] != kind.parameters or 0 in par.shape:
        raise ValueError(
            f"{side}_par: expected (…, {kind.parameters}) for {name} units, received {tuple(par.shape)}"
        )
    theta = [x.reshape(-1, x.shape[-1]) if states else x.flatten() for x in par.unbind(-1)]
    return kind, kind.make(*theta[0].shape), theta


def _read_flat(file: Any, name: str, size: int, usual: float | None = None) -> Tensor:
    """Returns an array of so many numbers as (size,), the usual ones where there is none."""
    if usual is not None and name not in file:
        return torch.full((size,), usual, dtype=torch.float64)
    x = _hdf5.array(file, name)
    if x.numel() != size:
        raise ValueError(f"{name}: expected {size} numbers, received {tuple(x.shape)}")
    return x.flatten()


RBM_JL = Format("rbm.jl", ".hdf5", "HDF5 of RestrictedBoltzmannMachines.jl", _recognises, _read, _write)
"""Files of RestrictedBoltzmannMachines.jl. Machines are written as plain ones, type ``RBM``."""
