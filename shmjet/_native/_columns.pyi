"""Types and contracts of the column kernels. A column is a `Column`; a buffer is an `Array`."""

from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy.typing as npt
from typing_extensions import Buffer

Array: TypeAlias = Buffer | npt.NDArray[Any]
"""Anything with the buffer protocol; type checkers do not know that numpy's arrays have it."""

Column: TypeAlias = tuple[str, int, int, Array, Array | None, Array | None]
"""(kind, itemsize, rows, data, offsets or None, valid or None).

`kind` is numpy's `dtype.kind` (b i u f c M m S U V) or "t" (UTF-8 text) or "y" (bytes); the latter two have itemsize 0
and offsets, `rows + 1` int64 into data. `valid` has one byte a row, 0 for null. Buffers are contiguous, little-endian,
of any alignment.
"""

# -- hash (column_hash.h) --------------------------------------------------------------------------

DateForm: TypeAlias = tuple[str, int, int, int, int, int]
"""(tag, times, least, most, scale, add): what the integer in a date or duration means as a key. See key_column.h."""

DecimalForm: TypeAlias = tuple[str, int]
"""("D", scale) of a column of decimals, 8 or 16 bytes a value. See decimal_key.h."""

KeyForm: TypeAlias = DateForm | DecimalForm | int | None
"""Of a date, duration or decimal; the number of fields of a structured column, which come next; None for others."""

def hash_columns(columns: Sequence[Column], out: Array, forms: Sequence[KeyForm] | None = None) -> None:
    """Write murmur3_32 (seed 0) of each row's canonical key bytes; several columns are the tuple of their values.

    `out` is uint32, one a row.

    Raises:
        TypeError: a column cannot be a key (complex, or a date without its form).
        ValueError: a buffer is too short.
    """

# -- scatter (scatter.h) ---------------------------------------------------------------------------

Memory: TypeAlias = tuple[Array, Array | None, Array | None]
"""(values, ends or None, valid or None): where a column's rows are gathered for all consumers; see `scatter`."""

def assign(
    columns: Sequence[Column],
    table: Array,
    assigned: Array,
    counts: Array | None,
    forms: Sequence[KeyForm] | None = None,
) -> None:
    """Write each row's consumer: `table[hash_columns(...) % len(table)]`.

    `table` is int32, partition → consumer; `assigned` uint16, one a row; `counts` int64, one a consumer, to which the
    rows of each are added.

    Raises:
        TypeError: a column cannot be a key.
        ValueError: a buffer is too short, a consumer is negative, above 65,535 or beyond `counts`.
    """

def scatter(
    columns: Sequence[Column],
    assigned: Array,
    start: int,
    builders: Sequence[Memory],
    filled: Array,
    capacity: int,
    stride: int,
) -> int:
    """Append the rows from `start` to their consumers' builders, in order; return the first row that did not go in.

    Consumer c's rows lie from element `c * stride` of each memory and `filled[c]` (int64, brought up to date) says how
    many there are, at most `capacity`, which is less than `stride`. `values` has `consumers * stride` values. For text
    it has the same number of bytes for each consumer, and `ends` (int64, `consumers * stride`) gets the offsets in
    them; a row that does not fit into the bytes left does not go in. `valid` has `consumers * stride` bytes, 1 for rows
    of a column without a mask.

    Raises:
        ValueError: a buffer is too short, a row's consumer does not exist, a builder holds more rows than it can.
    """

def number_places(places: Array, first: int, out: Array, /) -> None:
    """Write the numbers from `first` on into `out`, each at its place.

    Raises:
        ValueError: a place does not exist in `out`.
    """

def bucket_rows(buckets: Array, start: int, count: int, places: Array, out: Array, /) -> None:
    """Do one step of a stable counting sort: write the numbers from `start` on, each at the next place of its bucket.

    Args:
        buckets: the bucket of each row, uint32.
        start, count: which rows.
        places: for each bucket where in `out` its next row goes, uint32; moved on.
        out: row numbers, uint32.

    Raises:
        ValueError: a bucket or a place does not exist.
    """

def take_text_ends(offsets: Array, data: Array, indices: Array, ends: Array) -> int:
    """Write the `len(indices) + 1` offsets of the values at `indices` (int64; negative from the end); return the last.

    Raises:
        IndexError: an index is out of range.
    """

def take_text(offsets: Array, data: Array, indices: Array, ends: Array, out: Array) -> None:
    """Copy the values at `indices`, with the `ends` that `take_text_ends` made for them, to `out`."""

# -- group (group.h) -------------------------------------------------------------------------------

@final
class GroupTable:
    """Groups rows by key columns and keeps the state of aggregates for each group, in the order of their first rows.

    The contents lie in a memfd and hold no pointers: `attach` maps a table that another process made, without a copy.
    Only one process may add to it. A null is a key like any other.

    Args:
        keys: a letter for each key column: "i" bool, integers and dates; "f" floats (f2, f4, f8; NaN equals NaN);
            "t" text of all kinds (t y S U). May be empty: one group.
        aggregates: for each (function, class). A count is of class "-"; sum, mean and var "i" (bool and integers) or
            "f" (floats); min, max, first and last "i" (bool and integers other than uint64), "u" (uint64), "d" (dates
            and durations), "f", "m" (mixed: merged only), "t" (text and bytes: t y S) or "U" (fixed UCS-4 text); first
            and last also "x" (any other column of fixed width).

    Fields are numbered: first the keys, then the parts of each aggregate's state, in order:
    count: n; sum: two words of 128 bits, or a float and its error; mean: the same, n; min, max, first, last: value, or
    the nearest float and what is left; var: n, first value (two words, or a float), mean of the differences from it,
    sum of squares. Integers and dates are int64 words (bits of uint64), floats float64. The lowest bit of an error says
    that sum and error are in units of 2**64, bit 62 of a variance's n that its squares are in units of 2**1200.

    Raises:
        ValueError: no such key, function or class, or over 64 keys or 256 aggregates.
        OSError: no memory.
    """

    def __init__(self, keys: str, aggregates: Sequence[tuple[str, str]]) -> None: ...
    def add(self, keys: Sequence[Column], inputs: Sequence[Column | None], rows: int, numbers: Array = ..., /) -> None:
        """Add rows; `inputs` has a column for each aggregate, or None for a count of rows.

        A count of a column looks only at its nulls; the column may be of any kind. `numbers` (uint32) gets the number
        of each row's group, from 0 on.

        Raises:
            ValueError: a column does not fit its class, or not all have `rows` rows; a column is mixed.
            OSError: no memory.
        """
    def add_computed(
        self,
        code: bytes,
        columns: tuple[Array, ...],
        values: bytes,
        registers: bytes,
        rows: int,
        chosen: Array | tuple[bytes, tuple[Array, ...], bytes, int] | None = None,
        /,
    ) -> bool:
        """Run a program and add what it gives to the only group of a table without keys.

        Args:
            code, columns, values, rows: as of `run_numbers`, without results.
            registers: three bytes for each aggregate: the kind of its values (`i` or `f`), their register, and that of
                bools that tell which are not null, or 255; a count of rows has 255 for both.
            chosen: the mask of the rows that are added, as of `run_numbers`; or code, columns and values of a program
                that gives it block by block, and the register of bools in which it does.

        Returns:
            Whether an integer has left its type; nothing has been added then.

        Raises:
            ValueError: it has not one group without keys, or what is given does not fit.
            OSError: no memory.
        """
    def merge(self, keys: Sequence[Column], states: Sequence[Column], rows: int, numbers: Array = ..., /) -> None:
        """Add groups exported by another table; `states` has a column for each part. Raises as `add`."""
    def load(self, keys: Sequence[Column], states: Sequence[Column], rows: int, numbers: Array = ..., /) -> None:
        """As `merge`, of groups none of which is there, nor twice among them: faster while all have come so."""
    def read_words(self, field: int, positions: int | Array, count: int, out: Array, valid: Array, /) -> bool:
        """Write a field of `count` groups as 8-byte words, and one byte each for not null.

        `positions` is that of the first of them, or an array with those of all (uint32). Returns whether any is null.
        Raises ValueError for a text field, a group that does not exist, a short buffer.
        """
    def read_offsets(self, field: int, positions: int | Array, count: int, offsets: Array, valid: Array, /) -> bool:
        """Write the count + 1 offsets (int64, from 0) of a text field. Returns and raises as `read_words`."""
    def read_data(self, field: int, positions: int | Array, count: int, data: Array, itemsize: int, /) -> None:
        """Write the bytes of a text field: with `itemsize` 0 one after the other, else each padded with zeros to it."""
    def fileno(self) -> int:
        """The memfd; it belongs to the table and is closed with it."""
    @classmethod
    def attach(cls, fd: int, /) -> GroupTable:
        """Map the table in a memfd, which is duplicated. Raises ValueError when there is none, OSError."""
    @classmethod
    def restored(cls, regions: tuple[Array, ...], /) -> GroupTable:
        """Make a table of the regions that `__reduce__` gave. Raises ValueError, OSError."""
    def empty(self) -> bool:
        """Forget all groups and keep the memory for others; False: the table is being captured, noted or loaded."""
    def capture(self) -> GroupTable:
        """Return a table of what this one holds now, to be read only, whatever is added to this one from now on.

        It is read when `copy_on` has returned False. Nothing is copied by this call; until all has been copied, adding
        to this table first copies what it changes.

        Raises:
            ValueError: the last capture has not been copied to its end, or this one is captured.
            OSError: no memory.
        """
    def copy_on(self, blocks: int, /) -> bool:
        """Copy some more blocks of about 4 KiB of a captured table; return whether there are others."""
    def note_updates(self, most: int, /) -> None:
        """Begin to note to which groups rows are added; groups that are new are among them.

        Nothing is noted any more when they are more than `most`.
        """
    def take_updates(self) -> bytes | None:
        """Return of each group 1 if it has got a row since `note_updates`, else 0, and stop noting.

        None: it has not been noted, there were too many, or there was no memory to do so.
        """
    @property
    def nbytes(self) -> int:
        """Bytes of memory taken."""
    def __len__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

# -- text (text.h) ---------------------------------------------------------------------------------

def text_split_size(text: Column, /) -> tuple[int, int]:
    """Return (number of words, bytes of them all) of the values of a text column, split as `str.split()` does."""

def text_split(text: Column, data: Array, ends: Array, rows: Array, /) -> None:
    """Write the words: their bytes, for each the end in `data` and the row it comes from, both int64.

    Raises:
        ValueError: an array has less room than `text_split_size` said.
    """

def text_prefix(offsets: Array, data: Array, out: Array, /) -> int:
    """Write each value of a text column behind its length in 4 bytes, little-endian; return the bytes written.

    Raises:
        ValueError: `out` has not 4 bytes more for each value than these have, or offsets leave the data.
        OverflowError: a value has more than 2**31 - 1 bytes.
    """

def text_lower(text: Column, data: Array, other: Array, /) -> int:
    """Write the values of a text column, from its first offset on, with ASCII letters in lower case.

    Args:
        data: as many bytes as the values have.
        other: a byte a row, set to 1 where a value is not all ASCII: what `data` has for it is not its lower case.

    Returns:
        How many values are not all ASCII.
    """

def text_resume(buffer: Array, begin: int, position: int, stop: int, /) -> int:
    """Return where to begin to count words that begin at `position` or behind it.

    Args:
        begin: where the bytes that may be read begin: at least 3 before `position`, or the beginning of the text.
        stop: where they end.

    Returns:
        `position`, the end of the white space that is cut there, or of the word that began before; `stop` when that one
        goes on up to there.
    """

class WordTable:
    """Counts the words of UTF-8 text, split as `str.split()` does, with ASCII letters in lower case.

    Words that are not all ASCII are kept apart, as they are, until the caller has them folded: see `take_raw`.
    Nothing takes more than a few tens of microseconds because the table grows. `len` is the number of distinct words
    that are final.

    Args:
        lower: fold ASCII letters; otherwise they are left alone.
        seed: of the hash; tables with the same seed agree on the share of a word.

    Any method raises MemoryError when there is no memory; what was counted before stays counted.
    """

    def __init__(self, lower: bool = True, seed: int = 0) -> None: ...
    def __len__(self) -> int: ...
    @property
    def raw(self) -> int:
        """Distinct words that are still to be folded."""

    @property
    def total(self) -> int:
        """Words met in text so far, whatever they are."""

    def add(self, text: Column, /) -> None:
        """Count the words of each value of a text column; nulls have none."""

    def add_block(self, buffer: Array, start: int, limit: int, stop: int, last: bool, /) -> int:
        """Count the words of `buffer[start:stop]` that begin before `limit`.

        Args:
            start: must not cut a word or a character.
            last: the text ends at `stop`. Otherwise a word that goes on up to there is not counted.

        Returns:
            Where to go on: the beginning of a word that has no end before `stop`, or `limit` or behind it.
        """

    def merge(self, words: Column, counts: Array, /) -> None:
        """Add counts (int64) of words, which are taken as they are. Nulls are left out.

        Raises:
            OverflowError: a count does not fit 64 bits; the words before are counted.
        """

    def export(
        self, position: int, rows: int, most: int, share: int = 0, shares: int = 1, /
    ) -> tuple[bytes, bytes, bytes, int]:
        """Return some words and their counts; the table must not change between the first call and the last.

        Args:
            position: 0, then what the call before returned for the same share.
            rows: words at most.
            most: bytes of these words, at most; one word always fits.
            share, shares: only the words of this one of so many equal shares of the hashes.

        Returns:
            (bytes of the words, their int64 offsets from 0 on, int64 counts, next position or -1).
        """

    def take_raw(self) -> WordTable:
        """Move the words that are still to be folded into a table of their own, where they count as final."""

# -- sort (sort.h) ---------------------------------------------------------------------------------

def argsort(columns: Sequence[Column], descending: Sequence[bool], nulls_first: bool, out: Array, limit: int) -> None:
    """Write to `out`, aligned int64, the row numbers in the order of the columns, the first counting most; stable.

    With a `limit` of 0 or more only so many are in order, and the others behind them in any. NaN and NaT stand behind
    other values, nulls behind all or with `nulls_first` before all, also in columns that descend. Raises ValueError for
    a column without an order.
    """

class Merger:
    """Cuts sorted runs (columns of equal kinds for each) into slices that can be sorted one after the other."""

    def __init__(self, runs: Sequence[Sequence[Column]], descending: Sequence[bool], nulls_first: bool) -> None: ...
    def cut(self, step: int, ends: Array) -> int:
        """Write the end of the next slice in each run to `ends` (int64); returns its rows, 0 at the end.

        No run gives more than `step` rows. A row of a slice stands behind all rows of the slices before.
        """

# -- join (join.h) ---------------------------------------------------------------------------------

class JoinTable:
    """Row numbers by their keys, several for a key. Keys are equal as in Python; nulls and NaN equal nothing.

    A key column is a number (not float16 or wider than 64 bits), a date, a span, text, bytes, or of kind S or V.
    """

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def keys(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def survey(self, columns: Sequence[Column]) -> None:
        """Note the keys of rows that will be added, for a table that fits them. All rows, or none, before the first."""

    def add(self, columns: Sequence[Column]) -> None:
        """Add rows by their key columns; they get the next numbers. The first call decides what keys are."""

    def probe(
        self, columns: Sequence[Column], row: int, link: int, outer: bool, probe_out: Array, build_out: Array
    ) -> tuple[int, int, int, bool]:
        """Write pairs of equal keys, (row of `columns`, row added), both int64; returns how many, and where to go on.

        Pairs come in the order of the rows of `columns`, and for one row in the order of adding. With `outer` a row
        without a match is paired with -1. A first call begins with row 0 and link -1; the last returns the number of
        rows as `row`. At last it tells whether each row from `row` on has made exactly one pair.
        """

    def contains(self, columns: Sequence[Column], out: Array) -> None:
        """Write a byte for each row: 1 if its key has been added."""

# -- rows (columns_rows.c) -------------------------------------------------------------------------

def row_values(
    rows: list[Any], place: int | str, width: int, words: Array, valid: Array, /
) -> tuple[str, bool, bytes | None] | None:
    """Read one value of each row into a column.

    Rows are tuples of `width` values, with `place` the index of the value, or dicts, with `place` its name. The values
    are all exact int (of 64 bits signed), float, bool, str or bytes, or None.

    Args:
        words: n + 1 writable words of 8 bytes: gets int64, float64, bool as int64, or the n + 1 offsets of text.
        valid: n writable bytes: gets 0 for None, else 1.

    Returns:
        the kind ("i", "f", "b", "t" for str, "y" for bytes), whether there are nulls, and the bytes of text as UTF-8;
        None, with the buffers in any state, for rows and values that are not like that, or when all are None.

    Raises:
        ValueError: a buffer is too short, or `place` is not in a row.
    """

def longest_row(rows: list[Any], /) -> int | None:
    """Return the most values that a row has; None where a row is neither an exact dict nor an exact tuple."""

# -- csv (csv.h, lines.h) --------------------------------------------------------------------------

CSV_START: int
"""State for `csv_follow` before the first byte."""

CsvColumn: TypeAlias = tuple[int, int, int, Array, Array | None, Array]
"""(kind, unit, itemsize, data, offsets or None, valid): writable memory for `row_limit` rows.

`kind` is the character code of numpy's b i u f M m, or of t (UTF-8) or y (bytes), which have itemsize 0, any amount of
data, and `row_limit + 1` int64 offsets, of which those of the rows present are set. `unit` is the character code of the
unit of M: Y M W D h m s, i (ms), u (us) or n (ns), 0 for other kinds. `valid` gets a byte a row, 0 for null.
"""

CsvBad: TypeAlias = tuple[int, int, int, int, int, int]
"""(record, field, fields, begin, end, reason): where the record begins, its first bad field, how many fields it has,
where the bad value lies, and why it is bad; `shmjet.processors.csv.parse_errors` has the reasons."""

def csv_parse(
    data: Array,
    position: int,
    size: int,
    delimiter: int,
    quote: int,
    at_end: bool,
    stop: int,
    columns: tuple[CsvColumn | None, ...],
    nulls: tuple[bytes, ...],
    allowed: bytes | None,
    lenient: bool,
    rows: int,
    row_limit: int,
    /,
) -> tuple[int, int, int, int, CsvBad]:
    """Parse the records of `data[position:size]` that begin before `stop` into the columns, behind `rows` rows.

    Args:
        delimiter: a byte.
        quote: a byte, -1 for none.
        at_end: the file ends with the data.
        columns: one for each field of a record, None for those not wanted.
        nulls: what stands for a null; in text only where it is not quoted.
        allowed: 256 bytes, 0 for each byte that text may not hold; None: text is UTF-8.
        lenient: let text pass that is not UTF-8, and count it.

    Returns:
        (status, position, rows, odd, bad). Status 0: stopped at `stop` or at the end of the data; 1: the record at
        `position` is not complete; 2: `row_limit` rows; 3: column `bad[1]` needs more room for text; 4: a record is
        bad, `position` is behind it. `odd` counts text values that are not as they should be (lenient), or not ASCII
        (with `allowed`).
    """

def csv_split(
    data: Array, position: int, size: int, delimiter: int, quote: int, at_end: bool, /
) -> tuple[list[tuple[bytes, bool]], int, int] | None:
    """Split one record.

    Returns:
        ((value, whether it was quoted) for each field, position behind it, 0 or why it is bad), or None when it is not
        complete.
    """

def csv_write(columns: tuple[Column, ...], units: bytes, delimiter: int, quote: int, null: bytes, /) -> bytes | None:
    """Write columns of equal length as records; text columns must be well-formed UTF-8.

    Args:
        columns: at least one.
        units: of each column; of dates the unit's character in `csv_format.UNITS`, of others any.
        delimiter: an ASCII byte other than a digit, sign, `.` or `e`.
        quote: an ASCII byte, -1 for none.
        null: what stands for a null.

    Returns:
        The records; None when a value is refused (it needs quotes, or looks like the null) or a column is of a kind
        that is not known here.
    """

def csv_skip(data: Array, position: int, size: int, delimiter: int, quote: int, at_end: bool, /) -> int:
    """Return the end of the record that has a quoted field around `position`; -1 when the data ends before."""

def csv_follow(data: Array, position: int, size: int, delimiter: int, quote: int, state: int, /) -> int:
    """Follow two readings of `data[position:size]`: one begins at the start of a record, one inside quotes.

    Returns:
        A state to go on with. Bit 0: the first ends inside quotes; bit 1: the second does. Exact when the data ends
        behind a newline.
    """

def split_lines(
    data: Array, position: int, size: int, text: Array, offsets: Array, rows: int, row_limit: int, /
) -> tuple[int, int]:
    """Append the lines of `data[position:size]`, without terminators, to a text column of `rows` rows.

    Returns:
        (position of the first line not taken, rows): lines are left over when there are `row_limit` rows.
    """

def count_json_lines(data: Array, /) -> int:
    """Return how many lines are not blank; -1 where a value has several. The data are values of JSON."""

def is_utf8(data: Array, /) -> bool:
    """Whether bytes are well-formed UTF-8."""

def csv_power_of_five(exponent: int, /) -> tuple[int, int] | None:
    """Return a row of the table of powers of five: the first 128 bits in two halves; None outside the table."""

# -- functions of text (text_match.h, text_edit.h) -------------------------------------------------

def text_has(text: Column, how: int, part: Array, found: Array) -> None:
    """Write whether each value has a part: anywhere (`how` 0), at the beginning (1) or at the end (2).

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_compare(text: Column, other: Column, sign: Array) -> None:
    """Write -1, 0 or 1 (int8) as each value is less than, equal to or greater than the other, in the order of bytes.

    `other` has as many rows, or one for all.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short, or the rows do not fit.
    """

def text_equal(text: Column, other: Column, equal: Array) -> None:
    """Write whether each value is equal to the other; otherwise as `text_compare`."""

def text_among(text: Column, values: Column, found: Array) -> None:
    """Write whether each value is among others, which are in the order of their bytes.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_dfa(text: Column, table: Array, at_end: Array, start: int, found: Array) -> int:
    """Run an automaton over each value whose `found` is not 0; see `shmjet.columns.expressions.automata`.

    Returns:
        How many values are left to the caller: `found` is 2 there.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short, or a state is out of range.
    """

def text_chars(text: Column, count: Array) -> None:
    """Write the code points (int64) of each value.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_slice(text: Column, start: int, length: int, begins: Array, ends: Array) -> None:
    """Write where in the data a part of each value begins and ends (int64), counted in code points.

    `start` counts from the end if it is negative; a `length` of -1 goes to the end.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_strip(text: Column, marks: Array, wide: bool, begins: Array, ends: Array, other: Array) -> int:
    """Write where each value begins and ends without the bytes that have a mark (256 of them) at its ends.

    Returns:
        If `wide`, how many values have a byte beyond ASCII at an end then: `other` is 1 there.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_ranges(text: Column, begins: Array, ends: Array, offsets: Array, data: Array) -> None:
    """Copy a part of the data for each row, and write the offsets (int64, one more than rows).

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short, or a part leaves the data.
    """

def text_replace(text: Column, part: Array, value: Array, offsets: Array | None, data: Array | None) -> int:
    """Put `value` in place of every `part`, which is not empty; with None only count.

    Returns:
        The bytes of the result.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

def text_split_lists(text: Column, by: Array, offsets: Array | None, data: Array | None) -> int:
    """Write the pieces of each value between separators as a list of text (docs/formats/batch.md).

    Returns:
        The bytes of the result.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short. OverflowError: a value is too long.
    """

def text_parse(text: Column, kind: str, size: int, unit: str, out: Array, other: Array) -> int:
    """Read numbers, bools and dates of the plain forms.

    Args:
        text: a column of text; its nulls are not read.
        kind: of the values: `i`, `u`, `f`, `b` or `M`.
        size: bytes of a value.
        unit: of dates, one of Y M W D h m s i u n; for others any character.
        out: zeros; the values.
        other: bool; the rows that are left to the caller.

    Returns:
        How many are left.
    """

def text_lists(words: Column, counts: Array, offsets: Array | None, data: Array | None) -> int:
    """Write lists of text, as columns of lists hold them.

    Args:
        words: of all lists, one after the other.
        counts: int64, how many words each list has.
        offsets, data: int64 and bytes; None for the size alone.

    Returns:
        The bytes of all lists.
    """

def text_upper(text: Column, data: Array, other: Array) -> int:
    """Write the data with ASCII letters in upper case.

    Returns:
        How many values are not all ASCII and left to the caller: `other` is 1 there.

    Raises:
        TypeError: a column of another kind. ValueError: a buffer is too short.
    """

# -- arithmetic (arithmetic.h) ---------------------------------------------------------------------

def checked_arithmetic(symbol: str, kind: str, itemsize: int, one: Array, two: Array, out: Array) -> bool:
    """Compute `+`, `-` or `*` of integers of one type (`kind` "i" or "u"); an operand may have one value for all rows.

    Returns:
        Whether a result has left the type.

    Raises:
        ValueError: the arrays do not fit.
    """

def run_numbers(
    code: bytes,
    columns: tuple[Array, ...],
    values: bytes,
    results: tuple[Array, ...],
    rows: int,
    mask: Array | None = None,
    /,
) -> bool:
    """Run instructions over columns of int64, float64 and bools, block by block.

    Args:
        code: six bytes for each instruction: operator, kind of the operands (`i`, `f` or `b`), the registers of the
            operands, that of the result and that of bools that choose. Registers are the columns, the values, the
            results, then room for a block.
        columns: what is read, 8 bytes for each row, or one for bools.
        values: numbers of 8 bytes, the same for all rows.
        results: what is written, 8 bytes for each row, or one for bools.
        rows: at least 2.
        mask: a byte for each row, which is not 0 for the rows that are computed, at least 2; results have these alone.

    Returns:
        Whether an integer has left its type; the results mean nothing then.

    Raises:
        ValueError: an instruction is wrong, or a column does not fit.
    """

def keep_rows(values: Array, itemsize: int, mask: Array, out: Array) -> int:
    """Write the values (1, 2, 4 or 8 bytes each) whose mask is not 0; `out` has room for one more.

    Returns:
        How many they are.

    Raises:
        ValueError: the arrays do not fit.
    """

def take_numbers(values: Array, itemsize: int, rows: Array, out: Array) -> None:
    """Write the values (4 or 8 bytes each) with these numbers (int64), in that order.

    Raises:
        IndexError: a number is less than 0, or too large.
        ValueError: the arrays do not fit.
    """

# -- decimals (decimal.h) --------------------------------------------------------------------------

Decimals: TypeAlias = tuple[Array, int, bool, int]
"""(data, width, is_single, shift): integers of 8 or 16 bytes, one a row or a single one, times 10**shift."""

def decimal_arithmetic(
    symbol: str, one: Decimals, two: Decimals, valid: Array | None, rows: int, digits: int, out: Array, width: int
) -> int:
    """Write `+ - * / %` of each row, of `width` bytes; return the first valid row of more than `digits` digits, or -1.

    `/` rounds down, as Python's `//`; by 0 it gives 0, as does `%`.
    """

def decimal_compare(one: Decimals, two: Decimals, rows: int, out: Array) -> None:
    """Write -1, 0 or 1 for each row into int8s."""

def decimal_compare_floats(one: Decimals, floats: Array, is_single: bool, rows: int, out: Array) -> None:
    """Write -1, 0 or 1 for each row into int8s, 2 where the float is NaN; the shift of `one` is its scale."""

def decimal_rescale(
    one: Decimals, valid: Array | None, rows: int, down: int, rounds: int, digits: int, out: Array, width: int
) -> int:
    """Write each value shifted up and then divided by 10 to the power of `down`; return the first bad row, or -1.

    What is left makes the row a bad one (rounds = 0), is rounded half away from 0 (1), or is cut off (2).
    """

def decimal_sum(one: Decimals, valid: Array | None, rows: int) -> tuple[int, int, int]:
    """Return the sum of the valid rows as (high, low): high * 2**64 + low."""

def decimal_extreme(one: Decimals, valid: Array | None, rows: int, is_greatest: bool) -> int:
    """Return the first row of the least or greatest valid value; -1 where there is none."""

def decimal_to_floats(one: Decimals, rows: int, out: Array) -> None:
    """Write the nearest float64 of each value; the shift of `one` is its scale."""

def decimal_of_floats(
    floats: Array, valid: Array | None, rows: int, scale: int, digits: int, out: Array, width: int
) -> int:
    """Write float64s rounded to a scale; return the first valid row that does not fit, or -1."""

def decimal_of_text(column: Column, scale: int, digits: int, out: Array, width: int) -> int:
    """Write what text such as "-12.50" says; return the first row that does not fit, or -1."""

def decimal_to_text(one: Decimals, rows: int, offsets: Array, data: Array) -> int:
    """Write each value with all digits of its scale, which is the shift of `one`; return how many bytes `data` has.

    `offsets` is int64, `rows + 1`; `data` has 42 bytes for each row.
    """
