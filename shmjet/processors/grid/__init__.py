"""Maps and lists of the grid as sources and sinks."""
