"""TLS for connections between members and from clients: contexts made from files, and what binds a handshake to one.

The secret is what authenticates; TLS keeps what is said from others, and with `mutual` certificates are asked for, too.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shmjet.core.errors import ConfigError
from shmjet.net.messages import TlsFiles

_FIELDS = TlsFiles.__struct_fields__
_TRUE = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def tls_files(settings: Mapping[str, Any] | None, *, listens: bool) -> TlsFiles | None:
    """Return the settings of `JetConfig.tls` or `ClientConfig.tls`, checked.

    Args:
        settings: fields of `TlsFiles`; None for no TLS.
        listens: a member, which needs a certificate.

    Raises:
        ConfigError: an unknown field, or a file that cannot be used; the text names it.

    Example:
        >>> tls_files({"authority": "ca.pem", "check_hostname": "no"}, listens=False)          # doctest: +SKIP
    """
    if settings is None:
        return None
    for name in settings:
        if name not in _FIELDS:
            raise ConfigError(f"tls: there is no setting {name!r}; fields: {', '.join(_FIELDS)}")
    values = dict(settings)
    for name in ("mutual", "check_hostname"):
        value = values.get(name)
        if isinstance(value, str):
            value = values[name] = _TRUE.get(value.lower(), value)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"tls.{name} must be true or false, got {value!r}")
    for name in ("certificate", "key", "authority"):
        if values.get(name) is not None:
            values[name] = str(values[name])
    files = TlsFiles(**values)
    if listens and files.certificate is None:
        raise ConfigError("tls.certificate is missing: a member shows one to whoever connects")
    if files.mutual and files.authority is None:
        raise ConfigError("tls.authority is missing: mutual TLS has to know whose certificates are trusted")
    (server_context if listens else client_context)(files)
    return files


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a member that listens. Raises ConfigError when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return _load(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of whoever dials. Raises ConfigError when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = files.check_hostname
    if files.authority is None:
        context.load_default_certs()
    return _load(context, files)


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    try:
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
        if files.authority is not None:
            context.load_verify_locations(files.authority)
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(str(path) for path in (files.certificate, files.key, files.authority) if path)
        raise ConfigError(f"tls: the files {named} cannot be used: {error}") from error
    return context


def own_binding(files: TlsFiles) -> bytes:
    """Return what a listener's certificate adds to the handshake."""
    assert files.certificate is not None
    text = Path(files.certificate).read_text()
    start = text.index(ssl.PEM_HEADER)
    end = text.index(ssl.PEM_FOOTER, start) + len(ssl.PEM_FOOTER)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(text[start:end])).digest()


def peer_binding(connection: ssl.SSLSocket | ssl.SSLObject) -> bytes:
    """Return what the certificate of the listener that one is connected to adds to the handshake."""
    return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").digest()
