"""Questions about the flights from New York in 2013, as a new user asks them: in stages, and in SQL for comparison.

`tables[name]` is a stage of batches: `flights`, `airlines`, `airports`, `planes`, `weather`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from shmjet import column, when
from shmjet.columns import count, max_, mean, median, min_, n_unique, quantile, sum_

Tables = Mapping[str, Any]


def left_on_time(tables: Tables) -> Any:
    """How many flights left on time? What is not known did not."""
    return tables["flights"].filter(column("dep_delay") <= 0).group_by().agg(n=count())


def cancelled_by_month(tables: Tables) -> Any:
    """Which share of the flights never left, by month?"""
    return (
        tables["flights"]
        .group_by("month")
        .agg(flights=count(), left=count("dep_time"))
        .select("month", cancelled=(column("flights") - column("left")) / column("flights"))
        .sort("month")
    )


def on_time_share(tables: Tables) -> Any:
    """Which airlines are on time most often, of flights that left?"""
    on_time = when(column("dep_delay") <= 0).then(1.0).otherwise(0.0)
    return (
        tables["flights"]
        .filter(~column("dep_delay").is_null())
        .join(tables["airlines"], on="carrier")
        .group_by("carrier", "name")
        .agg(share=mean(on_time), flights=count())
        .sort("share", descending=True)
    )


def worst_routes(tables: Tables) -> Any:
    """On which routes with at least 300 arrivals do flights come latest?"""
    return (
        tables["flights"]
        .group_by("origin", "dest")
        .agg(late=mean("arr_delay"), arrivals=count("arr_delay"))
        .filter(column("arrivals") >= 300)
        .top(10, "late")
    )


def unknown_airports(tables: Tables) -> Any:
    """Which destinations are not among the airports?"""
    return (
        tables["flights"]
        .join(tables["airports"], left_on="dest", right_on="faa", how="anti")
        .group_by("dest")
        .agg(flights=count(), carriers=n_unique("carrier"))
        .sort("dest")
    )


def old_planes(tables: Tables) -> Any:
    """Do old planes come later? Both tables have a year."""
    age = column("year") - column("year_built")
    return (
        tables["flights"]
        .join(tables["planes"].select("tailnum", "engine", year_built=column("year")), on="tailnum")
        .with_columns(age=when(age < 10).then("new").when(age < 20).then("middle").when(age >= 20).then("old"))
        .group_by("age")
        .agg(late=mean("arr_delay"), worst=max_("arr_delay"), flights=count())
        .sort("age")
    )


def planes_without_data(tables: Tables) -> Any:
    """How many flights have a plane of which nothing is known? A tail number that is missing matches nothing."""
    return (
        tables["flights"]
        .join(tables["planes"].select("tailnum", "manufacturer"), on="tailnum", how="left")
        .filter(column("manufacturer").is_null())
        .with_columns(missing=column("tailnum").is_null())
        .group_by("missing")
        .agg(flights=count())
        .sort("missing")
    )


def rain(tables: Tables) -> Any:
    """Do flights leave later when it rains or storms?"""
    weather = tables["weather"].select("origin", "time_hour", "precip", "wind_speed")
    kind = (
        when(column("precip").is_null())
        .then("unknown")
        .when((column("precip") > 0) & (column("wind_speed") >= 20))
        .then("rain and wind")
        .when(column("precip") > 0)
        .then("rain")
        .otherwise("dry")
    )
    return (
        tables["flights"]
        .join(weather, on=["origin", "time_hour"], how="left")
        .with_columns(kind=kind)
        .group_by("kind")
        .agg(late=mean("dep_delay"), usual=median("dep_delay"), high=quantile("dep_delay", 0.9), flights=count())
        .sort("kind")
    )


def rolling_week(tables: Tables) -> Any:
    """How late were flights on average in the seven days up to each day of March?"""
    day = column("time_hour").dt.date()
    days = tables["flights"].with_columns(day=day).group_by("day").agg(late=sum_("dep_delay"), n=count("dep_delay"))
    shifted = [days.with_columns(day=column("day") + timedelta(days=back)) for back in range(7)]
    return (
        shifted[0]
        .union(*shifted[1:])
        .group_by("day")
        .agg(late=sum_("late"), n=sum_("n"))
        .filter((column("day").dt.month() == 3) & (column("day").dt.year() == 2013))
        .select("day", mean=column("late") / column("n"))
        .sort("day")
    )


def first_of_fleet(tables: Tables) -> Any:
    """How many seats does the smallest and the largest plane of each manufacturer with "BOEING" or "AIRBUS" have?"""
    maker = column("manufacturer")
    return (
        tables["planes"]
        .filter(maker.str.contains("BOEING|AIRBUS"))
        .with_columns(maker=maker.str.slice(0, 6).str.lower())
        .group_by("maker")
        .agg(least=min_("seats"), most=max_("seats"), models=n_unique("model"), planes=count())
        .sort("maker")
    )


def destinations(tables: Tables) -> Any:
    """Which pairs of airline and destination are there in the far west?"""
    west = tables["airports"].filter((column("lon") < -115) & ~column("tzone").is_null())
    return (
        tables["flights"]
        .distinct("carrier", "dest")
        .join(west.select("faa", airport=column("name")), left_on="dest", right_on="faa")
        .select("carrier", "dest", "airport")
        .sort("carrier", "dest")
    )


QUESTIONS: Final[tuple[tuple[Callable[[Tables], Any], str], ...]] = (
    (left_on_time, "SELECT count(*) FROM flights WHERE dep_delay <= 0"),
    (
        cancelled_by_month,
        "SELECT month, (count(*) - count(dep_time)) / count(*) FROM flights GROUP BY month ORDER BY month",
    ),
    (
        on_time_share,
        """SELECT carrier, name, avg(CASE WHEN dep_delay <= 0 THEN 1.0::DOUBLE ELSE 0 END) AS share, count(*)
        FROM flights JOIN airlines USING (carrier) WHERE dep_delay IS NOT NULL GROUP BY ALL ORDER BY share DESC""",
    ),
    (
        worst_routes,
        """SELECT origin, dest, avg(arr_delay) AS late, count(arr_delay) AS n FROM flights GROUP BY ALL HAVING n >= 300
        ORDER BY late DESC LIMIT 10""",
    ),
    (
        unknown_airports,
        """SELECT dest, count(*), count(DISTINCT carrier) FROM flights WHERE dest NOT IN (SELECT faa FROM airports)
        GROUP BY dest ORDER BY dest""",
    ),
    (
        old_planes,
        """SELECT CASE WHEN f.year - p.year < 10 THEN 'new' WHEN f.year - p.year < 20 THEN 'middle'
            WHEN f.year - p.year >= 20 THEN 'old' END AS age, avg(arr_delay), max(arr_delay), count(*)
        FROM flights f JOIN planes p USING (tailnum) GROUP BY age ORDER BY age NULLS LAST""",
    ),
    (
        planes_without_data,
        """SELECT tailnum IS NULL AS missing, count(*) FROM flights
        WHERE tailnum IS NULL OR tailnum NOT IN (SELECT tailnum FROM planes) GROUP BY missing ORDER BY missing""",
    ),
    (
        rain,
        """SELECT CASE WHEN precip IS NULL THEN 'unknown' WHEN precip > 0 AND wind_speed >= 20 THEN 'rain and wind'
            WHEN precip > 0 THEN 'rain' ELSE 'dry' END AS kind,
            avg(dep_delay), median(dep_delay), quantile_cont(dep_delay, 0.9), count(*)
        FROM flights f LEFT JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
        GROUP BY kind ORDER BY kind""",
    ),
    (
        rolling_week,
        """WITH days AS (SELECT CAST(time_hour AS DATE) AS day, dep_delay FROM flights)
        SELECT a.day, avg(b.dep_delay)
        FROM (SELECT DISTINCT day FROM days) a JOIN days b ON b.day BETWEEN a.day - 6 AND a.day
        WHERE year(a.day) = 2013 AND month(a.day) = 3 GROUP BY a.day ORDER BY a.day""",
    ),
    (
        first_of_fleet,
        """SELECT lower(substring(manufacturer, 1, 6)) AS maker, min(seats), max(seats), count(DISTINCT model), count(*)
        FROM planes WHERE regexp_matches(manufacturer, 'BOEING|AIRBUS') GROUP BY maker ORDER BY maker""",
    ),
    (
        destinations,
        """SELECT DISTINCT carrier, dest, name FROM flights JOIN airports ON dest = faa
        WHERE lon < -115 AND tzone IS NOT NULL ORDER BY carrier, dest""",
    ),
)
