"""Ways to damage tables and what tells the kinds of their columns, beside those of ``_damage.py``."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from random import Random
from typing import Any

from ._damage import WORDS, Edit, csv_edit

KINDS_WORDS = [b"gaussian", b"spin", b"relu", b"values", b"low", b"[]", b"1979-05-27", b"[[member]]", b"2.5"]


def tsv_edit(random: Random, content: bytes) -> bytes:
    """As ``csv_edit``, of a table with tabs."""
    return csv_edit(random, content.replace(b"\t", b",")).replace(b",", b"\t")


def kinds_edit(random: Random, content: bytes) -> bytes:
    """Kinds of columns in TOML with other words."""
    words = re.split(rb"(\w+)", content)
    for _ in range(random.randint(1, 2)):
        words[2 * random.randrange(len(words) // 2) + 1] = random.choice((*WORDS, *KINDS_WORDS))
    return b"".join(words)


def frame_edit(random: Random, content: bytes) -> bytes:
    """A Parquet or Feather file in which columns are of other types or names, or hold other things."""
    import polars

    parquet = content[:4] == b"PAR1"
    frame = (polars.read_parquet if parquet else polars.read_ipc)(io.BytesIO(content))
    for _ in range(random.randint(1, 2)):
        name = random.choice(frame.columns)
        action = random.randrange(4)
        if action == 0:
            other = random.choice(("", "label", "Label", "\0", "__index_level_0__", "é"))
            frame = frame.rename({name: other}) if other not in frame.columns else frame
        elif action == 1:
            frame = frame.head(random.randrange(2))
        else:
            column = random.choice(_COLUMNS)(polars, frame.height).alias(name)
            frame = frame.with_columns(column) if frame.height else frame
    buffer = io.BytesIO()
    (frame.write_parquet if parquet else frame.write_ipc)(buffer)
    return buffer.getvalue()


_COLUMNS: list[Callable[[Any, int], Any]] = [
    lambda pl, n: pl.Series([2**53 + i for i in range(n)]),
    lambda pl, n: pl.Series([2**64 - 1] * n, dtype=pl.UInt64),
    lambda pl, n: pl.Series([-1] * n, dtype=pl.Int8),
    lambda pl, n: pl.Series(["0.1"] * n).cast(pl.Decimal(38, 20)),
    lambda pl, n: pl.Series([1] * n).cast(pl.Date),
    lambda pl, n: pl.Series([1] * n).cast(pl.Datetime("ns", "UTC")),
    lambda pl, n: pl.Series([1] * n).cast(pl.Duration),
    lambda pl, n: pl.Series([1] * n).cast(pl.Time),
    lambda pl, n: pl.Series([[1, None]] * n),
    lambda pl, n: pl.Series([{"a": 1}] * n),
    lambda pl, n: pl.Series([b"\xff\0"] * n),
    lambda pl, n: pl.Series([None] * n, dtype=pl.Null),
    lambda pl, n: pl.Series([None] * n, dtype=pl.Float32),
    lambda pl, n: pl.Series([float("inf"), float("nan"), 0.1, 1e300][:n]),
    lambda pl, n: pl.Series(["", " ", "NA", "\0\x1b[31m"][:n]),
    lambda pl, n: pl.Series([f"{i}" for i in range(n)]).cast(pl.Categorical),
    lambda pl, n: pl.Series(["b"] * n, dtype=pl.Enum(["a", "b"])),
    lambda pl, n: pl.Series(["007", "7", "x" * 10**5, "1_0"][:n]),
]


_FRAMES = [f"{form} by {library}" for form in ("parquet", "feather") for library in ("polars", "pandas")]

TABLE_EDITS: dict[str, Edit] = {
    "table.tsv": tsv_edit,
    "kinds.toml": kinds_edit,
    **(dict.fromkeys(_FRAMES, frame_edit) if find_spec("polars") else {}),
}
