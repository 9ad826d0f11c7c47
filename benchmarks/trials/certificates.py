"""Certificates for servers of the trials: one authority of their own, and leaves that are wrong in one way each."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; `file` is its own certificate, which a client that trusts it is given."""

    def __init__(self, folder: Path, name: str = "trial authority") -> None:
        self.folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        own = self._signed(self._name, self._key.public_key(), authority=True, names=(), begins=-10, ends=300, use=None)
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(own.public_bytes(serialization.Encoding.PEM))

    def leaf(
        self,
        kind: str,
        *,
        names: tuple[str, ...] = ("localhost",),
        begins: int = -10,
        ends: int = 100,
        use: x509.ObjectIdentifier | None = None,
    ) -> Path:
        """A file with a certificate for `names` (`localhost`), good from `begins` to `ends` in days from now, and its
        key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        about = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
        use = use or x509.ExtendedKeyUsageOID.SERVER_AUTH
        signed = self._signed(about, key.public_key(), authority=False, names=names, begins=begins, ends=ends, use=use)
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file = self.folder / f"{kind}.pem"
        file.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))
        return file

    def _signed(
        self,
        about: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *,
        authority: bool,
        names: tuple[str, ...],
        begins: int,
        ends: int,
        use: x509.ObjectIdentifier | None,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder(
            self._name, about, key, x509.random_serial_number(), now + begins * DAY, now + ends * DAY
        )
        made = made.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        if names:
            made = made.add_extension(
                x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
            )
        if use is not None:
            made = made.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        return made.sign(self._key, hashes.SHA256())
