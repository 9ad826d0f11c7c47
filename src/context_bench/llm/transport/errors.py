"""Errors of an exchange over HTTP. `llm.failures` decides which of them are worth another attempt."""

from __future__ import annotations

import os
import ssl


class TransportError(Exception):
    """No whole reply; the text says why, in the words of the system or of the parser."""


class Unusable(TransportError):
    """A URL that cannot be called."""


class CannotConnect(TransportError):
    """No connection: nobody listens, the name is unknown, the way there is broken. Nothing was sent."""


class NotSecure(TransportError):
    """The other side could not prove who it is, or does not speak TLS. Nothing was sent."""


class NotHttp(TransportError):
    """Something came back that cannot be read as an HTTP reply."""


class Oversized(NotHttp):
    """More came back than is read; to ask again would bring as much."""


class Broken(TransportError):
    """The connection ended before the reply was whole; the request may have been worked on."""


#: A reply without a length over TLS whose connection ended and whose TLS did not.
UNENDED = (
    "the connection ended without an end of TLS (close_notify) in a reply that tells no length: it may have been cut"
)
_UNTRUSTED = (
    "nobody that this machine trusts vouches for its certificate ({said}); if the server is yours, set SSL_CERT_FILE "
    "to a file with the "
    "certificate of its authority (PEM)"
)
#: OpenSSL's number for what is wrong with a certificate → the sentence; those not here stand for themselves.
_CERTIFICATE = {
    2: _UNTRUSTED,
    9: "its certificate is not yet valid by this machine's clock ({said})",
    10: "its certificate has expired by this machine's clock ({said})",
    18: _UNTRUSTED,
    19: _UNTRUSTED,
    20: _UNTRUSTED,
    21: _UNTRUSTED,
    26: "its certificate is not made for a server ({said})",
    62: "its certificate is for another name ({said})",
    64: "its certificate is for another address ({said})",
}
_NOT_TLS = "it does not speak TLS there ({said}); if it speaks plain HTTP, give its address as http://"
_TOO_OLD = "it speaks only versions of TLS that are older than 1.2 ({said})"
_HANDSHAKE = {
    **dict.fromkeys(
        ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"),
        _NOT_TLS,
    ),
    **dict.fromkeys(("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW"), _TOO_OLD),
}


def why(error: BaseException) -> str:
    """Reason for a missing connection: a sentence for what TLS reports, else the system's words (asyncio's own repeat
    the address).

    Errors of aiohttp are opened for the one that they are about.
    """
    error = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or error) or type(error).__name__


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        return _CERTIFICATE.get(error.verify_code, "its certificate is refused ({said})").format(said=said)
    reason = str(error.reason or "")
    return _HANDSHAKE.get(reason, "TLS failed ({said})").format(
        said=reason.replace("_", " ").lower() or "no reason given"
    )
