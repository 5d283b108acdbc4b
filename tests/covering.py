"""Cases that cover all pairs of the values of several factors, whose product would be too large."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import combinations, product
from typing import Any, TypeVar

Case = TypeVar("Case", bound=tuple[Hashable, ...])


def covering(cases: Iterable[Case]) -> list[Case]:
    """Returns a part of the cases in which every two values that meet in a case meet in one.

    Faults that take a third factor to show are rare (Kuhn, Wallace and Gallo 2004). Cases are taken greedily:
    of those left one with most pairs that are not yet covered, the first of these.

    Args:
        cases: each one value of every factor.
    """
    left = {case: {*combinations(enumerate(case), 2)} for case in cases}
    taken: list[Case] = []
    while left:
        case = max(left, key=lambda each: len(left[each]))
        pairs = left.pop(case)
        if not pairs:
            break
        taken.append(case)
        for missing in left.values():
            missing -= pairs
    return taken


def covering_product(*factors: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Returns a covering part of the product of some factors."""
    numbered = [list(factor) for factor in factors]
    places = covering(product(*(range(len(factor)) for factor in numbered)))
    return [tuple(factor[i] for factor, i in zip(numbered, place, strict=True)) for place in places]
