"""Queries 12 to 22 of TPC-H in stages of columns. `sql.py` has each in SQL."""

from __future__ import annotations

from datetime import date
from typing import Any

from shmjet import column, when
from shmjet.columns import count, max_, mean, n_unique, sum_
from shmjet.pipeline.stages import BatchStage
from tpch.tables import Tables

Stage = BatchStage[Any]

REVENUE = column("l_extendedprice") * (1 - column("l_discount"))


def q12(tables: Tables, _scale: float) -> Stage:
    """Late lines by ship mode, and whether their orders were urgent."""
    received = column("l_receiptdate")
    urgent = column("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        tables["lineitem"]
        .filter(column("l_shipmode").is_in(["MAIL", "SHIP"]))
        .filter((received >= date(1994, 1, 1)) & (received < date(1995, 1, 1)))
        .filter((column("l_commitdate") < received) & (column("l_shipdate") < column("l_commitdate")))
        .join(tables["orders"], left_on="l_orderkey", right_on="o_orderkey")
        .group_by("l_shipmode")
        .agg(high=sum_(when(urgent).then(1).otherwise(0)), low=sum_(when(urgent).then(0).otherwise(1)))
        .sort("l_shipmode")
    )


def q13(tables: Tables, _scale: float) -> Stage:
    """How many customers have how many orders."""
    orders = tables["orders"].filter(~column("o_comment").str.contains("special.*requests"))
    return (
        tables["customer"]
        .join(orders, left_on="c_custkey", right_on="o_custkey", how="left")
        .group_by("c_custkey")
        .agg(c_count=count("o_orderkey"))
        .group_by("c_count")
        .agg(custdist=count())
        .sort("custdist", "c_count", descending=True)
    )


def q14(tables: Tables, _scale: float) -> Stage:
    """The share of promoted parts in a month's revenue, in per cent."""
    day = column("l_shipdate")
    promoted = column("p_type").str.starts_with("PROMO")
    return (
        tables["lineitem"]
        .filter((day >= date(1995, 9, 1)) & (day < date(1995, 10, 1)))
        .join(tables["part"], left_on="l_partkey", right_on="p_partkey")
        .group_by()
        .agg(promoted=sum_(when(promoted).then(REVENUE).otherwise(0)), total=sum_(REVENUE))
        .select(promo_revenue=column("promoted") / column("total") * 100.0)
    )


def q15(tables: Tables, _scale: float) -> Stage:
    """The supplier who brought most in a quarter."""
    day = column("l_shipdate")
    revenue = (
        tables["lineitem"]
        .filter((day >= date(1996, 1, 1)) & (day < date(1996, 4, 1)))
        .group_by("l_suppkey")
        .agg(total_revenue=sum_(REVENUE))
    )
    most = revenue.group_by().agg(total_revenue=max_("total_revenue"))
    return (
        tables["supplier"]
        .join(revenue.join(most, on="total_revenue", how="semi"), left_on="s_suppkey", right_on="l_suppkey")
        .select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
        .sort("s_suppkey")
    )


def q16(tables: Tables, _scale: float) -> Stage:
    """How many suppliers without complaints offer each kind of part."""
    parts = (
        tables["part"]
        .filter(column("p_brand") != "Brand#45")
        .filter(~column("p_type").str.starts_with("MEDIUM POLISHED"))
        .filter(column("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9]))
    )
    complained = tables["supplier"].filter(column("s_comment").str.contains("Customer.*Complaints"))
    return (
        tables["partsupp"]
        .join(complained, left_on="ps_suppkey", right_on="s_suppkey", how="anti")
        .join(parts, left_on="ps_partkey", right_on="p_partkey")
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=n_unique("ps_suppkey"))
        .sort("supplier_cnt", "p_brand", "p_type", "p_size", descending=[True, False, False, False])
    )


def q17(tables: Tables, _scale: float) -> Stage:
    """What small orders of one kind of part bring in a year."""
    parts = tables["part"].filter((column("p_brand") == "Brand#23") & (column("p_container") == "MED BOX"))
    lines = tables["lineitem"].join(parts, left_on="l_partkey", right_on="p_partkey", how="semi")
    usual = lines.group_by("l_partkey").agg(usual=mean("l_quantity"))
    return (
        lines.join(usual, on="l_partkey")
        .filter(column("l_quantity") < column("usual") * 0.2)
        .group_by()
        .agg(total=sum_("l_extendedprice"))
        .select(avg_yearly=column("total") / 7)
    )


def q18(tables: Tables, _scale: float) -> Stage:
    """Customers with large orders."""
    large = tables["lineitem"].group_by("l_orderkey").agg(quantity=sum_("l_quantity")).filter(column("quantity") > 300)
    return (
        tables["orders"]
        .join(large, left_on="o_orderkey", right_on="l_orderkey")
        .join(tables["customer"], left_on="o_custkey", right_on="c_custkey")
        .select("c_name", "o_custkey", "o_orderkey", "o_orderdate", "o_totalprice", "quantity")
        .sort("o_totalprice", "o_orderdate", "o_orderkey", descending=[True, False, False])
    )


def q19(tables: Tables, _scale: float) -> Stage:
    """What parts of three kinds brought that came by air."""
    brand, container, quantity, size = (column(n) for n in ("p_brand", "p_container", "l_quantity", "p_size"))

    def kind(number: int, boxes: str, least: int, largest: int) -> Any:
        names = [f"{boxes} {name}" for name in ("CASE", "BOX", "PACK", "PKG", "BAG")]
        if boxes == "MED":
            names.remove("MED CASE")
        else:
            names.remove(f"{boxes} BAG")
        few = (quantity >= least) & (quantity <= least + 10)
        return (brand == f"Brand#{number}") & container.is_in(names) & few & (size <= largest)

    return (
        tables["lineitem"]
        .filter(column("l_shipmode").is_in(["AIR", "AIR REG"]))
        .filter(column("l_shipinstruct") == "DELIVER IN PERSON")
        .join(tables["part"].filter(size >= 1), left_on="l_partkey", right_on="p_partkey")
        .filter(kind(12, "SM", 1, 5) | kind(23, "MED", 10, 10) | kind(34, "LG", 20, 15))
        .group_by()
        .agg(revenue=sum_(REVENUE))
    )


def q20(tables: Tables, _scale: float) -> Stage:
    """Canadian suppliers with more of a forest part in stock than half of what they shipped in a year."""
    day = column("l_shipdate")
    shipped = (
        tables["lineitem"]
        .filter((day >= date(1994, 1, 1)) & (day < date(1995, 1, 1)))
        .group_by("l_partkey", "l_suppkey")
        .agg(shipped=sum_("l_quantity"))
    )
    forest = tables["part"].filter(column("p_name").str.starts_with("forest"))
    enough = (
        tables["partsupp"]
        .join(forest, left_on="ps_partkey", right_on="p_partkey", how="semi")
        .join(shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(column("ps_availqty") * 2 > column("shipped"))
    )
    canada = tables["nation"].filter(column("n_name") == "CANADA")
    return (
        tables["supplier"]
        .join(canada, left_on="s_nationkey", right_on="n_nationkey", how="semi")
        .join(enough, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def q21(tables: Tables, _scale: float) -> Stage:
    """Saudi suppliers who alone kept an order of several suppliers waiting."""
    is_late = column("l_receiptdate") > column("l_commitdate")
    alone = (
        tables["lineitem"]
        .group_by("l_orderkey")
        .agg(everyone=n_unique("l_suppkey"), late=n_unique(when(is_late).then(column("l_suppkey")).otherwise(None)))
        .filter((column("everyone") > 1) & (column("late") == 1))
    )
    nations = tables["nation"].filter(column("n_name") == "SAUDI ARABIA")
    suppliers = tables["supplier"].join(nations, left_on="s_nationkey", right_on="n_nationkey", how="semi")
    failed = tables["orders"].filter(column("o_orderstatus") == "F")
    return (
        tables["lineitem"]
        .filter(is_late)
        .join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .join(alone, on="l_orderkey", how="semi")
        .join(failed, left_on="l_orderkey", right_on="o_orderkey", how="semi")
        .group_by("s_name")
        .agg(numwait=count())
        .sort("numwait", "s_name", descending=[True, False])
    )


def q22(tables: Tables, _scale: float) -> Stage:
    """Customers with money and without orders, by the country code of their telephone."""
    people = (
        tables["customer"]
        .select("c_custkey", "c_acctbal", cntrycode=column("c_phone").str.slice(0, 2), world=1)
        .filter(column("cntrycode").is_in(["13", "31", "23", "29", "30", "18", "17"]))
    )
    average = people.filter(column("c_acctbal") > 0).group_by("world").agg(average=mean("c_acctbal"))
    return (
        people.join(average, on="world")
        .filter(column("c_acctbal") > column("average"))
        .join(tables["orders"], left_on="c_custkey", right_on="o_custkey", how="anti")
        .group_by("cntrycode")
        .agg(numcust=count(), totacctbal=sum_("c_acctbal"))
        .sort("cntrycode")
    )
