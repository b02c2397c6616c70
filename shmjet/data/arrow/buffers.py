"""The buffers of another library's array, as views on its memory: values, bits, offsets.

Positions inside an array do not count its own `offset`, which is added here. Must not know types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.arrow.fields import Field
from shmjet.data.text import Mask

if TYPE_CHECKING:
    from shmjet._native._arrow import Array

_INT64: Final = np.dtype(np.int64)


def fixed(field: Field, array: Array, index: int, start: int, count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return values of a buffer as a view on it."""
    if not count:
        return np.zeros(0, dtype)
    first = array.offset + start
    memory = array.buffer(index, (first + count) * dtype.itemsize)
    if memory is None:
        raise field.error(f"buffer {index} is missing in an array of {array.length} values")
    return np.frombuffer(memory, dtype, count, first * dtype.itemsize)


def bits(field: Field, array: Array, index: int, start: int, count: int) -> Mask:
    """Return bits as bools."""
    if not count:
        return np.zeros(0, np.bool_)
    first = array.offset + start
    end = first + count
    memory = array.buffer(index, (end + 7) // 8)
    if memory is None:
        raise field.error(f"buffer {index} is missing in an array of {array.length} values")
    begin, skip = divmod(first, 8)
    packed = np.frombuffer(memory, np.uint8, (end + 7) // 8 - begin, begin)
    return np.unpackbits(packed, count=skip + count, bitorder="little")[skip:].view(np.bool_)


def validity(field: Field, array: Array, start: int, count: int) -> Mask | None:
    """Return the mask of an array that has a bitmap of its nulls; None when none of the values is null."""
    nulls = array.null_count
    if nulls < -1 or nulls > array.length:
        raise field.error(f"an array of {array.length} values has {nulls} nulls")
    if not nulls or not count:
        return None
    if array.buffer(0, 0) is None:
        if nulls > 0:
            raise field.error(f"an array has {nulls} nulls, and no bitmap of them")
        return None
    mask = bits(field, array, 0, start, count)
    return None if mask.all() else mask


def both(one: Mask | None, other: Mask | None) -> Mask | None:
    """Return the mask of what is null in neither."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def offsets_of(field: Field, array: Array, start: int, count: int, large: bool) -> npt.NDArray[np.int64]:
    """Return where values begin and end, as 64 bits."""
    if not count:
        return np.zeros(1, np.int64)
    found = fixed(field, array, 1, start, count + 1, _INT64 if large else np.dtype(np.int32))
    if found[0] < 0 or (found[1:] < found[:-1]).any():
        raise field.error("its offsets do not ascend from 0 or more")
    return found.astype(np.int64, copy=False)
