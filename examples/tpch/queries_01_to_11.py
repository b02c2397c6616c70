"""Queries 1 to 11 of TPC-H in stages of columns. `sql.py` has each in SQL."""

from __future__ import annotations

from datetime import date
from typing import Any

from shmjet import column, when
from shmjet.columns import count, mean, min_, sum_
from shmjet.pipeline.stages import BatchStage
from tpch.tables import Tables

Stage = BatchStage[Any]

REVENUE = column("l_extendedprice") * (1 - column("l_discount"))


def q1(tables: Tables, _scale: float) -> Stage:
    """Pricing summary: amounts by state of the lines."""
    return (
        tables["lineitem"]
        .filter(column("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=sum_("l_quantity"),
            sum_base_price=sum_("l_extendedprice"),
            sum_disc_price=sum_(REVENUE),
            sum_charge=sum_(REVENUE * (1 + column("l_tax"))),
            avg_qty=mean("l_quantity"),
            avg_price=mean("l_extendedprice"),
            avg_disc=mean("l_discount"),
            count_order=count(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def q2(tables: Tables, _scale: float) -> Stage:
    """Which European supplier offers each large brass part for least."""
    europe = tables["region"].filter(column("r_name") == "EUROPE")
    suppliers = (
        tables["supplier"]
        .join(tables["nation"], left_on="s_nationkey", right_on="n_nationkey")
        .join(europe, left_on="n_regionkey", right_on="r_regionkey", how="semi")
    )
    parts = tables["part"].filter((column("p_size") == 15) & column("p_type").str.ends_with("BRASS"))
    offers = parts.join(tables["partsupp"], left_on="p_partkey", right_on="ps_partkey").join(
        suppliers, left_on="ps_suppkey", right_on="s_suppkey"
    )
    cheapest = offers.group_by("p_partkey").agg(ps_supplycost=min_("ps_supplycost"))
    return (
        offers.join(cheapest, on=["p_partkey", "ps_supplycost"], how="semi")
        .select("s_acctbal", "s_name", "n_name", "p_partkey", "p_mfgr", "s_address", "s_phone", "s_comment")
        .sort("s_acctbal", "n_name", "s_name", "p_partkey", descending=[True, False, False, False])
    )


def q3(tables: Tables, _scale: float) -> Stage:
    """Shipping priority: the unshipped orders of a market segment that bring most."""
    day = date(1995, 3, 15)
    customers = tables["customer"].filter(column("c_mktsegment") == "BUILDING")
    orders = (
        tables["orders"]
        .filter(column("o_orderdate") < day)
        .join(customers, left_on="o_custkey", right_on="c_custkey", how="semi")
    )
    return (
        tables["lineitem"]
        .filter(column("l_shipdate") > day)
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .group_by("l_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=sum_(REVENUE))
        .select("l_orderkey", "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", "l_orderkey", descending=[True, False, False])
    )


def q4(tables: Tables, _scale: float) -> Stage:
    """Orders of a quarter with a line that came late, by priority."""
    day = column("o_orderdate")
    late = tables["lineitem"].filter(column("l_commitdate") < column("l_receiptdate"))
    return (
        tables["orders"]
        .filter((day >= date(1993, 7, 1)) & (day < date(1993, 10, 1)))
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=count())
        .sort("o_orderpriority")
    )


def q5(tables: Tables, _scale: float) -> Stage:
    """Revenue by Asian nation where customer and supplier are of the same one."""
    day = column("o_orderdate")
    asia = tables["region"].filter(column("r_name") == "ASIA")
    nations = tables["nation"].join(asia, left_on="n_regionkey", right_on="r_regionkey", how="semi")
    suppliers = tables["supplier"].join(nations, left_on="s_nationkey", right_on="n_nationkey")
    orders = (
        tables["orders"]
        .filter((day >= date(1994, 1, 1)) & (day < date(1995, 1, 1)))
        .join(tables["customer"], left_on="o_custkey", right_on="c_custkey")
    )
    return (
        tables["lineitem"]
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(suppliers, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        .group_by("n_name")
        .agg(revenue=sum_(REVENUE))
        .sort("revenue", "n_name", descending=[True, False])
    )


def q6(tables: Tables, _scale: float) -> Stage:
    """What small discounts of a year cost."""
    day, discount = column("l_shipdate"), column("l_discount")
    this_year = (day >= date(1994, 1, 1)) & (day < date(1995, 1, 1))
    return (
        tables["lineitem"]
        .filter(this_year & (discount >= tables.money("0.05")) & (discount <= tables.money("0.07")))
        .filter(column("l_quantity") < 24)
        .group_by()
        .agg(revenue=sum_(column("l_extendedprice") * discount))
    )


def q7(tables: Tables, _scale: float) -> Stage:
    """What was shipped between France and Germany, by year."""
    pair = tables["nation"].filter(column("n_name").is_in(["FRANCE", "GERMANY"]))
    suppliers = tables["supplier"].join(
        pair.select("n_nationkey", supp_nation=column("n_name")), left_on="s_nationkey", right_on="n_nationkey"
    )
    customers = tables["customer"].join(
        pair.select("n_nationkey", cust_nation=column("n_name")), left_on="c_nationkey", right_on="n_nationkey"
    )
    orders = tables["orders"].join(customers, left_on="o_custkey", right_on="c_custkey")
    day = column("l_shipdate")
    return (
        tables["lineitem"]
        .filter((day >= date(1995, 1, 1)) & (day <= date(1996, 12, 31)))
        .join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .filter(column("supp_nation") != column("cust_nation"))
        .with_columns(l_year=day.dt.year())
        .group_by("supp_nation", "cust_nation", "l_year")
        .agg(revenue=sum_(REVENUE))
        .sort("supp_nation", "cust_nation", "l_year")
    )


def q8(tables: Tables, _scale: float) -> Stage:
    """Brazil's share of the American market for a kind of steel, by year."""
    america = tables["region"].filter(column("r_name") == "AMERICA")
    nations = tables["nation"].join(america, left_on="n_regionkey", right_on="r_regionkey", how="semi")
    customers = tables["customer"].join(nations, left_on="c_nationkey", right_on="n_nationkey", how="semi")
    suppliers = tables["supplier"].join(tables["nation"], left_on="s_nationkey", right_on="n_nationkey")
    steel = tables["part"].filter(column("p_type") == "ECONOMY ANODIZED STEEL")
    day = column("o_orderdate")
    orders = (
        tables["orders"]
        .filter((day >= date(1995, 1, 1)) & (day <= date(1996, 12, 31)))
        .join(customers, left_on="o_custkey", right_on="c_custkey", how="semi")
    )
    return (
        tables["lineitem"]
        .join(steel, left_on="l_partkey", right_on="p_partkey", how="semi")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .with_columns(o_year=day.dt.year(), volume=REVENUE)
        .group_by("o_year")
        .agg(
            brazil=sum_(when(column("n_name") == "BRAZIL").then(column("volume")).otherwise(0)),
            everyone=sum_("volume"),
        )
        .select("o_year", mkt_share=column("brazil") / column("everyone"))
        .sort("o_year")
    )


def q9(tables: Tables, _scale: float) -> Stage:
    """Profit on green parts, by nation and year."""
    green = tables["part"].filter(column("p_name").str.contains("green", literal=True))
    suppliers = tables["supplier"].join(tables["nation"], left_on="s_nationkey", right_on="n_nationkey")
    return (
        tables["lineitem"]
        .join(green, left_on="l_partkey", right_on="p_partkey", how="semi")
        .join(tables["partsupp"], left_on=["l_partkey", "l_suppkey"], right_on=["ps_partkey", "ps_suppkey"])
        .join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .join(tables["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .select(
            nation=column("n_name"),
            o_year=column("o_orderdate").dt.year(),
            profit=REVENUE - column("ps_supplycost") * column("l_quantity"),
        )
        .group_by("nation", "o_year")
        .agg(sum_profit=sum_("profit"))
        .sort("nation", "o_year", descending=[False, True])
    )


def q10(tables: Tables, _scale: float) -> Stage:
    """The customers who sent back most in a quarter."""
    day = column("o_orderdate")
    orders = tables["orders"].filter((day >= date(1993, 10, 1)) & (day < date(1994, 1, 1)))
    lost = (
        tables["lineitem"]
        .filter(column("l_returnflag") == "R")
        .join(orders, left_on="l_orderkey", right_on="o_orderkey")
        .group_by("o_custkey")
        .agg(revenue=sum_(REVENUE))
    )
    return (
        tables["customer"]
        .join(lost, left_on="c_custkey", right_on="o_custkey")
        .join(tables["nation"], left_on="c_nationkey", right_on="n_nationkey")
        .select("c_custkey", "c_name", "revenue", "c_acctbal", "n_name", "c_address", "c_phone", "c_comment")
        .sort("revenue", "c_custkey", descending=[True, False])
    )


def q11(tables: Tables, scale: float) -> Stage:
    """The parts that make up most of the value in German stocks."""
    germany = tables["nation"].filter(column("n_name") == "GERMANY")
    suppliers = tables["supplier"].join(germany, left_on="s_nationkey", right_on="n_nationkey", how="semi")
    stock = (
        tables["partsupp"]
        .join(suppliers, left_on="ps_suppkey", right_on="s_suppkey", how="semi")
        .group_by("ps_partkey")
        .agg(value=sum_(column("ps_supplycost") * column("ps_availqty")))
        .with_columns(germany=1)
    )
    total = stock.group_by("germany").agg(total=sum_("value"))
    return (
        stock.join(total, on="germany")
        .filter(column("value") / column("total") > 0.0001 / scale)
        .select("ps_partkey", "value")
        .sort("value", "ps_partkey", descending=[True, False])
    )
