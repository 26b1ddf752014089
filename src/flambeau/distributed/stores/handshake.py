"""How the two ends of a connection show each other that they know the secret, without sending it.

    server  HELLO    which protocol, a nonce
    client  PROOF    its own nonce, HMAC(secret, "client", both nonces)
    server  WELCOME  HMAC(secret, "server", both nonces)                  or REFUSED, and the connection ends

The nonces are new for every connection, so what was overheard once is of no use again; and the two ends prove it in different words, so nobody
can answer a question by asking it back.
"""

from __future__ import annotations

import hmac
import secrets

PROTOCOL = b"flambeau store 1"
SECONDS = 5.0  # for a stranger to prove what it knows
NONCE = 32


def nonce() -> bytes:
    """Bytes that were never used before."""
    return secrets.token_bytes(NONCE)


def proof(secret: bytes, side: bytes, of_server: bytes, of_client: bytes) -> bytes:
    """What only somebody who knows the secret can say about these nonces."""
    return hmac.digest(secret, side + of_server + of_client, "sha256")


def proves(claimed: bytes, secret: bytes, side: bytes, of_server: bytes, of_client: bytes) -> bool:
    """Whether a proof is right. Takes the same time however much of it is."""
    return len(of_server) == len(of_client) == NONCE and hmac.compare_digest(claimed, proof(secret, side, of_server, of_client))
