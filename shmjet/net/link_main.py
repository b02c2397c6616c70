"""The program of a link process: gets a socket to its member, waits for `Setup`, and is a link until that one is
gone."""

from __future__ import annotations

import gc
import logging
import signal
import socket
from pathlib import Path
from typing import NoReturn

from shmjet._native import short_slice
from shmjet.host.child_process import leave, name_process
from shmjet.host.stacks import offer_stacks
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.net.link import Link
from shmjet.net.messages import Order, Setup

_SLICE_NS = 100_000
"""The turn on a core that the link asks for: it has little to do at a time, but should do it while workers are busy."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def main(fd: int) -> NoReturn:
    """Be a link, and end the process.

    Args:
        fd: a Unix socket to the member, which is the parent of this process, and with which it ends.
    """
    short_slice(_SLICE_NS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(format=_FORMAT, level=logging.INFO)
    channel = Channel(socket.socket(fileno=fd), Order)
    try:
        setup, fds = channel.receive()
    except ChannelClosed:
        leave()
    assert isinstance(setup, Setup)
    name_process("shmjet-link", f"link of {setup.cluster}")
    if setup.folder:
        offer_stacks(Path(setup.folder))
    link = Link(channel, setup, fds)
    gc.collect()
    gc.freeze()
    gc.enable()  # off while modules were imported
    link.run()
    leave()
