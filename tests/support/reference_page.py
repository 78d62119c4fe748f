"""The reference page of rule files: every key of each kind, generated from the JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from rules.schema.json_schema import schemas, type_of

_ABOUT: Final = """\
# Rule files, key by key

[rules.md](rules.md) explains what rules do; this page lists the keys of rule files. It is written by
`pytest tests/project/test_reference.py --update-golden` from the models that `gpugate lint`,
the webhook and the [JSON Schema](schema) use.

A required key must be present if its parent is present; an optional key that is absent has its default. `[]`
means each entry of a list. A *glob* is a name in which `*` matches any text and `?` any character. For *CEL*
see [expressions](rules.md#expressions). A *quantity* is a Kubernetes quantity: `8`, `500m`, `2Gi`.
"""
_CONFIG_MAP: Final = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {name}
  namespace: kube-public
  labels:
    gpugate.dev/type: {type}
    gpugate.dev/enabled: "true"
data:
  rule.yaml: |
"""
# Kinds by the names of their schemas: a heading, and an example.
_KINDS: Final = {
    "resource-rule": (
        "Resource rule",
        """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: cf-crl-example-device-memory
  namespace: kube-public
  labels:
    features.cpaas.io/type: CustomResourceLimitation
    features.cpaas.io/group: example
    features.cpaas.io/enabled: "true"
data:
  key: example.com/device-memory
  dataType: integer
  defaultValue: "8"
  descriptionEn: memory in GiB
  descriptionZh: 显存，单位为 GiB
  limits: optional
  requests: fromLimits
  excludeResources: nvidia.com/gpu, nvidia.com/mig-*
  enforcementAction: deny
  runtimeClassName: example
  validations: |
    - {expression: value <= 64, messageEn: up to 64, messageZh: 不超过 64}
    - expression: value % 8 == 0
      messageEn: a multiple of 8
      messageZh: 8 的整数倍
      enforcementAction: warn
""",
    ),
    "config-map": ("ConfigMap of the other kinds", ""),
    "injection-rule": (
        "Injection rule",
        """\
description: {en: environment of the runtime of example.com, zh: example.com 运行时读取的内容}
enforcementAction: inject
override: false
match:
  resources: [example.com/device-memory]
  images: ["*/train*"]
  namespaces: {exclude: [dev-*]}
  podSelector:
    matchExpressions: [{key: example.com/plain, operator: DoesNotExist}]
  conditions: ["limits['example.com/device-memory'] < 64"]
inject:
  env:
    - {name: DEVICE_LOG, value: warning}
    - {name: DEVICE_MEMORY_MIB, fromResource: {name: example.com/device-memory, unit: 1Gi, format: "{MiB}"}}
    - {name: DEVICE_NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
  volumes:
    - {name: device-cache, emptyDir: {medium: Memory}}
  volumeMounts:
    - {name: device-cache, mountPath: /var/cache/device}
  tolerations:
    - {key: example.com/device, operator: Exists, effect: NoSchedule}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions: [{key: example.com/model, operator: In, values: [x1, x2]}]
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 10
        preference:
          matchExpressions: [{key: example.com/model, operator: In, values: [x2]}]
  schedulerName: device-scheduler
  labels: {example.com/device: "true"}
""",
    ),
    "compatibility-rule": (
        "Compatibility rule",
        """\
description: {en: shares of GPUs, zh: GPU 的份额}
enforcementAction: deny
match: {resources: [example.com/gpu-share]}
sharing: virtual
baseline: "12.4"
majorVersionMismatch: warn
noFittingNode: warn
minDriverCuda: "11.5"
minComputeCapability: "7.0"
deviceMode: vgpu
migSlices: deny
labels:
  cuda: [example.com/cuda.major example.com/cuda.minor, example.com/cuda]
  product: [example.com/gpu]
  migDevices: [example.com/mig-*]
""",
    ),
    "image-catalog": (
        "Image catalogue",
        """\
images:
  - image: registry.example.com:5000/team/train:*
    cuda: "12.4"
    computeCapabilities: ["8.0", "9.0"]
    ptx: false
    cudaCompat: true
  - regex: '.*/base:cu(?P<cuda>\\d+\\.\\d+)-.*'
""",
    ),
    "exemption": (
        "Exemption",
        """\
reason: driver 550.90 was tested with this image, ticket 17
expires: "2099-12-31T18:00:00+08:00"
rules: [example-compatibility-rule, cf-crl-example-*]
namespaces: {include: [team-a]}
podSelector: {matchLabels: {app: train}}
serviceAccounts: [trainer]
""",
    ),
    "node-profile": (
        "Node profile",
        """\
description: {en: nodes with eight H100, zh: 八卡 H100 节点}
match: {nodeLabels: {karpenter.sh/nodepool: gpu-h100}}
labelsAtCreation: {karpenter.sh/nodepool: gpu-h100, karpenter.k8s.aws/instance-gpu-name: h100}
taints:
  - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
offers:
  resources: {nvidia.com/gpu: 8}
  product: NVIDIA-H100-80GB-HBM3
  driver: "580.95"
  cuda: "13.0"
  computeCapability: "9.0"
  memory: 81559
canScale: true
""",
    ),
}
_TYPES: Final = {"string": "text", "integer": "whole number", "boolean": "`true`, `false`"}
# Defaults that mean that nothing is set.
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})


def reference() -> str:
    """Return the page, in Markdown."""
    known = schemas()
    return "\n".join([_ABOUT, *(_section(known[kind], kind) for kind in _KINDS)])


def _section(schema: dict[str, Any], kind: str) -> str:
    rows = "\n".join(_row(*key) for key in _keys(schema, schema.get("$defs", {})))
    table = f"| key | value | default | meaning |\n|---|---|---|---|\n{rows}\n"
    text = f"## {_KINDS[kind][0]}\n\n{schema['description']}\n\n{table}"
    return f"{text}\n```yaml\n{_example(kind)}```\n" if _KINDS[kind][1] else text


def _example(kind: str) -> str:
    heading, text = _KINDS[kind]
    if text.startswith("apiVersion"):
        return text
    indented = "".join(f"    {line}\n" for line in text.splitlines())
    name = f"example-{heading.lower().replace(' ', '-')}"
    return _CONFIG_MAP.format(name=name, type=type_of(kind)) + indented


def _keys(
    schema: dict[str, Any], known: dict[str, Any], above: str = ""
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield (path, schema, whether it is required) of each key below, in the order of a file.

    known: the definitions of `$ref`.
    """
    for key, value in schema.get("properties", {}).items():
        path = f"{above}['{key}']" if set("./") & set(key) else f"{above}.{key}".lstrip(".")
        followed = _followed(value, known)
        yield path, followed, key in schema.get("required", schema.get("else", {}).get("required", ()))
        inside = followed.get("contentSchema", followed)
        if inside.get("type") == "array":
            inside, path = _followed(inside["items"], known), f"{path}[]"
        yield from _keys(inside, known, path)


def _followed(schema: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its `$ref` resolved."""
    named = str(schema.get("$ref", "")).rpartition("/")[2]
    whole: dict[str, Any] = known.get(named, {}) | schema
    return whole


def _row(path: str, schema: dict[str, Any], required: bool) -> str:
    default = schema.get("default")
    shown = "" if default in _NOTHING or isinstance(default, dict) else _code(default)
    cells = (_code(path), _value(schema), "required" if required else shown, schema["description"])
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _value(schema: dict[str, Any]) -> str:
    if "const" in schema or "enum" in schema:
        words = schema.get("enum", [schema.get("const")])
        return ", ".join(_code(word) for word in words if word != "")
    if "minimum" in schema:
        return f"{schema['minimum']} to {schema['maximum']}"
    if schema.get("type") == "array":
        return "list of text" if schema["items"].get("type") == "string" else "list of objects"
    return _TYPES.get(schema.get("type", ""), "object")


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
