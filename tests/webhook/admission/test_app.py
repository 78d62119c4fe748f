"""The endpoints over real TLS: status, content, and that the server survives any input."""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from rules.model.rule import RuleSet
from rules.schema.config_map import Loaded
from tests.support.builders import loaded, resource_rule
from tests.support.cluster_tokens import ISSUER, URL, ClusterKey, claims
from tests.support.paths import TESTS
from tests.support.serving import HOST, PATIENCE, ask, client, serving
from tests.support.webhooks import body, builtin_handler, pod
from webhook.admission.app import create_app, create_server_application
from webhook.admission.handler import AdmissionHandler
from webhook.admission.tokens import TokenVerifier, keys_of
from webhook.server.server import Server
from webhook.server.wsgi import wsgi_application


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve the built-in rules."""
    with serving(create_server_application(builtin_handler())) as server:
        yield server


BAD = {
    "an empty body": (b"", 400),
    "not JSON": (b"hello", 400),
    "a review without uid": (body(pod()).replace(b'"uid"', b'"uidd"'), 400),
    "deep nesting": (b"[" * 100_000, 400),
    "an object nested deep": (
        body({"kind": "Pod", "spec": {}}).replace(b'"spec": {}', b'"spec":' + b'{"a":' * 50_000),
        400,
    ),
    "a body over the limit": (b" " * (8 * 2**20), 413),
    "a quantity 1x": (body(pod({"nvidia.com/gpu": "1x"})), 200),
}


@pytest.mark.parametrize("what", list(BAD))
def test_bad_input_gets_one_message_and_the_server_survives(server: Server, what: str) -> None:
    """The right status and a reason; the next request is answered."""
    content, expected = BAD[what]
    status, answer = ask(server.port, "/mutate", content)
    after, _ = ask(server.port, "/mutate", body(pod()))

    assert (expected, 200) == (status, after)
    assert answer
    assert b"Traceback" not in answer


def test_an_invalid_quantity_is_a_violation(server: Server) -> None:
    """The pod is wrong, not the request."""
    _, answer = ask(server.port, "/mutate", body(pod({"nvidia.com/gpu": "1x"})))
    response = json.loads(answer)["response"]

    assert (False, 403) == (response["allowed"], response["status"]["code"])
    assert "found 1x, expected a quantity" in response["status"]["message"]


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/healthz", None, 200),
        ("/readyz", None, 200),
        ("/mutate", None, 405),
        ("/nowhere", None, 404),
        ("/metrics", b"", 405),
    ],
)
def test_each_path_answers_its_method_only(
    server: Server, path: str, content: bytes | None, status: int
) -> None:
    """Other methods and paths get an error."""
    assert status == ask(server.port, path, content)[0]


def test_metrics_count_requests_by_bounded_labels(server: Server) -> None:
    """No pod, image or namespace names; an unknown kind is `other`."""
    ask(server.port, "/mutate", body(pod({"tencent.com/vcuda-core": "150"})))
    ask(server.port, "/validate", body({"apiVersion": "example.com/v1", "kind": "Strange", "metadata": {}}))
    text = ask(server.port, "/metrics")[1].decode()

    assert (
        'gpugate_admission_requests_total{allowed="false",endpoint="mutate",enforcement_action="deny",'
        'kind="Pod",operation="CREATE"}' in text
    )
    assert 'kind="other"' in text
    violations = 'gpugate_rule_violations_total{action="deny",basis="policy",endpoint="mutate",rule='
    assert f'{violations}"cf-crl-gpu-manager-vcuda-core",rule_action="deny"}}' in text
    assert 'le="5.0"' in text
    assert "Strange" not in text


def test_the_response_to_a_large_body_names_the_limit(server: Server) -> None:
    """In bytes."""
    assert (413, b"Request Entity Too Large: at most 7340032 bytes\n") == ask(
        server.port, "/mutate", BAD["a body over the limit"][0]
    )


def test_readiness_names_what_it_waits_for_while_health_stays_200() -> None:
    """A server that waits or drains is alive."""
    handler, awaited = AdmissionHandler(Loaded()), ["nodes", "certificate"]
    handler.mark_not_ready()
    with serving(create_server_application(handler, lambda: awaited)) as server:
        waiting = ask(server.port, "/readyz")
        handler.mark_ready()
        synced = ask(server.port, "/readyz")
        awaited.clear()
        ready = ask(server.port, "/readyz")
        handler.ready = False
        draining = ask(server.port, "/readyz")
        health = ask(server.port, "/healthz")

    assert (503, b"not ready: waiting for nodes, certificate\n") == waiting == synced
    assert (200, b"ok\n") == ready == health
    assert (503, b"not ready: draining\n") == draining


def test_a_review_before_rules_and_nodes_are_known_gets_503() -> None:
    """The API server tries again; in the end failurePolicy decides."""
    handler = AdmissionHandler(Loaded())
    handler.mark_not_ready()
    with serving(create_server_application(handler)) as server, client(server.port) as connection:
        connection.request("POST", "/mutate", body(pod()))
        response = connection.getresponse()
        answer = response.read()

    assert (503, "1") == (response.status, response.headers["Retry-After"])
    assert b'{"message":"gpugate does not know the rules and nodes of its cluster yet"}' == answer


def test_a_review_without_a_required_client_certificate_gets_401() -> None:
    """Probes need no certificate."""
    with serving(
        create_server_application(AdmissionHandler(Loaded()), require_client_certificate=True)
    ) as server:
        assert (401, 200) == (ask(server.port, "/mutate", body(pod()))[0], ask(server.port, "/healthz")[0])


def with_tokens() -> tuple[TokenVerifier, str]:
    """Return a verifier, and a token that it accepts at /mutate."""
    tokens, key = TokenVerifier([URL]), ClusterKey()
    tokens.replace(ISSUER, keys_of({"keys": [key.public()]}))
    return tokens, key.token(claims("*"))


@pytest.mark.parametrize("has_flask", [True, False])
def test_a_review_without_a_valid_token_gets_401_and_one_with_it_an_answer(*, has_flask: bool) -> None:
    """For the endpoint of its audience only. Probes and metrics need no token; metrics count rejections."""
    tokens, token = with_tokens()
    handler = AdmissionHandler(Loaded())
    app = (
        wsgi_application(create_app(handler, tokens=tokens))
        if has_flask
        else create_server_application(handler, tokens=tokens)
    )
    with serving(app) as server, client(server.port) as connection:
        statuses = []
        for path, value in (
            ("/mutate", f"Bearer {token}"),
            ("/mutate", f"bearer {token}"),
            ("/mutate", None),
            ("/mutate", f"Bearer {token}x"),
            ("/validate", f"Bearer {token}"),
        ):
            connection.request("POST", path, body(pod()), {"Authorization": value} if value else {})
            response = connection.getresponse()
            response.read()
            statuses.append((response.status, response.headers["WWW-Authenticate"]))
        text = ask(server.port, "/metrics")[1].decode()
        health = ask(server.port, "/healthz")[0]

    assert [(200, None)] * 2 + [(401, "Bearer")] * 3 == statuses
    assert 200 == health
    assert all(
        f'gpugate_unauthenticated_reviews_total{{reason="{reason}"}}' in text
        for reason in ("missing", "invalid", "audience")
    )


def test_if_both_are_required_a_token_does_not_replace_the_client_certificate() -> None:
    """Each option is a requirement."""
    tokens, token = with_tokens()
    app = create_server_application(
        AdmissionHandler(Loaded()), require_client_certificate=True, tokens=tokens
    )
    with serving(app) as server, client(server.port) as connection:
        connection.request("POST", "/mutate", body(pod()), {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()

        assert (401, b"--client-ca" in response.read()) == (response.status, True)


class _Quiet(WSGIRequestHandler):
    """Writes no line for each request."""

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@contextmanager
def hosted(handler: AdmissionHandler, *, needs_certificate: bool = False) -> Iterator[int]:
    """Yield the port of wsgiref's server, which hosts the Flask application of a handler."""
    app = create_app(handler, require_client_certificate=needs_certificate)
    with make_server(HOST, 0, app, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def post(port: int, path: str, content: bytes) -> tuple[int, str | None, str | None, bytes]:
    """Post to wsgiref's server; return status, two headers and body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
    try:
        return _posted(connection, path, content)
    finally:
        connection.close()


def _posted(
    connection: http.client.HTTPConnection, path: str, content: bytes
) -> tuple[int, str | None, str | None, bytes]:
    connection.request("POST", path, content)
    response = connection.getresponse()
    headers = response.headers
    return response.status, headers["Content-Type"], headers["Retry-After"], response.read()


def test_another_wsgi_server_answers_the_recorded_reviews_with_the_same_bytes() -> None:
    """And bodies that are no review."""
    bodies = [path.read_bytes() for path in sorted((TESTS / "reviews").glob("*/request.json"))]
    bodies += [content for content, status in BAD.values() if status != 413]
    with (
        hosted(builtin_handler()) as other,
        serving(create_server_application(builtin_handler())) as server,
        client(server.port) as connection,
    ):
        for content in bodies:
            for path in ("/mutate", "/validate"):
                assert post(other, path, content) == _posted(connection, path, content)


@pytest.mark.parametrize("is_synced", [True, False])
def test_another_wsgi_server_refuses_reviews_with_the_same_bytes(*, is_synced: bool) -> None:
    """Without a client certificate, and before rules and nodes are known."""
    handler = AdmissionHandler(Loaded())
    if not is_synced:
        handler.mark_not_ready()
    with (
        hosted(handler, needs_certificate=is_synced) as other,
        serving(create_server_application(handler, require_client_certificate=is_synced)) as server,
        client(server.port) as connection,
    ):
        answers = [post(other, "/mutate", body(pod())), _posted(connection, "/mutate", body(pod()))]

    assert answers[0] == answers[1]
    assert (401 if is_synced else 503) == answers[0][0]


@pytest.mark.parametrize(("verify", "status"), [("SUCCESS", 200), ("NONE", 401)])
def test_a_wsgi_server_says_whether_the_client_has_a_certificate(verify: str, status: int) -> None:
    """As mod_ssl does; a header of the client with that name says nothing."""
    app = create_app(AdmissionHandler(Loaded()), require_client_certificate=True)
    answer = app.test_client().post(
        "/mutate",
        data=body(pod()),
        headers={"Ssl-Client-Verify": "SUCCESS"},
        environ_overrides={"SSL_CLIENT_VERIFY": verify},
    )

    assert status == answer.status_code


def test_the_flask_application_has_the_same_limit_of_a_body() -> None:
    """Whatever server hosts it."""
    content, status = BAD["a body over the limit"]

    assert status == create_app(builtin_handler()).test_client().post("/mutate", data=content).status_code


class _Broken(dict[str, Any]):
    """A policy without attributes, whose error message quotes the object."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"cannot find {name} for {self['object']}")


@pytest.mark.parametrize("allow", [True, False])
def test_an_internal_error_affects_one_object_and_is_counted_and_logged_with_its_uid(
    caplog: pytest.LogCaptureFixture, *, allow: bool
) -> None:
    """The operator chooses the decision; the response has the uid and no traceback."""
    handler = AdmissionHandler(Loaded(RuleSet()), on_error_allow=allow)
    handler.snapshot = handler.snapshot._replace(policy=_Broken(object="S3CRET"))  # type: ignore[arg-type]  # the bug
    with caplog.at_level(logging.ERROR), serving(create_server_application(handler)) as server:
        status, answer = ask(
            server.port, "/mutate", body(pod({"nvidia.com/gpu": "1"}, env=[{"name": "K", "value": "S3CRET"}]))
        )
        text = ask(server.port, "/metrics")[1].decode()
    response = json.loads(answer)["response"]

    assert (200, allow, "705ab4f5-6393-11e8-b7cc-42010a800002") == (
        status,
        response["allowed"],
        response["uid"],
    )
    assert b"Traceback" not in answer
    assert "failed on an object: AttributeError" in caplog.text
    assert "rules/decision/pipeline.py" in caplog.text
    assert 'gpugate_errors_total{reason="internal"}' in text
    assert "S3CRET" not in caplog.text


def decisions(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of decisions, without those of the server."""
    return [record for record in caplog.records if record.name == "gpugate.admission"]


def test_a_decision_is_one_log_record_without_the_object(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Object, rules, decision, time; no values of env."""
    with caplog.at_level(logging.INFO, "gpugate.admission"):
        ask(
            server.port,
            "/mutate",
            body(pod({"nvidia.com/gpu": "1"}, env=[{"name": "TOKEN", "value": "S3CRET"}]), name="train"),
        )
    (record,) = decisions(caplog)
    fields = vars(record)

    assert ("allow Pod ml/train", "allow", ["cf-crl-pgpu-gpu", "compatibility-pgpu"]) == (
        record.message,
        fields["verdict"],
        fields["rules"],
    )
    assert "S3CRET" not in repr(fields)
    assert {} == fields["violations"]


def test_a_decision_is_logged_with_violated_rules_by_enforcement_action(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each rule once, even if two containers violate it; the log includes dryrun rules."""
    always = [{"expression": "value < 1", "messageEn": "never"}]
    rules = {"deny": "a.com/a", "warn": "b.com/b", "dryrun": "c.com/c"}
    handler = AdmissionHandler(
        loaded(*(resource_rule(key, validations=always, enforcementAction=how) for how, key in rules.items()))
    )
    document = pod(dict.fromkeys(rules.values(), "1"))
    document["spec"]["containers"] *= 2
    with caplog.at_level(logging.INFO, "gpugate.admission"):
        handler.answer("validate", body(document))

    assert {"deny": ["cf-crl-group-a"], "warn": ["cf-crl-group-b"], "dryrun": ["cf-crl-group-c"]} == vars(
        *decisions(caplog)
    )["violations"]


def test_the_content_of_a_pod_is_in_no_log_and_no_metric(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Variables and their names, arguments, annotations and quantities of a denied pod."""
    secret = "S3CRET"  # noqa: S105
    document = pod(
        {"nvidia.com/gpu": f"1{secret}", "tencent.com/vcuda-core": "150"},
        env=[{"name": "TOKEN", "value": secret}, {"name": f"NVIDIA_REQUIRE_{secret}", "value": "cuda>=99.1"}],
        args=["vllm", "serve", "--dtype=bfloat16", f"--api-key={secret}"],
        image=f"registry.example.com/{secret.lower()}:1",
    )
    document["metadata"]["annotations"] = {"gpugate.dev/cuda-version": secret}
    with caplog.at_level(logging.DEBUG):
        answers = [ask(server.port, path, body(document)) for path in ("/mutate", "/validate")]
        text = ask(server.port, "/metrics")[1].decode()

    assert [False, False] == [json.loads(answer)["response"]["allowed"] for _, answer in answers]
    assert secret.lower() not in text.lower()
    assert secret.lower() not in repr([vars(record) for record in caplog.records]).lower()


def _owner(name: Any, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "1", **fields}


def test_a_denial_of_a_controller_names_its_workload_the_field_and_the_user(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod has no name yet: the API server generates it after the mutating webhooks."""
    document = pod({"tencent.com/vcuda-core": "150"})
    del document["metadata"]["name"]
    owners = [_owner("other"), _owner("llm-6ff9586d7b", controller=True)]
    document["metadata"] |= {"generateName": "llm-6ff9586d7b-", "ownerReferences": owners}
    user = "system:serviceaccount:kube-system:replicaset-controller"
    with caplog.at_level(logging.INFO, "gpugate.admission"):
        ask(server.port, "/mutate", body(document, namespace="ml", userInfo={"username": user}))
    (record,) = decisions(caplog)
    line = vars(record)

    assert "deny Pod ml/llm-6ff9586d7b-*" == record.message
    assert ("llm-6ff9586d7b-*", "ReplicaSet/llm-6ff9586d7b", user) == (
        line["object"],
        line["owner"],
        line["user"],
    )
    assert ["spec.containers[0].resources.limits[tencent.com/vcuda-core]"] == line["paths"]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"generateName": 1, "ownerReferences": 1}, ("", "")),
        ({"generateName": ["a"], "ownerReferences": [1, {"controller": "true"}]}, ("", "")),
        ({"ownerReferences": [_owner({"a": "b"}, controller=True)]}, ("", "ReplicaSet/")),
        ({"name": "a", "generateName": "b"}, ("a", "")),
        ({"generateName": "x" * 2**20}, ("x" * 252 + "*", "")),
        ({"ownerReferences": [_owner("a\nb", controller=True)]}, ("", "ReplicaSet/a\ufffdb")),
        ({"ownerReferences": [*[_owner("other")] * 8, _owner("ninth", controller=True)]}, ("", "")),
    ],
)
def test_the_names_of_a_malformed_object_cannot_break_a_log_line(
    metadata: dict[str, Any], expected: tuple[str, str], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no text is left out; a long one is cut; of the owners, the first eight count."""
    document = pod() | {"metadata": metadata}
    with caplog.at_level(logging.INFO, "gpugate.admission"):
        ask(server.port, "/mutate", body(document))
    (record,) = decisions(caplog)

    assert expected == (vars(record)["object"], vars(record)["owner"])


def test_the_name_of_a_request_cannot_break_a_log_line(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot add a second line, color a terminal, or fill a disk."""
    name = 'a\n{"verdict": "allow"}\x1b[2J' + "x" * 2**20
    with caplog.at_level(logging.INFO, "gpugate.admission"):
        ask(server.port, "/mutate", body(pod(), name=name, namespace=name, uid=name, operation=name))
    (record,) = decisions(caplog)

    assert record.message.isprintable()
    assert 3000 > len(repr(vars(record)))
