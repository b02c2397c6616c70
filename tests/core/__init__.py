"""Tests of `shmjet.core`: pure, in one process, milliseconds each."""
