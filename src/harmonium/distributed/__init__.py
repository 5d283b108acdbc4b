"""Several processes that work as one: ``torch.distributed`` moves the numbers, shards keep the bits."""

from harmonium.distributed.group import (
    SHARDS as SHARDS,
    Distributed as Distributed,
    Group as Group,
    Shards as Shards,
    as_shards as as_shards,
    init_process_group as init_process_group,
    pairwise as pairwise,
)
