"""The tests mirror the package: `tests/core` tests `shmjet/core`, and so on."""
