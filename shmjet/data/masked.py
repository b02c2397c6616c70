"""Masked arrays of numpy, recognised without loading `numpy.ma`: before that is loaded there are none.

It takes 20 ms, in each process that makes a batch, and few programs need it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeGuard

if TYPE_CHECKING:
    import numpy as np

_NO_VALUE: Final = object()


def is_masked_array(given: Any) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Whether something is a masked array.

    Example:
        >>> import numpy as np
        >>> is_masked_array(np.array([1, 2])), is_masked_array(np.ma.array([1, 2]))
        (False, True)
    """
    return isinstance(given, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def masked_value() -> object:
    """Return `numpy.ma.masked`; before that is loaded, an object that no column has."""
    return getattr(sys.modules.get("numpy.ma"), "masked", _NO_VALUE)
