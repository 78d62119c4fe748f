"""What of a pod tells what a container needs of a node: little, and the same in most pods of a kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rules.cuda import framework_flags as flags
from rules.cuda.nvidia_require import DISABLE_REQUIRE, REQUIRE_PREFIX
from rules.cuda.requirements import (
    ANNOTATIONS,
    CUDA_VERSION_VARIABLE,
    ContainerFacts,
    GpuRequirements,
    requirements_of,
)
from rules.kube.container_env import Environment, environment, references
from rules.text.bounded_cache import bounded_cache, length

if TYPE_CHECKING:
    from rules.cuda.image_catalog import ImageCatalog
    from rules.kube.pod import Container

_Pairs = tuple[tuple[str, str], ...]

# Containers that differ in what they need, or in how they say so; 8 KB each at most.
_REMEMBERED: Final = 1024
_LONGEST: Final = 4096  # characters of all facts of one


class Facts(NamedTuple):
    """All of a container that tells what it needs, in texts.

    words: command and args. known, unknown: variables that tell something or stand in what does, with their
    values where those are known. annotations: those of the pod that tell something.
    """

    name: str
    image: str
    words: tuple[str, ...] = ()
    known: _Pairs = ()
    unknown: tuple[str, ...] = ()
    annotations: _Pairs = ()


def facts_of(container: Container, annotations: Mapping[str, str]) -> Facts:
    """Return the facts of a container of a pod with these annotations."""
    words = (*container.strings("command"), *container.strings("args"))
    known, unknown = _variables(container, words)
    said = (
        tuple(pair for pair in annotations.items() if pair[0].startswith(ANNOTATIONS)) if annotations else ()
    )
    return Facts(container.name, container.image, words, known, unknown, said)


def reader(catalog: ImageCatalog) -> Callable[[Facts], GpuRequirements]:
    """Return what finds the needs that follow from facts, and remembers them. catalog: of images."""

    def needs(facts: Facts) -> GpuRequirements:
        env = Environment(dict(facts.known), frozenset(facts.unknown))
        container = ContainerFacts(facts.name, facts.image, env, facts.words)
        return requirements_of(container, dict(facts.annotations), catalog)

    return bounded_cache(needs, _REMEMBERED, lambda facts: length(facts) <= _LONGEST)


def _variables(container: Container, words: tuple[str, ...]) -> tuple[_Pairs, tuple[str, ...]]:
    """Return the variables that tell something, and those that the words or such a variable refer to."""
    names, tellers = container.variables, telling()
    referring = "$" in "".join(words)
    if not referring and tellers.isdisjoint(names) and REQUIRE_PREFIX not in "".join(names):
        return (), ()
    env = environment(container.env)
    told = {name for name in env.known if name in tellers or name.startswith(REQUIRE_PREFIX)}
    told |= references([*words, *(env.known[name] for name in told)])
    known = tuple(pair for pair in env.known.items() if pair[0] in told)
    return known, tuple(sorted(env.unknown & tellers))


@cache
def telling() -> frozenset[str]:
    """Return the variables that tell something, but for those that begin with REQUIRE_PREFIX."""
    return frozenset({CUDA_VERSION_VARIABLE, DISABLE_REQUIRE, *flags.variables()})
