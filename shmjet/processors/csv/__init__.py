"""CSV as batches: its format, reader, writer, and schema inference."""
