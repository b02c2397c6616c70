"""Descriptors 0 to 2, which may be closed: a shell's `<&-` does that, and so do cron jobs and daemons.

What a process opens then gets these numbers. A child that is started takes its own standard input, output and error
there and so loses what it should have inherited, and text that is printed lands in a socket or in shared memory.
"""

from __future__ import annotations

import os


def fill_standard_descriptors() -> None:
    """Open `/dev/null` in place of each of the three that is closed. Call it before anything else is opened.

    Raises:
        OSError: there is no /dev/null.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
            if null != number:  # another thread has just been faster, or has closed a lower one
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
