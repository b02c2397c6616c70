"""What to write instead of names that expressions have in other libraries."""

from __future__ import annotations

from typing import Final

from shmjet.core.expressions.date_functions import DateFunctions
from shmjet.core.expressions.numpy_functions import FLOATING, KEEPING
from shmjet.core.expressions.text_functions import TextFunctions

_AGGREGATES: Final = (
    *("sum_", "mean", "min_", "max_", "count", "first", "last", "var", "std", "median", "quantile", "n_unique"),
)
_OF_NUMPY: Final = ("round", "clip", "apply", "map_elements")


def attribute_advice() -> dict[str, str]:
    """Return what to write instead, by name.

    Example:
        >>> attribute_advice()["log"]
        'numpy.log(expression) does that'
    """
    advice = {each.rstrip("_"): f"{each}() of shmjet.columns goes into .agg(...)" for each in _AGGREGATES}
    advice |= dict.fromkeys(("alias", "name", "label"), "names are arguments: select(name=expression)")
    advice |= dict.fromkeys(("isna", "isnull"), "is_null() does that")
    advice |= dict.fromkeys(("notna", "notnull", "isnotnull"), "is_not_null() does that")
    advice |= {each: f"numpy.{each}(expression) does that" for each in (*FLOATING, *KEEPING)}
    advice |= dict.fromkeys(_OF_NUMPY, "map_batches(fn) takes functions of numpy")
    advice |= dict.fromkeys(("is_between", "between"), "(low <= x) & (x <= high) does that")
    advice |= dict.fromkeys(("fillna", "fill_na", "coalesce"), "fill_null() does that")
    advice |= {"over": "group_by(*names).agg(...) gives a row for each key, which join() brings to the rows"}
    for functions, words in ((TextFunctions, "str"), (DateFunctions, "dt")):
        advice |= {each: f"it is .{words}.{each}" for each in dir(functions) if not each.startswith("_")}
    return advice
