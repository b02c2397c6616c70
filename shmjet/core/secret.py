"""The secrets of a cluster: made, read from a file that no other user may read, and handed to a member by a pipe.

They never go through a command line or into a log.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shmjet.data.errors import ConfigError

SECRET_FILE = "SHMJET_SECRET_FILE"
"""The environment variable that names a file with the secret."""
MEMBER_SECRET_FILE = "SHMJET_MEMBER_SECRET_FILE"
"""The same for the secret of members alone."""
LONGEST = 4096
"""Characters of a secret at most; a member gets two by a pipe, which holds more than these in UTF-8."""
_LENGTH = 4


def new_secret() -> str:
    """Return 256 random bits as 64 hexadecimal digits.

    Example:
        >>> len(new_secret())
        64
    """
    return os.urandom(32).hex()


def write_secret(path: str | Path) -> None:
    """Make a file with a new secret that only its owner may read.

    Raises:
        ConfigError: the file exists, or cannot be made.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot make {str(path)!r}: {error.strerror}") from error
    with os.fdopen(fd, "w") as file:
        file.write(new_secret() + "\n")


def read_secret(path: str | Path) -> bytes:
    """Return the secret in a file, without the end of its line.

    Raises:
        ConfigError: the file cannot be read, is empty or too long, or others than its owner may read or write it; the
            text never shows what is in it.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            secret = file.read(LONGEST + 1).rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"cannot read the secret from {str(path)!r}: {error.strerror}") from error
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ConfigError(
            f"the file {str(path)!r} with the secret has mode {mode:04o}: others may read it; chmod 600 {str(path)!r}"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"the file {str(path)!r} with the secret belongs to user {status.st_uid}, not to this one")
    if not secret or len(secret) > LONGEST:
        raise ConfigError(f"the file {str(path)!r} should hold a secret of 1 to {LONGEST} bytes")
    return secret


def secret_bytes(value: str | bytes) -> bytes:
    """Return the secret that a setting means: itself, or with `file:PATH` what is in that file.

    Raises:
        ConfigError: as `read_secret`.

    Example:
        >>> secret_bytes("hush")
        b'hush'
    """
    if isinstance(value, bytes):
        return value
    if value.startswith("file:"):
        return read_secret(Path(value.removeprefix("file:")).expanduser())
    return value.encode("utf-8", "surrogateescape")  # what an environment holds need not be UTF-8


def send_secrets(fd: int, secret: bytes, member_secret: bytes) -> None:
    """Write both secrets into a pipe, for `receive_secrets`, and close it."""
    with open(fd, "wb") as stream:
        stream.write(len(secret).to_bytes(_LENGTH, "little") + secret + member_secret)


def receive_secrets(fd: int) -> tuple[bytes, bytes]:
    """Return the secret and the member secret, empty where there is none, from a pipe, which is closed then."""
    with open(fd, "rb") as stream:
        data = stream.read()
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    return data[_LENGTH:end], data[end:]
