"""`gpugate test`: runs the unit tests of rule files."""

from __future__ import annotations

import sys

import click

from rules.text.glob import glob, is_glob
from rules.text.i18n import Message
from webhook.cli.inputs.completers import RULE_PATH
from webhook.cli.inputs.files import BAD_INPUT, BUILT_IN, is_url, read_path, rule_folder
from webhook.cli.inputs.options import (
    facts_option,
    language_option,
    namespace_option,
    output_option,
    quiet_option,
    workloads_option,
)
from webhook.cli.inputs.session import Session, with_session
from webhook.cli.terminal.console import BadInputError, lines, print_error, print_summary
from webhook.cli.terminal.usage_errors import UsageError
from webhook.cli.test.report import MACHINE_FORMATS, errors_of, summary_of, text_of
from webhook.cli.test.runner import Runner

FAILED = 1


@click.command()
@click.argument("paths", nargs=-1, type=RULE_PATH, metavar="[PATH]...")
@output_option("text", *MACHINE_FORMATS)
@click.option(
    "--run",
    "pattern",
    metavar="NAME",
    default="*",
    help="Run only cases whose names contain NAME; may be a glob.",
)
@click.option(
    "--update", is_flag=True, help="Update the expected patches of cases in which nothing else differs."
)
@facts_option
@workloads_option
@namespace_option
@quiet_option
@language_option
@with_session
def command(paths: tuple[str, ...], output: str, pattern: str, update: bool, session: Session) -> None:
    """Run the tests in *.test.yaml files and folders; without PATH, those of the built-in rules.

    Each case has a pod, the nodes of its cluster, and the expected result and patch. The decision is that of
    admission and preview. docs/rule-tests.md describes the format. A minimal test:

    \b
      apiVersion: gpugate.dev/v1
      kind: RuleTest
      cases:
        - name: half a GPU is denied
          pod:
            containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 500m}}}]
          expect: {allowed: false, violations: [{message: a whole number}]}

    \b
    Examples:
      gpugate test my-rules/
      gpugate test my-rules/ --run 'mps*'
      gpugate test my-rules/device.test.yaml --update
      gpugate test my-rules/ -o junit > results.xml

    Exit status: 0 all cases passed, 1 a case failed, 2 a test or a rule is invalid.
    """
    if update and any(path == "-" or is_url(path) for path in paths):
        raise UsageError(Message("--update cannot be used with stdin or a URL"))
    language = session.language
    matches = glob(pattern if is_glob(pattern) else f"*{pattern}*").fullmatch
    runner = Runner(
        session.rules_namespace,
        session.workloads,
        lambda name: matches(name) is not None,
        session.with_facts,
    )
    texts = {
        file: text for path in paths or [BUILT_IN] for file, text in read_path(rule_folder(path), tests=True)
    }
    files = []
    for file, text in texts.items():
        files.append(runner.update(file, text) if update else runner.run(file, text))
        if output == "text":
            click.echo(text_of(files[-1], language))
    errors = errors_of(files)
    if output == "text":
        for error in errors:
            print_error(error.located)
        print_summary(lines(f"\n{summary_of(files, language)}"), err=False)
    else:
        click.echo(MACHINE_FORMATS[output](files))
    if not errors and not any(result.results for result in files):
        raise BadInputError(Message("no case matches --run {pattern!r}", pattern=pattern))
    sys.exit(BAD_INPUT if errors else FAILED if any(result.failed for result in files) else 0)
