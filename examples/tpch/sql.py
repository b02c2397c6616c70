"""What the 22 queries ask, in SQL, with the parameters of TPC-H's validation run.

Where the order of the benchmark leaves ties, further columns decide, so that there is one right answer.
`{fraction}` in query 11 is 0.0001 / scale.
"""

from __future__ import annotations

SQL: dict[int, str] = {
    1: """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
               avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
               count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02'
        GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
    2: """
        WITH offers AS (
            SELECT * FROM partsupp
            JOIN supplier ON s_suppkey = ps_suppkey
            JOIN nation ON n_nationkey = s_nationkey
            JOIN region ON r_regionkey = n_regionkey AND r_name = 'EUROPE'),
        cheapest AS (SELECT ps_partkey AS partkey, min(ps_supplycost) AS cost FROM offers GROUP BY ps_partkey)
        SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        FROM part JOIN offers ON ps_partkey = p_partkey
        JOIN cheapest ON partkey = p_partkey AND cost = ps_supplycost
        WHERE p_size = 15 AND p_type LIKE '%BRASS'
        ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100""",
    3: """
        SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
        WHERE c_mktsegment = 'BUILDING' AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 10""",
    4: """
        SELECT o_orderpriority, count(*) AS order_count FROM orders
        WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-10-01'
          AND EXISTS (SELECT 1 FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
        GROUP BY o_orderpriority ORDER BY o_orderpriority""",
    5: """
        SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
        JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
        JOIN nation ON n_nationkey = s_nationkey JOIN region ON r_regionkey = n_regionkey
        WHERE r_name = 'ASIA' AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
        GROUP BY n_name ORDER BY revenue DESC, n_name""",
    6: """
        SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
          AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
    7: """
        SELECT s.n_name AS supp_nation, c.n_name AS cust_nation, CAST(year(l_shipdate) AS BIGINT) AS l_year,
               sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM lineitem JOIN orders ON o_orderkey = l_orderkey JOIN customer ON c_custkey = o_custkey
        JOIN supplier ON s_suppkey = l_suppkey
        JOIN nation s ON s.n_nationkey = s_nationkey JOIN nation c ON c.n_nationkey = c_nationkey
        WHERE l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
          AND ((s.n_name = 'FRANCE' AND c.n_name = 'GERMANY') OR (s.n_name = 'GERMANY' AND c.n_name = 'FRANCE'))
        GROUP BY ALL ORDER BY supp_nation, cust_nation, l_year""",
    8: """
        SELECT CAST(year(o_orderdate) AS BIGINT) AS o_year,
               sum(CASE WHEN s.n_name = 'BRAZIL' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
                   / sum(l_extendedprice * (1 - l_discount)) AS mkt_share
        FROM lineitem JOIN part ON p_partkey = l_partkey JOIN orders ON o_orderkey = l_orderkey
        JOIN customer ON c_custkey = o_custkey JOIN nation c ON c.n_nationkey = c_nationkey
        JOIN region ON r_regionkey = c.n_regionkey
        JOIN supplier ON s_suppkey = l_suppkey JOIN nation s ON s.n_nationkey = s_nationkey
        WHERE r_name = 'AMERICA' AND p_type = 'ECONOMY ANODIZED STEEL'
          AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
        GROUP BY o_year ORDER BY o_year""",
    9: """
        SELECT n_name AS nation, CAST(year(o_orderdate) AS BIGINT) AS o_year,
               sum(l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity) AS sum_profit
        FROM lineitem JOIN part ON p_partkey = l_partkey AND p_name LIKE '%green%'
        JOIN partsupp ON ps_partkey = l_partkey AND ps_suppkey = l_suppkey
        JOIN orders ON o_orderkey = l_orderkey
        JOIN supplier ON s_suppkey = l_suppkey JOIN nation ON n_nationkey = s_nationkey
        GROUP BY ALL ORDER BY nation, o_year DESC""",
    10: """
        SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address,
               c_phone, c_comment
        FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN nation ON n_nationkey = c_nationkey
        WHERE o_orderdate >= DATE '1993-10-01' AND o_orderdate < DATE '1994-01-01' AND l_returnflag = 'R'
        GROUP BY ALL ORDER BY revenue DESC, c_custkey LIMIT 20""",
    11: """
        WITH stock AS (
            SELECT ps_partkey, ps_supplycost * ps_availqty AS cost FROM partsupp
            JOIN supplier ON s_suppkey = ps_suppkey JOIN nation ON n_nationkey = s_nationkey
            WHERE n_name = 'GERMANY')
        SELECT ps_partkey, sum(cost) AS value FROM stock GROUP BY ps_partkey
        HAVING sum(cost) > (SELECT sum(cost) * {fraction} FROM stock) ORDER BY value DESC, ps_partkey""",
    12: """
        SELECT l_shipmode,
               CAST(sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 1 ELSE 0 END) AS BIGINT) AS high,
               CAST(sum(CASE WHEN o_orderpriority IN ('1-URGENT', '2-HIGH') THEN 0 ELSE 1 END) AS BIGINT) AS low
        FROM lineitem JOIN orders ON o_orderkey = l_orderkey
        WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
          AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1995-01-01'
        GROUP BY l_shipmode ORDER BY l_shipmode""",
    13: """
        SELECT c_count, count(*) AS custdist FROM (
            SELECT c_custkey, count(o_orderkey) AS c_count
            FROM customer LEFT JOIN orders ON o_custkey = c_custkey AND o_comment NOT LIKE '%special%requests%'
            GROUP BY c_custkey)
        GROUP BY c_count ORDER BY custdist DESC, c_count DESC""",
    14: """
        SELECT 100.0 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
               / sum(l_extendedprice * (1 - l_discount)) AS promo_revenue
        FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'""",
    15: """
        WITH revenue AS (
            SELECT l_suppkey, sum(l_extendedprice * (1 - l_discount)) AS total_revenue FROM lineitem
            WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-04-01' GROUP BY l_suppkey)
        SELECT s_suppkey, s_name, s_address, s_phone, total_revenue
        FROM supplier JOIN revenue ON l_suppkey = s_suppkey
        WHERE total_revenue = (SELECT max(total_revenue) FROM revenue) ORDER BY s_suppkey""",
    16: """
        SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS supplier_cnt
        FROM partsupp JOIN part ON p_partkey = ps_partkey
        WHERE p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%' AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
          AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
        GROUP BY p_brand, p_type, p_size ORDER BY supplier_cnt DESC, p_brand, p_type, p_size""",
    17: """
        WITH lines AS (
            SELECT l_partkey, l_quantity, l_extendedprice FROM lineitem JOIN part ON p_partkey = l_partkey
            WHERE p_brand = 'Brand#23' AND p_container = 'MED BOX'),
        usual AS (SELECT l_partkey AS partkey, 0.2 * avg(l_quantity) AS least FROM lines GROUP BY l_partkey)
        SELECT sum(l_extendedprice) / 7.0 AS avg_yearly FROM lines JOIN usual ON partkey = l_partkey
        WHERE l_quantity < least""",
    18: """
        WITH large AS (SELECT l_orderkey AS orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
        SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM large JOIN orders ON o_orderkey = orderkey JOIN lineitem ON l_orderkey = o_orderkey
        JOIN customer ON c_custkey = o_custkey
        GROUP BY ALL ORDER BY o_totalprice DESC, o_orderdate, o_orderkey LIMIT 100""",
    19: """
        SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem JOIN part ON p_partkey = l_partkey
        WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND p_size >= 1
          AND ((p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                AND l_quantity BETWEEN 1 AND 11 AND p_size <= 5)
            OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                AND l_quantity BETWEEN 10 AND 20 AND p_size <= 10)
            OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                AND l_quantity BETWEEN 20 AND 30 AND p_size <= 15))""",
    20: """
        WITH shipped AS (
            SELECT l_partkey, l_suppkey, 0.5 * sum(l_quantity) AS half FROM lineitem
            WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' GROUP BY l_partkey, l_suppkey)
        SELECT s_name, s_address FROM supplier JOIN nation ON n_nationkey = s_nationkey
        WHERE n_name = 'CANADA' AND s_suppkey IN (
            SELECT ps_suppkey FROM partsupp
            JOIN part ON p_partkey = ps_partkey AND p_name LIKE 'forest%'
            JOIN shipped ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey WHERE ps_availqty > half)
        ORDER BY s_name""",
    21: """
        WITH suppliers AS (
            SELECT l_orderkey AS orderkey, count(DISTINCT l_suppkey) AS everyone,
                   count(DISTINCT CASE WHEN l_receiptdate > l_commitdate THEN l_suppkey END) AS late
            FROM lineitem GROUP BY l_orderkey)
        SELECT s_name, count(*) AS numwait
        FROM lineitem JOIN orders ON o_orderkey = l_orderkey AND o_orderstatus = 'F'
        JOIN suppliers ON orderkey = l_orderkey AND everyone > 1 AND late = 1
        JOIN supplier ON s_suppkey = l_suppkey
        JOIN nation ON n_nationkey = s_nationkey AND n_name = 'SAUDI ARABIA'
        WHERE l_receiptdate > l_commitdate
        GROUP BY s_name ORDER BY numwait DESC, s_name LIMIT 100""",
    22: """
        WITH people AS (
            SELECT substring(c_phone, 1, 2) AS cntrycode, c_custkey, c_acctbal FROM customer
            WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
        SELECT cntrycode, count(*) AS numcust, sum(c_acctbal) AS totacctbal FROM people
        WHERE c_acctbal > (SELECT avg(c_acctbal) FROM people WHERE c_acctbal > 0)
          AND NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)
        GROUP BY cntrycode ORDER BY cntrycode""",
}
