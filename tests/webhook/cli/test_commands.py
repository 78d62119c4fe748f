"""`gpugate lint`, `gpugate rules` and `gpugate serve`: output and exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path

import pytest

from tests.support.builders import exemption, resource_rule
from tests.support.command import gpugate
from tests.support.node_builders import compatibility_rule, image_catalog, node_profile
from tests.support.paths import ROOT
from tests.support.serving import client, new_pair, wait_for
from tests.support.webhooks import body, pod
from webhook.cli import _COMMANDS
from webhook.cli.terminal.console import progress
from webhook.cli.terminal.vocabulary import READING_NODES

BAD_RULE = """apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-x-device
  namespace: kube-public
  labels:
    features.cpaas.io/type: CustomResourceLimitation
    features.cpaas.io/group: x
    features.cpaas.io/enabled: "true"
data:
  key: example.com/device
  dataType: integer
  limits: optinal
  requests: disabled
"""
ERROR = "data.limits: expected one of disabled, required, optional, got 'optinal' – did you mean 'optional'?"


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Write a rule with a misspelt value."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD_RULE, "utf-8")
    return path


def test_every_command_has_help_with_examples() -> None:
    """And `gpugate --help` lists the commands."""
    listed = re.findall(r"^  (\w+(?: \w+)?)  ", gpugate("--help").stdout, re.MULTILINE)

    assert list(_COMMANDS) == listed
    for name in listed:
        assert f"Examples:\n    gpugate {name}" in gpugate(*name.split(), "--help").stdout


def test_a_misspelt_command_is_reported_with_a_suggestion() -> None:
    """In one line."""
    result = gpugate("prview")

    assert result.exit_code == 2
    assert result.stderr == "error: No such command 'prview' – did you mean 'preview'?\n"


@pytest.mark.parametrize("group", [(), ("certs",), ("facts",), ("node",)])
def test_a_group_of_commands_without_arguments_prints_its_help(group: tuple[str, ...]) -> None:
    """On stdout, as with --help."""
    result = gpugate(*group)

    assert (0, "") == (result.exit_code, result.stderr)
    assert gpugate(*group, "--help").stdout == result.stdout


def test_the_built_in_rules_are_clean() -> None:
    """lint says so and exits with 0."""
    result = gpugate("lint")

    assert (0, "") == (result.exit_code, result.stdout)
    assert result.stderr.endswith("valid rules, 0 errors, 0 warnings\n")


def test_lint_prints_file_line_column_and_a_suggestion(bad: Path) -> None:
    """Exit status 1."""
    result = gpugate("lint", bad)

    assert (1, f"{bad}:13:11: error: {ERROR} [wrong-value]\n") == (result.exit_code, result.stdout)


def test_warnings_of_lint_exit_with_3_where_asked(tmp_path: Path) -> None:
    """A name that does not follow the key is a warning, not an error."""
    path = tmp_path / "odd.yaml"
    path.write_text(BAD_RULE.replace("optinal", "optional").replace("x-device", "x-other"), "utf-8")

    assert (0, 3) == (gpugate("lint", path).exit_code, gpugate("lint", path, "--fail-on", "warn").exit_code)


def test_rules_prints_an_aligned_table() -> None:
    """Includes disabled rules; -o wide adds texts and sources; one line a rule, without long texts."""
    result, wide = gpugate("rules"), gpugate("rules", "-o", "wide")
    lines, wide_lines = result.stdout.splitlines(), wide.stdout.splitlines()
    column = lines[0].index("STATE")

    assert (0, 0) == (result.exit_code, wide.exit_code)
    assert ["NAME", "KIND", "STATE", "ACTION", "RESOURCES"] == lines[0].split()
    assert [*lines[0].split(), "DESCRIPTION", "NOTE", "SOURCE"] == wide_lines[0].split()
    assert {"enabled", "disabled"} == {line[column:].split()[0] for line in lines[1:]}
    assert len(lines) == len(wide_lines)
    assert 120 > max(map(len, lines))
    assert any(line.endswith("aliyun.com/gpu-mem + 1 more...") for line in lines)
    assert any("aliyun.com/gpu-mem, aliyun.com/gpu-core.percentage  " in line for line in wide_lines)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["mps-environment"], ["mps-environment"]),
        (["mps-*", "mps-environment"], ["mps-environment", "mps-pipe-directory"]),
        (["mps-*", "--filter", "state!=enabled"], ["mps-pipe-directory"]),
        (["--filter", "kind=injection,STATE=disabled, action=inject", "mps*"], ["mps-pipe-directory"]),
        (
            ["--filter", "resources=nvidia.com/mps-c*", "--filter", "kind=injection", "mps-e*"],
            ["mps-environment"],
        ),
        (["--filter", "description=*by hand*"], ["mps-pipe-directory"]),
        (["mps-*", "--filter", "state=expired"], []),
    ],
)
def test_rules_are_selected_by_name_and_by_column(arguments: list[str], found: list[str]) -> None:
    """Globs; of several resources, one must match; all filters must match."""
    result = gpugate("rules", *arguments, "-o", "name")
    rows = json.loads(gpugate("rules", *arguments, "-o", "json").stdout)["rules"]

    assert (0, [f"configmap/{name}" for name in found]) == (result.exit_code, result.stdout.split())
    assert found == [row["name"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["mps-envirnment"], "no rule is named 'mps-envirnment' – did you mean 'mps-environment'?"),
        (["tests"], "no rule is named 'tests'; to read a file or folder, use --rules or --nodes"),
        (
            ["--filter", "stat=x"],
            (
                "--filter: no column is named 'stat'; the columns are name, kind, state, action, resources, "
                "description, note, source"
            ),
        ),
        (["--filter", "state"], "--filter: expected COLUMN=GLOB or COLUMN!=GLOB, got 'state'"),
    ],
)
def test_a_selection_that_cannot_match_is_an_error(
    arguments: list[str], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 2, in one line."""
    monkeypatch.chdir(ROOT)
    result = gpugate("rules", *arguments)

    assert (2, f"error: {error}\n") == (result.exit_code, result.stderr)


def test_rules_prints_notes_on_rules(tmp_path: Path) -> None:
    """Exemptions, and the replacement of a disabled rule."""
    texts = {
        "a": resource_rule(enabled=False),
        "b": resource_rule(name="cf-crl-other-device", group="other"),
        "c": exemption("cf-crl-other-*", name="old", expires="2020-01-01"),
        "d": exemption("cf-crl-other-device", name="new", expires="2999-01-01"),
        "e": image_catalog({"image": "x", "cuda": "12.4"}),
        "f": node_profile(),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text, "utf-8")
    rows = json.loads(gpugate("rules", "--rules", tmp_path, "-o", "json").stdout)["rules"]

    assert [
        ("resource", "disabled", "cf-crl-other-device is in force for vendor.com/device"),
        ("resource", "enabled", "some pods are exempt by new"),
        ("exemption", "expired", "until 2020-01-01 from cf-crl-other-*"),
        ("exemption", "enabled", "until 2999-01-01 from cf-crl-other-device"),
        ("images", "enabled", ""),
        ("profile", "enabled", ""),
    ] == [(row["kind"], row["state"], row["note"]) for row in rows]


def test_rules_prints_the_resulting_action_of_a_rule(tmp_path: Path) -> None:
    """Of `rule.yaml` and the settings in the data."""
    path = tmp_path / "rules.yaml"
    path.write_text(
        compatibility_rule(enforcementAction="deny", data={"enforcementAction": "dryrun"}), "utf-8"
    )
    (row,) = json.loads(gpugate("rules", "--rules", path, "-o", "json").stdout)["rules"]

    assert "dryrun" == row["action"]


def test_rules_shows_an_invalid_rule_with_its_error(bad: Path) -> None:
    """Exit status 1; the error is on stderr, too, as the table has no texts."""
    result = gpugate("rules", "--rules", bad, "-o", "json")
    (rule,) = json.loads(result.stdout)["rules"]

    assert (1, f"error: {bad}:13:11: {ERROR}\n") == (result.exit_code, result.stderr)
    assert ("cf-crl-x-device", "refused", f"{bad}:13:11") == (rule["name"], rule["state"], rule["source"])


QUIET = "docs/compatibility/pods.yaml --nodes docs/compatibility/nodes.yaml"


@pytest.mark.parametrize(
    ("words", "summary"),
    [
        ("lint", "valid rules"),
        (f"preview -f {QUIET} --rules docs/tutorial/npu", "objects: "),
        (f"audit -f {QUIET}", "would be denied now"),
        ("preview -f docs/examples/patched.yaml", "no nodes given"),
        ("explain -f docs/compatibility/pods.yaml", "no nodes given"),
        ("test docs/tutorial/npu", "cases in"),
        ("preview -f docs/compatibility/pods.yaml --rules docs/tutorial/npu", "note: "),
    ],
)
def test_quiet_leaves_out_summaries_and_notes(
    words: str, summary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit status, results, errors and warnings stay."""
    monkeypatch.chdir(ROOT)
    shown, quiet = gpugate(*words.split()), gpugate(*words.split(), "-q")
    lines = quiet.output.splitlines()

    assert summary in shown.output
    assert summary not in quiet.output
    assert shown.exit_code == quiet.exit_code
    assert [line for line in shown.output.splitlines() if line in lines] == lines


def test_quiet_keeps_errors(bad: Path) -> None:
    """What is wrong is no summary."""
    assert f"{bad}:13:11: error: {ERROR} [wrong-value]\n" == gpugate("lint", bad, "--quiet").output


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    """Exit status 2."""
    result = gpugate("lint", tmp_path)

    assert (2, f"error: {tmp_path}: no YAML or JSON file in this folder") == (
        result.exit_code,
        result.stderr.splitlines()[-1],
    )


def test_a_rule_of_a_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    """The kubelet writes it into a folder whose name starts with dots, and links to it."""
    (tmp_path / "..1" / "more").mkdir(parents=True)
    (tmp_path / "..1" / "a.yaml").write_text(resource_rule(), "utf-8")
    (tmp_path / "..1" / "more" / "a.yaml").write_text(resource_rule(), "utf-8")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / ".a.yaml").symlink_to("..data/a.yaml")

    assert "1 valid rule, 0 errors, 0 warnings\n" == gpugate("lint", tmp_path).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tls-cert", "x.pem"], "error: --tls-cert and --tls-key must be used together"),
        (
            ["--tls-cert", "/nowhere/x.pem", "--tls-key", "/nowhere/y.pem"],
            "error: /nowhere/x.pem: No such file or directory",
        ),
        (["--rules", "/nowhere"], "error: /nowhere: No such file or directory"),
        (["--port", "99999"], "error: Invalid value for '--port': 99999 is not in the range 0<=x<=65535."),
    ],
)
def test_serve_reports_wrong_usage_in_one_line(arguments: list[str], message: str) -> None:
    """Before the server listens."""
    result = gpugate("serve", *arguments)

    assert (2, f"{message}\n") == (result.exit_code, result.stderr)


@contextmanager
def _serving(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `gpugate serve`; yields the process and its port."""
    command = [
        sys.executable,
        "-m",
        "webhook",
        "serve",
        "--host",
        "127.0.0.1",
        "--port",
        "0",
        *map(str, arguments),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            for line in process.stderr:
                if match := re.search(r"https://127\.0\.0\.1:(\d+)", line):
                    yield process, int(match[1])
                    return
            pytest.fail(f"the server ended with {process.wait()}")
        finally:
            process.kill()


def test_serve_answers_reviews_with_the_given_certificate_and_rules_until_sigterm(
    tmp_path: Path, bad: Path
) -> None:
    """An invalid rule is skipped; after SIGTERM the exit status is 0."""
    pair = new_pair()
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    files: list[str | Path] = ["--tls-cert", tmp_path / "tls.crt", "--tls-key", tmp_path / "tls.key"]
    with _serving(
        *files, "--rules", bad, "--rules", "rules/catalog", "--drain-seconds", "0", "--lang", "zh"
    ) as (process, port):
        with client(port) as connection:
            connection.request("POST", "/mutate", body(pod({"tencent.com/vcuda-core": "150"})))
            response = json.loads(connection.getresponse().read())["response"]
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=60)

    assert (False, True) == (response["allowed"], "100 的整数倍" in response["status"]["message"])
    assert 0 == status


def test_options_may_be_set_by_environment_variables() -> None:
    """As container platforms set them."""
    environment = os.environ | {"GPUGATE_LINT_OUTPUT": "junit"}
    command = [sys.executable, "-m", "webhook", "lint"]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert printed.startswith("<?xml")


class _Terminal(StringIO):
    """A stderr that is a terminal."""

    def isatty(self) -> bool:
        """Return true."""
        return True


@pytest.mark.parametrize(("stream", "shown"), [(_Terminal, "reading nodes (0 s)"), (StringIO, "")])
def test_progress_is_shown_on_a_terminal_only(
    stream: type[StringIO], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, which is removed at the end; an error ends it, too."""
    stderr = stream()
    monkeypatch.setattr(sys, "stderr", stderr)
    with suppress(KeyError), progress(READING_NODES, 0.01):
        if shown:
            wait_for(lambda: shown in stderr.getvalue())
        raise KeyError
    written = stderr.getvalue()

    assert shown == written.split("\r\x1b[2K")[1] if shown else "" == written
    assert not shown or written.endswith(f"{shown}\r\x1b[2K")
    assert "\n" not in written
