"""The numbers that a machine computes with: finite, and of a size that sums of squares can hold."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harmonium import _checks
from harmonium.machine.hamiltonian import Hamiltonian

if TYPE_CHECKING:
    from harmonium.machine import BoltzmannMachine

# Fields are sums of couplings, and variances, TAP and norms sum up their squares: all stay below 2^128, where
# float32 ends. The noise of machines in float64 is float32 too.
_LARGEST = 2.0**64


@torch.no_grad()
def require_finite(
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
    made = [(f"the natural parameters of {name}", x) for name, x in natural if x.data_ptr() not in known]
    listed = [*parameters.items(), *made]
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
        place = (bad if bool(bad.any()) else x.abs() == x.abs().max()).nonzero()[0].tolist()
        value = x[tuple(place)].item()
        expected, remedy = "finite parameters", "write a number"
        if isfinite(value):  # itself too large, or one of many whose squares sum up to too much
            expected, remedy = "parameters of a norm below 2^64", "divide all parameters by one number"
        if name not in parameters:
            remedy = "bring the parameters that they are computed from nearer to 0"
        elif value == -inf and forbids:
            remedy = "exact sums and minimise take it, as a forbidden state; elsewhere write -50"
        elif value in (inf, -inf):
            remedy = f"write {50 if value > 0 else -50}, which is as good as certain"
        raise ValueError(f"machine: expected {expected}, received {value:g} in {name} at {place}; {remedy}")


def refuse_infinite(machine: BoltzmannMachine, *, forbidden: bool) -> None:
    """Refuses parameters of any dtype that are not finite; ``forbidden`` as in ``require_finite``."""
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
