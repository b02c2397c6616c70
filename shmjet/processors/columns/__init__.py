"""Processors of batches: group by, hash join, sort, map, counting words."""
