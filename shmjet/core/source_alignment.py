"""How the sources of a job know how far the others are, so that one far ahead can wait (`max_skew`).

Each source processor with event time tells the least watermark of its active partitions, and asks for the least of all
others: other processors of the same source and those of other sources, on the same member. The engine hands the means
in with the context; without an engine a processor is alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from shmjet.core.windows import HIGHEST

if TYPE_CHECKING:
    from shmjet.core.context import ProcessorContext


class SourceAlignment(Protocol):
    """What a source processor tells the others of its job, and asks of them. Watermarks are milliseconds."""

    def tell(self, mark: int) -> None:
        """Tell how far this processor is.

        Args:
            mark: the least watermark of its active partitions; `LOWEST`: one of them has had no event; `HIGHEST`: none
                of them is active, so that no other has to wait for it.
        """

    def least_of_others(self) -> int:
        """Return the least watermark that any other processor has told last; `HIGHEST` without others."""


class Alone:
    """The alignment of a processor that has no others.

    Example:
        >>> Alone().least_of_others() == 2**63 - 1
        True
    """

    def tell(self, mark: int) -> None:
        """Do nothing: no other processor asks."""

    def least_of_others(self) -> int:
        """Return `HIGHEST`."""
        return HIGHEST


_ALONE = Alone()


def alignment_in(context: ProcessorContext) -> SourceAlignment:
    """Return what the engine has handed in with a context; a processor must not keep it, as it may be moved."""
    found: SourceAlignment | None = context._alignment
    return _ALONE if found is None else found


def set_alignment(context: ProcessorContext, alignment: SourceAlignment) -> None:
    """Have a context tell the alignment. The engine does, before the processor has the context."""
    object.__setattr__(context, "_alignment", alignment)
