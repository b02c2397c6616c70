"""Files as sources and sinks: lines, records, numpy's files, packed or plain, local or remote."""
