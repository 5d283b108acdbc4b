"""Several processes that work as one: ``torch.distributed`` moves the numbers, shards keep the bits."""

from harmonium.distributed.group import Distributed, Group, init_process_group
from harmonium.distributed.shards import SHARDS, Shards, as_shards

__all__ = ["SHARDS", "Distributed", "Group", "Shards", "as_shards", "init_process_group"]
