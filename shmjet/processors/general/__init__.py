"""Processors of items: transformations, aggregation, joins, sorting, services, and the bases of all processors."""
