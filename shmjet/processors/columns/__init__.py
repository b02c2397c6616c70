"""Processors of batches: group by, hash join, sort, map, word count."""
