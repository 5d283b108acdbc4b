"""Questions that columns leave open: what text with numbers in it, or far numbers of nines, stand for."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from harmonium.data import Series, form_of, layout_in, layouts_of, to_numbers
from harmonium.data._text_files import LONG, has_codes, is_number, whole_numbers
from harmonium.tables.cells import few
from harmonium.tables.column import MANY_TEXTS

_NUMBERS = 0.95  # share of numbers among text from which on the others are likely to stand for missing cells
_HALF, _WORDS = 0.5, 3  # the same share where the others are but a few different words
_SEVERAL = 2  # cells with one number of nines: a single one is as likely a slip
_POINT_OF_SCALE = re.compile(r"\d{1,2}\b\W*[^\W\d]")  # a number and its meaning, such as "1 - bad"


def question_of(cells: Series) -> str | None:
    """Asks what a column stands for, with the answer to give; None: there is no doubt."""
    if cells.categories is not None:
        return None
    seen = cells.values[~cells.missing].tolist()
    if cells.numeric or cells.form is not None:
        return _code_among(seen if cells.form is None else to_numbers(seen, cells.form).tolist())
    several = layouts_of(seen)
    if several:
        layouts = [layout.name for form in several if (layout := layout_in(form)) is not None]
        answers = " or ".join(f'"{cells.name}" = {{ form = "{layout}" }}' for layout in layouts)
        return f"does the day or the month come first in {seen[0]!r}? {answers} in kinds tells"
    if not all(isinstance(value, str) for value in seen) or has_codes([*dict.fromkeys(seen)]):
        return None
    different, written = [value for value in dict.fromkeys(seen) if not is_number(value)], False
    if len(set(seen)) <= MANY_TEXTS and any(map(_POINT_OF_SCALE.match, different)):
        return None  # a scale with words at its ends, which are answers
    words = [value for value in different if not any(map(str.isdigit, value))]
    if len(words) < len(different) and 0 < len(words) <= _WORDS:  # others may be amounts, dates or times
        written = form_of([value for value in seen if value not in words]) is not None
        different = words if written else different
    share, known = _HALF if len(different) <= _WORDS else _NUMBERS, frozenset(different)
    strays = [value for value in seen if value in known]
    if len(seen) - len(strays) <= share * len(seen):
        return None
    if not strays:  # codes, where they repeat
        names = 2 * len(set(seen)) <= len(seen) or any(abs(x) >= LONG for x in whole_numbers(seen))
        return None if names else "numbers as text; .astype(float) makes numbers of them"
    kinds = "amounts, dates or times" if written else "numbers"
    counted = f"{len(seen) - len(strays)} of {len(seen)} cells are {kinds}"
    answer = f'missing_words "{",".join(different)}"'
    return f"{counted}; {answer} takes {few(different)} as missing"


def _code_among(numbers: Sequence[float]) -> str | None:
    """Asks whether numbers such as -99 and 9999, which lie far from the others, stand for missing cells.

    Such are written in nines, stand in several cells, and lie further from the others than these from each
    other.
    """
    values, counts = np.unique(np.asarray(numbers, dtype=np.float64), return_counts=True)
    codes = dict[str, int]()
    while len(values) > 2:
        gaps = values[1] - values[0], values[-1] - values[-2]
        end = -int(gaps[1] > gaps[0])
        text, width = f"{values[end]:.15g}", values[-1] - values[0] - gaps[end]
        if {*text.lstrip("-")} != {"9"} or counts[end] < _SEVERAL or gaps[end] <= width:
            break
        codes[text] = int(counts[end])
        kept = slice(1, None) if end == 0 else slice(None, -1)
        values, counts = values[kept], counts[kept]
    if not codes:
        return None
    cells = " and ".join(f"{text} in {count} cells" for text, count in codes.items())
    answer = f'missing_words "{",".join(codes)}"'
    return (
        f"{cells}, far from the others, {values[0]:.15g} to {values[-1]:.15g}; {answer} takes such as "
        "missing, a kind for the column takes it as a number"
    )
