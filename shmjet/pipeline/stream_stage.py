"""`StreamStage`, the stage of endless data: the general operations, none of which needs the end of its input.

Windows, which cut a stream into bounded pieces, will be made from it. It is not public before there are endless
sources. After Jet's `StreamStage`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.key_functions import KeyFn
from shmjet.data.errors import PlanError
from shmjet.pipeline import transforms as t
from shmjet.pipeline.endless import NEEDS_ALL, needs_window
from shmjet.pipeline.general import GeneralStage

if TYPE_CHECKING:
    from shmjet.pipeline.general import ServiceLike
    from shmjet.pipeline.handles import Stage
    from shmjet.pipeline.keyed import KeyedStreamStage
    from shmjet.pipeline.tables import Table

T = TypeVar("T")
A = TypeVar("A")
K = TypeVar("K")
R = TypeVar("R")
S = TypeVar("S")
St = TypeVar("St")


class StreamStage(GeneralStage[T]):
    """A stage of endless data whose items are of type `T`.

    Example:
        >>> clicks.filter(is_human).map_stateful(list, session).write_to(sinks.logger())        # doctest: +SKIP
    """

    _is_endless = True

    if TYPE_CHECKING:  # what is made of a StreamStage is one

        def map(self, fn: Callable[[T], R | None]) -> StreamStage[R]: ...
        def flat_map(self, fn: Callable[[T], Iterable[R]]) -> StreamStage[R]: ...
        def map_batches(self, fn: Callable[[Any], Any], as_: type | None = None) -> StreamStage[Any]: ...
        def map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], R | None]) -> StreamStage[R]: ...
        def flat_map_stateful(self, create: Callable[[], St], fn: Callable[[St, T], Iterable[R]]) -> StreamStage[R]: ...
        def rolling_aggregate(self, op: AggregateOperation[T, A, R]) -> StreamStage[R]: ...
        def map_using_service(self, factory: ServiceLike[S], fn: Callable[[S, T], R | None]) -> StreamStage[R]: ...
        def flat_map_using_service(
            self, factory: ServiceLike[S], fn: Callable[[S, T], Iterable[R]]
        ) -> StreamStage[R]: ...
        def map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, R | None]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def flat_map_using_service_async(
            self,
            factory: ServiceLike[S],
            fn: Callable[[S, T], Coroutine[Any, Any, Iterable[R]]],
            max_concurrent_ops: int = 4,
            preserve_order: bool = True,
        ) -> StreamStage[R]: ...
        def join_table(self, table: Table, key_fn: KeyFn, fn: Callable[[T, Any], R | None]) -> StreamStage[R]: ...
        def custom_transform(self, name: str, supplier: Any) -> StreamStage[Any]: ...
        def grouping_key(self, key_fn: Callable[[T], K]) -> KeyedStreamStage[T, K]: ...
        def _then(self, name: str, transform: t.Transform, *others: Stage) -> StreamStage[Any]: ...
        def _hash_join(self, name: str, arguments: Sequence[Any], fn: Any, *, inner: bool) -> StreamStage[Any]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name in NEEDS_ALL:
                raise PlanError(needs_window(f"{self.name}.{name}()", self.name))
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> StreamStage[Any]:
        """Enrich each item with what matches it on other stages, which are bounded; as `BatchStage.hash_join`."""
        return self._hash_join("hash_join", sides, fn, inner=False)

    def inner_hash_join(self, *sides: Any, fn: Callable[..., Any] | None = None) -> StreamStage[Any]:
        """Join as `hash_join` does, but leave out items without a match on any side."""
        return self._hash_join("inner_hash_join", sides, fn, inner=True)

    def _keyed(self, key_fn: KeyFn) -> KeyedStreamStage[T, Any]:
        from shmjet.pipeline.keyed import KeyedStreamStage

        return KeyedStreamStage(self, key_fn)
