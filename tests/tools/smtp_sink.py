"""A mail server for tests: asks for STARTTLS and a password, and writes each mail as a line of JSON to its output."""

import asyncio
import email
import email.policy
import json
import ssl
import sys

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

certificate, key, port = sys.argv[1:4]


def describe(part):
    return [part.get_content_type(), part.get_content_charset(), str(part["content-transfer-encoding"])]


class Keep:
    async def handle_DATA(self, server, session, envelope):
        mail = email.message_from_bytes(envelope.content, policy=email.policy.SMTP)
        parts = {part.get_content_type(): part.get_content() for part in mail.walk() if not part.is_multipart()}
        headers = {name.lower(): str(value) for name, value in mail.items()}
        line = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "tls": session.ssl is not None,
            "user": session.auth_data.decode() if session.auth_data else None,
            "headers": headers,
            "parts": parts,
            "structure": [describe(part) for part in mail.walk()],
        }
        print(json.dumps(line), flush=True)
        return "250 taken"


def allow(server, session, envelope, mechanism, data):
    if not isinstance(data, LoginPassword) or (data.login, data.password) != (b"mailer", b"s3cret"):
        return AuthResult(success=False, handled=False)
    return AuthResult(success=True, auth_data=data.login)


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
controller = Controller(
    Keep(),
    hostname="127.0.0.1",
    port=int(port),
    tls_context=context,
    require_starttls=True,
    authenticator=allow,
    auth_required=True,
    # Its LOGIN asks in words that Alertmanager does not take for a question.
    auth_exclude_mechanism=["LOGIN"],
)
controller.start()
asyncio.new_event_loop().run_forever()
