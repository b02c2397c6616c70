"""Columns of a table that goes to Spark: what a schema says, as plain data that travels to workers without PySpark.

Must not know files or values.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shmjet.core.errors import ConfigError

KINDS = {
    "ByteType": "int8",
    "ShortType": "int16",
    "IntegerType": "int32",
    "LongType": "int64",
    "FloatType": "float32",
    "DoubleType": "float64",
    "BooleanType": "bool",
    "DateType": "date",
    "TimestampType": "timestamp",
    "TimestampNTZType": "timestamp_ntz",
    "DecimalType": "decimal",
    "StringType": "text",
    "VarcharType": "text",
    "CharType": "text",
    "BinaryType": "bytes",
}
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
}
"""What Spark's SQL calls a kind."""

_WORDS: dict[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime.date: "date",
    datetime.datetime: "timestamp",
    decimal.Decimal: "decimal(38,18)",
    "text": "string",
    "bytes": "binary",
    **{kind: word for kind, word in SQL.items() if kind not in ("text", "bytes")},
}


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        name: of the column.
        kind: a value of `KINDS`.
        precision, scale: of a decimal: digits in all, and behind the point.
        nullable: None is a value.
    """

    name: str
    kind: str
    precision: int = 0
    scale: int = 0
    nullable: bool = True

    @property
    def sql(self) -> str:
        """The type as SQL calls it."""
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else SQL[self.kind]


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
        kind = given
        if not isinstance(given, DataType):
            word = _WORDS.get(given, given) if isinstance(given, str | type) else None
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
        raise ConfigError(f"{what}: {ddl!r} is no schema: {reason}") from None


def _json(text: str) -> Any:
    import json

    return json.loads(text)


def columns_of(struct: Any) -> tuple[Column, ...]:
    """Return the columns of a Spark `StructType`.

    Raises:
        ConfigError: there is none, two have one name, or a type cannot be written; the text names the column.
    """
    columns = []
    for field in struct.fields:
        kind = KINDS.get(type(field.dataType).__name__)
        if kind is None:
            raise ConfigError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, which cannot be sent to Spark in "
                "columns; make it text (JSON, say) and let Spark parse it, or give it columns of its own"
            )
        precision, scale = getattr(field.dataType, "precision", 0), getattr(field.dataType, "scale", 0)
        if kind != "decimal":
            precision = scale = 0
        columns.append(Column(field.name, kind, precision, scale, field.nullable))
    names = [column.name for column in columns]
    if not names:
        raise ConfigError("the schema has no columns")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f"the schema has several columns named {doubled[0]!r}")
    return tuple(columns)


_WIDER = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)", "float16": "float"}
"""Types that hold all values of what Spark has no type for."""


def word_for(values: Any) -> str | None:
    """Return the SQL type of the first value that is no None; None when all are.

    Raises:
        ConfigError: there is no type for it.

    Example:
        >>> word_for([None, 3]), word_for(["a"]), word_for([None])
        ('bigint', 'string', None)
    """
    for value in values:
        if value is None:
            continue
        dtype = str(getattr(value, "dtype", ""))
        if dtype in _WIDER or dtype in SQL:
            return _WIDER.get(dtype) or SQL[dtype]
        if dtype.startswith("datetime64"):
            return "date" if dtype == "datetime64[D]" else "timestamp"
        for kind in type(value).__mro__:
            if kind in _WORDS:
                return _WORDS[kind]
        raise ConfigError(
            f"{value!r:.60} of type {type(value).__name__} has no type in Spark's columns; give a schema, and make "
            "such values text, numbers, dates or bytes first"
        )
    return None
