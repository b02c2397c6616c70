"""NEXMark as Hazelcast Jet runs it: the events, queries 1 to 8, 13 and 18, and how their latency is measured.

People put things up for auction and others bid. The queries range from one function for each bid to windows and joins:

| query | what it gives |
|---|---|
| 1 | each bid with its price in another currency |
| 2 | the bids on every 128th auction |
| 3 | the auctions of category 0 whose seller lives in Oregon, California or Idaho, with the seller |
| 4 | after each auction that ends: the average winning price of its category so far |
| 5 | the ten auctions with the most bids in the last window, after each slide |
| 6 | after each auction that ends: the average of its seller's last ten winning prices |
| 7 | the highest bid of each window |
| 8 | who became known and opened auctions in the same window |
| 13 | each bid with the name of what is auctioned, from a bounded side input |
| 18 | the last bid of each bidder on each auction |

`queries` has them in Python functions, `columns` some of them on batches. `events` makes the events of a
sequence number, so any run has the same ones, also the Java program in `bench/peers/hazelcast` that runs the queries on
Hazelcast. `replay` reads a bounded number of them as fast as they are taken; `sources.item_stream` and
`sources.batch_stream` emit them by schedule.

    PYTHONPATH=examples python -m nexmark --help
"""
