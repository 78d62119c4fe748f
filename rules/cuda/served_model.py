"""The model that an inference server loads, and what it needs: facts/frameworks.yaml and facts/models.yaml.

An unknown model needs nothing. The weights are a lower bound: what else a server needs is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import ceil, prod
from typing import Any, Final, NamedTuple

from msgspec import Struct
from packaging.version import Version

from rules.cuda.framework_flags import (
    Framework,
    Subject,
    Value,
    Values,
    applies,
    first_value,
    frameworks,
    image_versions,
    number_of,
    program_values,
    required_by_value,
    started_programs,
    text_of_way,
)
from rules.cuda.gpu_memory import requested_memory
from rules.cuda.image_catalog import covers, parse_version
from rules.cuda.mig_profiles import profile_of
from rules.cuda.models import ModelFacts, model_facts
from rules.cuda.shell_script import Command, CommandLine, FlagSearch
from rules.cuda.tables import Facts, Status, capability, derived, read_table
from rules.cuda.versions import ComputeCapability
from rules.kube.pod import Container
from rules.kube.quantity import QuantityError, parse_quantity
from rules.text.i18n import Joined, Message
from rules.text.printable import shortened

BFLOAT16_SINCE: Final = ComputeCapability(8, 0)
_GIB: Final = 2**30
_BFLOAT16: Final = "bfloat16"
_AUTO: Final = "auto"
_FLOAT16: Final = ("half", "float16")
_FLOAT32: Final = ("float", "float32")
_FP8: Final = "fp8"
# Weights of a block with one scale, in each direction.
_FP8_BLOCK: Final = 128
# More parts are ignored as a mistake.
_MOST_PARTS: Final = 1024
# Numbers of GPUs that are suggested, of one node.
_RANKS: Final = (2, 4, 8, 16)
_LONGEST: Final = 80  # characters of a user's text in a message
_LONGEST_URI: Final = 256  # of a model
_MOST: Final = 8  # programs of one container; a script seldom starts more
_ONE: Final = Fraction(1)
_SOME: Final = Version("1")
_NO_TEXT: Final = Message()
_URI: Final = "hf://"
_CACHE: Final = "models--"  # of Hugging Face: models--ORG--NAME/snapshots/…
_NUMBER: Final = re.compile(r"\d{1,4}(?:\.\d{1,6})?|\.\d{1,6}", re.ASCII)


_LOADS: Final = Message(
    "{program} loads {model}: {parameters} billion parameters, "
    "at least {total} GiB of weights on {ranks} × GPU"
)
_LOADS_BY_NAME: Final = Message(
    "{program} loads {model}: about {parameters} billion parameters by its name, "
    "at least {total} GiB of weights on {ranks} × GPU"
)
_REQUEST_ONE: Final = Message("request one GPU")
_REQUEST: Final = Message("request {count} GPUs")


class Serving(NamedTuple):
    """What decides about the model of a container, besides its command line and variables."""

    gpus: int = 0  # whole GPUs or MIG devices that it requests; 0: none, an unknown number, or shares
    device_mib: int | None = None  # the memory of one at most; None: that of the node's GPUs
    stored: str = ""  # the model whose files are mounted
    has_other_variables: bool = False  # envFrom may set any


class ModelSplit(NamedTuple):
    """Parts into which a server cannot split a model."""

    reason: Message
    remedy: Message
    certain: bool
    flag: str  # as in the pod


class ModelPrecision(NamedTuple):
    """The data type of a model without which the server does not start.

    since: from this compute capability on, GPUs have it; None: the server refuses it on all.
    remedy: another way than a newer GPU; may be empty.
    """

    reason: Message
    remedy: Message
    certain: bool
    since: ComputeCapability | None


class ModelWeights(NamedTuple):
    """The weights of a model, in bytes.

    least: of all ranks together; older: below compute capability 8.0.
    kept: of each rank, in host memory.
    fraction: of a GPU's memory that the server uses.
    divisors: attention heads and key-value heads; 0: there are none, or any number of ranks suits them.
    device_mib: of a MIG device that it requests, at most; None: the memory is that of the node's GPUs.
    by_name: only the name of the model says its size.
    flag: of the number of ranks; empty: that of all GPUs; None: several flags set it, or none does.
    """

    program: str
    model: str
    parameters: float  # billions
    least: int
    older: int
    ranks: int
    kept: int
    fraction: Fraction
    divisors: tuple[int, int]
    flag: str | None
    is_16_bit: bool
    certain: bool
    device_mib: int | None = None
    by_name: bool = False

    def on_rank(self, capability: tuple[int, int] | None) -> Fraction:
        """Return the bytes on each GPU, of a compute capability; on average, if they differ."""
        total = self.older if capability is not None and capability < BFLOAT16_SINCE else self.least
        return Fraction(total, self.ranks) - self.kept

    @property
    def origin(self) -> Message:
        """Where the number of bytes is from."""
        words = _LOADS_BY_NAME if self.by_name else _LOADS
        return words.having(
            program=self.program,
            model=self.model,
            parameters=f"{self.parameters:g}",
            total=gib(self.least),
            ranks=self.ranks,
        )

    def ranks_for(self, memory: Fraction, capability: tuple[int, int] | None) -> int | None:
        """Return the least greater number of GPUs with this memory (bytes) for the weights; None: none."""
        for ranks in _RANKS if self.flag is not None else ():
            enough = self._replace(ranks=ranks).on_rank(capability) < memory * self.fraction
            if ranks > self.ranks and enough and splits_heads(*self.divisors, ranks):
                return ranks
        return None


class ModelRequirement(NamedTuple):
    """What a server needs for its model."""

    name: str
    splits: tuple[ModelSplit, ...] = ()
    precision: ModelPrecision | None = None
    weights: ModelWeights | None = None

    @property
    def since(self) -> ComputeCapability | None:
        """The lowest compute capability with its data type; None: any."""
        return self.precision.since if self.precision else None

    def without_texts(self) -> ModelRequirement:
        """Return it without words and names: equal for versions of a server that need the same."""
        precision, weights = self.precision, self.weights
        return ModelRequirement(
            "",
            tuple(split._replace(reason=_NO_TEXT, remedy=_NO_TEXT) for split in self.splits),
            precision and precision._replace(reason=_NO_TEXT, remedy=_NO_TEXT),
            weights and weights._replace(program="", model=""),
        )


def gib(amount: Fraction | int) -> str:
    """Return bytes in GiB, with one decimal."""
    return f"{float(amount) / _GIB:.1f}"


def request_of(count: int) -> Message:
    """Return the fix to request a number of GPUs."""
    return _REQUEST.having(count=count) if count > 1 else _REQUEST_ONE


def splits_heads(heads: int, kv_heads: int, parts: int) -> bool:
    """Return whether attention heads can be split into parts. 0: none, or unknown."""
    if kv_heads and (kv_heads % parts if kv_heads >= parts else parts % kv_heads):
        return False
    return not heads % parts


class _ModelField(NamedTuple):
    """The field of a custom resource that names its model, unless others are there."""

    uri: tuple[str, ...]
    unless: tuple[tuple[str, ...], ...]


class _Signs(NamedTuple):
    """Signs of models in a pod, of facts/container_signs.yaml."""

    annotations: tuple[str, ...]
    fields: tuple[str, ...]
    objects: Mapping[str, _ModelField]
    mount: str
    gpus: frozenset[str]


@cache
def _signs() -> _Signs:
    table = read_table("container_signs")
    annotations, fields = tuple(table["model_annotations"]), tuple(table["model_fields"])
    objects = {
        kind: _ModelField(_path(row["uri"]), tuple(map(_path, row["unless"])))
        for kind, row in table["model_objects"].items()
    }
    return _Signs(annotations, fields, objects, table["model_mount"], frozenset(table["whole_gpus"]))


def _path(text: str) -> tuple[str, ...]:
    return tuple(text.split("."))


def stored_model(container: Container, annotations: Mapping[str, str]) -> str:
    """Return the model whose files are mounted into a container; empty if unknown."""
    signs, raw = _signs(), container.raw
    for name in signs.fields:
        if name in raw and isinstance(raw[name], str):
            return str(raw[name])[:_LONGEST_URI]
    if annotations:
        for name in signs.annotations:
            if name in annotations:
                return annotations[name][:_LONGEST_URI]
    kind = container.field_of_object("kind")
    if isinstance(kind, str) and (of_object := signs.objects.get(kind)):
        uri = container.field_of_object(*of_object.uri)
        if isinstance(uri, str) and not any(container.field_of_object(*path) for path in of_object.unless):
            return uri[:_LONGEST_URI]
    return ""


def serving(container: Container, stored: str) -> Serving:
    """Return what else decides about the model of a container."""
    gpus = _signs().gpus
    known = [name for name in container.names if name in gpus or profile_of(name)]
    others = any("gpu" in name for name in container.names if name not in known)
    count = 0
    if len(known) == 1 and not others and not container.has_claims:
        try:
            count = int(parse_quantity(container.request(known[0]) or 0))
        except QuantityError:  # the resource's own rule reports it
            count = 0
    device = requested_memory(container) if count and profile_of(known[0]) else None
    return Serving(count, device and device.mib, stored, bool(container.env_from))


class _Server(Struct, frozen=True):
    """How a framework names its model, and what follows, from the table."""

    entry: Mapping[str, Any]
    certain: bool
    after: tuple[tuple[str, ...], ...]  # words
    names: frozenset[str]
    tensor: frozenset[str]
    pipeline: str  # a flag; empty if there is none
    sizes: tuple[frozenset[str], ...]  # names of all numbers of parts, and of replicas
    flags: frozenset[str]  # all
    env: frozenset[str]  # all variables


@derived
def _servers(facts: Facts) -> Mapping[Framework, _Server]:
    servers = {framework: _server(framework) for framework in frameworks(facts) if framework.model}
    for server in servers:
        _check(server, facts.table("frameworks")["ways"])
    return servers


def _check(framework: Framework, ways: Mapping[str, Any]) -> None:
    """Read all values once. Raises LookupError or ValueError: the table is wrong."""
    entry = framework.model
    for flag, methods in entry.get("methods", {}).items():
        for method in methods.values():
            framework.rows[flag][method]
    for status in [entry[key] for key in ("status", "heads", "kv_heads") if key in entry]:
        Status(status)
    if experts := entry.get("fp8_experts"):
        Status(experts["status"])
        covers(experts["versions"], _SOME)
    if attention := entry.get("attention"):
        Status(attention["status"])
        capability(attention["compute"])
        covers(attention["versions"], _SOME)
    if dtype := entry.get("dtype"):
        for key in ("stops", "float32"):
            covers(dtype[key], _SOME)
        for way in (*dtype["ways"], *dtype["ways_without_float16"]):
            text_of_way(ways[way])
    for default in entry.get("fraction", {}).get("default", ()):
        Fraction(default["fraction"])


def _server(framework: Framework) -> _Server:
    entry, parallelism = framework.model, framework.parallelism
    factors: Mapping[str, Any] = parallelism.get("factors", {})
    tensor = frozenset(factors.get("tensor", factors.get("shards", ())))
    names = frozenset(entry.get("names", ()))
    groups = [
        entry.get("dtype", {}).get("flags", ()),
        *(entry.get("fraction", {}).get(key, ()) for key in ("names", "unless")),
        *(entry.get(key, ()) for key in ("heads_unless", "smaller", "offload", "unsure", "unless")),
        entry.get("fp8_experts", {}).get("unless", ()),
    ]
    sizes = tuple(map(frozenset, [*factors.values(), parallelism.get("replicas", ())]))
    every = names.union(*groups, *sizes)
    flags = frozenset(name for name in every if name.startswith("-"))
    return _Server(
        entry=entry,
        certain=framework.certain and Status(entry["status"]).certain,
        after=tuple(tuple(command.split()) for command in entry.get("after", ())),
        names=names,
        tensor=tensor,
        pipeline=next(iter(factors.get("pipeline", ())), ""),
        sizes=sizes,
        flags=flags,
        env=every - flags,
    )


@derived
def model_subject(facts: Facts) -> Subject:
    """Return the servers whose models are known, and what names these."""
    servers = _servers(facts)
    names = frozenset().union(*(server.names for server in servers.values()))
    commands = {command for server in servers.values() for command in server.entry.get("after", ())}
    env = frozenset(name for name in names if not name.startswith("-"))
    return Subject(tuple(servers), FlagSearch((names - env) | commands), env)


@derived
def model_variables(facts: Facts) -> frozenset[str]:
    """Return the variables that decide about a model."""
    return frozenset().union(*(server.env for server in _servers(facts).values()))


def may_be_name(word: str) -> bool:
    """Return whether the first argument of an image's command may name a model: `ORG/MODEL`."""
    return word.count("/") == 1 and word[0] not in "/.-" and len(word) <= _LONGEST


def served_models(
    facts: Facts, image: str, line: CommandLine, unknown: Collection[str], serving: Serving
) -> tuple[ModelRequirement, ...]:
    """Return what a container needs for the models that it serves. Raises OverBudgetError.

    unknown: variables without a known value.
    """
    subject = model_subject(facts)
    if line.too_long:
        return ()
    may = subject.concerns(line) or serving.stored or (line.words and may_be_name(line.words[0]))
    named = image_versions(facts, image) if may else None
    if not may or named is None:
        return ()
    programs = [*started_programs(subject, named, line)]
    models: dict[ModelRequirement, None] = {}
    for framework, parts in programs[:_MOST]:
        server = _servers(facts)[framework]
        values = program_values(server.flags, server.env, line.env, parts)
        name = _name(server, framework.key in named, values, parts, serving.stored)
        model = model_facts(_normalized(name.text), facts) if name else None
        if name is None or model is None:
            continue
        is_open = bool(server.env) and (serving.has_other_variables or not server.env.isdisjoint(unknown))
        # Another program may run instead, or use the other GPUs.
        certain = server.certain and name.certain and not is_open and len(programs) == 1
        version = named.get(framework.key)
        program = _Program(facts, framework, server, version, values, serving, certain)
        if requirement := program.requirement(_normalized(name.text), model):
            models[requirement] = None
    return tuple(models)


def _name(
    server: _Server, in_image: bool, values: Values, parts: tuple[Command, ...], stored: str
) -> Value | None:
    """Return the name of the model; None if there is none."""
    given = first_value(values, server.names)
    written = next(filter(None, (_argument(server.after, command) for command in parts)), None)
    if written is None and given is None and in_image and server.entry.get("first"):
        words = parts[-1].words
        if words and may_be_name(words[0].text):
            written = Value(words[0].text, words[0].text, words[0].certain)
    if given and written and given.text != written.text:
        return None
    name = written or given
    if stored and (name is None or name.text.rstrip("/") == _signs().mount):
        return Value(stored, stored, certain=name is not None and name.certain)
    return name


def _argument(after: tuple[tuple[str, ...], ...], command: Command) -> Value | None:
    """Return the first argument of a program, if it is no flag. Linear in the words of its command."""
    texts = [word.text for word in command.words]
    for index, text in enumerate(texts):
        program = text.rpartition("/")[2]
        for first, *rest in after:
            end = index + 1 + len(rest)
            if program == first and texts[index + 1 : end] == rest and end < len(texts):
                word = command.words[end]
                if not word.text.startswith("-"):
                    return Value(word.text, word.text, word.certain and command.certain)
    return None


def _normalized(name: str) -> str:
    """Return the name of a model on Hugging Face; a URI, and a path of its cache, contain one."""
    if name.startswith(_URI):
        return name.removeprefix(_URI).partition(":")[0].partition("@")[0]
    if _CACHE in name:
        return name.partition(_CACHE)[2].partition("/")[0].replace("--", "/", 1)
    return name.strip()


class _Program(NamedTuple):
    """A server with its flags."""

    facts: Facts
    framework: Framework
    server: _Server
    version: Version | None
    values: Values
    serving: Serving
    certain: bool

    @property
    def gpus(self) -> int:
        return self.serving.gpus

    @property
    def name(self) -> str:
        return f"{self.framework.name} {self.version}" if self.version else self.framework.name

    def requirement(self, name: str, model: ModelFacts) -> ModelRequirement | None:
        """Return what the server needs for a model; None if nothing is known."""
        entry = self.server.entry
        if any(applies(self.values, flag, texts) for flag, texts in _with_texts(entry.get("unless", {}))):
            return None
        shown = shortened(name, _LONGEST)
        requirement = ModelRequirement(
            shown,
            tuple(self._splits(shown, model)),
            self._precision(shown, model),
            self._weights(shown, model),
        )
        return requirement if any(requirement[1:]) else None

    def _any(self, names: Collection[str]) -> bool:
        return not self.values.keys().isdisjoint(names)

    # Parts

    def _splits(self, name: str, model: ModelFacts) -> Iterator[ModelSplit]:
        entry, flag = self.server.entry, first_value(self.values, self.server.tensor)
        parts = number_of(flag) if flag else None
        if flag is None or not parts or not 1 < parts <= _MOST_PARTS:
            return
        if self._any(entry.get("heads_unless", ())):
            return
        heads, kv_heads = self._heads(model)
        certain = self.certain and flag.certain and model.heads_status.certain
        words = None
        if heads and heads % parts:
            words = Message("{count} attention heads", count=heads)
            certain &= Status(entry["heads"]).certain
        elif not splits_heads(0, kv_heads, parts):
            words = Message("{count} key-value heads", count=kv_heads)
            certain &= Status(entry["kv_heads"]).certain
        if words:
            reason = Message(
                "{program} cannot split the {heads} of {model} into {parts} parts (`{flag}`)",
                program=self.name,
                heads=words,
                model=name,
                parts=parts,
                flag=flag.written,
            )
            fewer = self._fewer(flag, parts, lambda count: splits_heads(heads, kv_heads, count))
            yield ModelSplit(reason, fewer, certain, flag.written)
        elif self._splits_experts(model, parts):
            width, row = model.expert_width or 0, entry["fp8_experts"]
            reason = Message(
                "{program} cannot split the experts of {model} into {parts} parts (`{flag}`): "
                "{width} / {parts} is no multiple of {block}, the block of their FP8 weights",
                program=self.name,
                model=name,
                parts=parts,
                flag=flag.written,
                width=width,
                block=_FP8_BLOCK,
            )
            fewer = self._fewer(
                flag,
                parts,
                lambda count: splits_heads(heads, kv_heads, count) and not width % (count * _FP8_BLOCK),
            )
            way = Message("add `{flag}`", flag=row["way"].replace("{parts}", str(parts)))
            yield ModelSplit(
                reason, Joined(", or ", [way, fewer]), certain and Status(row["status"]).certain, flag.written
            )

    def _heads(self, model: ModelFacts) -> tuple[int, int]:
        """Return the attention heads and key-value heads that the number of parts must suit; 0: any."""
        heads, kv_heads = model.heads or 0, model.kv_heads or 0
        entry = self.server.entry
        return heads if "heads" in entry else 0, kv_heads if "kv_heads" in entry else 0

    def _splits_experts(self, model: ModelFacts, parts: int) -> bool:
        """Return whether parts of experts are certain to end within a block of FP8 weights."""
        row = self.server.entry.get("fp8_experts")
        if row is None or self.version is None or not covers(row["versions"], self.version):
            return False
        if model.quantization != _FP8 or not model.expert_width or not model.heads_status.certain:
            return False
        if self._any(row["unless"]) or self._any(self.server.sizes[-1]):
            return False
        return bool(model.expert_width % (parts * _FP8_BLOCK))

    def _fewer(self, flag: Value, parts: int, fits: Callable[[int], bool]) -> Message:
        """Return the fix with the greatest smaller number of parts that divides the present one."""
        smaller = (count for count in range(parts // 2, 1, -1) if not parts % count and fits(count))
        count = next(smaller, 1)
        lower = Message("set `{flag}`", flag=f"{flag.written.rstrip('0123456789')}{count}")
        fix = Message("{lower} and {request}", lower=lower, request=request_of(count))
        if not self.server.pipeline or self._any(set().union(*self.server.sizes) - self.server.tensor):
            return fix
        rest = f"{self.server.pipeline}={parts // count}"
        return Message("{fix}, or {lower} and `{flag}`", fix=fix, lower=lower, flag=rest)

    # Data type

    def _precision(self, name: str, model: ModelFacts) -> ModelPrecision | None:
        for flag, methods in self.server.entry.get("methods", {}).items():
            if model.name in methods and model.quantization and not self._any(self.server.entry["smaller"]):
                return self._of_method(name, model, flag, methods[model.name])
        if need := self._attention(name, model):
            return need
        row = self.server.entry.get("dtype")
        if row is None or self.version is None or self._is_quantized(model):
            return None
        flag, certain = first_value(self.values, frozenset(row["flags"])), self.certain
        text = flag.text.lower() if flag else _AUTO
        if text == _AUTO and model.dtype == _BFLOAT16 and covers(row["stops"], self.version):
            reason = Message(
                "{program} without `{flag}` uses the data type of {model}, bfloat16, "
                "which needs compute capability {since}",
                program=self.name,
                flag=row["flags"][0],
                model=name,
                since=BFLOAT16_SINCE,
            )
            ways = row["ways" if model.float16 else "ways_without_float16"]
            remedy: Message = Joined(
                " or ", [text_of_way(self.facts.table("frameworks")["ways"][way]) for way in ways]
            )
            certain &= model.dtype_status.certain and (flag is None or flag.certain)
            return ModelPrecision(reason, remedy, certain, BFLOAT16_SINCE)
        if text in _FLOAT16 and flag and not model.float16 and covers(row["float32"], self.version):
            reason = Message(
                "{program} refuses `{flag}` for {model}", program=self.name, flag=flag.written, model=name
            )
            remedy = Message("set `{flag}`", flag=f"{row['flags'][0]}={_AUTO}")
            return ModelPrecision(reason, remedy, certain and model.status.certain and flag.certain, None)
        return None

    def _attention(self, name: str, model: ModelFacts) -> ModelPrecision | None:
        """Return what the attention of a model needs, with every data type; None if nothing is known."""
        row = self.server.entry.get("attention")
        if row is None or self.version is None or model.name not in row["models"]:
            return None
        if not covers(row["versions"], self.version):
            return None
        since = capability(row["compute"])
        reason = Message(
            "{program} runs the attention of {model} only with compute capability {since} or higher",
            program=self.name,
            model=name,
            since=since,
        )
        certain = self.certain and model.status.certain and Status(row["status"]).certain
        return ModelPrecision(reason, _NO_TEXT, certain, since)

    def _of_method(self, name: str, model: ModelFacts, flag: str, method: str) -> ModelPrecision | None:
        """Return what the quantization in which a model is stored needs; None if nothing.

        It is as if a flag had this value.
        """
        need = required_by_value(self.framework, self.version, flag, method)
        if need is None or need.compute is None:
            return None
        reason = Message(
            "{program} loads {model} with its quantization {method}, which needs compute capability {since}",
            program=self.name,
            model=name,
            method=method,
            since=need.compute,
        )
        certain = self.certain and need.certain and model.weights_status.certain
        return ModelPrecision(reason, _NO_TEXT, certain, need.compute)

    def _is_quantized(self, model: ModelFacts) -> bool:
        """Return whether the weights may have less than 16 bits."""
        smaller = self.server.entry.get("smaller", {})
        return bool(model.quantization) or any(
            applies(self.values, flag, texts) for flag, texts in _with_texts(smaller)
        )

    # Weights

    def _weights(self, name: str, model: ModelFacts) -> ModelWeights | None:
        entry, sizes = self.server.entry, self._sizes()
        if not model.weights or not self.gpus or sizes is None:
            return None
        ranks = prod(sizes.values())
        used = [value for value in (first_value(self.values, names) for names in self.server.sizes) if value]
        fraction, fraction_certain = self._fraction()
        kept = self._kept()
        if kept is None:
            return None
        least, is_16_bit = model.weights, not self._is_quantized(model)
        dtype = entry.get("dtype")
        flag = first_value(self.values, frozenset(dtype["flags"])) if dtype else None
        older = 1
        if is_16_bit and flag and flag.text.lower() in _FLOAT32:
            least *= 2 if flag.certain else 1
        elif is_16_bit and dtype and self.version and not model.float16:
            wide = (flag is None or flag.text.lower() == _AUTO) and covers(dtype["float32"], self.version)
            older = 2 if wide else 1
        elif not is_16_bit and not model.quantization:
            least //= 4
        tensor = {names: size for names, size in sizes.items() if names == self.server.tensor}
        return ModelWeights(
            program=self.name,
            model=name,
            parameters=model.parameters,
            least=least,
            older=least * older,
            ranks=ranks,
            kept=kept,
            fraction=fraction,
            divisors=self._heads(model),
            flag=self._tensor_flag() if prod(tensor.values()) == ranks else None,
            is_16_bit=is_16_bit,
            device_mib=self.serving.device_mib,
            by_name=not model.name,
            certain=self.certain
            and fraction_certain
            and not kept
            and ranks <= self.gpus
            and all(value.certain for value in used)
            and not self._any(entry.get("unsure", ()))
            and model.weights_status.certain,
        )

    def _sizes(self) -> Mapping[frozenset[str], int] | None:
        """Return the numbers of parts and replicas by their names; None if one is unknown.

        Experts are spread over replicas, too.
        """
        sizes: dict[frozenset[str], int] = {}
        for names in self.server.sizes:
            if value := first_value(self.values, names):
                size = number_of(value)
                if not size:
                    return None
                sizes[names] = size
        if self.server.entry.get("all_gpus") and not sizes:
            sizes[self.server.tensor] = self.gpus
        return sizes

    def _tensor_flag(self) -> str | None:
        """Return the flag of the number of parts; empty: that of all GPUs; None: unknown."""
        flag = first_value(self.values, self.server.tensor)
        if flag:
            return flag.written.rstrip("0123456789").rstrip("= ")
        if self.server.entry.get("all_gpus"):
            return ""
        names = self.framework.parallelism.get("factors", {}).get("tensor", ())
        return names[0] if names else None

    def _fraction(self) -> tuple[Fraction, bool]:
        """Return the part of a GPU's memory that the server uses, and whether that is certain."""
        row = self.server.entry.get("fraction")
        if row is None or self._any(row.get("unless", ())):
            return _ONE, True
        if value := first_value(self.values, frozenset(row["names"])):
            part = Fraction(value.text) if _NUMBER.fullmatch(value.text) else None
            return (part, value.certain) if part and part < _ONE else (_ONE, True)
        fraction = _ONE
        for default in row.get("default", ()):
            below = parse_version(default.get("below"))
            fraction = Fraction(default["fraction"])
            if below and self.version and self.version < below:
                break
        return fraction, True

    def _kept(self) -> int | None:
        """Return the bytes of a rank that stay in host memory; None if they are unknown."""
        value = first_value(self.values, frozenset(self.server.entry.get("offload", ())))
        if value is None:
            return 0
        return ceil(Fraction(value.text) * _GIB) if _NUMBER.fullmatch(value.text) else None


def _with_texts(names: Mapping[str, Any]) -> list[tuple[str, frozenset[str]]]:
    return [(name, frozenset(texts)) for name, texts in names.items()]
