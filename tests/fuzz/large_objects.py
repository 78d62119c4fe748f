"""Large objects by their shape: how many of each thing an object has, and of what length.

A shape gives a number for each of some GENES; those that are absent have the least. Objects of equal shapes
differ in their names and values by a salt, so that no cache has seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, NamedTuple
from zlib import crc32

from rules.cuda.framework_flags import variables
from rules.cuda.tables import BUILT_IN
from tests.bench.cases import builtin
from tests.fuzz.large_cluster import NAMESPACE, TEMPLATES
from tests.support.node_builders import DRIVERS

Shape = Mapping[str, int]
Json = dict[str, Any]

# Bytes: what an API server accepts of a client.
LONGEST: Final = 3 * 2**20

# The kinds of objects: API version, kind, what contains the templates.
_KINDS: Final[tuple[tuple[str, str, Callable[[list[Any]], Json]], ...]] = (
    ("v1", "Pod", lambda pods: pods[0]),
    ("apps/v1", "Deployment", lambda pods: {"spec": {"template": pods[0]}}),
    ("ray.io/v1", "RayCluster", lambda pods: {"spec": {"workerGroupSpecs": [{"template": p} for p in pods]}}),
    (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        lambda pods: {"spec": {"replicatedJobs": [{"template": {"spec": {"template": p}}} for p in pods]}},
    ),
    (
        "kubeflow.org/v1",
        "PyTorchJob",
        lambda pods: {
            "spec": {"pytorchReplicaSpecs": {f"R{n}": {"template": p} for n, p in enumerate(pods)}}
        },
    ),
    ("v1", "PodTemplate", lambda pods: {"template": pods[0]}),
    ("serving.kserve.io/v1beta1", "InferenceService", lambda pods: {"spec": {"predictor": pods[0]["spec"]}}),
)
_SEVERAL: Final = ("RayCluster", "JobSet", "PyTorchJob")


def _letters(own: str) -> str:
    """Return six letters for a text."""
    number = crc32(own.encode())
    return "".join("memorygpu"[number // 9**at % 9] for at in range(6))


# Names of resources by a text of their own; the last are similar to names of rules and match a glob.
_GLOBS: Final[tuple[Callable[[str], str], ...]] = (
    lambda own: f"nvidia.com/mig-{own}g",
    lambda own: f"huawei.com/Ascend910-{own}",
    lambda own: f"example.com/x{own}",
    lambda own: f"iluvatar.ai/{own}",
    lambda own: f"volcano.sh/gpu-{_letters(own)}",
)
_VALUES: Final = ("1", "100", "1500m", "0.001Ei", "-1", "x", "1e999", "x" * 300, "9" * 60, 1.5)
_IMAGES: Final = (
    "",
    "team/app:cuda13.0",
    "nvidia/cuda:12.2.0-runtime-ubuntu22.04",
    "vllm/vllm-openai:v0.8.4",
    "registry.example.com:5000/team/paddle:1",
    "pytorch/pytorch:2.0.0-cuda11.7-cudnn8-runtime",
    "lmsysorg/sglang:v0.4.6",
    "ghcr.io/huggingface/text-generation-inference:3.0.0",
)
# Conditions of NVIDIA_REQUIRE_*, of which several alternate; c, d and a are what nodes have as version of
# CUDA, branch of the driver and compute capability.
_FACTORS: Final = (
    "cuda>={n}.4",
    "driver>={n}",
    "brand=b{n}",
    "arch>=7.{n}",
    "driver<{n}.3.3.3.3.3.3",
    "cuda!={n}",
    "driver>={d},driver<{d}.{n}",
    "driver>={d},driver<{d}.999|arch={a}|cuda={c}",
    "brand=tesla,driver>={d},driver<{d}.999|cuda>={c},arch>={a}",
)
_ARGUMENTS: Final = (
    "--dtype=bfloat16",
    "vllm serve --dtype=bfloat16 # $(\n",
    "--dtype=$(V{n})",
    "sh -c 'vllm serve --quantization fp8; '",
    'bash -lc "exec python -m vllm.entrypoints.openai.api_server --dtype $V{n} && \\',
    "--kv-cache-dtype=fp8",
    "x{n}",
    "\\'\"`;&|",
    "--tensor-parallel-size={n}",
    "vllm serve -tp $(V{n}) --pipeline-parallel-size 2 --nnodes={n}; ",
    "sh -c 'torchrun --nproc-per-node={n} x; python -m sglang.launch_server --tp $V{n}'",
    "--num-shard={n} --sharded=true",
)
_COMMANDS: Final = (
    (),
    ("sh", "-c"),
    ("bash", "-lc"),
    ("vllm", "serve"),
    ("python", "-m", "vllm.entrypoints.openai.api_server"),
)
_REFERENCES: Final = ("{v}", "$(V{p})$(V{p})", "$(V0)", "$$(V0)$(", "$(V{n}")
# Labels of nodes with values that nodes have, and others.
_KEYS: Final = (
    ("nvidia.com/gpu.product", "Tesla-T4"),
    ("kubernetes.io/hostname", "node-{n}"),
    ("node.kubernetes.io/instance-type", "type-{n}"),
    ("nvidia.com/cuda.runtime-version.major", "{n}"),
    ("rack-position", "{n}"),
    ("example.com/k{n}", "v{n}"),
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "Gt", "Lt", "DoesNotExist")
_TOLERATIONS: Final = (
    {"key": "k{n}", "operator": "Exists"},
    {"key": "nvidia.com/gpu", "value": "v{n}"},
    {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3},
)
_CLAIMS: Final = ("resourceClaimTemplateName", "resourceClaimName")

# Where a volume comes from, and where it is mounted.
_SOURCES: Final[tuple[Json, ...]] = (
    {"emptyDir": {}},
    {"emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
    {"hostPath": {"path": "/dev/nvidia0"}},
)
_PATHS: Final = ("/{n}", "/dev/shm", "/dev/shm/{n}")
# Prefixes of labels and annotations; the second is that of our own.
_DOMAINS: Final = ("example.com/", "gpugate.dev/", "gpugate.dev/cuda-version.", "")

# Each number of a shape, with its least and its greatest value.
GENES: Final[dict[str, tuple[int, int]]] = {
    "kind": (0, len(_KINDS) - 1),
    "debug": (0, 1),  # ephemeral containers of a pod, by its subresource
    "update": (0, 4),  # created; updated without old object, from equal, other, and reversed templates
    "validating": (0, 1),
    "policy": (0, 3),  # of large_cluster
    "cluster": (0, 1),
    "templates": (1, 20_000),
    "plain": (0, 20_000),  # templates without accelerators
    "containers": (0, 20_000),
    "init": (0, 20_000),
    "unaccelerated": (0, 20_000),
    "ephemeral": (0, 20_000),
    "vary": (0, 1),  # whether containers differ in all of this
    "group": (0, 39),
    "names": (0, 1000),
    "glob": (0, len(_GLOBS) - 1),
    "value": (0, len(_VALUES) - 1),
    "requests": (0, 2),
    "image": (0, len(_IMAGES) - 1),
    "image_length": (0, 2_000_000),
    "name_length": (0, 2_000_000),
    "require": (0, 5000),
    "groups": (0, 500_000),
    "factors": (1, 100_000),
    "factor": (0, len(_FACTORS) - 1),
    "env": (0, 100_000),
    "env_length": (0, 2_000_000),
    "reference": (0, len(_REFERENCES) - 1),
    "unknown": (0, 50_000),
    "flags": (0, 20),
    "cuda": (0, 2),
    "command": (0, len(_COMMANDS) - 1),
    "args": (0, 100_000),
    "arg": (0, len(_ARGUMENTS) - 1),
    "arg_repeat": (1, 100_000),
    "labels": (0, 100_000),
    "annotations": (0, 100_000),
    "domain": (0, len(_DOMAINS) - 1),
    "text": (0, 2_000_000),  # length of each label and annotation
    "said": (0, 3),
    "terms": (0, 20_000),
    "expressions": (1, 20_000),
    "values": (1, 50_000),
    "key": (0, len(_KEYS) - 1),
    "operator": (0, len(_OPERATORS) - 1),
    "fields": (0, 1),
    "preferred": (0, 20_000),
    "selector": (0, 100_000),
    "tolerations": (0, 50_000),
    "toleration": (0, len(_TOLERATIONS) - 1),
    "volumes": (0, 50_000),
    "source": (0, len(_SOURCES) - 1),
    "mounts": (0, 50_000),
    "path": (0, len(_PATHS) - 1),
    "env_from": (0, 50_000),
    "claims": (0, 5000),
    "claim": (0, len(TEMPLATES)),
    "claim_by": (0, 1),
    "uses": (0, 5000),
    "owners": (0, 50_000),
    "node_name": (0, 1),
}


class TooLongError(ValueError):
    """An object of this shape is longer than LONGEST."""


class LargeObject(NamedTuple):
    """The fields of an AdmissionReview's request."""

    fields: Json
    mutating: bool


def groups() -> list[list[str]]:
    """Return the resources of each group of the built-in rules, and all of them."""
    names_by_group: dict[str, list[str]] = {}
    for rule in builtin().rules.resources:
        names_by_group.setdefault(rule.group, []).append(rule.key.replace("*", "1g.5gb"))
    every = [name for names in names_by_group.values() for name in names]
    return [["nvidia.com/gpu"], *names_by_group.values(), every]


def large_object(shape: Shape, salt: str) -> LargeObject:
    """Return an object of a shape. Raises TooLongError."""
    return _Builder(shape, salt).build()


class _Builder:
    def __init__(self, shape: Shape, salt: str) -> None:
        self._shape = shape
        self._salt = salt
        self._left = LONGEST
        self._numbers = count()
        self._equal: dict[str, Json] = {}

    def __getattr__(self, name: str) -> int:
        least, greatest = GENES[name]
        return max(least, min(greatest, self._shape.get(name, least)))

    def build(self) -> LargeObject:
        version, kind, whole = _KINDS[0 if self.debug else self.kind]
        number = self.templates if kind in _SEVERAL else 1
        templates = self._list(number, 40, self._template)
        if kind in _SEVERAL:
            templates += self._list(self.plain, 60, lambda n: {"metadata": {}, "spec": {"priority": n}})
        metadata = {"name": "large", "namespace": NAMESPACE}
        owners = self._list(self.owners, 80, lambda n: {"apiVersion": "x/v1", "kind": f"K{n}", "name": "o"})
        body = {"apiVersion": version, "kind": kind, **whole(templates)}
        body["metadata"] = {**body.get("metadata", {}), **metadata, "ownerReferences": owners}
        group, _, bare = version.rpartition("/")
        fields: Json = {
            "kind": {"group": group, "version": bare, "kind": kind},
            "operation": "UPDATE" if self.update or self.debug else "CREATE",
            "namespace": NAMESPACE,
            "object": body,
        }
        if self.debug:
            fields |= {"subResource": "ephemeralcontainers", "oldObject": {"spec": {"containers": []}}}
        elif self.update > 1:
            fields["oldObject"] = {**body, **whole(self._before(templates))}
        return LargeObject(fields, not self.validating)

    def _before(self, templates: list[Any]) -> list[Any]:
        if self.update == 2:
            return templates
        if self.update == 4:
            return templates[::-1]
        # The one that is different comes last in each, as whatever compares them sees it last.
        return [{**template, "spec": {**template["spec"], "zzz": 1}} for template in templates]

    def _take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLongError

    def _list(self, number: int, size: int, make: Callable[[int], Any]) -> list[Any]:
        """Return so many things of at least so many bytes."""
        if number * size > self._left:
            raise TooLongError
        self._take(number * size)
        return [make(at) for at in range(number)]

    def _text(self, length: int) -> str:
        self._take(length)
        return ("y" * (length - len(self._salt)) + self._salt) if length else self._salt

    def _map(self, number: int, size: int, key: str, text: Callable[[int], str]) -> dict[str, str]:
        return dict(self._list(number, size, lambda n: (key.format(n=n), text(n))))

    def _template(self, at: int) -> Json:
        spec: Json = {"containers": self._list(self.containers, 30, lambda n: self._container(f"c{n}"))}
        if self.init:
            spec["initContainers"] = self._list(self.init, 30, lambda n: self._container(f"i{n}"))
        spec["containers"] += self._list(self.unaccelerated, 30, lambda n: {"name": f"u{n}", "image": "i"})
        if self.ephemeral or self.debug:
            spec["ephemeralContainers"] = self._list(
                self.ephemeral, 50, lambda n: {"name": f"e{n}", "targetContainerName": f"c{n % 7}"}
            )
        if self.terms or self.preferred:
            spec["affinity"] = {"nodeAffinity": self._affinity()}
        if self.selector:
            key, value = _KEYS[self.key]
            spec["nodeSelector"] = self._map(self.selector, 20, key, lambda n: value.format(n=n))
        if self.tolerations:
            spec["tolerations"] = self._list(self.tolerations, 50, self._toleration)
        if self.volumes:
            spec["volumes"] = self._list(
                self.volumes, 30, lambda n: {"name": f"v{n}", **_SOURCES[self.source]}
            )
        if self.claims:
            spec["resourceClaims"] = self._list(self.claims, 50, self._claim)
        if self.node_name:
            spec["nodeName"] = "node-7"
        return {"metadata": self._metadata(at), "spec": spec}

    def _metadata(self, at: int) -> Json:
        domain = _DOMAINS[self.domain]
        metadata: Json = {"labels": {"app": f"a{at}{self._salt}"}}
        metadata["labels"] |= self._map(self.labels, 20, domain + "l{n}", lambda _: self._text(self.text))
        if self.annotations or self.said:
            notes = self._map(self.annotations, 20, domain + "a{n}", lambda _: self._text(self.text))
            versions = ("", f"12.{at % 7}", "14.0", self._salt)
            if self.said:
                notes["gpugate.dev/cuda-version"] = versions[self.said]
                notes["gpugate.dev/min-compute-capability"] = versions[self.said]
            metadata["annotations"] = notes
        return metadata

    def _affinity(self) -> Json:
        terms = self._list(self.terms, 20, self._term)
        node_affinity: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        if not terms:
            node_affinity = {}
        if self.preferred:
            node_affinity["preferredDuringSchedulingIgnoredDuringExecution"] = self._list(
                self.preferred, 60, lambda n: {"weight": 1, "preference": self._term(n)}
            )
        return node_affinity

    def _term(self, _: int) -> Json:
        expressions = self._list(self.expressions, 40, self._expression)
        term = {"matchExpressions": expressions}
        if self.fields:
            value = [f"node-{next(self._numbers)}"]
            term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": value}]
        return term

    def _expression(self, _: int) -> Json:
        key, value = _KEYS[self.key]
        operator = _OPERATORS[self.operator]
        number = {"In": self.values, "NotIn": self.values, "Gt": 1, "Lt": 1}.get(operator, 0)
        n = next(self._numbers)
        values = self._list(number, 10, lambda _: value.format(n=next(self._numbers)))
        if operator in ("Gt", "Lt"):
            values = [str(n)]
        return {"key": key.format(n=n), "operator": operator, **({"values": values} if values else {})}

    def _toleration(self, at: int) -> Json:
        return {
            key: text.format(n=at) if isinstance(text, str) else text
            for key, text in _TOLERATIONS[self.toleration].items()
        }

    def _claim(self, at: int) -> Json:
        name = (*TEMPLATES, f"unknown-{at}")[self.claim]
        return {"name": f"claim-{at}", _CLAIMS[self.claim_by]: name}

    def _container(self, name: str) -> Json:
        kind = name[0]
        if not self.vary:
            if kind not in self._equal:
                before = self._left
                self._equal[kind] = self._new_container("", 0)
                self._size = before - self._left
            else:
                self._take(self._size)
            return {**self._equal[kind], "name": name + "n" * self.name_length}
        return self._new_container(f"{next(self._numbers)}", next(self._numbers))

    def _new_container(self, own: str, at: int) -> Json:
        name = own + self._text(self.name_length) if self.name_length else f"c{own}"
        container: Json = {"name": name}
        if image := _IMAGES[self.image]:
            container["image"] = image + (
                f"-{own}" + self._text(self.image_length) if own or self.image_length else ""
            )
        container["resources"] = self._resources(at)
        if command := _COMMANDS[self.command]:
            container["command"] = [*command]
        env = [*self._requirements(own), *self._environment(own)]
        if env:
            container["env"] = env
        if self.args:
            text = _ARGUMENTS[self.arg]
            size = (len(text) + 3) * self.arg_repeat
            container["args"] = self._list(
                self.args, size, lambda n: text.format(n=n) * self.arg_repeat + own + self._salt
            )
        if self.mounts:
            path = _PATHS[self.path]
            container["volumeMounts"] = self._list(
                self.mounts, 40, lambda n: {"name": f"v{n}", "mountPath": path.format(n=n)}
            )
        if self.env_from:
            container["envFrom"] = self._list(
                self.env_from, 40, lambda n: {"configMapRef": {"name": f"m{n}"}, "prefix": ""}
            )
        return container

    def _resources(self, at: int) -> Json:
        chosen = groups()
        names = list(chosen[self.group % len(chosen)])
        more = self.names + bool(self.names and self.vary)
        names += self._list(more, 30, lambda n: _GLOBS[self.glob](f"{n}{at}{self._salt}"))
        self._take(sum(len(name) + 8 for name in names))
        limits = dict.fromkeys(names, _VALUES[self.value])
        resources: Json = {"limits": limits} if self.requests < 2 else {"requests": limits}
        if self.requests == 1:
            resources["requests"] = dict.fromkeys(names, _VALUES[(self.value + 1) % len(_VALUES)])
        if self.uses:
            resources["claims"] = self._list(self.uses, 20, lambda n: {"name": f"claim-{n}"})
        return resources

    def _requirements(self, own: str) -> list[Any]:
        factors = _FACTORS[self.factor].split("|")
        size = len(factors[0]) + 2

        def text(at: int) -> str:
            factor = factors[at % len(factors)]
            words = self._list(
                self.groups,
                size * self.factors,
                lambda _: ",".join(self._condition(factor) for _ in range(self.factors)),
            )
            return " ".join(words)

        return self._list(
            self.require, 50, lambda n: {"name": f"NVIDIA_REQUIRE_{n}{own}{self._salt}", "value": text(n)}
        )

    def _condition(self, factor: str) -> str:
        n = next(self._numbers)
        cuda = [*DRIVERS][n % len(DRIVERS)]
        capability = ("7.5", "7.0", "6.1", "8.0", "9.0", "8.9")[n % 6]
        return factor.format(n=n % 99_999, d=DRIVERS[cuda].partition(".")[0], c=cuda, a=capability)

    def _environment(self, own: str) -> list[Any]:
        known = sorted(variables(BUILT_IN))
        reference = _REFERENCES[self.reference]

        def entry(n: int) -> Json:
            value = reference.format(v=own + self._salt, p=n - 1, n=n)
            return {
                "name": f"V{n}",
                "value": value + (self._text(self.env_length) if self.env_length else ""),
            }

        env_variables = self._list(self.env, 30, entry)
        env_variables += self._list(
            self.unknown, 60, lambda n: {"name": f"U{n}", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}
        )
        env_variables += [
            {"name": known[n % len(known)], "value": f"$(V{n}) --dtype=bfloat16"} for n in range(self.flags)
        ]
        if self.cuda:
            env_variables.append({"name": "CUDA_VERSION", "value": ("", "12.4", f"13.{own}")[self.cuda]})
        return env_variables
