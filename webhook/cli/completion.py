"""Completion of the command line, in the protocol of cobra, which kubectl and its plugins use.

`gpugate __complete ARGUMENT...` prints a line for each value of the last argument, with its description
after a tab, then `:` and a directive. The scripts of the shells call it; `kubectl_complete-gpugate` prints
the same.

Source: https://github.com/spf13/cobra/blob/v1.8.1/completions.go; kubectl since 1.26.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete, split_arg_string

_LINE: Final = "GPUGATE_COMPLETE_LINE"  # of bash: the line up to the cursor, instead of arguments
# Directives of cobra. DEFAULT: the shell completes files.
_DEFAULT, _NO_FILES, _ONLY_FOLDERS = 0, 4, 16

SCRIPTS: Final = {
    "bash": r"""# Completion of gpugate for bash. Load it: source <(gpugate completion bash)
_gpugate() {
    local line directive=4 value
    local current=${COMP_WORDS[COMP_CWORD]} begun=${COMP_LINE:0:COMP_POINT}
    local word=${begun##*[[:space:]]} prefix
    [[ $word == --*=* ]] && word=${word#*=}  # bash also splits words at = and :
    [[ $current == [=:] ]] && current=
    prefix=${word%"$current"}
    COMPREPLY=()
    while IFS= read -r line; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        else
            value=${line%%$'\t'*}
            COMPREPLY+=("$(printf %q "${value#"$prefix"}")")
        fi
    done < <(GPUGATE_COMPLETE_LINE=$begun "$1" __complete 2>/dev/null)
    if [[ $directive == 16 ]]; then
        compopt -o dirnames
    elif [[ $directive == 0 ]]; then
        compopt -o default
    fi
}
complete -F _gpugate gpugate
""",
    "zsh": r"""#compdef gpugate
# Completion of gpugate for zsh. Load it: source <(gpugate completion zsh)
_gpugate() {
    local line directive=4
    local -a values
    for line in "${(@f)$(gpugate __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        elif [[ -n $line ]]; then
            values+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        fi
    done
    [[ $words[CURRENT] == --*=* ]] && compset -P '*='
    if (( $#values )); then
        _describe -V value values
    elif [[ $directive == 16 ]]; then
        _files -/
    elif [[ $directive == 0 ]]; then
        _files
    fi
}
if [[ $funcstack[1] == _gpugate ]]; then
    _gpugate "$@"
else
    compdef _gpugate gpugate
fi
""",
    "fish": r"""# Completion of gpugate for fish. Load it: gpugate completion fish | source
function __gpugate_complete
    set -l words (commandline -opc)
    set -l token (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $token; or echo)
    set -l directive 4
    set -l found
    for line in (gpugate __complete $words[2..-1] "$token" 2>/dev/null)
        if string match -q -- ':*' $line
            set directive (string sub -s 2 -- $line)
        else
            set -a found $option$line
        end
    end
    if test (count $found) -gt 0
        printf '%s\n' $found
    else if test $directive = 0 -o $directive = 16
        for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' $token))
            echo $option$path
        end
    end
end
complete -c gpugate -f -a '(__gpugate_complete)'
""",
}


def completions(cli: click.Command, arguments: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the protocol for the last of the arguments: its values, then a directive."""
    *complete, begun = arguments or _of_line(os.environ.get(_LINE, ""))
    try:
        items = ShellComplete(cli, {}, "gpugate", "").get_completions(complete, begun)
    except click.ClickException:
        items = []
    kinds = {item.type for item in items}
    for item in items:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else item.value
    yield f":{_DEFAULT if 'file' in kinds else _ONLY_FOLDERS if 'dir' in kinds else _NO_FILES}"


def _of_line(line: str) -> list[str]:
    """Return the arguments in the begun line of a shell; the last one may be empty."""
    words = split_arg_string(line)[1:]
    return words if words and not line[-1:].isspace() else [*words, ""]
