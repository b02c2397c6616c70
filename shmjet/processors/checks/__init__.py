"""Processors that look at a stream: assertions for tests, logging of what passes."""
