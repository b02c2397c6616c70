"""Tests of `shmjet.ring`: arenas, lanes, frames, pickling."""
