"""The application of the page: files, and answers to the questions of its script.

Whoever can send it requests can read the nodes of the user's cluster. Therefore each request needs the
token, the Host of this server (against DNS rebinding) and, if it is a POST, the Origin of the page. The
application writes nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from threading import Lock
from typing import Any, Final, TypeVar

import flask
import msgspec
from werkzeug.exceptions import HTTPException

from rules.model.decision import ALLOWED
from rules.model.finding import Certainty
from rules.text.i18n import Language, Message
from rules.text.yaml_document import SourceError
from webhook.cli.ui.cases import CaseError, examples, read_case, write_case, write_test
from webhook.cli.ui.evaluation import evaluate
from webhook.cli.ui.page import Page, Question
from webhook.cli.ui.tables import matrix
from webhook.cli.why.failures import causes, log_statements

T = TypeVar("T", "Question", "OpenedCase", "PastedLog")

# Bytes of a request, as the API server limits them (MaxRequestBodyBytes); two texts with nodes are far below.
MAX_BODY: Final = 3 * 1024 * 1024
_HTTP: Final = 80
_LOG: Final = Message()
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class OpenedCase(msgspec.Struct, forbid_unknown_fields=True):
    """The text of a case file that the user opens."""

    text: str
    language: Language = Language.EN


class PastedLog(msgspec.Struct, forbid_unknown_fields=True):
    """The log, or the output of `kubectl describe`, that the user pastes."""

    text: str
    language: Language = Language.EN


def create_app(page: Page, token: str, port: int) -> flask.Flask:
    """Return the application. port: that it is served on, on the loopback interface."""
    app = flask.Flask("gpugate-ui", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MAX_BODY
    # Cookies are sent to all ports of a host: the name keeps two pages apart.
    cookie = f"gpugate-ui-{port}"
    place = "" if port == _HTTP else f":{port}"  # browsers leave the default port out
    _guard(app, token, cookie, {f"127.0.0.1{place}", f"localhost{place}"})
    _add_pages(app, token, cookie)
    _add_answers(app, page)

    @app.errorhandler(HTTPException)
    def failed(error: HTTPException) -> flask.Response:
        return _problem(error.description or error.name, status=error.code or HTTPStatus.BAD_REQUEST)

    return app


def _guard(app: flask.Flask, token: str, cookie: str, hosts: Collection[str]) -> None:
    """Refuse requests without the token, to other hosts, and from other pages."""

    @app.before_request
    def check() -> flask.Response | None:
        request = flask.request
        if request.host not in hosts:
            return _refused("this page is served to 127.0.0.1 and localhost only")
        if request.method == "POST" and request.headers.get("Origin") != f"http://{request.host}":
            return _refused("the request does not come from this page")
        query_token = request.args.get("token", "") if request.path == "/" else ""
        if not any(_equal(candidate, token) for candidate in (query_token, request.cookies.get(cookie, ""))):
            return _refused("token missing or wrong: open the address that gpugate ui printed")
        return None

    @app.after_request
    def add_headers(response: flask.Response) -> flask.Response:
        response.headers.update(_HEADERS)
        return response


def _add_pages(app: flask.Flask, token: str, cookie: str) -> None:
    @app.get("/")
    def index() -> flask.Response:
        if "token" not in flask.request.args:
            return _file("index.html")
        # The token leaves the address bar.
        response = flask.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/"})
        response.set_cookie(cookie, token, httponly=True, samesite="Strict")
        return response

    @app.get("/static/<name>")
    def static(name: str) -> flask.Response:
        return _file(name)


def _add_answers(app: flask.Flask, page: Page) -> None:
    lock = Lock()  # one evaluation at a time: a page asks anew at each pause in typing

    def answers(path: str, kind: type[T], answer: Callable[[T], Any]) -> None:
        def view() -> flask.Response:
            try:
                question = msgspec.json.decode(flask.request.get_data(), type=kind)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return _problem(str(error))
            try:
                with lock:
                    return _json(answer(question))
            except SourceError as error:
                return _problem(error.problem.in_language(question.language), error)
            except CaseError as error:
                return _problem(error.text.in_language(question.language))

        app.add_url_rule(path, path, view, methods=["POST"])

    @app.get("/api/session")
    def settings() -> flask.Response:
        return _json(_settings(page))

    answers("/api/evaluate", Question, partial(evaluate, page))
    answers("/api/matrix", Question, partial(matrix, page))
    answers("/api/why", PastedLog, _why)
    answers("/api/case", Question, lambda question: {"text": write_case(page, question)})
    answers("/api/ruletest", Question, lambda question: {"text": write_test(page, question)})
    answers("/api/open", OpenedCase, _open_case)


def _open_case(case: OpenedCase) -> dict[str, str]:
    saved = read_case(case.text)
    return {"pod": saved.pod, "nodes": saved.nodes, "namespace": saved.namespace}


def _why(log: PastedLog) -> dict[str, Any]:
    """Return the causes that `gpugate why --log` finds in a text, each with its lines."""
    language = log.language
    return {
        "causes": [
            {
                "certain": cause.certainty is Certainty.CERTAIN,
                "certainty": cause.certainty.in_language(language),
                "cause": cause.text.in_language(language),
                "fix": cause.fix.in_language(language),
                "evidence": [{"line": seen.place[1]["line"], "text": seen.text} for seen in cause.evidence],
            }
            for cause in causes(ALLOWED, log_statements(_LOG, log.text))
        ]
    }


def _settings(page: Page) -> dict[str, Any]:
    """Return the rules, nodes and examples that the page offers."""
    return {
        "rules": {choice: rules.names for choice, rules in page.rules.items()},
        "nodes": page.nodes and {"names": page.nodes.names, "count": len(page.nodes.inventory)},
        "pod": page.pod,
        "nodeText": page.node_text,
        "namespace": page.namespace,
        "language": page.language.value,
        "languages": list(Language),
        "examples": [
            {
                "title": {language: example.title.text.in_language(language) for language in Language},
                "pod": {language: example.commented(language) for language in Language},
                "nodes": example.nodes,
                "namespace": example.namespace,
            }
            for example in examples()
        ],
    }


def _file(name: str) -> flask.Response:
    known = {file.name: file for file in (files("webhook.cli.ui") / "static").iterdir()}
    if name not in known:
        return _problem("not found", status=HTTPStatus.NOT_FOUND)
    suffix = f".{name.rpartition('.')[2]}"
    return flask.Response(known[name].read_bytes(), content_type=_TYPES[suffix])


def _json(value: Any) -> flask.Response:
    return flask.Response(msgspec.json.encode(value), content_type="application/json")


def _problem(
    message: str, error: SourceError | None = None, status: int = HTTPStatus.BAD_REQUEST
) -> flask.Response:
    facts: dict[str, Any] = {"error": message}
    if error:
        location = error.location
        facts |= {"where": location.file, "line": location.line, "column": location.column}
    return flask.Response(msgspec.json.encode(facts), status, content_type="application/json")


def _refused(message: str) -> flask.Response:
    return flask.Response(f"{message}\n", HTTPStatus.FORBIDDEN, content_type="text/plain; charset=utf-8")


def _equal(value: str, token: str) -> bool:
    return hmac.compare_digest(value.encode(), token.encode())
