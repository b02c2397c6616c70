"""Tests of `shmjet._native`: the C parts, through Python and by themselves."""
