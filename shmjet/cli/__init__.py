"""Floor 8: the command line, `shmjet`.

It may use everything below through the public surface of `shmjet`; nothing below knows it. Its own rule is that a
command imports what it needs when it runs, so that `shmjet --version` and `shmjet --help` answer at once.
"""
