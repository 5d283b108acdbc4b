"""Several processes that work as one: ``torch.distributed`` moves the numbers, shards keep the bits."""

from harmonium.distributed.group import Distributed, Group
from harmonium.distributed.shards import SHARDS, Shards, as_shards
from harmonium.distributed.together import together

__all__ = ["SHARDS", "Distributed", "Group", "Shards", "as_shards", "together"]
