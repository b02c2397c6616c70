"""Tests of what the benches share; the benches themselves are run by `make bench`."""
