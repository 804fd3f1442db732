"""Python's clients at the token service, and senders that show a key, unchanged.

    identity_clients.py BASE_URL USER PASSWORD CLIENT SECRET KEY OTLP_HTTP_ADDRESS OTLP_GRPC_ADDRESS

python-keycloak and authlib get, check, renew and end tokens; OpenTelemetry's SDK and the search engine's client send rows
of logs with a key. What a client reports as failed ends the script.
"""

import logging
import sys

from authlib.integrations.requests_client import OAuth2Session
from elasticsearch import AuthorizationException, Elasticsearch, helpers
from keycloak import KeycloakOpenID
from keycloak.exceptions import KeycloakAuthenticationError, KeycloakPostError
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource


def keycloak(base, user, password, agent, secret):
    people = KeycloakOpenID(server_url=base, realm_name="platform", client_id="ui")
    assert people.well_known()["issuer"] == f"{base}/realms/platform"
    assert people.certs()["keys"] and people.public_key()
    token = people.token(user, password, scope="openid")
    assert people.userinfo(token["access_token"])["preferred_username"] == user
    assert people.decode_token(token["access_token"], check_claims={"aud": "platform"})["preferred_username"] == user
    token = people.refresh_token(token["refresh_token"])
    people.logout(token["refresh_token"])
    try:
        people.refresh_token(token["refresh_token"])
        raise AssertionError("a session that ended goes on")
    except KeycloakPostError as error:
        assert error.response_code == 400, error
    try:
        people.token(user, "wrong password of somebody")
        raise AssertionError("a wrong password is taken")
    except KeycloakAuthenticationError as error:
        assert error.response_code == 401, error
    machine = KeycloakOpenID(server_url=base, realm_name="platform", client_id=agent, client_secret_key=secret)
    token = machine.token(grant_type="client_credentials")
    assert machine.introspect(token["access_token"])["active"] is True


def authlib(base, user, password, agent, secret):
    at = f"{base}/realms/platform/protocol/openid-connect"
    for method in ["client_secret_basic", "client_secret_post"]:
        machine = OAuth2Session(agent, secret, token_endpoint_auth_method=method)
        machine.fetch_token(f"{at}/token", grant_type="client_credentials")
        assert machine.get(f"{base}/platform-api/rbac/me").json()["subject"]["name"] == agent
    people = OAuth2Session("ui", token_endpoint_auth_method="none", token_endpoint=f"{at}/token")
    token = people.fetch_token(f"{at}/token", username=user, password=password, grant_type="password")
    people.refresh_token(f"{at}/token", refresh_token=token["refresh_token"])
    assert people.get(f"{at}/userinfo").json()["preferred_username"] == user
    people.revoke_token(f"{at}/revoke", token=people.token["refresh_token"])


def telemetry(name, exporter):
    provider = LoggerProvider(Resource.create({"service.name": name}), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = logging.getLogger(name)
    logger.propagate = False
    logger.addHandler(LoggingHandler(logger_provider=provider))
    logger.warning("record of %s", name)
    assert provider.force_flush()
    provider.shutdown()


def search_engine(base, key):
    """A key that may write `shop-bulk` and others, but not `bank`."""
    _, ident, secret = key.split("_", 2)
    for api_key in [(ident, secret), (ident, key)]:
        client = Elasticsearch(f"{base}/insert/searchengine", api_key=api_key)
        row = {"_op_type": "create", "_index": "logs", "_msg": "by a key", "service.name": "shop-bulk"}
        assert helpers.bulk(client, [row]) == (1, [])
        other = {**row, "service.name": "bank"}
        taken, failed = helpers.bulk(client, [row, other], raise_on_error=False)
        assert taken == 1 and [f["create"]["status"] for f in failed] == [403], (taken, failed)
        try:
            helpers.bulk(client, [other])
            raise AssertionError("rows of others are taken")
        except AuthorizationException as error:
            assert "{ingest, logs, bank}" in str(error.body), error.body


base, user, password, agent, secret, key, otlp_http, otlp_grpc = sys.argv[1:]
keycloak(base, user, password, agent, secret)
authlib(base, user, password, agent, secret)
headers = {"authorization": f"Bearer {key}"}
telemetry("shop-http", HttpExporter(endpoint=f"http://{otlp_http}/v1/logs", headers=headers))
telemetry("shop-grpc", GrpcExporter(endpoint=otlp_grpc, insecure=True, headers=headers))
search_engine(base, key)
