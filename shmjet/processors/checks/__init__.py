"""Processors that observe a stream: assertions for tests, and logging of items."""
