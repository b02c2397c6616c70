"""Columns of a table that goes to Spark: what a schema says, as plain data that travels to workers without PySpark.

Lists, maps and structs are columns of columns. Must not know files or values.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shmjet.data.errors import ConfigError
from shmjet.spark.schema import NESTED, SIMPLE

KINDS = {**SIMPLE, "DecimalType": "decimal", "ArrayType": "list", "MapType": "map", "StructType": "struct"}
"""What columns of Spark's types hold."""

SQL = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "bool": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "text": "string",
    "bytes": "binary",
    "duration": "interval day to second",
}
"""What Spark's SQL calls a kind."""

WORDS: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    bytearray: "binary",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    datetime.timedelta: "interval day to second",
    decimal.Decimal: "decimal(38,18)",
    "text": "string",
    "bytes": "binary",
    **{kind: word for kind, word in SQL.items() if kind not in ("text", "bytes")},
}
"""The SQL type of a Python type, and of a dtype's name."""


@dataclass(frozen=True)
class Column:
    """One column, or one part of a nested one.

    Args:
        name: of the column or of the struct's field; `element` in lists, `key` and `value` in maps.
        kind: a value of `KINDS`.
        precision, scale: of a decimal: digits in all, and behind the point.
        nullable: None is a value.
        parts: the element of a list, key and value of a map, the fields of a struct.
        within: of a part: the column that it is a part of, and the names from there on.
    """

    name: str
    kind: str
    precision: int = 0
    scale: int = 0
    nullable: bool = True
    parts: tuple[Column, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What errors call it.

        Example:
            >>> Column("n", "int64").label, Column("day", "date", within=("visits", "element")).label
            ("column 'n'", "column 'visits' at element.day")
        """
        if not self.within:
            return f"column {self.name!r}"
        return f"column {self.within[0]!r} at {'.'.join((*self.within[1:], self.name))}"

    @property
    def sql(self) -> str:
        """The type as SQL calls it."""
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.kind == "struct":
            return f"struct<{','.join(f'{part.name}:{part.sql}' for part in self.parts)}>"
        if self.kind in NESTED:
            return f"{'array' if self.kind == 'list' else 'map'}<{','.join(part.sql for part in self.parts)}>"
        return SQL[self.kind]


def struct_of(spark: Any, schema: Any) -> Any:
    """Return the `StructType` of a schema in any form.

    Args:
        spark: the session, which reads DDL.
        schema: a `StructType`; a DDL text such as `"word string, n bigint"`; or a dict of names and types, which are
            Spark's, words of SQL or of numpy (`"int64"`), or Python types.

    Raises:
        ConfigError: it is none of these, or a type is unknown; the text names the column.
    """
    from pyspark.sql.types import DataType, StructField, StructType

    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return _parsed(spark, schema, "the schema")
    if not isinstance(schema, Mapping) or not schema:
        raise ConfigError(
            "a schema is a StructType, a text such as 'word string, n bigint', or a dict such as "
            f"{{'word': str, 'n': int}}; got {schema!r:.80}"
        )
    fields = []
    for name, given in schema.items():
        if not isinstance(name, str):
            raise ConfigError(f"a column's name must be a str, got {name!r} of type {type(name).__name__}")
        kind = given
        if not isinstance(given, DataType):
            word = WORDS.get(given, given) if isinstance(given, str | type) else None
            if not isinstance(word, str):
                raise ConfigError(f"column {name!r}: expected a type such as 'bigint', 'int64' or int, got {given!r}")
            kind = _parsed(spark, f"v {word}", f"column {name!r}").fields[0].dataType
        fields.append(StructField(name, kind, True))
    return StructType(fields)


def _parsed(spark: Any, ddl: str, what: str) -> Any:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(_json(spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(ddl).json()))
    except Exception as error:
        reason = str(getattr(error, "java_exception", None) or error).split("\n")[0]
        raise ConfigError(f"{what}: {ddl!r} is not a schema: {reason}") from None


def _json(text: str) -> Any:
    import json

    return json.loads(text)


def columns_of(struct: Any) -> tuple[Column, ...]:
    """Return the columns of a Spark `StructType`.

    Raises:
        ConfigError: there is none, two have one name, or a type cannot be written; the text names the column.
    """
    if not struct.fields:
        raise ConfigError("the schema has no columns")
    return _fields(struct, (), "the schema")


def _fields(struct: Any, within: tuple[str, ...], what: str) -> tuple[Column, ...]:
    names = [field.name for field in struct.fields]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"{what} has several {'fields' if within else 'columns'} named {doubled[0]!r}")
    return tuple(_column(field.name, field.dataType, field.nullable, within) for field in struct.fields)


def _column(name: str, given: Any, nullable: bool, within: tuple[str, ...]) -> Column:
    kind = KINDS.get(type(given).__name__, "")
    column = Column(name, kind, nullable=nullable, within=within)
    inside = (*within, name)
    match kind:
        case "decimal":
            return replace(column, precision=given.precision, scale=given.scale)
        case "list":
            return replace(column, parts=(_column("element", given.elementType, given.containsNull, inside),))
        case "map":
            value = _column("value", given.valueType, given.valueContainsNull, inside)
            return replace(column, parts=(_column("key", given.keyType, False, inside), value))
        case "struct" if given.fields:
            return replace(column, parts=_fields(given, inside, column.label))
        case "" | "struct":
            raise ConfigError(
                f"{column.label} has type {given.simpleString()}, which cannot be sent to Spark in columns; make it "
                "text (JSON, say) and let Spark parse it, or give it columns of its own"
            )
    return column
