"""Commands of shell scripts are read as far as their words are known before they run."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.cuda.shell_script import MAX_DEPTH, UNKNOWN, commands, script_index
from rules.text.bounded_cache import MOST_STEPS, Budget, OverBudgetError
from tests.support.cpu_time import loops

LONGEST = 8 * 2**10  # characters of a script that is within the budget, whatever it has
KNOWN = {"SET": "half", "EMPTY": "", "FLAGS": "--dtype half  --port 1"}


def lines(script: str) -> list[str]:
    """Return the commands; `?` marks uncertain words, `??` uncertain commands, `_` unknown text."""
    shown_commands = commands(script, KNOWN, {"SECRET"})
    written = (
        [
            "|".join(f"{word.text}{'' if word.certain else '?'}" for word in shown_command.words),
            shown_command.certain,
        ]
        for shown_command in shown_commands
    )
    return [f"{words}{'' if certain else '??'}".replace(UNKNOWN, "_") for words, certain in written]


def argument(script: str) -> str:
    """Return the words after `x` of the command that starts it."""
    (text,) = (line for line in lines(script) if line.startswith("x"))
    return text[2:]


@pytest.mark.parametrize(
    ("word", "expanded"),
    [
        ("$SET", "half"),
        ("${SET}", "half"),
        ('"a $SET b"', "a half b"),
        ("--dtype=${SET}s", "--dtype=halfs"),
        ("'$SET'", "$SET"),
        (r"\$SET", "$SET"),
        (r'"\$SET \" \a"', r'$SET " \a'),
        ("$FLAGS", "--dtype|half|--port|1"),
        ('"$FLAGS"', "--dtype half  --port 1"),
        ("a${FLAGS}b", "a--dtype|half|--port|1b"),
        ("$EMPTY", ""),
        ('a "$EMPTY" b', "a||b"),
        # Operators
        ("${SET:-other}", "half"),
        ("${EMPTY:-other}", "other"),
        ("${EMPTY-other}", ""),
        ("${SET:+other}", "other"),
        ("${EMPTY:+other}", ""),
        ("${SET:?message}", "half"),
        ("${UNSET:-other}", "other?"),
        ('"${UNSET-a b}"', "a b?"),
        ("${UNSET:-$SET}", "half?"),
        ("${UNSET:-${EMPTY:-other}}", "other?"),
        ("${UNSET:-$SECRET}", "_?"),
        # Unknown
        ("$UNSET", "_"),
        ("$SECRET", "_"),
        ("${SECRET:-other}", "_"),
        ("${SECRET:+other}", "_"),
        ("${SET%%f*}", "_"),
        ("${#SET} ${!SET} ${SET[0]}", "_|_|_"),
        ("$1 $@ $# $$", "_|_|_|_"),
        ("$(cat file)", "_"),
        ('"$(cat "a )")"', "_"),
        ("$((1 + 2))", "_"),
        ("`cat file`", "_"),
        ("a$(", "a$"),
        ("5$", "5$"),
        ("$'a b' $\"c\"", "a b|c"),
    ],
)
def test_a_word_is_expanded_as_by_the_shell(word: str, expanded: str) -> None:
    """A default for a variable that only the image may set is uncertain."""
    words = commands(f"x {word}", KNOWN, {"SECRET"})[0].words[1:]

    assert expanded == "|".join(f"{text}{'' if certain else '?'}" for text, certain in words).replace(
        UNKNOWN, "_"
    )


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("A=1; x $A", "1"),
        ("A='1 2'\nx \"$A\"", "1 2"),
        ("export A=1 B=$SET; x $A $B", "1|half"),
        ("declare -x A=1; x $A", "1"),
        ("A=$SET; x $A", "half"),
        ("SET=1; x $SET", "1"),
        ("SET=${SET:-1}; x $SET", "half"),
        ("UNSET=${UNSET:-1}; x $UNSET", "1?"),
        (': "${EMPTY:=1}"; x $EMPTY', "1"),
        (': "${SET:=1}"; x $SET', "half"),
        (": ${UNSET:=1}; x $UNSET", "1?"),
        ("A=1 && x $A", "1"),
        ("y && A=1 && x $A", "1"),
        ("y && A=1; x $A", "_"),
        ("y || A=1; x $A", "_"),
        ("y || A=1 && x $A", "_"),
        # Where it stands
        ("A=1 x $A", "_"),
        ("A=1; A=2; x $A", "_"),
        ("SET=1; SET=2; x $SET", "_"),
        ("A=1; A+=2; x $A", "_"),
        ("A=$(y); x $A", "_"),
        ("A=`y`; x $A", "_"),
        ("A=$SECRET; x $A", "_"),
        ("if y; then A=1; fi; x $A", "_"),
        ("if y; then SET=1; fi; x $SET", "_"),
        ("case $SET in half) A=1;; *) y;; esac; x $A", "_"),
        ("for A in 1 2; do y; done; x $A", "_"),
        ("for SET in 1 2; do y; done; x $SET", "_"),
        ("while y; do SET=1; done; x $SET", "_"),
        ("f() { SET=1; }; f; x $SET", "_"),
        ("function f { SET=1; }; f; x $SET", "_"),
        ("(SET=1); x $SET", "_"),
        ("y | SET=1; x $SET", "_"),
        ("SET=1 & x $SET", "_"),
        ("read SET < file; x $SET", "_"),
        ("unset SET; x $SET", "_"),
        ("SET=(1 2); x $SET", "_"),
        ("source ./env.sh; x $SET", "_"),
        (". env.sh && x $SET", "_"),
        ("source /opt/venv/bin/activate && x $SET", "half"),
        ('eval "$(y)"; x $SET', "_"),
        ("pip install -e . && x $SET", "half"),
    ],
)
def test_an_assignment_counts_if_it_is_the_only_one_and_unconditional(script: str, value: str) -> None:
    """Everything else that may set a variable makes it unknown."""
    assert value == argument(script).removesuffix("??")


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("x a; y b\nz c & v d", ["x|a", "y|b", "z|c", "v|d"]),
        ("x a \\\n  b # c\n# d\ny", ["x|a|b", "y"]),
        ("x a#b", ["x|a#b"]),
        ("x a > log 2>&1 b <in", ["x|a|b"]),
        ("x a 2>log >>more &>all | tee b", ["x|a", "tee|b"]),
        ("cat <<EOF >f\nx a\nEOF\ny", ["cat", "y"]),
        ("cat <<-'E' | y\n\tx a\n\tE\nz", ["cat", "y", "z"]),
        ("cat <<E\nx a", ["cat"]),
        ("x 'a; y b' \"c && z d\"", ["x|a; y b|c && z d"]),
        ("x 'a", ["x|'a"]),
        ("echo x a; printf x; [ x = a ] && : x", []),
        ("env A=1 x a", ["x|a"]),
        ("A=1 x a", ["x|a"]),
        ("! x; time y", ["x", "y"]),
        ("x a || y b", ["x|a", "y|b??"]),
        ("if x; then y; else z; fi; v", ["x??", "y??", "z??", "v"]),
        ("while x\ndo y\ndone\nz", ["x", "y??", "z"]),
        ("for i in 1; do x $i; done", ["x|_??"]),
        ("case $SET in a|b) x;; esac; y", ["b??", "x??", "y"]),
        ("f() { x; }\n{ y; } && (z)", ["f", "x??", "y", "z"]),
        ("", []),
        # Scripts in scripts
        ("bash -lc 'x $SET'", ["x|half"]),
        ('bash -c "x $SET; y"', ["x|half", "y"]),
        ("y || sh -c 'x a'", ["y", "x|a??"]),
        ("A=1; sh -c 'x $A'", ["x|_"]),
        ("SET=1 sh -c 'x $SET'", ["x|_"]),
        ('sh -c "x ${UNSET:-a}"', ["x|a??"]),
        ('eval "x $SET"', ["x|_"]),
        ("bash script.sh", ["bash|script.sh"]),
    ],
)
def test_commands_are_found_in_a_script(script: str, expected: list[str]) -> None:
    """Without comments, redirections, here-documents and text that is printed."""
    assert expected == lines(script)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("SET=1 x", {"SET": "1"}),
        ("env SET=1 x", {"SET": "1"}),
        ("export NEW=1; x", {"NEW": "1"}),
        ("NEW=1; export NEW; x", {"NEW": "1"}),
        ("NEW=1; x", {}),
        ("SET=1; x", {"SET": "1"}),
        ("x", {}),
        ("if y; then export SET=1; fi; x", {"SET": UNKNOWN}),
        ("export SET=1; export SET=2; x", {"SET": UNKNOWN}),
        ("OTHER=1 x", {}),
        ("export NEW=1; sh -c 'SET=2 x'", {"NEW": "1", "SET": "2"}),
    ],
)
def test_a_command_has_the_variables_that_the_script_sets_for_it(
    script: str, expected: dict[str, str]
) -> None:
    """Those in which the caller is interested: exported ones, and those of the container."""
    (command,) = (
        command for command in commands(script, KNOWN, (), {"SET", "NEW"}) if command.words[0].text == "x"
    )

    assert expected == {name: word.text for name, word in command.env.items()}


@pytest.mark.parametrize(
    ("words", "index"),
    [
        (["sh", "-c", "x"], 2),
        (["/bin/bash", "-euo", "pipefail", "-lc", "x", "y"], 4),
        (["tini", "--", "bash", "-c", "x"], 4),
        (["python3", "-c", "x"], None),
        (["-c", "x"], None),
        (["sh", "-c"], None),
        (["sh", "run.sh"], None),
        ([], None),
    ],
)
def test_the_script_of_a_shell_is_found(words: list[str], index: int | None) -> None:
    """The word after its option c."""
    assert index == script_index(words)


def test_all_scripts_in_a_script_are_read() -> None:
    """None can be hidden behind others."""
    shown_commands = commands("sh -c y; " * 100 + "sh -c x", {})

    assert ["y"] * 100 + ["x"] == [command.words[0].text for command in shown_commands]


def test_scripts_inside_each_other_are_read_up_to_a_depth() -> None:
    """The others are arguments."""
    (command,) = commands("eval " * MAX_DEPTH + "x", {})

    assert ["eval", "x"] == [word.text for word in command.words]


def test_a_long_script_is_read_to_its_end() -> None:
    """Text before a command does not hide it."""
    shown_commands = commands(f"x {'y' * 10**6}\n" + "y 1; " * 3000 + "z", {})

    assert ("x", "z") == (shown_commands[0].words[0].text, shown_commands[-1].words[0].text)


@pytest.mark.parametrize("part", ["x;", "x $A ", "\\a", "''", "``", "sh -c x;", "A=1 ", "export A=$A\n"])
def test_a_script_of_too_many_parts_is_over_the_budget_and_a_shorter_one_is_read_soon(part: str) -> None:
    """Its steps are counted before it is read."""
    with pytest.raises(OverBudgetError):
        commands(part * MOST_STEPS, {"A": "1"})
    budget, parts = Budget(), 400
    commands(part * parts, {"A": "1"}, budget=budget)

    assert 20 > loops(lambda: commands(part * (parts * (MOST_STEPS - 50) // budget.spent), {"A": "1"}))


def test_values_that_double_each_other_are_unknown_from_the_limit_on() -> None:
    """A few lines would otherwise be a terabyte."""
    script = "A0=xx; x $A0; " + "".join(f"A{at + 1}=$A{at}$A{at}; " for at in range(60)) + "x $A60"

    assert [("x", "xx"), ("x", UNKNOWN)] == [
        tuple(word.text for word in command.words) for command in commands(script, {})
    ]


@pytest.mark.parametrize(
    "part",
    [
        "$(",
        '"',
        "\" '$(' ",
        "\" '$(' \" ')' ",
        "${a:-",
        "${a:-${b}",
        "a[",
        "(",
        "eval ",
        "`",
        "'",
        "A=1 ",
        "if ",
    ],
)
def test_a_script_is_read_in_linear_time(part: str) -> None:
    """Sixteen times as much takes less than a hundred times as long."""
    script = part * (LONGEST // len(part))

    def seconds(text: str) -> float:
        begin = time.process_time()
        commands(text, KNOWN)
        return time.process_time() - begin

    short = min(seconds(script[: LONGEST // 16]) for _ in range(3))
    assert max(100 * short, 0.1) > seconds(script)


@given(st.text(alphabet="aA=1 $'\"`(){};&|<>\\\n#:-+[]!\0é", max_size=60) | st.text(max_size=40))
def test_no_script_raises(script: str) -> None:
    """Whatever a user writes."""
    for command in commands(script, {"A": "1 2"}, {"a"}, {"A"}):
        assert all(isinstance(word.text, str) for word in command.words)


@given(st.lists(st.sampled_from(["x", "--dtype=half", "a/b", "1.5", "é"]), min_size=1))
def test_plain_words_stay_as_they_are(words: list[str]) -> None:
    """In one command."""
    (command,) = commands(" ".join(words), KNOWN)

    assert words == [word.text for word in command.words]
