"""Machines from their files: nothing is made before its claims are compared with what is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harmonium import _checks, _storage
from harmonium.couplings import Coupling
from harmonium.layers import Layer
from harmonium.machine.boltzmann import BoltzmannMachine, refuse_infinite

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class _UnknownKind(ValueError):
    """A layer or coupling whose class is not here."""


def load(path: str | Path, *, device: torch.device | str = "cpu") -> BoltzmannMachine:
    """Returns the machine from the file that ``BoltzmannMachine.save`` wrote, or from the folder of a run.

    Args:
        path: the file; or the ``run_dir`` of a run that has ended, for its ``machine.safetensors``. Where a
            checkpoint there is newer, the run went on after it and has not ended: a warning is given.
        device: where to put it.

    Raises:
        FileNotFoundError: no such file, or a folder without the machine of a run that has ended.
        ValueError: not a harmonium file, of an unknown version, or damaged; the message names what.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> import harmonium as hm
        >>> machine = hm.BoltzmannMachine([hm.Bernoulli(3), hm.Bernoulli(2)])
        >>> with TemporaryDirectory() as folder:
        ...     machine.save(f"{folder}/machine.safetensors")
        ...     hm.load(f"{folder}/machine.safetensors").layers[0]
        Bernoulli(3)
    """
    path = Path(path)
    if path.is_dir():
        path = _find_machine(path)
    tensors, header = _storage.read(path)
    try:
        return rebuild(header, tensors, device)
    except _UnknownKind as error:
        raise ValueError(
            f"path: {path}, {error}; a class of your own has to be made before, for the command by "
            "HARMONIUM_IMPORT"
        ) from error
    except ValueError as error:
        raise ValueError(f"path: {path} is damaged, {error}") from error


def _find_machine(folder: Path) -> Path:
    """Returns the path of the machine in the folder of a run that has ended."""
    machine, checkpoint = folder / _storage.MACHINE, folder / _storage.CHECKPOINT
    if not machine.exists():
        if checkpoint.exists():
            raise FileNotFoundError(
                f"path: the run in {folder} has not ended and wrote no {machine.name}; resume ends it"
            )
        raise FileNotFoundError(
            f"path: {folder} is not a file, nor the folder of a run: it holds no {machine.name}"
        )
    if checkpoint.exists() and checkpoint.stat().st_mtime > machine.stat().st_mtime:
        _checks.warn(
            f"the run in {folder} went on after it wrote {machine.name} and has not ended: this is the "
            "machine as it was",
        )
    return machine


def rebuild(
    description: Any, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu"
) -> BoltzmannMachine:
    """Rebuilds a machine from its description and its parameters.

    Args:
        description: A mapping from JSON with ``layers``, for each its kind and arguments, and, where there
            are any, ``metadata``.
        tensors: Parameters by the names, and of the shapes, of ``BoltzmannMachine.state_dict``.
        device: Device of the machine.

    Raises:
        ValueError: either is not of this form, or they do not fit each other.
    """
    _require_one_dtype(tensors)
    units = max((x.numel() for x in tensors.values()), default=0)
    machine, metadata = _make_outline(description, most=len(tensors), units=units)
    claimed = {name: tuple(x.shape) for name, x in machine.state_dict().items()}
    received = {name: tuple(x.shape) for name, x in tensors.items()}
    for name in (*claimed, *received):
        if claimed.get(name) != received.get(name):
            raise ValueError(
                f"{name}: expected shape {claimed.get(name)} for its layers, received {received.get(name)}"
            )
    copies = {
        name: x.to(device, copy=True, memory_format=torch.contiguous_format) for name, x in tensors.items()
    }
    machine.load_state_dict(copies, assign=True)
    refuse_infinite(machine, forbidden=True)
    machine.metadata = metadata
    return machine


def _make_outline(description: Any, most: int, units: int) -> tuple[BoltzmannMachine, dict[str, Any]]:
    """Returns the machine, at most ``most`` layers, with no memory for its parameters, and its metadata.

    A layer has at most ``units`` units, as each has a parameter; patterns of couplings take memory and time.
    """
    if not isinstance(description, dict) or not isinstance(description.get("layers"), list):
        raise ValueError("expected a list of layers in its header")
    if len(description["layers"]) > most:
        raise ValueError(f"expected parameters for {len(description['layers'])} layers, received {most}")
    metadata = description.get("metadata", {})
    if not isinstance(metadata, dict):
        raise ValueError(f"expected a mapping of metadata, received {type(metadata).__name__}")
    with torch.device("meta"):  # shapes without numbers
        layers: list[Layer] = [
            _build(Layer.registry, config, f"layers[{i}]", "layer")
            for i, config in enumerate(description["layers"])
        ]
        for i, layer in enumerate(layers):
            if layer.n_units > units:
                raise ValueError(
                    f"layers[{i}]: expected parameters for {layer.n_units} units, received {units}"
                )
        try:
            edges = _make_edges(description["edges"], most) if "edges" in description else None
            machine = BoltzmannMachine(layers, edges, description.get("visible"), seed=None)
            machine.constant = _checks.real(description.get("constant", 0.0), "constant")
            return machine, metadata
        except (TypeError, RuntimeError) as error:  # more couplings than can be counted, say
            raise ValueError(str(error).splitlines()[0]) from error


def _make_edges(configs: Any, most: int) -> dict[tuple[int, int], Coupling]:
    """Returns couplings by pair of layers."""
    if not isinstance(configs, list) or len(configs) > most:
        raise ValueError(f"edges: expected a list of at most {most} edges")
    edges = {}
    for i, config in enumerate(configs):
        pair = config.get("layers") if isinstance(config, dict) else None
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(l) is int for l in pair):
            raise ValueError(f"edges[{i}]: expected a mapping with a pair of layers, received {pair!r}")
        edges[pair[0], pair[1]] = _build(Coupling.registry, config, f"edges[{i}]", "coupling")
    return edges


def _build(registry: Mapping[str, Any], config: Any, name: str, what: str) -> Any:
    """Returns a layer or coupling from its kind and arguments; ``layers`` is the place of a coupling."""
    if not isinstance(config, dict):
        raise ValueError(f"{name}: expected a mapping, received {type(config).__name__}")
    arguments = {key: value for key, value in config.items() if what == "layer" or key != "layers"}
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str):
        raise ValueError(f"{name}: expected the name of a kind of {what}, received {kind!r}")
    if kind not in registry:
        raise _UnknownKind(f"{name}: this version of harmonium has no {what} {kind!r}")
    try:
        return registry[kind](**arguments)
    except (TypeError, ValueError, KeyError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name}: {str(error).splitlines()[0]}") from error


def _require_one_dtype(tensors: Mapping[str, Tensor]) -> None:
    """Refuses parameters of several dtypes, or without memory of their own."""
    if not isinstance(tensors, Mapping) or not tensors:
        raise ValueError("expected parameters by name, received none")
    for name, x in tensors.items():
        if not isinstance(name, str) or not isinstance(x, Tensor):
            raise ValueError(f"expected tensors by name, received {type(x).__name__} for {name!r}")
        if x.layout is not torch.strided or x.is_quantized or x.dtype not in _DTYPES:
            raise ValueError(f"{name}: expected a dense floating tensor, received {x.layout} of {x.dtype}")
    dtypes = {x.dtype for x in tensors.values()}
    if len(dtypes) > 1:
        raise ValueError(f"expected one dtype, received {sorted(map(str, dtypes))}")
    # A view can repeat a few numbers without end, and copying it would write them all out.
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors.values()}
    if sum(x.nbytes for x in tensors.values()) > sum(storages.values()):
        raise ValueError("expected parameters with memory of their own, received views of the same numbers")
