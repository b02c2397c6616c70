"""The checked settings of TLS, from `JetConfig.tls` and `ClientConfig.tls`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from shmjet.data.errors import ConfigError

_KINDS = {"certificate": str, "key": str, "authority": str, "mutual": bool, "check_hostname": bool}
_SHORT = {"cert": "certificate", "ca": "authority"}
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def tls_settings(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the settings with their full names, fit for `shmjet.net.messages.TlsFiles`; None for no TLS.

    Args:
        given: `certificate` (or `cert`), `key` and `authority` (or `ca`), paths of PEM files; `mutual` and
            `check_hostname`, which may be words (`true`, `off`), as they come from the environment.

    Raises:
        ConfigError: an unknown name, or a wrong value; the text names it.

    Example:
        >>> tls_settings({"cert": "m.pem", "mutual": "off"})
        {'certificate': 'm.pem', 'mutual': False}
    """
    if given is None:
        return None
    checked: dict[str, Any] = {}
    for short, value in given.items():
        name = _SHORT.get(short, short)
        if name not in _KINDS:
            raise ConfigError(f"JetConfig.tls has no setting {short!r}; settings: {', '.join(_KINDS)}")
        if _KINDS[name] is bool and isinstance(value, str) and value.lower() in _WORDS:
            value = _WORDS[value.lower()]
        elif isinstance(value, os.PathLike):
            value = os.fspath(value)
        if not isinstance(value, _KINDS[name]):
            raise ConfigError(f"JetConfig.tls: {name} must be of type {_KINDS[name].__name__}, got {value!r}")
        checked[name] = value
    if checked.get("mutual") and "authority" not in checked:
        raise ConfigError("JetConfig.tls: mutual needs an authority, whose certificates are accepted")
    return checked
