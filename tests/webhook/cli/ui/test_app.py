"""The application of the page: who gets an answer, and which."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from werkzeug.test import TestResponse

from rules import load_rules
from tests.support.node_builders import compatibility_rule, node
from tests.support.paths import ROOT
from tests.support.ui_questions import POD, T4, asked, new_page
from webhook.cli.inputs.session import Session
from webhook.cli.ui.app import MAX_BODY, create_app
from webhook.cli.ui.page import Page, Rules
from webhook.cli.ui.tables import matrix

_PORT = 8765
_ORIGIN = f"http://127.0.0.1:{_PORT}"
_TOKEN = "the-token"  # noqa: S105 - of these tests
_STATIC = ROOT / "webhook" / "cli" / "ui" / "static"
_QUESTION = {"pod": POD, "nodes": "text", "nodeText": T4}


class Client:
    """A browser: it keeps cookies, and its requests have a Host and an Origin."""

    def __init__(self, *, token: str | None = _TOKEN, nodes: str | None = None) -> None:
        self._client = create_app(new_page(nodes), _TOKEN, _PORT).test_client()
        if token is not None:
            self.get(f"/?token={token}")

    def get(self, path: str, host: str = f"127.0.0.1:{_PORT}") -> TestResponse:
        """Load an address."""
        return self._client.get(path, base_url=f"http://{host}")

    def post(
        self, path: str, body: Any, origin: str | None = _ORIGIN, host: str = f"127.0.0.1:{_PORT}"
    ) -> TestResponse:
        """Send a JSON value, or bytes, as the script of the page does."""
        data = body if isinstance(body, bytes) else json.dumps(body)
        headers = {"Origin": origin} if origin else {}
        return self._client.post(path, data=data, headers=headers, base_url=f"http://{host}")


def test_the_token_of_the_address_becomes_a_cookie_and_leaves_the_address() -> None:
    response = Client(token=None).get(f"/?token={_TOKEN}")

    assert (303, "/") == (response.status_code, response.headers["Location"])
    cookie = response.headers["Set-Cookie"]
    assert f"gpugate-ui-{_PORT}={_TOKEN}; HttpOnly; Path=/; SameSite=Strict" == cookie


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/static/page.css", "/api/session", "/other"])
@pytest.mark.parametrize("token", [None, "", "wrong", _TOKEN[:-1]])
def test_without_the_token_there_is_no_answer(path: str, token: str | None) -> None:
    """Files of the page included."""
    assert 403 == Client(token=token).get(path).status_code


def test_the_token_in_another_address_is_not_enough() -> None:
    """It is exchanged for the cookie at one place."""
    assert 403 == Client(token=None).get(f"/api/session?token={_TOKEN}").status_code


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{_PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.nip.io:{_PORT}"]
)
def test_another_host_gets_no_answer(host: str) -> None:
    """A name that an attacker lets point to this machine is one; its page would have our cookie's host."""
    client = Client()

    assert 403 == client.get("/", host).status_code
    assert 403 == client.get(f"/?token={_TOKEN}", host).status_code


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "null",
        "http://evil.example",
        "http://127.0.0.1:1",
        f"https://127.0.0.1:{_PORT}",
        "http://127.0.0.1",
    ],
)
def test_a_post_of_another_page_gets_no_answer(origin: str | None) -> None:
    """Nor one that does not say where it is from."""
    assert 403 == Client().post("/api/evaluate", _QUESTION, origin).status_code


def test_the_page_is_served_to_localhost_too() -> None:
    host = f"localhost:{_PORT}"
    client = Client(token=None)
    client.get(f"/?token={_TOKEN}", host)

    assert 200 == client.get("/", host).status_code
    assert 200 == client.post("/api/evaluate", _QUESTION, f"http://{host}", host).status_code
    assert 403 == client.post("/api/evaluate", _QUESTION, _ORIGIN, host).status_code


def test_on_port_80_addresses_have_no_port() -> None:
    """So browsers write Host and Origin."""
    client = create_app(new_page(), _TOKEN, 80).test_client()
    own = "http://127.0.0.1"
    client.get(f"/?token={_TOKEN}", base_url=own)

    response = client.post("/api/evaluate", data=json.dumps(_QUESTION), headers={"Origin": own}, base_url=own)

    assert 200 == response.status_code


@pytest.mark.parametrize("path", ["/", "/static/page.js", "/missing"])
def test_every_answer_forbids_frames_foreign_sources_and_caches(path: str) -> None:
    headers = Client().get(path).headers

    policy = headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert ("DENY", "nosniff", "no-referrer", "no-store") == tuple(
        headers[name]
        for name in ("X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control")
    )


@pytest.mark.parametrize("name", sorted(path.name for path in _STATIC.iterdir()))
def test_each_file_of_the_page_is_served_with_its_type(name: str) -> None:
    response = Client().get(f"/static/{name}")

    assert (_STATIC / name).read_bytes() == response.data
    types = {"css": "text/css", "html": "text/html", "js": "text/javascript", "json": "application/json"}
    assert types.get(name.rpartition(".")[2], "image/svg+xml") == response.mimetype


@pytest.mark.parametrize("path", ["/static/..%2fapp.py", "/static/app.py", "/static/", "/static/examples"])
def test_no_other_file_is_served(path: str) -> None:
    assert 404 == Client().get(path).status_code


def test_a_question_is_answered_with_the_decision() -> None:
    (document,) = Client().post("/api/evaluate", _QUESTION).json["objects"]  # type: ignore[index]

    assert ("✗", "serve", False) == (document["mark"], document["name"], document["allowed"])


@pytest.mark.parametrize("path", ["evaluate", "matrix", "case", "ruletest", "open"])
@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"pods": ""}', b'{"pod": 1}', b'{"pod": "\xff"}', b'{"pod": "\\ud800"}', b"{"]
)
def test_a_malformed_question_is_refused(path: str, body: bytes) -> None:
    response = Client().post(f"/api/{path}", body)

    assert 400 == response.status_code
    assert response.json
    assert response.json["error"]


def test_a_question_that_is_too_long_is_refused() -> None:
    response = Client().post("/api/evaluate", b" " * (MAX_BODY + 1))

    assert 413 == response.status_code


@pytest.mark.parametrize("path", ["/api/evaluate", "/api/case"])
def test_a_question_is_posted(path: str) -> None:
    assert 405 == Client().get(path).status_code


def test_the_page_knows_what_it_can_choose() -> None:
    session = Client(nodes=T4).get("/api/session").json

    assert session
    assert {"builtin": "builtin"} == session["rules"]
    assert {"names": "nodes.yaml", "count": 1} == session["nodes"]
    assert 6 == len(session["examples"])


def test_a_matrix_has_the_reasons_of_each_cell() -> None:
    (table,) = Client().post("/api/matrix", _QUESTION).json["tables"]  # type: ignore[index]
    cells = {row["cuda"]: row["cells"] for row in table["rows"]}

    assert ["T4"] == table["facts"][0]["values"]
    assert [{"level": "compatible", "reasons": []}] == cells["12.4"]
    assert "cudaErrorInsufficientDriver (35)" == cells["13.0"][0]["reasons"][0]["error"]


def test_a_matrix_has_each_node_once_by_the_labels_of_any_rule() -> None:
    """Rules may read different labels."""
    own = compatibility_rule(name="b", labels={"product": ["example.com/gpu"]})
    rules = load_rules([("a", compatibility_rule(name="a")), ("b", own)]).rules
    nodes = node("t4", {"nvidia.com/gpu.product": "T4"}), node("x1", {"example.com/gpu": "X1"})
    page = Page({"own": Rules("own", rules, ("own",))}, Session().workloads)

    answer = matrix(page, asked(node_text=yaml.safe_dump_all(nodes)))

    (table,) = answer["tables"]
    assert ["T4", "X1"] == sorted(table["facts"][0]["values"])
    assert 0 == answer["unlabelled"]


def test_without_nodes_the_matrix_has_all_drivers_and_gpus() -> None:
    answer = Client().post("/api/matrix", {"sharing": "virtual"}).json

    assert answer
    assert ["driver", "compute"] == [table["facts"][0]["name"] for table in answer["tables"]]
    assert "virtual GPUs up to CUDA 12.4" in answer["tables"][0]["title"]


def test_an_error_in_the_nodes_of_a_matrix_has_its_line() -> None:
    response = Client().post("/api/matrix", {**_QUESTION, "nodeText": f"{T4}---\nkind: Nope\n"})

    assert 400 == response.status_code
    assert response.json
    assert ("nodes", 14) == (response.json["where"], response.json["line"])


def test_a_pasted_log_has_causes_with_their_lines() -> None:
    text = "loading\nRuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    answer = Client().post("/api/why", {"text": text, "language": "zh"}).json
    assert answer

    ((cause),) = answer["causes"]
    assert (False, "可能") == (cause["certain"], cause["certainty"])
    assert [2] == [seen["line"] for seen in cause["evidence"]]
    assert cause["fix"]


def test_a_case_is_written_and_opened() -> None:
    client = Client()
    text = client.post("/api/case", {**_QUESTION, "namespace": "ml"}).json["text"]  # type: ignore[index]

    assert {"pod": POD, "nodes": T4, "namespace": "ml"} == client.post("/api/open", {"text": text}).json
    assert "kind: RuleTest" in client.post("/api/ruletest", _QUESTION).text


def test_the_words_of_the_page_are_in_both_languages_and_used() -> None:
    """Each name in the page and its scripts is one of them, and the other way round."""
    words = json.loads((_STATIC / "words.json").read_text("utf-8"))
    sources = "".join(path.read_text("utf-8") for path in (*_STATIC.glob("*.js"), *_STATIC.glob("*.html")))
    named = set(re.findall(r'data-(?:text|label)="(\w+)"|say\("(\w+)"', sources))
    used = {first or second for first, second in named}

    assert used == set(words)
    assert [] == [key for key, word in words.items() if {"en", "zh"} != set(word)]


def test_scripts_never_write_html() -> None:
    """Text is set as text: a manifest cannot bring elements or scripts."""
    for path in _STATIC.glob("*.js"):
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", path.read_text("utf-8")
        )


def test_the_page_names_no_other_host() -> None:
    """Except the namespace of SVG."""
    for path in _STATIC.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in re.sub(r"^\s*//.*$|^//.*$|; //.*$", "", text, flags=re.MULTILINE), path.name
