"""Several processes that work as one: ``torch.distributed`` moves the numbers, shards keep the bits."""

from harmonium.distributed.group import (
    Distributed as Distributed,
    Group as Group,
    init_process_group as init_process_group,
    pairwise as pairwise,
)
from harmonium.distributed.shards import SHARDS as SHARDS, Shards as Shards, as_shards as as_shards
