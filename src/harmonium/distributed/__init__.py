"""Several processes that work as one; ``torch.distributed`` moves the numbers."""

from harmonium.distributed.group import (
    Distributed as Distributed,
    Group as Group,
    as_group as as_group,
    count_started as count_started,
    init_process_group as init_process_group,
)
