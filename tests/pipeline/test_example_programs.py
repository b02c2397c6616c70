"""The pipelines in `examples/`, run as a newcomer runs them; what they must give is found out by plain Python."""

from __future__ import annotations

import csv
import gzip
import math
import re
import runpy
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import JetConfig

ROOT = Path(__file__).resolve().parents[2]
TWO = JetConfig(cores=2)

pytestmark = pytest.mark.slow


def example(name: str) -> dict[str, Any]:
    """Load an example without running it; its functions then travel by value, as those of a script do."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


def data_of(program: dict[str, Any], maker: str, *arguments: Any) -> Path:
    try:
        found: Path = program[maker](*arguments)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    return found


def test_word_count() -> None:
    found = example("word_count")["main"]([str(ROOT / "docs" / "**" / "*.md")], 50, TWO)
    text = "\n".join(path.read_text() for path in (ROOT / "docs").glob("**/*.md"))
    expected = Counter(re.findall(r"\w+", text.lower()))
    assert [number for _, number in found] == [number for _, number in expected.most_common(50)]
    assert all(expected[word] == number for word, number in found)
    assert found[0][0] == "the"


def test_tf_idf() -> None:
    paths = list((ROOT / "docs" / "design").glob("*.md"))
    found = example("tf_idf")["main"]([str(ROOT / "docs" / "design")], 5, TWO)
    uses = {str(path): Counter(re.findall("[a-z]{3,}", path.read_text().lower())) for path in paths}
    texts = Counter(word for words in uses.values() for word in words)
    assert found.keys() == uses.keys()
    for path, words in uses.items():
        weights = {word: tf * math.log(len(uses) / texts[word]) for word, tf in words.items()}
        expected = sorted(weights.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
        assert [weight for _, weight in found[path]] == pytest.approx([weight for _, weight in expected])
        assert all(weight == pytest.approx(weights[word]) for word, weight in found[path])
    (stealing,) = (words for path, words in found.items() if "stealing" in path)
    assert "thief" in [word for word, _ in stealing]


def kind_of(weather: dict[str, str] | None) -> str:
    if weather is None or "NA" in (weather["precip"], weather["wind_speed"]):
        return "unknown"
    rain = "rain" if float(weather["precip"]) > 0 else "dry"
    return f"{rain}, {'wind' if float(weather['wind_speed']) >= 20 else 'calm'}"


def test_flight_delays(tmp_path: Path) -> None:
    program = example("flight_delays")
    folder = data_of(program, "unpack", tmp_path)
    found = program["main"](folder, config=TWO)
    airports = {row["faa"]: row["name"] for row in rows_of(folder / "airports.csv")}
    weather = {(row["origin"], row["time_hour"]): row for row in rows_of(folder / "weather.csv")}
    late: dict[str, list[float]] = defaultdict(list)
    by_weather: dict[str, list[float]] = defaultdict(list)
    for flight in rows_of(folder / "flights.csv"):
        if flight["arr_delay"] != "NA" and flight["dest"] in airports:
            late[airports[flight["dest"]]].append(float(flight["arr_delay"]))
        if flight["dep_delay"] != "NA":
            key = flight["origin"], flight["time_hour"]
            by_weather[kind_of(weather.get(key))].append(float(flight["dep_delay"]))
    means = {name: (sum(delays) / len(delays), len(delays)) for name, delays in late.items() if len(delays) >= 100}
    expected = sorted(((name, *mean) for name, mean in means.items()), key=lambda row: (-row[1], row[0]))
    assert [(name, count) for name, _, count in found.destinations] == [(name, count) for name, _, count in expected]
    assert [mean for _, mean, _ in found.destinations] == pytest.approx([mean for _, mean, _ in expected])
    assert found.weather.keys() == by_weather.keys()
    for kind, delays in by_weather.items():
        assert found.weather[kind] == pytest.approx((sum(delays) / len(delays), len(delays)))
    assert found.destinations[0][0] == "Columbia Metropolitan"
    assert found.weather["rain, wind"][1] == 2191


def test_tpch_query_3(tmp_path: Path) -> None:
    program = example("tpch_q3")
    folder = data_of(program, "generate", tmp_path, 0.01)
    found = program["main"](folder, TWO)
    customers = {row["c_custkey"] for row in rows_of(folder / "customer.csv") if row["c_mktsegment"] == "BUILDING"}
    orders = {
        row["o_orderkey"]: row
        for row in rows_of(folder / "orders.csv")
        if row["o_custkey"] in customers and row["o_orderdate"] < "1995-03-15"
    }
    revenues: dict[str, float] = defaultdict(float)
    for line in rows_of(folder / "lineitem.csv"):
        if line["l_orderkey"] in orders and line["l_shipdate"] > "1995-03-15":
            revenues[line["l_orderkey"]] += float(line["l_extendedprice"]) * (1 - float(line["l_discount"]))
    ranked = sorted(revenues.items(), key=lambda pair: (-pair[1], orders[pair[0]]["o_orderdate"]))[:10]
    assert len(found) == 10
    assert [(key, date, priority) for key, _, date, priority in found] == [
        (int(key), orders[key]["o_orderdate"], int(orders[key]["o_shippriority"])) for key, _ in ranked
    ]
    assert [revenue for _, revenue, _, _ in found] == pytest.approx([revenue for _, revenue in ranked])


def test_access_log(tmp_path: Path) -> None:
    program = example("access_log")
    paths = program["generate"](tmp_path, 3, 5000)
    found = program["main"]([f"{tmp_path}/access.log*"], 5, TWO)
    pages: Counter[str] = Counter()
    clients: Counter[str] = Counter()
    hours: Counter[tuple[str, str]] = Counter()
    unreadable = 0
    for path in paths:
        data = Path(path).read_bytes()
        for line in (gzip.decompress(data) if path.endswith(".gz") else data).decode().splitlines():
            words = line.split(" ")
            if words[0].startswith("\x16"):
                unreadable += 1
                continue
            status, size = words[8], words[9]
            if int(status) < 400:
                pages[words[6].split("?")[0]] += 1
            clients[words[0]] += int(size) if size != "-" else 0
            hours[words[3][1:15].replace(":", " ", 1).rstrip(":"), f"{status[0]}xx"] += 1
    assert found.pages == sorted(pages.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    assert found.clients == sorted(clients.items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    assert found.hours == hours
    assert found.unreadable == unreadable == 15
    assert sum(hours.values()) == 15_000
    assert found.pages[0][0] == "/news/0"


def test_the_log_is_the_same_each_time(tmp_path: Path) -> None:
    program = example("access_log")
    for name in "ab":
        (tmp_path / name).mkdir()
        program["generate"](tmp_path / name, 2, 100)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
