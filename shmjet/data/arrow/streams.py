"""Tables of other libraries as batches, and batches as theirs: what `Batch.from_arrow` and the like call.

A table is a stream of structs, or one struct; its fields are the columns. Several arrays become one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from shmjet._native import _arrow
from shmjet.data.arrow.buffers import both, validity
from shmjet.data.arrow.fields import Field
from shmjet.data.arrow.reading import read_column
from shmjet.data.arrow.writing import ColumnWriter
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import Kind
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask
from shmjet.data.typed_column import nulls

if TYPE_CHECKING:
    from shmjet._native._arrow import Array, ArrayTree, Capsule, SchemaTree

T = TypeVar("T")


class TableReader:
    """Reads the arrays of one table.

    Args:
        tree: the type of the arrays.

    Raises:
        BatchError: a column has no name, the name of another, or a type that no column holds.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self._field = Field.of(tree)
        self._is_table = tree[0] == "+s" and tree[5] is None
        """Otherwise it is one column."""
        self._columns = self._field.children if self._is_table else (self._field,)
        # A column's path begins with its own name, not with the table's.
        self._columns = tuple(Field.of(child) for child in tree[4]) if self._is_table else self._columns
        names = [field.name for field in self._columns]
        if "" in names and not self._is_table:
            raise BatchError(
                f"a table is needed, got one column of the Arrow type {tree[0]!r} without a name; give it one, or make "
                "a table of it"
            )
        if "" in names:
            raise BatchError(f"column {names.index('')} has no name; rename it where the table is made")
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise BatchError(f"there are two columns {twice!r}; rename one where the table is made")
        self.schema: dict[str, Kind] = {field.name: field.kind() for field in self._columns}

    def batch(self, array: Array) -> Batch:
        """Return an array as a batch of views on its memory.

        Raises:
            BatchError: it does not fit its type.
        """
        columns: dict[str, Values] = {}
        masks: dict[str, Mask] = {}
        rows = array.length
        top: Mask | None = None
        parts: tuple[Array, ...] = (array,)
        start = 0
        if self._is_table:
            parts = array.children
            start = array.offset
            if len(parts) != len(self._columns):
                raise BatchError(f"an array has {len(parts)} columns, its schema {len(self._columns)}")
            top = validity(self._field, array, 0, rows)
        for field, part in zip(self._columns, parts, strict=True):
            values, mask = read_column(field, part, start, rows)
            mask = both(top, mask)
            columns[field.name] = values
            if mask is not None:
                mask.flags.writeable = False
                masks[field.name] = mask
            if hasattr(values, "flags"):
                values.flags.writeable = False
        return Batch.trusted(columns, masks, rows if columns else 0)

    def empty(self) -> Batch:
        """Return a batch without rows."""
        return Batch.trusted({name: nulls(kind, 0) for name, kind in self.schema.items()}, {}, 0)


def from_arrow(given: Any) -> Batch:
    """Return a table of another library as one batch; see `Batch.from_arrow`."""
    reader, batches = read_table(given)
    parts = [batch for batch in batches if batch.num_rows]
    return Batch.concat(parts) if parts else reader.empty()


def read_table(given: Any) -> tuple[TableReader, Iterator[Batch]]:
    """Return the reader of a table, and its arrays as batches, each read when it is asked for.

    Raises:
        BatchError: it has not the protocol, or its columns cannot be those of a batch.
    """
    if hasattr(given, "__arrow_c_stream__"):
        stream = _told(_arrow.take_stream, given.__arrow_c_stream__())
        tree = _told(stream.schema)
        if type(given).__module__.partition(".")[0] == "polars":
            _check_objects(tree)
        reader = TableReader(tree)
        return reader, _batches(reader, stream)
    if hasattr(given, "__arrow_c_array__"):
        pair = given.__arrow_c_array__()
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise BatchError(f"__arrow_c_array__() must give two capsules, got {type(pair).__name__}")
        reader = TableReader(_told(_arrow.read_schema, pair[0]))
        return reader, iter([_read(reader, _told(_arrow.take_array, pair[1]))])
    raise BatchError(
        "from_arrow() takes what has __arrow_c_stream__ or __arrow_c_array__ (a frame of polars or pandas, a table of "
        f"pyarrow, a relation of duckdb), got {type(given).__name__}{_advice(given)}"
    )


def _check_objects(tree: SchemaTree) -> None:
    """Refuse Python objects of polars, which gives their addresses away as bytes of a fixed size.

    It has no other type of a fixed number of bytes.

    Raises:
        BatchError: a column has them.
    """
    whole = Field.of(tree)
    for column in whole.children or (whole,):
        if column.byte_width is not None:
            raise BatchError(
                f"column {column.name!r} holds Python objects (polars.Object), which no column can; cast or drop it "
                "first"
            )


def _advice(given: Any) -> str:
    if isinstance(given, str | PurePath):
        return "; sources.csv(path, as_=Batch) reads a file"
    if isinstance(given, Mapping):
        return "; Batch(columns) makes a table of arrays and lists"
    if isinstance(given, list | tuple):
        return "; give each table by itself: frames(*tables)"
    if callable(getattr(given, "collect", None)):
        return "; collect() it first"
    return ""


def _batches(reader: TableReader, stream: _arrow.Stream) -> Iterator[Batch]:
    while True:
        array = _told(stream.next)
        if array is None:
            return
        yield _read(reader, array)


def _read(reader: TableReader, array: Array) -> Batch:
    return _told(reader.batch, array)


def _told(call: Callable[..., T], *args: Any) -> T:
    """Call, and raise what the C part refuses as an error of batches."""
    try:
        return call(*args)
    except (ValueError, OverflowError) as error:
        if isinstance(error, BatchError):
            raise
        raise BatchError(f"Arrow data cannot be read: {error}") from None


# -- the way out -------------------------------------------------------------------------------------------------------


def stream_of(schema: Mapping[str, Kind], batches: Iterable[Batch], requested: Any = None) -> Capsule:
    """Return a capsule with a stream of batches, all of one schema; each is asked for when the consumer wants it.

    Args:
        schema: names and kinds, in the order of the columns.
        batches: of this schema.
        requested: a capsule with the schema that the consumer would like, or None.

    Raises:
        BatchError: Arrow has no type for a kind, or `requested` is not a schema.
    """
    writers = _writers(schema, requested)
    return _told(_arrow.stream_capsule, _table(writers), (_written(writers, batch) for batch in batches))


def schema_capsule_of(schema: Mapping[str, Kind]) -> Capsule:
    """Return a capsule with the schema of a stream. Raises BatchError when Arrow has no type for a kind."""
    return _told(_arrow.schema_capsule, _table(_writers(schema, None)))


def _writers(schema: Mapping[str, Kind], requested: Any) -> dict[str, ColumnWriter]:
    wanted: dict[str, SchemaTree] = {}
    if requested is not None:
        tree = _told(_arrow.read_schema, requested)
        wanted = {child[1]: child for child in tree[4]}
    return {name: ColumnWriter(name, kind, wanted.get(name)) for name, kind in schema.items()}


def _table(writers: Mapping[str, ColumnWriter]) -> SchemaTree:
    return "+s", "", None, 0, tuple(writer.schema for writer in writers.values()), None


def _written(writers: Mapping[str, ColumnWriter], batch: Batch) -> ArrayTree:
    columns, masks = batch.parts()
    children = tuple(writer.array(columns[name], masks.get(name)) for name, writer in writers.items())
    return batch.num_rows, 0, (None,), children, None
