"""Numbers as people read them: counts, bytes, rates, shares, times."""

from __future__ import annotations

_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_COUNTS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))


def count_text(count: float) -> str:
    """Return a number in at most five characters or so.

    Example:
        >>> [count_text(n) for n in (0, 999, 12_345, 1_500_000)]
        ['0', '999', '12.3k', '1.5M']
    """
    return _scaled(count, _COUNTS, "")


def bytes_text(count: float) -> str:
    """Return a number of bytes.

    Example:
        >>> bytes_text(1_500_000), bytes_text(12)
        ('1.5 MB', '12 B')
    """
    return _scaled(count, _BYTES, " B", space=" ")


def bytes_rate_text(rate: float | None) -> str:
    """Return bytes per second; nothing for None.

    Example:
        >>> bytes_rate_text(1_500_000.0), bytes_rate_text(None)
        ('1.5 MB/s', '')
    """
    return "" if rate is None else f"{bytes_text(rate)}/s"


def amount_text(count: float, unit: str) -> str:
    """Return a number of items or bytes.

    Example:
        >>> amount_text(2500, "items"), amount_text(2500, "bytes")
        ('2.5k items', '2.5 kB')
    """
    return bytes_text(count) if unit == "bytes" else f"{count_text(count)} {unit}"


def share_text(share: float) -> str:
    """Return a share of 1 in per cent.

    Example:
        >>> share_text(0.123)
        '12%'
    """
    return f"{share:.0%}"


def time_text(seconds: float) -> str:
    """Return a duration.

    Example:
        >>> [time_text(s) for s in (0.25, 42, 192, 7_380)]
        ['0.2 s', '42 s', '3:12', '2:03:00']
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _scaled(count: float, units: tuple[tuple[str, float], ...], plain: str, space: str = "") -> str:
    for unit, factor in units:
        if abs(count) >= factor:
            scaled = count / factor
            digits = f"{scaled:.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}".removesuffix(".0")
            return f"{digits}{space}{unit}"
    return f"{count:.0f}{plain}"
