"""numpy's functions of single elements, as functions of expressions: `numpy.log(column("x"))`.

Only names: must not import numpy, because pipelines are built without it.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

PREFIX: Final = "numpy."
"""What the names of functions of expressions begin with that numpy computes."""

OPERATORS: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "true_divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "power": "**",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "invert": "~",
    "negative": "neg",
    "positive": "pos",
    "absolute": "abs",
}
"""numpy's functions that are operators of expressions."""

FLOATING: Final = frozenset(
    (
        *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "degrees", "radians"),
        *("rad2deg", "deg2rad", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh"),
        *("arcsinh", "arccosh", "arctanh", "isnan", "isinf", "isfinite"),
    )
)
"""Functions that compute with floats: integers become float64."""

KEEPING: Final = frozenset(("floor", "ceil", "trunc", "rint", "sign"))
"""Functions whose results are of the type of the column; integers stay integers."""

_INSTEAD: Final = {
    "where": "when(condition).then(a).otherwise(b) does that",
    "select": "when(...).then(...).when(...).then(...).otherwise(...) does that",
    "isin": ".is_in(values) does that",
    "logical_and": "& does that",
    "logical_or": "| does that",
    "logical_xor": "^ does that",
    "logical_not": "~ does that",
    **dict.fromkeys(("maximum", "fmax", "minimum", "fmin", "clip"), "when(a > b).then(a).otherwise(b) does that"),
    **{
        name: f"{instead}() of shmjet.columns goes into .agg(...)"
        for name, instead in {
            **dict.fromkeys(("sum", "add.reduce"), "sum_"),
            **dict.fromkeys(("mean", "average"), "mean"),
            **dict.fromkeys(("min", "amin", "minimum.reduce"), "min_"),
            **dict.fromkeys(("max", "amax", "maximum.reduce"), "max_"),
            "std": "std",
            "var": "var",
            "median": "median",
            "quantile": "quantile",
        }.items()
    },
    "round": "numpy.rint() rounds to integers, and map_batches(fn) takes all functions of numpy",
    "around": "numpy.rint() rounds to integers, and map_batches(fn) takes all functions of numpy",
}


def function_of(name: str, method: str, has_options: bool) -> str:
    """Return which function of expressions a function of numpy is.

    Args:
        name: of numpy's function.
        method: how it is called: "__call__", "reduce" and the like.
        has_options: there are arguments by name.

    Raises:
        TypeError: expressions have none such.

    Example:
        >>> function_of("add", "__call__", False), function_of("log", "__call__", False)
        ('+', 'numpy.log')
    """
    if method != "__call__":
        raise refusal(f"{name}.{method}")
    if has_options:
        raise TypeError(f"numpy.{name} takes no arguments by name where one is an expression of columns")
    if name in OPERATORS:
        return OPERATORS[name]
    if name in FLOATING or name in KEEPING:
        return PREFIX + name
    raise refusal(name)


def refusal(name: str) -> TypeError:
    """Return the error for a function of numpy that expressions do not have."""
    instead = _INSTEAD.get(name, "map_batches(fn) takes all functions of numpy")
    return TypeError(f"numpy.{name} does not work on an expression of columns; {instead}")


_MIRRORED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _scalar(given: Any) -> Any:
    """Return a number for an array that has no rows but one value, which numpy makes of its scalars."""
    return given[()] if getattr(given, "shape", None) == () else given


class NumpyFunctions:
    """What numpy asks of an object that is given to one of its functions."""

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Return what a function of single elements makes. numpy's scalars call it for operators, too."""
        name = function_of(function.__name__, method, bool(options))
        first, *others = (each if isinstance(each, NumpyFunctions) else _scalar(each) for each in inputs)
        if isinstance(first, NumpyFunctions):
            return first._call(name, *others)
        (other,) = others
        return other._call(_MIRRORED[name], first) if name in _MIRRORED else other._reflected(name, first)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> NoReturn:
        """Refuse numpy's other functions, which need values."""
        raise refusal(function.__name__)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to become an array."""
        raise TypeError(
            f"{self!r} is an expression of columns and has no values before there are batches; "
            "map_batches(fn) gives a function the columns of each batch"
        )

    def __float__(self) -> NoReturn:
        """Refuse to become a number; functions of `math` ask for one."""
        raise TypeError(f"{self!r} is an expression of columns and no number; numpy.log(expression) and the like work")

    def _call(self, function: str, *others: Any) -> Any:
        raise NotImplementedError

    def _reflected(self, symbol: str, other: Any) -> Any:
        raise NotImplementedError
