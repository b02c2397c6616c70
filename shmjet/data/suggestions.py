"""What an error says about a name that is not there: what may have been meant, and what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_NUMBER_WORDS: Final = frozenset(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64))
_OTHER_TYPES: Final = {
    **dict.fromkeys(("string", "utf8", "varchar"), "text"),
    **dict.fromkeys(("integer", "bigint"), "int64"),
    **dict.fromkeys(("datetime", "timestamp"), "datetime64[us]"),
    "double": "float64",
    "date": "datetime64[D]",
    "timedelta": "timedelta64[us]",
    "boolean": "bool",
    "categorical": "category",
    "binary": "bytes",
}
"""Types by the names that Python, SQL and other libraries give them."""


def meant(name: object, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name that is nearest to an unknown name; "" if none is near.

    Example:
        >>> meant("carier", ["carrier", "dest"]), meant("x", ["carrier"])
        ("; did you mean 'carrier'?", '')
    """
    import difflib

    if not isinstance(name, str):
        return ""
    names = [each for each in known if isinstance(each, str)]
    same = [each for each in names if each.lower() == name.lower()]
    near = same or difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


def meant_type(given: Any) -> str:
    """Return "; did you mean 'text'?" for a type of columns that another library calls like that; "" for others.

    Example:
        >>> meant_type("Utf8"), meant_type("vector")
        ("; did you mean 'text'?", '')
    """
    small = str(given).lower()
    found = small if small in _NUMBER_WORDS else _OTHER_TYPES.get(getattr(given, "__name__", small))
    return f"; did you mean {found!r}?" if found else ""


def unknown_attribute(what: str, name: str, owner: type, advice: Mapping[str, str] | None = None) -> AttributeError:
    """Return the error for an attribute that an object has not.

    Args:
        what: the object, for the message.
        name: of the attribute.
        owner: the object's type, whose public names may have been meant.
        advice: for names of other libraries, what is done here instead.

    Example:
        >>> str(unknown_attribute("a list", "add", list, {"add": "append() does that"}))
        "a list has no 'add'; append() does that"
    """
    if name.startswith("_"):  # asked by Python, numpy and notebooks, which go on without it
        return AttributeError(f"{owner.__name__!r} object has no attribute {name!r}")
    found = (advice or {}).get(name)
    hint = f"; {found}" if found else meant(name, (each for each in dir(owner) if not each.startswith("_")))
    return AttributeError(f"{what} has no {name!r}{hint}", name=name)
