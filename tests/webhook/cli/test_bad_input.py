"""Errors of all commands for unreadable input and output: one line with the file, and exit status 2."""

from __future__ import annotations

import copy
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import Result

from tests.support.command import gpugate
from tests.support.serving import HOST, new_pair
from webhook.server.server import Server

# Commands that read a file, @.
READING: Final = (
    "preview -f @",
    "preview -f docs/examples/unchanged.yaml --rules @",
    "preview -f docs/examples/unchanged.yaml --nodes @",
    "preview -f docs/examples/unchanged.yaml --workloads @",
    "explain -f @",
    "lint @",
    "test @",
    "rules --rules @",
    "rules --metrics @",
    "nodes --nodes @",
    "nodes --nodes docs/compatibility/nodes.yaml --rules @",
    "matrix --nodes @",
    "matrix --nodes docs/compatibility/nodes.yaml --rules @",
    "audit -f @",
    "export @",
    "image inspect -f @",
    "image inspect -f docs/examples/unchanged.yaml --workloads @",
    "image inspect app:1 --ca-file @",
    "image inspect app:1 --registry-config @",
    "images --ca-file @",
    "images --registry-config @",
    "images --kubeconfig @",
    "images --credential-provider-config @ --credential-provider-bin-dir docs",
    "serve --port 0 --rules @",
    "serve --port 0 --nodes @",
    "serve --port 0 --workloads @",
    "serve --port 0 --client-ca @",
    "serve --port 0 --tls-cert @ --tls-key @",
    "serve --port 0 --kubeconfig @",
    "nodes --kubeconfig @",
    "certs show --kubeconfig @",
    "node check --kubeconfig @ --node-name one",
)
LONG: Final = "x" * 300
KUBECONFIG: Final[dict[str, Any]] = {
    "current-context": "one",
    "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "one", "user": {}}],
}


@pytest.fixture(autouse=True)
def _never_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a server that starts nevertheless exit immediately with status 0."""
    monkeypatch.setattr(Server, "run", lambda server: server._socket.close() or 0)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def run(command: str, *files: object) -> Result:
    """Run a command with each @ replaced by a file."""
    left = iter(files * 2)
    words = [str(next(left)) if word == "@" else word for word in command.split()]
    return gpugate(*words)


def error_line(result: Result) -> str:
    """Return the text on stderr, which is one line without a traceback."""
    assert isinstance(result.exception, SystemExit), result.exception
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("/nowhere/a.yaml", "No such file or directory"),
        (LONG, "File name too long"),
        ("/dev/null/a", "Not a directory"),
        ("/proc/self/mem", "Input/output error"),  # a file that even root cannot read
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(command: str, file: str, why: str) -> None:
    """By every command, without other output."""
    result = run(command, file)
    line = error_line(result)

    assert 2 == result.exit_code
    assert f"{file}: {why}" in line
    assert "Errno" not in line


@pytest.mark.parametrize(
    "command", [command for command in READING if not re.search("serve .*--rules", command)]
)
def test_a_folder_with_nothing_to_read_and_a_binary_file_are_named(command: str, tmp_path: Path) -> None:
    """lint and rules report an error in the file and exit with 1; serve skips the rule."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    (tmp_path / "empty").mkdir()
    empty = run(command, tmp_path / "empty")
    completed = run(command, binary)

    assert 2 == empty.exit_code
    assert f"{tmp_path}/empty: " in error_line(empty)
    assert (1 if command in {"lint @", "rules --rules @"} else 2) == completed.exit_code
    assert isinstance(completed.exception, SystemExit)
    assert str(binary) in completed.output
    assert "Usage" not in completed.output


@pytest.mark.parametrize("command", ["preview -f @", "lint @", "test @", "audit -f @", "nodes --nodes @"])
@pytest.mark.parametrize("folder", ["", "/below"])
def test_a_folder_that_cannot_be_listed_is_named_with_the_reason(
    command: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a subfolder, which may contain rules."""
    (tmp_path / "below").mkdir()
    (tmp_path / "a.test.yaml").write_text("kind: Pod\n", "utf-8")
    (tmp_path / "a.yaml").write_text("kind: Pod\n", "utf-8")
    listed = os.scandir

    def deny_access(path: object) -> Any:  # root may list them all
        if str(path) == f"{tmp_path}{folder}":
            raise PermissionError(13, "Permission denied", str(path))
        return listed(str(path))

    monkeypatch.setattr(os, "scandir", deny_access)
    result = run(command, tmp_path)

    assert 2 == result.exit_code
    assert error_line(result) == f"error: {tmp_path}{folder}: Permission denied"


@pytest.mark.parametrize("command", ["preview -f @", "lint @", "test @", "audit -f @", "nodes --nodes @"])
def test_an_empty_name_does_not_mean_the_current_folder(command: str) -> None:
    """The cause is an unset variable."""
    result = run(command, "")

    assert 2 == result.exit_code
    assert (
        error_line(result) == "error: the name of a file or folder is empty; check that its variable is set"
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("serve --port 99999", "Invalid value for '--port': 99999 is not in the range 0<=x<=65535."),
        ("schema rules", "Invalid value for 'KIND': 'rules' is not one of"),
        ("preview", "no objects given (use FILE or -f FILE; - is stdin)"),
        ("preview -f", "Option '-f' requires an argument."),
        ("node check one", "Got unexpected extra argument (one)"),
        ("matrix --baseline 12.4", "--baseline requires --sharing virtual"),
    ],
)
def test_an_invalid_value_prints_one_line(command: str, why: str) -> None:
    """Without the usage, which is not relevant."""
    result = run(command)

    assert 2 == result.exit_code
    assert error_line(result).startswith(f"error: {why}")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("xyzzy", "error: No such command 'xyzzy'"),
        ("node chek", "error: No such command 'chek'"),
        ("lint --otput", "error: No such option"),
    ],
)
def test_an_unknown_option_or_command_is_reported_last(command: str, why: str) -> None:
    """Below the usage, where click shows that."""
    result = run(command)

    assert 2 == result.exit_code
    assert result.stderr.splitlines()[-1].startswith(why)


def test_an_object_that_is_not_a_node_is_reported_with_a_command_that_prints_nodes(tmp_path: Path) -> None:
    """For example, a file that contains pods."""
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Pod}", "utf-8")
    result = run("nodes --nodes @", tmp_path / "pod.yaml")

    what, _, remedy = error_line(result).partition("; ")

    assert 2 == result.exit_code
    assert what.startswith(f"error: {tmp_path}/pod.yaml:1:1: document.kind: expected one of Node, NodePool, ")
    assert what.endswith(", got 'Pod'")
    assert (
        "`kubectl get nodes -o yaml` prints a valid list; "
        "`kubectl get nodes,nodepools -o yaml` adds the NodePools of Karpenter"
    ) == remedy


@pytest.mark.parametrize("content", ["", "# nothing\n", "[1, 2]\n", "hello\n"])
def test_an_audit_of_a_file_without_objects_is_not_clean(content: str, tmp_path: Path) -> None:
    """The cause is a kubectl that failed; a list without pods is clean."""
    file = tmp_path / "pods.yaml"
    file.write_text(content, "utf-8")
    result = run("audit -f @", file)
    file.write_text("apiVersion: v1\nkind: List\nitems: []\n", "utf-8")

    assert 2 == result.exit_code
    assert str(file) in result.stderr
    assert 0 == run("audit -f @", file).exit_code


def test_serve_rejects_a_file_without_rules(tmp_path: Path) -> None:
    """A webhook without rules would allow everything."""
    (tmp_path / "rules.yaml").write_text("a: 1\n", "utf-8")
    result = run("serve --port 0 --rules @", tmp_path / "rules.yaml")

    assert 2 == result.exit_code
    assert "no rules found" in error_line(result)


def test_a_port_in_use_is_reported_with_a_remedy() -> None:
    """In one line, without the errno."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        result = run(f"serve --host {HOST} --port {port}")

    assert 2 == result.exit_code
    assert error_line(result) == (
        f"error: cannot listen on {HOST} port {port}: Address already in use; "
        "stop the process that listens there, or set another --port"
    )


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("192.0.2.1", "Cannot assign requested address; set --host to an address of this machine"),
        ("no-such-host.invalid", "set --host to an address of this machine"),
    ],
)
def test_an_address_of_another_host_is_reported_with_a_remedy(host: str, why: str) -> None:
    """Also an unknown host name."""
    result = run(f"serve --host {host} --port 0")

    assert 2 == result.exit_code
    assert error_line(result).startswith(f"error: cannot listen on {host} port 0: ")
    assert error_line(result).endswith(why)


def test_a_privileged_port_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like for a user other than root."""

    def deny_access(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied (while attempting to bind on address)")

    monkeypatch.setattr(socket, "create_server", deny_access)
    result = run("serve --port 443")

    assert 2 == result.exit_code
    assert error_line(result) == (
        "error: cannot listen on 0.0.0.0 port 443: Permission denied; set --port to 1024 or higher"
    )


@pytest.mark.parametrize(
    ("certificate", "key", "why"),
    [
        ("garbage", "tls.key", "{certificate} is not a PEM certificate"),
        ("tls.crt", "garbage", "{key} is not an unencrypted PEM private key"),
        ("tls.crt", "other.key", "{key} is not the key of {certificate}"),
        ("empty", "tls.key", "{certificate} is missing or empty"),
    ],
)
def test_a_certificate_that_cannot_be_served_is_named(
    certificate: str, key: str, why: str, tmp_path: Path
) -> None:
    """The message names the file."""
    pair = new_pair()
    files = {
        "garbage": b"no PEM\n",
        "empty": b"",
        "tls.crt": pair.certificate_pem,
        "tls.key": pair.key_pem,
        "other.key": new_pair().key_pem,
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    result = run("serve --port 0 --tls-cert @ --tls-key @", tmp_path / certificate, tmp_path / key)

    assert 2 == result.exit_code
    assert error_line(result) == "error: " + why.format(
        certificate=tmp_path / certificate, key=tmp_path / key
    )


def test_certificate_and_key_may_be_in_one_file(tmp_path: Path) -> None:
    """Some tools write such files."""
    pair = new_pair()
    (tmp_path / "both.pem").write_bytes(pair.certificate_pem + pair.key_pem)

    assert 0 == run("serve --port 0 --tls-cert @ --tls-key @", tmp_path / "both.pem").exit_code


def test_an_invalid_client_ca_is_named(tmp_path: Path) -> None:
    """The message does not mention the server certificate."""
    (tmp_path / "ca.crt").write_text("no PEM\n", "utf-8")
    result = run("serve --port 0 --client-ca @", tmp_path / "ca.crt")

    assert 2 == result.exit_code
    assert error_line(result) == f"error: {tmp_path}/ca.crt is not a PEM certificate"


@pytest.mark.parametrize("command", ["serve --port 0 --kubeconfig @", "audit --kubeconfig @"])
@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "is empty"),
        ("hello", "not a kubeconfig"),
        ("[1, 2]", "not a kubeconfig"),
        ("a: [1\nb: }", "line 2, column 2"),
        ("a: \0", "special characters are not allowed"),
        ("[" * 5000, "not a kubeconfig"),
    ],
)
def test_an_invalid_kubeconfig_prints_one_line(command: str, content: str, why: str, tmp_path: Path) -> None:
    """For any content."""
    (tmp_path / "config").write_text(content, "utf-8")
    result = run(command, tmp_path / "config")
    line = error_line(result)

    assert 2 == result.exit_code
    assert line.startswith("error: no cluster: ")
    assert all(part in line for part in (f"{tmp_path}/config", why, "; check --kubeconfig and --context"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clusters": [{"name": "one", "cluster": {"server": 5}}]}, "not a kubeconfig"),
        (
            {"clusters": [{"name": "one", "cluster": {"server": "https://a", "proxy-url": "junk://a"}}]},
            "proxy-url: expected http:// or https://, got 'junk://a'",
        ),
        ({"current-context": "two"}, "context was not found for specified context: two"),
        ({"users": [{"name": "one", "user": {"tokenFile": "/nowhere/token"}}]}, "/nowhere/token: No such"),
        ({"users": [{"name": "one", "user": {"auth-provider": {"name": "gcp"}}}]}, "not a kubeconfig"),
    ],
)
def test_a_kubeconfig_with_an_invalid_value_prints_one_line(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    """Also a value on which the client library fails."""
    (tmp_path / "config").write_text(yaml.safe_dump(copy.deepcopy(KUBECONFIG) | change), "utf-8")
    line = error_line(result := run("serve --port 0 --kubeconfig @", tmp_path / "config"))

    assert 2 == result.exit_code
    assert line.startswith("error: no cluster: ")
    assert why in line


def test_a_missing_kubeconfig_is_reported_with_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Like on a machine without clusters."""
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config")
    )
    result = run("certs show")

    assert 2 == result.exit_code
    assert f"no cluster: {tmp_path}/config: " in error_line(result)


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "preview -f docs/examples/patched.yaml",
        *(pytest.param(words, marks=pytest.mark.slow) for words in ("rules", "schema exemption", "export")),
    ],
)
def test_a_closed_pipe_and_a_full_disk_give_no_traceback(command: str) -> None:
    """A closed pipe, such as `| head -1`, ends with the status of kubectl; a full disk is an error."""
    words = [sys.executable, "-m", "webhook", *command.split()]
    reading, writing = os.pipe()
    os.close(reading)
    unread = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    with Path("/dev/full").open("wb") as full:
        cut = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)

    assert "Traceback" not in unread.stderr
    assert "Broken pipe" not in unread.stderr
    assert 128 + signal.SIGPIPE == unread.returncode
    assert "Traceback" not in cut.stderr
    assert (2, "error: No space left on device") == (cut.returncode, cut.stderr.splitlines()[-1])


@pytest.mark.parametrize(
    ("command", "closing", "stream"),
    [
        ("preview -f -", "<&-", "stdin"),
        ("rules --metrics -", "<&-", "stdin"),
        ("matrix", ">&-", "stdout"),
        ("lint", ">&-", "stdout"),
        ("preview -f docs/examples", ">&-", "stdout"),
        ("--help", ">&-", "stdout"),
    ],
)
def test_a_closed_stream_prints_one_line(command: str, closing: str, stream: str) -> None:
    """Some jobs are started without streams."""
    words = ["sh", "-c", f'exec "$@" {closing}', "sh", sys.executable, "-m", "webhook", *command.split()]
    result = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)

    assert (2, f"error: {stream} is closed\n") == (result.returncode, result.stderr)


@pytest.mark.parametrize(
    ("command", "message"), [("lint", "valid rules"), ("rules new", "Missing argument 'KIND'")]
)
def test_commands_that_do_not_read_stdin_run_without_it(command: str, message: str) -> None:
    """Like a daemon; there is no prompt."""
    words = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "webhook", *command.split()]
    (line,) = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False).stderr.splitlines()

    assert message in line


def test_ctrl_c_ends_a_command_with_the_status_of_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with 1, which means that something is denied."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("webhook.cli.commands.rules.read_counts", interrupt)

    assert 128 + signal.SIGINT == run("rules --metrics @", "x").exit_code


def test_force_color_colours_the_output_of_a_pipe() -> None:
    """As force-color.org asks for; NO_COLOR takes precedence."""
    words = ["preview", "-f", "docs/examples/denied.yaml"]
    forced, both = (
        gpugate(*words, env=env).stdout
        for env in ({"FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    )

    assert ("\x1b[" in forced, "\x1b[" in both) == (True, False)
