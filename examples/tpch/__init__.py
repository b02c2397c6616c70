"""TPC-H: the tables, the 22 queries in SQL and in stages of columns, and a program that answers them."""
