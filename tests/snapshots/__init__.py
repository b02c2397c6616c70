"""Tests of `shmjet.snapshots`: manifests, chunk files."""
