"""An identity provider on the loopback: signed tokens for client credentials, by HTTPS.

    POST /token    grant_type=client_credentials, id and secret as basic authentication (RFC 6749)

A token is an RS256 JWT that names the client as its subject. Whoever has the public key, a JWKS
file, can tell that it is the provider's.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER = "https://identity.test"
AUDIENCE = "kafka"


class IdentityProvider:
    """Gives tokens for as long as a `with` lasts, to the users of a stack's `security`."""

    def __init__(self, security, lifetime_s):
        self._security = security
        self._lifetime_s = lifetime_s
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._key_id = secrets.token_hex(4)
        self.given = Counter()
        """Tokens, by client."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                status, answer = provider.answer(self.headers.get("Authorization", ""), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(security.certificates.server, security.certificates.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self):
        return f"https://127.0.0.1:{self._server.server_address[1]}/token"

    def key_set(self):
        """The public key as a JWKS document."""
        numbers = self._key.public_key().public_numbers()
        named = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id}
        return json.dumps({"keys": [{**named, "n": _number(numbers.n), "e": _number(numbers.e)}]})

    def environment(self, user):
        """What a process needs in its environment to be this user, by a token."""
        authority = str(self._security.certificates.authority)
        return {
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_SSL_CA_LOCATION": authority,
            "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
            "KAFKA_SASL_OAUTHBEARER_METHOD": "oidc",
            "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": self.url,
            "KAFKA_HTTPS_CA_LOCATION": authority,
            "KAFKA_SASL_OAUTHBEARER_CLIENT_ID": user,
            "KAFKA_SASL_OAUTHBEARER_CLIENT_SECRET_FILE": str(self._security.password_file(user)),
        }

    def answer(self, authorization, body):
        scheme, _, credentials = authorization.partition(" ")
        client, _, secret = base64.b64decode(credentials).decode().partition(":")
        client, secret = unquote(client), unquote(secret)
        if parse_qs(body).get("grant_type") != ["client_credentials"] or scheme != "Basic":
            return 400, {"error": "unsupported_grant_type"}
        if not secrets.compare_digest(secret, self._security.password(client)):
            return 401, {"error": "invalid_client", "error_description": "the secret is wrong"}
        self.given[client] += 1
        token = self._token(client)
        return 200, {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": self._lifetime_s,
        }

    def _token(self, client):
        now = int(time.time())
        header = {"alg": "RS256", "typ": "JWT", "kid": self._key_id}
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": client,
            "iat": now,
            "exp": now + self._lifetime_s,
        }
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_encoded(signature)}"


def _encoded(content):
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value):
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))
