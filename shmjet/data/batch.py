"""`Batch`: named columns of equal length, the item in which numbers and text travel without a Python object for each.

A batch is immutable: its arrays are read-only views, and its maker must not change the arrays it was made
of. What crosses a ring arrives as views on shared memory. Columns are numpy arrays of fixed width in native byte
order, or `Text`; a null is a 0 in the column's validity mask, the value under it has no meaning, and no caller gets the
value without its mask: `batch["x"]` is a `Nullable` then. How a batch lies in memory between processes is the business
of `shmjet.ring.batch_frames`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final, overload

import numpy as np
import numpy.typing as npt

from shmjet.data.column import Values, checked_mask, equal_columns, joined, of_one_kind, physical, plain_values
from shmjet.data.column_types import Kind, kind_of
from shmjet.data.columnar import Columnar
from shmjet.data.errors import BatchError, no_column
from shmjet.data.nullable import Nullable, column_parts
from shmjet.data.row_choice import checked_rows, true_rows
from shmjet.data.text import Indices, Mask
from shmjet.data.typed_column import Physical, TypedColumn, copied

_SHOWN_ROWS: Final = 10
_SHOWN_WIDTH: Final = 100


@final
class Batch(Columnar):
    """Named one-dimensional columns of equal length.

    Args:
        columns: name → numpy array of any fixed-width dtype, `numpy.ma` array (its mask becomes nulls), `Text`,
            `Nullable`, or a sequence of values of one kind (text becomes `Text`, None a null). Arrays that are not
            contiguous or not in native byte order are copied.
        validity: name → bool array, False where the column is null; columns without nulls need none.
        schema: name → type, for columns whose values alone do not say it: a numpy dtype, `int`, `float`, `bool`, `str`,
            `bytes`, `Decimal`, or a text such as `"decimal(15, 2)"`, `"timestamp[us, Europe/Berlin]"`, `"category"`,
            `"list<int64>"`, `"struct<a: int64, b: text>"`. Other columns have the type of their values.

    Raises:
        BatchError: a name is empty or no str, columns differ in length, a column is not one-dimensional or of dtype
            object, a value does not fit into the type that `schema` gives; the text names the column.

    Example:
        >>> batch = Batch({"user": [1, 2, 1], "city": ["Rome", "Oslo", None]})
        >>> batch["user"].sum(), batch.num_rows, list(batch.rows())[2]
        (np.int64(4), 3, {'user': 1, 'city': None})
    """

    __slots__ = ("__weakref__", "_columns", "_num_rows", "_validity")
    __hash__ = None  # type: ignore[assignment]

    _columns: dict[str, Values]
    _validity: dict[str, Mask]
    _num_rows: int

    def __init__(
        self,
        columns: Mapping[str, Any],
        validity: Mapping[str, Any] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(columns, Mapping):
            raise BatchError(f"a Batch takes a dict of columns by name, got {type(columns).__name__}")
        kinds = {} if schema is None else _kinds(schema, columns)
        values: dict[str, Values] = {}
        masks: dict[str, Mask] = {}
        for name, given in columns.items():
            if not isinstance(name, str) or not name:
                raise BatchError(f"a column's name must be a non-empty str, got {name!r}")
            values[name], mask = column_parts(name, given, kinds.get(name))
            if mask is not None:
                masks[name] = mask
        rows = len(next(iter(values.values()))) if values else 0
        for name, column in values.items():
            if len(column) != rows:
                raise BatchError(f"column {name!r} has {len(column)} rows, {next(iter(values))!r} has {rows}")
        for name, given in (validity or {}).items():
            if name not in values:
                raise BatchError(f"validity names the column {name!r}; there are {list(values)}")
            if given is not None:
                mask = checked_mask(name, given, rows)
                masks[name] = masks[name] & mask if name in masks else mask
        self._set(values, {name: mask for name, mask in masks.items() if not mask.all()}, rows)

    def _set(self, columns: dict[str, Values], validity: dict[str, Mask], rows: int) -> None:
        for array in (*columns.values(), *validity.values()):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        _set_columns(self, columns)
        _set_validity(self, validity)
        _set_num_rows(self, rows)

    @classmethod
    def trusted(cls, columns: dict[str, Values], validity: dict[str, Mask], rows: int) -> Batch:
        """Make a batch of columns that are known to be right and read-only; the dicts become the batch's own.

        For the engine: nothing is checked.

        Args:
            columns: arrays and texts by name, all of `rows` values.
            validity: masks of the columns that have nulls, False at these.
            rows: their number.
        """
        self = _new(cls)
        _set_columns(self, columns)
        _set_validity(self, validity)
        _set_num_rows(self, rows)
        return self

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Any],
        columns: Sequence[str] | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Make a batch of rows: dicts, named tuples, or tuples (or other sequences) in the order of `columns`.

        Args:
            rows: each has a value for each column; None is a null.
            columns: the names; may be left out for dicts and named tuples of equal names, or where `schema` has all of
                them.
            schema: name → type, as for `Batch`.

        Raises:
            BatchError: a row lacks a column or has another length, or a column's values are of no common kind; without
                `columns`, a row has a column that the first one lacks.
        """
        listed = list(rows)
        every_column = columns is None
        if every_column:
            listed = [row._asdict() if _has_names(row, schema or ()) else row for row in listed]
        if columns is None:
            if not listed:
                return cls({name: [] for name in schema or {}}, schema=schema)
            if schema is not None and not isinstance(listed[0], Mapping):
                columns = list(schema)
            elif not isinstance(listed[0], Mapping):
                raise BatchError(
                    "from_rows() needs the names of the columns for rows that are neither dicts nor named tuples"
                )
            else:
                columns = list(listed[0])
        names = list(columns)
        if len(set(names)) < len(names):
            raise BatchError(f"from_rows() got duplicate column names: {names}")
        for place, row in enumerate(listed):
            if isinstance(row, Mapping):
                missing = [name for name in names if name not in row]
                if missing:
                    raise BatchError(f"row {place} has no value for column {missing[0]!r}: {row!r:.80}")
                if every_column and len(row) > len(names):
                    (more, *_) = [name for name in row if name not in names]
                    raise BatchError(
                        f"row {place} has a value for column {more!r}, which row 0 lacks; name the columns"
                    )
            elif len(row) != len(names):
                raise BatchError(f"row {place} has {len(row)} values for {len(names)} columns: {row!r:.80}")
        if listed and isinstance(listed[0], Mapping):
            return cls({name: [row[name] for row in listed] for name in names}, schema=schema)
        return cls({name: [row[place] for row in listed] for place, name in enumerate(names)}, schema=schema)

    @classmethod
    def concat(cls, batches: Iterable[Batch]) -> Batch:
        """Return the rows of all batches, in order.

        Args:
            batches: at least one; of equal names and dtypes. A column that is null in all rows of a batch, or has none,
                takes the dtype that it has in the others.

        Raises:
            BatchError: the columns differ in name or dtype, or there is no batch at all.
        """
        parts = list(batches)
        if not parts:
            raise BatchError("Batch.concat() needs at least one batch")
        first = parts[0]
        if len(parts) == 1:
            return first
        columns: dict[str, Values] = {}
        names = first._columns.keys()
        is_same = all(part._columns.keys() == names for part in parts)
        for name in names if is_same else ():
            pieces = [part._columns[name] for part in parts]
            kinds = [piece.dtype for piece in pieces]
            is_same = kinds.count(kinds[0]) == len(kinds)
            if not is_same:
                pieces = of_one_kind(pieces, [part._validity.get(name) for part in parts])
                is_same = all(piece.dtype == pieces[0].dtype for piece in pieces)
            if not is_same:
                break
            columns[name] = joined(pieces)
        if not is_same:
            other = next(part.schema for part in parts if part.schema != first.schema)
            raise BatchError(f"batches of different columns cannot be joined: {first.schema} and {other}")
        rows = sum(part.num_rows for part in parts)
        # The mask of a batch without rows says something of its kind, not of the rows of the others.
        masked = {name for part in parts if part._validity and (part.num_rows or not rows) for name in part._validity}
        validity = {
            name: np.concatenate([part._validity.get(name, np.ones(part.num_rows, np.bool_)) for part in parts])
            for name in columns
            if name in masked
        }
        self = object.__new__(cls)
        self._set(columns, validity, rows)
        return self

    # -- exchange with other libraries ---------------------------------------------------------------------------------

    @classmethod
    def from_arrow(cls, table: Any) -> Batch:
        """Make a batch of another library's table, by Arrow's C interfaces; neither side needs pyarrow.

        The batch shares the memory of the table where the layouts agree (numbers, times, text with 64-bit offsets) and
        the table has one chunk, and keeps it alive: do not change the table in place afterwards. Else columns are
        copied.

        Args:
            table: anything with `__arrow_c_stream__` or `__arrow_c_array__`: a frame of polars or pandas, a table or
                record batch of pyarrow, a relation of duckdb. A named column (a polars Series) becomes a batch of one
                column.

        Raises:
            BatchError: it is none of these, or its producer failed; a column has no name, that of another, or a type
                that no column holds.

        Example:
            >>> batch = Batch({"user": [1, 2], "city": ["Rome", None]})
            >>> Batch.from_arrow(batch) == batch  # a batch is such a table itself
            True
        """
        from shmjet.data.arrow.streams import from_arrow

        return from_arrow(table)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Give the batch to another library, which shares its memory where the layouts agree.

        Args:
            requested_schema: a capsule with the schema that the consumer would like; text with 32-bit or 64-bit
                offsets is as it asks.

        Raises:
            BatchError: Arrow has no type for a column.
        """
        from shmjet.data.arrow.streams import stream_of

        return stream_of(self.schema, [self], requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Give the schema to another library.

        Raises:
            BatchError: Arrow has no type for a column.
        """
        from shmjet.data.arrow.streams import schema_capsule_of

        return schema_capsule_of(self.schema)

    # -- what is in it -------------------------------------------------------------------------------------------------

    @property
    def num_rows(self) -> int:
        """Rows."""
        return self._num_rows

    @property
    def num_columns(self) -> int:
        """Columns."""
        return len(self._columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(self._columns)

    @property
    def schema(self) -> dict[str, Kind]:
        """Each column's numpy dtype, `"text"` or `"bytes"`, or its `ColumnType`."""
        return {name: column.dtype for name, column in self._columns.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all columns and masks."""
        return sum(array.nbytes for array in (*self._columns.values(), *self._validity.values()))

    def parts(self) -> tuple[dict[str, Values], dict[str, Mask]]:
        """Return the columns, and the masks of columns with nulls: the batch's own dicts, for reading only."""
        return self._columns, self._validity

    def validity(self, name: str) -> Mask | None:
        """Return the mask of a column, False for nulls; None when nothing in it is null.

        Args:
            name: of the column.

        Raises:
            BatchError: there is no such column.
        """
        self._column(name)
        return self._nulls(name)

    def _nulls(self, name: str) -> Mask | None:
        """Return the mask of a column that has nulls; None if its mask is true throughout."""
        mask = self._validity.get(name)
        return None if mask is None or mask.all() else mask

    def _column(self, name: str) -> Values:
        try:
            return self._columns[name]
        except (KeyError, TypeError):
            raise no_column(name, self._columns) from None

    def __len__(self) -> int:
        return self._num_rows

    def __bool__(self) -> bool:
        return True  # a batch without rows is an item like any other

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    @overload
    def __getitem__(self, index: str) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Mask | list[str]) -> Batch: ...
    def __getitem__(self, index: Any) -> Any:
        """Return a column, or a batch of some columns or some rows.

        A name gives the column: a numpy array, a `Text`, or a `Nullable` if it has nulls. A list of names gives a batch
        of these columns; a slice, a bool mask or an array of numbers of rows gives a batch of these rows.
        """
        if isinstance(index, str):
            values, mask = self._column(index), self._nulls(index)
            return values if mask is None else Nullable.trusted(values, mask)
        if isinstance(index, slice):
            return self._rows(index)
        if isinstance(index, list | tuple) and all(isinstance(name, str) for name in index):
            return self.select(*index)
        if isinstance(index, np.ndarray | Nullable):
            return self.filter(index) if index.dtype == np.bool_ else self.take(index)
        raise BatchError(f"a Batch is indexed by a column's name, a slice, or a bool mask, got {index!r:.80}")

    def __iter__(self) -> Iterator[str]:
        """Give the names, as a dict of columns would; `rows` gives the rows."""
        return iter(self._columns)

    def keys(self) -> tuple[str, ...]:
        """Return the names, as a dict of columns would: so `{**batch}` is a dict of the columns."""
        return self.names

    def items(self) -> Iterator[tuple[str, Any]]:
        """Give each name with its column, as `batch[name]` is."""
        return ((name, self[name]) for name in self._columns)

    # -- other batches from it -----------------------------------------------------------------------------------------

    def select(self, *names: str | Sequence[str]) -> Batch:
        """Return a batch of only these columns, in this order; also takes one sequence of names.

        Raises:
            BatchError: there is no such column, or one is named twice.
        """
        chosen: Sequence[Any] = names[0] if len(names) == 1 and not isinstance(names[0], str) else names
        twice = next((name for place, name in enumerate(chosen) if name in chosen[:place]), None)
        if twice is not None:
            raise BatchError(f"select() names the column {twice!r} twice")
        columns = {name: self._column(name) for name in chosen}
        validity = {name: self._validity[name] for name in columns if name in self._validity}
        return Batch.trusted(columns, validity, self._num_rows if columns else 0)

    def with_columns(self, columns: Mapping[str, Any], validity: Mapping[str, Any] | None = None) -> Batch:
        """Return a batch with these columns added, or put in place of those of the same name.

        Args:
            columns: as for `Batch`.
            validity: masks of new columns that have nulls, as for `Batch`.

        Raises:
            BatchError: they do not fit; the text names the column.
        """
        kept = {name: mask for name, mask in self._validity.items() if name not in columns}
        return Batch({**self._columns, **columns}, {**kept, **(validity or {})})

    def _rows(self, rows: slice) -> Batch:
        columns = {name: column[rows] for name, column in self._columns.items()}
        validity = {name: mask[rows] for name, mask in self._validity.items()}
        if rows.step not in (None, 1):
            columns = {n: np.ascontiguousarray(c) if isinstance(c, np.ndarray) else c for n, c in columns.items()}
            validity = {name: np.ascontiguousarray(mask) for name, mask in validity.items()}
        count = len(range(*rows.indices(self._num_rows)))
        result = object.__new__(Batch)
        result._set(columns, validity, count)
        return result

    def copy(self) -> Batch:
        """Return a batch with memory of its own: free of slots and of arrays that others may change."""
        columns: dict[str, Values] = {
            name: column.copy() if isinstance(column, TypedColumn) else copied(column)
            for name, column in self._columns.items()
        }
        result = object.__new__(Batch)
        result._set(columns, {name: mask.copy() for name, mask in self._validity.items()}, self._num_rows)
        return result

    def take(self, indices: Indices | Nullable) -> Batch:
        """Return the rows at `indices`, in that order; negative ones count from the end.

        Raises:
            BatchError: the indices are not integers, or some are null.
            IndexError: one is out of range.
        """
        return self._taken(checked_rows(indices, self._num_rows))

    def filter(self, mask: Any) -> Batch:
        """Return the rows where `mask` is true, and neither null nor masked.

        Args:
            mask: array, masked array or `Nullable` of bools, or a list of bools and None; of `num_rows` elements.

        Raises:
            BatchError: it is none of these, or of another length.

        Example:
            >>> batch = Batch({"delay": [5, None, -3]})
            >>> batch.filter(batch["delay"] <= 0).to_dict()
            {'delay': [-3]}
        """
        return self._taken(true_rows(mask, self._num_rows))

    def _taken(self, rows: npt.NDArray[np.intp]) -> Batch:
        result = object.__new__(Batch)
        columns = {name: column.take(rows) for name, column in self._columns.items()}
        validity = {name: mask.take(rows) for name, mask in self._validity.items()}
        result._set(columns, validity, len(rows) if columns else 0)
        return result

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(self) -> Iterator[dict[str, Any]]:
        """Give each row as a dict of plain Python values (those of `numpy.ndarray.tolist`), None for nulls."""
        names = list(self._columns)
        for values in self.tuples():
            yield dict(zip(names, values, strict=True))

    def tuples(self) -> Iterator[tuple[Any, ...]]:
        """Give each row as a tuple of plain Python values, None for nulls; much faster than `rows`."""
        return zip(*(self.values(name) for name in self._columns), strict=True)

    def values(self, name: str) -> list[Any]:
        """Return one column as a list of plain Python values, None for nulls.

        Args:
            name: of the column.

        Raises:
            BatchError: there is no such column, or its text is not valid UTF-8.
        """
        try:
            listed = plain_values(self._column(name))
        except UnicodeDecodeError as error:
            raise BatchError(
                f"column {name!r} has text that is not valid UTF-8: {error}; if it is not text, make it bytes: "
                "Text(offsets, data, is_bytes=True)"
            ) from None
        mask = self._validity.get(name)
        if mask is not None:
            for place in np.flatnonzero(~mask).tolist():
                listed[place] = None
        return listed

    def to_dict(self) -> dict[str, list[Any]]:
        """Return each column as a list of plain Python values, None for nulls."""
        return {name: self.values(name) for name in self._columns}

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        # Without this method numpy and pandas would take the names for the data.
        raise TypeError(
            "a Batch is a table and no array: use numpy.asarray(batch['name']) for a column, and batch.to_dict() for "
            "a table in another library, such as pandas.DataFrame(batch.to_dict())"
        )

    # -- as a value ----------------------------------------------------------------------------------------------------

    def equals(self, other: object) -> bool:
        """Whether `other` is a batch of the same columns, in the same order, with the same dtypes and values.

        NaN equals NaN, and values under nulls do not count.
        """
        if not isinstance(other, Batch) or self._num_rows != other._num_rows:
            return False
        if list(self.schema.items()) != list(other.schema.items()):
            return False
        return all(
            equal_columns(column, self._validity.get(name), other._columns[name], other._validity.get(name))
            for name, column in self._columns.items()
        )

    def __eq__(self, other: object) -> Any:
        return self.equals(other) if isinstance(other, Batch) else NotImplemented

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Batch is immutable; with_columns() makes another")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a Batch is immutable; select() makes another")

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._columns, self._validity, self._num_rows)

    def __repr__(self) -> str:
        from shmjet.data.batch_text import as_text

        return as_text(self, _SHOWN_ROWS, _SHOWN_WIDTH)

    def _repr_html_(self) -> str:
        from shmjet.data.batch_text import as_html

        return as_html(self, _SHOWN_ROWS)


def _kinds(schema: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Kind]:
    """Return a user's schema with kinds for its words. Raises BatchError where it does not fit the columns."""
    if not isinstance(schema, Mapping):
        raise BatchError(f"a schema is a dict of names and types, got {type(schema).__name__}")
    unknown = next((name for name in schema if name not in columns), None)
    if unknown is not None:
        raise BatchError(f"schema names the column {unknown!r}; there are {list(columns)}")
    return {name: kind_of(name, given) for name, given in schema.items()}


def _has_names(row: Any, names: Iterable[str]) -> bool:
    """Tell whether a row is a named tuple with these fields."""
    return isinstance(row, tuple) and hasattr(row, "_asdict") and set(names) <= set(getattr(row, "_fields", ()))


def stored_column(batch: Batch, name: str) -> tuple[Physical, Mask | None]:
    """Return a column of an array or `Text`: its values, and its mask if there is one, False at the nulls.

    For kernels that know no other types: what lies under a null has no meaning, and a mask may have no nulls.

    Raises:
        BatchError: there is no such column, or it is a `TypedColumn`.
    """
    return physical(name, batch._column(name)), batch._validity.get(name)


def any_column(batch: Batch, name: str) -> tuple[Values, Mask | None]:
    """As `stored_column`, for a `TypedColumn`, too."""
    return batch._column(name), batch._validity.get(name)


# The way around __setattr__: what a slot's descriptor does.
_new: Final = object.__new__
_set_columns: Final = vars(Batch)["_columns"].__set__
_set_validity: Final = vars(Batch)["_validity"].__set__
_set_num_rows: Final = vars(Batch)["_num_rows"].__set__


def _unpickled(columns: dict[str, Values], validity: dict[str, Mask], rows: int) -> Batch:
    batch = object.__new__(Batch)
    batch._set(columns, validity, rows)
    return batch
