"""TLS for connections between members and from clients: contexts made from files, and what binds a handshake to one.

The secret is what authenticates; TLS keeps what is said from others, and with `mutual` certificates are asked for, too.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

from shmjet.data.errors import ConfigError
from shmjet.net.messages import TlsFiles


def check_files(files: TlsFiles, *, listens: bool) -> None:
    """Look at the files before they are needed.

    Args:
        files: settings.
        listens: a member, which shows a certificate to every connection.

    Raises:
        ConfigError: there is no certificate, or a file cannot be used; the text names it.

    Example:
        >>> check_files(TlsFiles(authority="ca.pem"), listens=False)          # doctest: +SKIP
    """
    if listens and files.certificate is None:
        raise ConfigError("JetConfig.tls: certificate is missing: a member shows one to every connection")
    (server_context if listens else client_context)(files)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a member that listens. Raises ConfigError when a file cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.mutual:
        context.verify_mode = ssl.CERT_REQUIRED
    return _load(context, files)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of the dialer. Raises ConfigError when a file cannot be used."""
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


def tls_trouble(error: ssl.SSLError) -> str:
    """Return what went wrong in a handshake of TLS, in the words of an error message.

    Example:
        >>> there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
        >>> _ = there.write(b"a line of text")
        >>> try:
        ...     ssl.create_default_context().wrap_bio(there, here, server_hostname="a").do_handshake()
        ... except ssl.SSLError as error:
        ...     tls_trouble(error)
        'TLS: the other end does not speak TLS (WRONG_VERSION_NUMBER); give all members and clients the same tls'
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the other end's certificate is refused: {error.verify_message}"
    if error.reason == "WRONG_VERSION_NUMBER":
        return f"TLS: the other end does not speak TLS ({error.reason}); give all members and clients the same tls"
    return f"TLS: {error.reason or error}"
