"""HDF5 files of rbms, versions 0.5 and 0.6 and before: RBMs of Bernoulli hidden units.

Every age is a group ``update_N`` with ``weight_matrix``, ``vbias`` and ``hbias``, in ``params`` or, in older
files, directly. Bernoulli couplings are (visible, hidden); Potts ones (sites, states, hidden), or in some
older files (states, sites, hidden).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from harmonium import _checks
from harmonium.data.files import import_h5py, inside
from harmonium.exchange import _hdf5
from harmonium.exchange._format import Exchanged, Format, is_rbm, make_rbm, misfit
from harmonium.layers import Bernoulli, Categorical
from harmonium.machine import BoltzmannMachine

_AGE = re.compile(r"update_(\d{1,15})")
_CHAINS = 100  # from noise: their number is free, and few make a small file
_NAMES = ("weight_matrix", "vbias", "hbias")


def _recognises(path: Path) -> bool:
    return any(map(_AGE.fullmatch, _hdf5.names_of(path)))


def _read(path: Path, update: int | None = None) -> Exchanged:
    with import_h5py().File(path, "r") as file:
        ages = sorted(int(match[1]) for name in file if (match := _AGE.fullmatch(name)))
        if not ages or update not in (None, *ages):
            raise ValueError(
                f"update: expected one of {ages[:5]}{'…' if len(ages) > 5 else ''}, received {update}"
            )
        age = ages[-1] if update is None else update
        kind = _hdf5.text(file, "model_type")
        if kind not in (None, "BBRBM", "PBRBM"):
            raise ValueError(
                f"model_type: expected BBRBM or PBRBM (Bernoulli hidden units), received {kind!r}"
            )
        group = inside(file, f"update_{age}")
        group = inside(group, "params") or group
        W, a, b = (_hdf5.array(group, name) for name in _NAMES)
        chains = _hdf5.array(file, "parallel_chains") if "parallel_chains" in file else None
    if W.dim() not in (2, 3) or W.shape[:-1] != a.shape or W.shape[-1:] != b.shape or 0 in W.shape:
        raise ValueError(
            "weight_matrix, vbias, hbias: expected shapes (visible, hidden), (visible,), (hidden,), or "
            f"(sites, states, hidden), …, received {(*map(tuple, (W.shape, a.shape, b.shape)),)}"
        )
    if W.dim() == 3:
        W, a = _sites_first(W, a, chains, kind)
    visible: Any = Categorical(*a.shape) if W.dim() == 3 else Bernoulli(len(a))
    machine = make_rbm(visible, W, a, b, {"form": "rbms", "update": age})
    return Exchanged(machine, _states(visible, chains), "rbms")


def _write(machine: BoltzmannMachine, chains: Tensor | None) -> bytes:
    visible: Any = machine.layers[0]
    hidden: Any = machine.layers[-1]
    if not (is_rbm(machine) and (visible.one_hot or visible.two_values == (0.0, 1.0))):
        expected = "Bernoulli or categorical visible units beside a layer of Bernoulli hidden ones"
        raise misfit(machine, f"{expected} for rbms")
    hamiltonian, potts = machine.hamiltonian(), visible.one_hot
    W = hamiltonian.J[0].reshape(*visible.bias.shape, hidden.width)
    values: dict[str, Any] = dict(zip(_NAMES, (W, visible.bias, hidden.bias), strict=True))
    if chains is None:
        chains = machine.random_states(_CHAINS, seed=0)[0]  # the program reads no file without any
    codes = visible.by_unit(chains).argmax(-1) if potts else chains
    buffer = io.BytesIO()
    with import_h5py().File(buffer, "w") as file:
        file["model_type"] = "PBRBM" if potts else "BBRBM"
        file["parallel_chains"] = codes.cpu().numpy().astype(np.float32)
        group = file.create_group("update_1")
        for name, x in values.items():
            group[f"params/{name}"] = x.detach().cpu().numpy()
            group[name] = group[f"params/{name}"]
        group["time"] = 0.0
        for name in ("batch_size", "gibbs_steps", "learning_rate", "L1", "L2"):
            file[f"hyperparameters/{name}"] = 0  # that the program reads; nothing is known of them here
    return buffer.getvalue()


def _sites_first(W: Tensor, a: Tensor, chains: Tensor | None, kind: str | None) -> tuple[Tensor, Tensor]:
    """Returns couplings and fields with sites before states, whichever way the file has them."""
    sites = chains.shape[1] if chains is not None and chains.dim() == 2 else None
    turned = kind is None and a.shape[0] < a.shape[1]  # older files
    if sites in a.shape and a.shape[0] != a.shape[1]:
        turned = sites == a.shape[1]
    elif kind is None:
        sites, states = reversed(a.shape) if turned else a.shape
        _checks.warn(
            f"rbms: the file does not say which of {tuple(a.shape)} are sites and which states: read as "
            f"{sites} sites of {states} states, as there are usually more sites"
        )
    return (W.transpose(0, 1), a.t()) if turned else (W, a)


def _states(visible: Any, chains: Tensor | None) -> Tensor | None:
    """Returns chains as visible states; None where there are none."""
    if chains is None or chains.numel() == 0:
        return None
    if chains.dim() != 2 or chains.shape[1] != visible.n_units:
        raise ValueError(
            f"parallel_chains: expected (chains, {visible.n_units}), received {tuple(chains.shape)}"
        )
    if not bool(((chains == chains.round()) & (chains >= 0) & (chains < visible.n_states)).all()):
        raise ValueError(f"parallel_chains: expected states 0 to {visible.n_states - 1}")
    states: Tensor = visible.from_digits(chains.long()).double()
    return states


RBMS = Format("rbms", ".h5", "HDF5 of rbms", _recognises, _read, _write, "update")
"""Files of rbms."""
