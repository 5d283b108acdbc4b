"""Blocks of units with two values on a CPU: when the compiled steps serve, and the way to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonium import _random
from harmonium._parallel import COMPILED, COMPILED_VALUES, share_out
from harmonium.machine import Hamiltonian, Part, States, Statistics
from harmonium.products import digits, int8_product

FEW_DIFFERENCES = 1 / 6
"""Share of units that differ between two chains up to which differences cost less than a product."""
_WORTHWHILE = 1 << 20  # multiplications of a product below which a product is not worth avoiding
_SCALE = 127  # the largest whole number that a mean is rounded to


def serves(hamiltonian: Hamiltonian, parts: Sequence[int | Part]) -> bool:
    """Whether the units of these layers or parts are two-valued, in float32 on a CPU, and numba is there."""
    return (
        COMPILED
        and hamiltonian.device.type == "cpu"
        and hamiltonian.dtype is torch.float32
        and all(hamiltonian.kind(part).two_values in COMPILED_VALUES for part in parts)
    )


@torch.no_grad()
def couple(
    hamiltonian: Hamiltonian,
    parts: Sequence[Part],
    fields_x: Sequence[Tensor],
    fields_y: Sequence[Tensor],
    generator: torch.Generator,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """A draw of ``Maximal(common_noise=True)`` for every row: x, y and the proposals made."""
    from harmonium.couplings import compiled_rows  # compiles at its first call, so not before it is wanted

    bias, gain, low = _units(hamiltonian, parts)
    first, second = _joined(fields_x), _joined(fields_y)
    drawn = torch.empty(2 * len(first), len(bias))
    x, y = drawn[: len(first)], drawn[len(first) :]
    tries = torch.zeros(len(first), dtype=torch.int64)
    key = _key(generator)
    arrays = first.numpy(), second.numpy(), bias, gain, low
    _share(len(first), compiled_rows.couple, *arrays, key, x.numpy(), y.numpy(), tries.numpy())
    if len(parts) == 1:
        return [x], [y], tries
    widths = [field.shape[-1] for field in fields_x]
    return list(torch.split(x, widths, -1)), list(torch.split(y, widths, -1)), tries


@torch.no_grad()
def differences(x: Tensor, y: Tensor) -> Tensor:
    """In how many entries two batches of states differ, (rows,)."""
    if not (COMPILED and x.device.type == "cpu" and x.dtype is torch.float32):
        return (x != y).sum(-1)
    from harmonium.couplings import compiled_rows

    counts = torch.empty(len(x), dtype=torch.int64)
    _share(len(x), compiled_rows.count_differences, x.numpy(), y.numpy(), counts.numpy())
    return counts


@torch.no_grad()
def fields_of_both(hamiltonian: Hamiltonian, part: Part, states: States) -> Tensor:
    """``hamiltonian.field`` for pairs of rows: the second half from the first where they differ in little.

    Chains that are equal get equal fields, to the bit.
    """
    joints = hamiltonian.graph.joints[part.layer]
    neighbours = [joint.other for joint in joints]
    pairs, width = len(states[part.layer]) // 2, hamiltonian.layers[part.layer].width
    inputs = sum(states[l].shape[1] for l in neighbours)
    if (
        part.columns is not None
        or not serves(hamiltonian, ())  # differences are of any kind of unit
        or not isinstance(hamiltonian.beta, float)
        or pairs * inputs * width < _WORTHWHILE
        or sum(int(differences(states[l][:pairs], states[l][pairs:]).sum()) for l in neighbours)
        > FEW_DIFFERENCES * pairs * inputs
    ):
        return hamiltonian.field(part, states)
    from harmonium.couplings import compiled_rows

    fields = torch.empty(2 * pairs, width)
    rows = min(_rounded(pairs), 2 * pairs)  # some rows of the second chains, for a shape seen before
    fields[:pairs] = hamiltonian.field(part, [x[:rows] for x in states])[:pairs]
    second = fields[pairs:]
    second.copy_(fields[:pairs])
    for joint in joints:
        J = hamiltonian.transposed[joint.edge] if joint.above else hamiltonian.couplings[joint.edge]
        J = (J if hamiltonian.beta == 1.0 else J * hamiltonian.beta).detach()
        x, y = states[joint.other][:pairs].numpy(), states[joint.other][pairs:].numpy()
        _share(pairs, compiled_rows.add_products_of_differences, x, y, J.numpy(), second.numpy())
    return fields


@torch.no_grad()
def add_signed(
    into: Statistics,
    hamiltonian: Hamiltonian,
    states: States,
    fields: dict[int, Tensor],
    signs: Tensor,
    magnitude: float,
    summed: Collection[int],
    generator: torch.Generator,
) -> None:
    """``Statistics.add`` with weights ± magnitude, in whole numbers.

    Units are ±1 or 0; means of summed layers are rounded to multiples of 1/127, up or down at random so that
    their expectation stays what it is. Products of whole numbers are exact and take a quarter of the time.
    """
    from harmonium.couplings import compiled_rows

    whole_signs = signs.to(torch.int8)
    values: list[Tensor] = []
    for l in range(len(states)):
        if l not in summed:
            values.append(states[l].to(torch.int8))
            continue
        field = fields[l] if l in fields else hamiltonian.field(l, states)
        if not bool(torch.isfinite(field.sum())):  # no whole number says so: let the general way
            into.add(hamiltonian, states, signs * magnitude, summed, fields)
            return
        rounded = torch.empty(field.shape, dtype=torch.int8)
        arrays = field.numpy(), *_units(hamiltonian, (l,)), _key(generator), _SCALE, rounded.numpy()
        _share(len(field), compiled_rows.round_means, *arrays)
        values.append(rounded)
    unit = [1 / _SCALE if l in summed else 1.0 for l in range(len(values))]
    thetas = [
        [int8_product(whole_signs.unsqueeze(0), x).squeeze(0) * (magnitude * u)]
        for x, u in zip(values, unit, strict=True)
    ]
    signed = [x * whole_signs.unsqueeze(-1) if l not in summed else x for l, x in enumerate(values)]
    couplings = [
        int8_product(signed[l].t(), signed[m]) * (magnitude * unit[l] * unit[m])
        for l, m in hamiltonian.graph.edges
    ]
    into.add_sums(thetas, couplings)


def adds_signed(hamiltonian: Hamiltonian, rows: int) -> bool:
    """Whether ``add_signed`` serves and pays."""
    layers = range(len(hamiltonian.layers))
    return (
        serves(hamiltonian, layers)
        and digits.work()
        and hamiltonian.graph.is_chain
        and rows * hamiltonian.couplings[0].numel() >= _WORTHWHILE
    )


def _units(hamiltonian: Hamiltonian, parts: Sequence[int | Part]) -> tuple[Any, Any, Any]:
    """Bias, gain and lower value of every unit of the layers or parts."""
    biases = [hamiltonian.theta(part)[0].detach().numpy() for part in parts]
    pairs = [hamiltonian.kind(part).two_values or COMPILED_VALUES[0] for part in parts]
    gains = [np.full_like(bias, high - low) for bias, (low, high) in zip(biases, pairs, strict=True)]
    lows = [np.full_like(bias, low) for bias, (low, _) in zip(biases, pairs, strict=True)]
    return np.concatenate(biases), np.concatenate(gains), np.concatenate(lows)


def _rounded(rows: int) -> int:
    """The next multiple of 32: the library that multiplies prepares anew for every shape."""
    return -(-rows // 32) * 32


def _joined(fields: Sequence[Tensor]) -> Tensor:
    return (fields[0] if len(fields) == 1 else torch.cat(tuple(fields), -1)).contiguous()


def _key(generator: torch.Generator) -> Any:
    return np.uint64(int(_random.integers(1 << 62, (), generator)))


def _share(rows: int, kernel: Any, *arguments: Any) -> None:
    """Runs kernel(first, last, …) over all rows, cut among torch's threads; rows do not depend on the cut."""
    threads = min(torch.get_num_threads(), max(rows // 16, 1))
    cuts = list(pairwise(rows * part // threads for part in range(threads + 1)))
    share_out(lambda part: kernel(*cuts[part], *arguments), threads)
