"""A cluster's key and the tokens that it signs for webhooks, as Kubernetes 1.37 does."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://kubernetes.default.svc"
URL = "https://gpugate.gpugate.svc:443"

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def rsa_key(bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return a new RSA key."""
    return rsa.generate_private_key(65537, bits)


def claims(*groups: str, path: str = "/mutate", **changes: Any) -> dict[str, Any]:
    """Return the claims of a token that attests these groups for an endpoint; changes: None removes one."""
    now = int(time.time())
    document = {
        "iss": ISSUER,
        "sub": "system:serviceaccount:kube-system:webhook-auth",
        "aud": [f"{URL}{path}"],
        "iat": now,
        "nbf": now,
        "exp": now + 600,
        "kubernetes.io": {
            "namespace": "kube-system",
            "attestations": {"admissionReviewAPIGroups": list(groups)},
            "mutatingwebhookconfiguration": {"name": "gpugate", "uid": "1"},
        },
    }
    return {name: value for name, value in (document | changes).items() if value is not None}


@dataclass
class ClusterKey:
    """A key pair with an id."""

    private: PrivateKey = field(default_factory=rsa_key)
    key_id: str = "one"
    algorithm: str = "RS256"

    def public(self) -> dict[str, Any]:
        """Return the JSON Web Key."""
        public = self.private.public_key()
        text = (
            RSAAlgorithm.to_jwk(public)
            if isinstance(public, rsa.RSAPublicKey)
            else ECAlgorithm.to_jwk(public)
        )
        document: dict[str, Any] = json.loads(text)
        return document | {"kid": self.key_id, "alg": self.algorithm, "use": "sig"}

    def token(self, document: dict[str, Any], **header: Any) -> str:
        """Return a signed token with these claims."""
        return jwt.encode(document, self.private, self.algorithm, {"kid": self.key_id} | header)
