"""Stages of columns as users write them, against other engines."""
