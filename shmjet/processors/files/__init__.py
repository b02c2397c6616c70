"""Files as sources and sinks: lines, records, numpy's files, packed or not, near or far."""
