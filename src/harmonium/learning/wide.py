"""Gradients of a machine that is too wide for one process."""

from __future__ import annotations

from torch.distributed.device_mesh import DeviceMesh

from harmonium import _checks
from harmonium.chains import Gibbs
from harmonium.distributed import SHARDS, Group, Shards
from harmonium.learning.expectations import ClampedChains, FreeChains
from harmonium.learning.rule import Rule
from harmonium.learning.sharded import Sharded


def wide(rule: Rule, mesh: DeviceMesh | None, shards: int = SHARDS) -> Sharded:
    """A rule for one machine whose hidden units are spread over processes, in a mesh of rows and columns.

    The hidden units are a number of layers, each joined to the visible ones alone. Every process has a
    machine of its own with all visible layers and its part of the hidden ones: those in one column of the
    mesh the same part, those in one row all of them together, from the first column to the last as many
    each. What is learned is the machine with all hidden layers. ``gradient`` gives a process the gradient of
    its own parameters; those of visible layers are the same everywhere.

    Hidden fields and statistics need no other process. A visible field is added over a row, (chains · visible
    units) numbers a sweep; statistics over a column. The cut into layers and shards decides the bits, and
    which process has which does not.

    It is a rule for a loop of one's own (``docs/distributed.md`` has one): ``hm.train`` takes machines that
    are whole in every process.

    Args:
        rule: ``rules.cd`` or ``rules.pcd`` with Gibbs chains, not centred or conditional.
        mesh: of two dimensions, as ``init_device_mesh("cpu", (2, 2))`` makes it: chains and rows of the data
            are dealt out along the first, hidden layers along the second. None: this process alone.
        shards: into how many parts chains and rows are cut, a power of two that the first dimension divides.

    Raises:
        TypeError: no rule or mesh.
        ValueError: another kind of rule, a mesh of other than two dimensions, or another number of shards.
    """
    _checks.instance(rule, "rule", Rule, "a rule such as harmonium.rules.pcd()")
    free = rule.free
    plain = isinstance(rule.clamped, ClampedChains) and not rule.centred and rule.given is None
    if not (plain and isinstance(free, FreeChains) and isinstance(free.kernel, Gibbs)):
        raise ValueError(f"rule: expected rules.cd or rules.pcd with Gibbs chains, received {rule}")
    if mesh is None:
        return Sharded(rule, Shards(Group(), shards), Group())
    _checks.instance(mesh, "mesh", DeviceMesh, "a torch.distributed.DeviceMesh, or None")
    if mesh.ndim != 2:
        raise ValueError(f"mesh: expected two dimensions, (rows, columns), received {mesh.ndim}")
    rows, columns = Group(mesh.get_group(0)), Group(mesh.get_group(1))
    if columns.size & (columns.size - 1):
        raise ValueError(f"mesh: expected a power of two of columns, received {columns.size}")
    return Sharded(rule, Shards(rows, shards), columns)
