"""From which NUMA nodes this process gets the pages that it touches first: `set_mempolicy(2)`, without libnuma.

The member reserves the memory of all rings (`posix_fallocate` in `shmjet.ring.arena`), so its own policy decides where
they lie. Its workers need none: they are pinned, and the kernel's default takes memory from the node of the core.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

_MPOL_DEFAULT = 0
_MPOL_PREFERRED = 1
_MPOL_INTERLEAVE = 3
_NUMBERS = {"x86_64": (238, 239), "aarch64": (237, 236)}
"""The system calls set_mempolicy and get_mempolicy."""
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def prefer_nodes(nodes: Sequence[int]) -> bool:
    """Take pages from one node while it has free ones, or in turn from several.

    A preference, no binding: a full node is a reason to take memory from the next one, not to fail. A policy that the
    user has set (`numactl --interleave=all`) stays.

    Args:
        nodes: numbers of nodes with memory; none changes nothing.

    Returns:
        whether it is so now; False where there is nothing to do, where the system refuses (seccomp of a container, a
        kernel without NUMA), and where the user has a policy already.
    """
    numbers = _NUMBERS.get(os.uname().machine)
    if not nodes or numbers is None:
        return False
    set_policy, get_policy = numbers
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    mode = ctypes.c_int(_MPOL_DEFAULT)
    if syscall(ctypes.c_long(get_policy), ctypes.byref(mode), None, ctypes.c_ulong(0), None, ctypes.c_ulong(0)) != 0:
        return False
    if mode.value != _MPOL_DEFAULT:
        return False
    mask, bits = _mask(nodes)
    wanted = _MPOL_PREFERRED if len(nodes) == 1 else _MPOL_INTERLEAVE
    # The kernel takes one bit less than it is told of.
    return bool(syscall(ctypes.c_long(set_policy), ctypes.c_int(wanted), mask, ctypes.c_ulong(bits + 1)) == 0)


def _mask(nodes: Sequence[int]) -> tuple[ctypes.Array[ctypes.c_ulong], int]:
    words = [0] * (max(nodes) // _WORD_BITS + 1)
    for node in nodes:
        words[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    return (ctypes.c_ulong * len(words))(*words), len(words) * _WORD_BITS
