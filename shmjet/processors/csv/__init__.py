"""CSV as batches: its format, reading and writing, and guessing a schema."""
