"""`map_batches`: a user's function from batch to batch, or from a dict of arrays to a dict of arrays.

Must not know what the function does. A batch is one item; what the function returns is checked and made a batch here,
so that an array that is ragged or of objects is an error in the vertex that made it, and not where it is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shmjet.core.processor import Processor
from shmjet.data.columnar import Columnar
from shmjet.processors.general.base import ExpandingProcessor, Supply, require_batches
from shmjet.processors.general.failures import OnError

if TYPE_CHECKING:
    from shmjet.data.batch import Batch


class MapBatchesProcessor(ExpandingProcessor):
    """Emits what a function makes of each batch."""

    def __init__(self, fn: Callable[[Any], Any], takes_dict: bool, on_error: OnError | None = None) -> None:
        self._fn = fn
        self._takes_dict = takes_dict
        self._on_error = on_error
        self.failure_policies = (on_error,)

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return the results for all batches; the function is called only as far as they are drawn."""
        require_batches("map_batches", items)
        return self._results(items) if self._on_error is None else self._guarded(items, self._on_error)

    def _guarded(self, items: list[Batch], on_error: OnError) -> Iterator[Batch]:
        assert self.guard is not None
        for batch in items:
            yield from self.guard.results(on_error, batch, self._results([batch]))

    def _results(self, items: list[Batch]) -> Iterator[Batch]:
        from shmjet.columns.batch_functions import to_batch, to_columns

        fn = self._fn
        for batch in items:
            result = fn(to_columns(batch) if self._takes_dict else batch)
            if result is None:
                continue
            if isinstance(result, Columnar | Mapping):
                yield to_batch(result)
            elif isinstance(result, Iterator | list | tuple):
                for each in result:
                    if each is not None:
                        yield to_batch(each)
            else:
                to_batch(result)


def map_batches(
    fn: Callable[[Any], Any], as_: type | None = None, *, on_error: OnError | None = None
) -> Callable[[], Processor]:
    """Emit what `fn` makes of each `Batch`.

    `fn` returns a `Batch`, a dict of columns (arrays, `Text`, `Nullable`, sequences), None, or several of these as a
    list or a generator, which is drawn only as far as there is room. Batches without rows are emitted like others.

    `batch["a"]` is a numpy array or a `Text`, and a `Nullable` where the column has nulls: it computes on, keeps the
    nulls, and becomes no array while it has any. With `as_=dict` the function gets a dict of the same columns.

    Args:
        fn: function of one batch. The arrays that it gets are read-only.
        as_: `Batch` or `dict`, what `fn` takes; by default `dict` when its first parameter is annotated as a dict or
            mapping, and `Batch` otherwise. (A `Batch` reads like a dict: `batch["a"]`.)
        on_error: what is done with a batch for which `fn` raises; None: the job fails.

    Raises:
        TypeError: when `fn` is not callable or `as_` something else.
        BatchError: (in the job) `fn` returned something else, columns of different length, or an array of objects; an
            item is not a batch. The text names vertex and column.

    Example:
        >>> from shmjet import Batch
        >>> from shmjet.testing import verify_processor
        >>> double = map_batches(lambda batch: {"v": batch["v"] * 2})
        >>> verify_processor(double).inputs([Batch({"v": [1, 2]})]).expect([Batch({"v": [2, 4]})])
    """
    if not callable(fn):
        raise TypeError(f"map_batches: expected a function, got {type(fn).__name__}: {fn!r}")
    if as_ is None:
        return Supply(MapBatchesProcessor, fn, _wants_dict(fn), on_error)
    if not isinstance(as_, type) or not issubclass(as_, dict | Columnar):
        raise TypeError(f"map_batches: as_ must be Batch or dict, got {as_!r}")
    return Supply(MapBatchesProcessor, fn, issubclass(as_, dict), on_error)


def _wants_dict(fn: Callable[[Any], Any]) -> bool:
    """Tell whether the first parameter is annotated as a dict or a mapping."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not say
        return False
    if not parameters:
        return False
    annotation = parameters[0].annotation
    if isinstance(annotation, str):
        name = annotation.partition("[")[0].rpartition(".")[2].strip()
        return name in ("dict", "Dict", "Mapping", "MutableMapping")
    kind = getattr(annotation, "__origin__", annotation)
    return isinstance(kind, type) and kind is not inspect.Parameter.empty and issubclass(kind, Mapping)
