"""Processors of event time: watermarks, windows, states that end, joins of streams."""
