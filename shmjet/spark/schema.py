"""What the columns of a DataFrame are, as plain data that travels to workers which know nothing of Spark.

Made from `df.schema` in the client; read where frames are decoded and where rows are made columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shmjet.data.column_types import DecimalType, Kind, ListType, StructType, ZonedType, zone_of
from shmjet.data.errors import BatchError, ConfigError

SIMPLE = {
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
    "DayTimeIntervalType": "duration",
    "StringType": "text",
    "CharType": "text",
    "VarcharType": "text",
    "BinaryType": "bytes",
}
"""What columns of Spark's types hold, those types that say nothing else and go both ways."""

_PLAIN = {**SIMPLE, "YearMonthIntervalType": "months", "TimeType": "time", "NullType": "null"}

NESTED = ("list", "map", "struct")
"""Kinds whose values are made of others."""

_DTYPES = {
    "date": np.dtype("datetime64[D]"),
    "timestamp_ntz": np.dtype("datetime64[us]"),
    "duration": np.dtype("timedelta64[us]"),
    "months": np.dtype("timedelta64[M]"),
    "time": np.dtype("timedelta64[ns]"),
    "null": np.dtype(np.float64),
}
_TIME_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True)
class Field:
    """One column, or one part of a nested one.

    Args:
        name: of the column or of the struct's field; of no meaning inside arrays and maps.
        kind: a numpy dtype's name for numbers, else `bool`, `date`, `timestamp`, `timestamp_ntz`, `duration`,
            `months`, `time`, `decimal`, `text`, `bytes`, `null`, `list`, `map` or `struct`.
        children: the element of a list, key and value of a map, the fields of a struct.
        scale: digits behind the point of a decimal.
        digits: of a decimal in all, at most; 0 for what is none.
        zone: in which a `timestamp` is shown: that of the session, or UTC.
    """

    name: str
    kind: str
    children: tuple[Field, ...] = ()
    scale: int = 0
    digits: int = 0
    zone: str = "UTC"

    @property
    def is_columnar(self) -> bool:
        """Whether a column of a batch holds the values: it has no maps, and no structs of no or of equal names."""
        names = [child.name for child in self.children]
        if self.kind == "map" or (self.kind == "struct" and (not names or len(set(names)) < len(names))):
            return False
        return all(child.is_columnar for child in self.children)

    @property
    def column_kind(self) -> Kind:
        """The kind of the column that holds the values, where `is_columnar`.

        Example:
            >>> Field("price", "decimal", digits=10, scale=2).column_kind, Field("day", "date").column_kind
            (decimal(10, 2), dtype('<M8[D]'))
        """
        match self.kind:
            case "text" | "bytes":
                return self.kind
            case "decimal":
                return DecimalType(self.digits, self.scale)
            case "timestamp":
                return ZonedType("us", self.zone)
            case "list":
                return ListType(self.children[0].column_kind)
            case "struct":
                return StructType(tuple((child.name, child.column_kind) for child in self.children))
        return _DTYPES.get(self.kind) or np.dtype(self.kind)


def fields_of(df: Any) -> tuple[Field, ...]:
    """Return the fields of a Spark DataFrame.

    Raises:
        ConfigError: there is no column, two have one name, or a type has no counterpart; the text names the column.
    """
    schema = _schema_of(df)
    zone = zone_of_session(df.sparkSession)
    fields = tuple(_field(field.name, field.dataType, field.name, zone) for field in schema.fields)
    names = [field.name for field in fields]
    if not names:
        raise ConfigError("spark.source: the DataFrame has no columns")
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(
            f"spark.source: the DataFrame has several columns named {doubled[0]!r}; rename them, or select others"
        )
    if "" in names:
        raise ConfigError("spark.source: a column's name is empty; rename it")
    return fields


def is_columnar(fields: tuple[Field, ...]) -> bool:
    """Whether rows of these fields fit a `Batch`; with maps among them they become dicts."""
    return all(field.is_columnar for field in fields)


def zone_of_session(spark: Any) -> str:
    """Return the time zone in which a session shows timestamps, by a name that Python knows; of others UTC."""
    name = str(spark.conf.get(_TIME_ZONE))
    try:
        name = str(spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name).normalized().getId())
        zone_of(name)
    except BatchError:
        return "UTC"
    return "UTC" if name == "Z" else name


def _schema_of(df: Any) -> Any:
    """Return `df.schema`; where PySpark itself does not know a type (3.5 and intervals), say which column has it."""
    try:
        return df.schema
    except ValueError as error:
        from pyspark.sql.types import _parse_datatype_json_string

        for field in df._jdf.schema().fields():
            try:
                _parse_datatype_json_string(field.dataType().json())
            except ValueError:
                raise _no_counterpart(field.name(), field.dataType().simpleString()) from error
        raise


def _field(name: str, kind: Any, column: str, zone: str) -> Field:
    sql_type = getattr(kind, "sqlType", None)
    if callable(sql_type):  # a user-defined type lies in memory as what it is made of
        return _field(name, sql_type(), column, zone)
    type_name = type(kind).__name__
    if type_name in _PLAIN:
        return Field(name, _PLAIN[type_name], zone=zone)
    if type_name == "DecimalType" and 0 <= kind.scale <= kind.precision:
        return Field(name, "decimal", scale=kind.scale, digits=kind.precision)
    if type_name == "ArrayType":
        return Field(name, "list", (_field("element", kind.elementType, column, zone),))
    if type_name == "MapType":
        key, value = ("key", kind.keyType), ("value", kind.valueType)
        return Field(name, "map", tuple(_field(*each, column, zone) for each in (key, value)))
    if type_name == "StructType":
        return Field(name, "struct", tuple(_field(f.name, f.dataType, column, zone) for f in kind.fields))
    raise _no_counterpart(column, kind.simpleString())


def _no_counterpart(column: str, kind: str) -> ConfigError:
    return ConfigError(
        f"spark.source: column {column!r} has type {kind}, which has no counterpart here; "
        "cast it to string in Spark, or leave it out with columns=[...]"
    )
