"""Tests of `shmjet.processors`."""
