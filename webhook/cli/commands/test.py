"""`gpugate test`: unit tests of rule files, written beside them."""

from __future__ import annotations

import sys

import click

from rules.text.glob import glob, is_glob
from webhook.cli.input.files import BAD_INPUT, catalog_path, load_workloads, read_path
from webhook.cli.input.options import namespace_option, workloads_option
from webhook.cli.output.console import BadInputError, complain
from webhook.cli.output.test_report import MACHINE_FORMATS, mistakes_of, summary_of, text_of
from webhook.cli.ruletest.runner import Runner

FAILED = 1


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-o", "--output", type=click.Choice(["text", *MACHINE_FORMATS]), default="text", show_default=True
)
@click.option(
    "--run", "pattern", metavar="NAME", default="*", help="Only cases with this in their names; globs too."
)
@click.option("--update", is_flag=True, help="Write expected patches anew, where nothing else differs.")
@workloads_option
@namespace_option
def command(
    paths: tuple[str, ...],
    output: str,
    pattern: str,
    update: bool,
    workload_paths: tuple[str, ...],
    rules_namespace: str,
) -> None:
    """Run the tests in *.test.yaml files and folders; with no PATH, those of the rules that ship.

    Each case is a pod, the nodes of its cluster, and the verdict and patch expected. It is decided as
    admission and preview decide. docs/rule-tests.md tells the format, of which this is enough for a start:

    \b
      apiVersion: gpugate.dev/v1
      kind: RuleTest
      cases:
        - name: half a card is refused
          pod:
            containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 500m}}}]
          expect: {allowed: false, violations: [{message: a whole number}]}

    \b
    Examples:
      gpugate test my-rules/
      gpugate test my-rules/ --run 'mps*'
      gpugate test my-rules/device.test.yaml --update
      gpugate test my-rules/ -o junit > results.xml

    Exit status: 0 all as expected, 1 some case is not, 2 a test or a rule has mistakes.
    """
    if update and "-" in paths:
        raise click.UsageError("--update writes files; stdin is none")
    matches = glob(pattern if is_glob(pattern) else f"*{pattern}*").fullmatch
    runner = Runner(rules_namespace, load_workloads(workload_paths), lambda name: matches(name) is not None)
    texts = {
        file: text for path in paths or [str(catalog_path())] for file, text in read_path(path, tests=True)
    }
    files = []
    for file, text in texts.items():
        files.append(runner.update(file, text) if update else runner.run(file, text))
        if output == "text":
            click.echo(text_of(files[-1]))
    mistakes = mistakes_of(files)
    if output == "text":
        for error in mistakes:
            complain(str(error))
        click.echo(f"\n{summary_of(files)}")
    else:
        click.echo(MACHINE_FORMATS[output](files))
    if not mistakes and not any(each.results for each in files):
        raise BadInputError(f"no case is named like {pattern!r}")
    sys.exit(BAD_INPUT if mistakes else FAILED if any(each.failed for each in files) else 0)
