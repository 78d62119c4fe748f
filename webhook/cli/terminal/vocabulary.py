"""The words that commands print, in English and Chinese. JSON keys and constants are not translated."""

from __future__ import annotations

from typing import Final

from rules import Action, Language
from rules.kube.pod import ContainerKind
from rules.text.i18n import Message, Text

# The result for an object.
DENIED: Final = Message("denied")
PATCHED: Final = Message("patched")
UNCHANGED: Final = Message("unchanged")
SKIPPED: Final = Message("skipped")
# Instead of a result, before and after a change.
NEW: Final = Message("new")
REMOVED: Final = Message("removed")
VERDICT_CHANGES: Final = Message("verdict changes: {workloads}")
PATCH_CHANGES: Final = Message("only the patch changes: {workloads}")
OTHER_PATCH: Final = Message("{result}; with another patch")
EARLIER_NOT_COMPARED: Final = Message("not compared: {why}")

ACTIONS: Final = {
    Action.DENY: Message("deny"),
    Action.WARN: Message("warn"),
    Action.DRYRUN: Message("dryrun"),
}
HINT: Final = Message("hint")
NOT_CHECKED: Final = Message("not checked")
NOT_CHECKED_MARK: Final = "–"  # neither right nor wrong
NOTHING_MARK: Final = "·"  # nothing to check
NOTE: Final = Message("note")
NODES: Final = Message("nodes")
QUOTA: Final = Message("quota")

CONTAINER_KINDS: Final = {
    ContainerKind.REGULAR: Message("container"),
    ContainerKind.INIT: Message("init container"),
    ContainerKind.SIDECAR: Message("sidecar"),
    ContainerKind.EPHEMERAL: Message("ephemeral container"),
}

ACTION_COLOURS: Final = {Action.DENY: "red", Action.WARN: "yellow", Action.DRYRUN: "cyan"}

# A number with its noun.
COUNTED: Final = {
    "workload": (Message("1 workload"), Message("{count} workloads")),
    "thing": (Message("this 1 thing"), Message("these {count} things")),
    "denied workload": (Message("1 denied workload"), Message("{count} denied workloads")),
    "broken workload": (Message("1 workload that breaks"), Message("{count} workloads that break")),
    "pod": (Message("1 pod"), Message("{count} pods")),
    "object": (Message("1 object"), Message("{count} objects")),
    "node": (Message("1 node"), Message("{count} nodes")),
    "rule": (Message("1 rule"), Message("{count} rules")),
    "valid rule": (Message("1 valid rule"), Message("{count} valid rules")),
    "error": (Message("1 error"), Message("{count} errors")),
    "warning": (Message("1 warning"), Message("{count} warnings")),
    "event": (Message("1 event"), Message("{count} events")),
    "line": (Message("1 line"), Message("{count} lines")),
    "case": (Message("1 case"), Message("{count} cases")),
    "file": (Message("1 file"), Message("{count} files")),
}

# Table headings, by the key of the column in JSON; the key itself in upper case for any other column.
_HEADINGS: Final = {
    "support": Message("SUPPORT"),
    "about": Message("DESCRIPTION"),
    "after": Message("AFTER"),
    "action": Message("ACTION"),
    "certificate": Message("CERTIFICATE"),
    # The empty value distinguishes the template from that of all nodes, which is another word in Chinese.
    "compatible nodes": Message("NODES{compatible}", compatible=""),
    "before": Message("BEFORE"),
    "breaks": Message("BREAKS"),
    "compute": Message("COMPUTE"),
    "cuda": Message("CUDA"),
    "days left": Message("DAYS LEFT"),
    "denied": Message("DENIED"),
    "driver": Message("DRIVER"),
    "effect": Message("EFFECT"),
    "fewer nodes": Message("FEWER NODES"),
    "finding": Message("FINDING"),
    "found": Message("VIOLATIONS"),
    "freed": Message("FREED"),
    "group": Message("GROUP"),
    "image": Message("IMAGE"),
    "kind": Message("KIND"),
    "labels at creation": Message("LABELS AT CREATION"),
    "level": Message("LEVEL"),
    "matched": Message("MATCHED"),
    "memory": Message("MEMORY"),
    "mode": Message("MODE"),
    "not ready": Message("NOT READY"),
    "name": Message("NAME"),
    "names": Message("NAMES"),
    "new pools": Message("NEW NODES OF"),
    "namespace": Message("NAMESPACE"),
    "nodes": Message("NODES"),
    "not after": Message("NOT AFTER"),
    "not before": Message("NOT BEFORE"),
    "note": Message("NOTE"),
    "platforms": Message("PLATFORMS"),
    "pool": Message("POOL"),
    "pods": Message("PODS"),
    "workload": Message("WORKLOAD"),
    "workloads": Message("WORKLOADS"),
    "product": Message("PRODUCT"),
    "reason": Message("REASON"),
    "requires": Message("REQUIRES"),
    "resources": Message("RESOURCES"),
    "rule": Message("RULE"),
    "runs": Message("RUNS"),
    "sharing": Message("SHARING"),
    "source": Message("SOURCE"),
    "state": Message("STATE"),
    "subject": Message("SUBJECT"),
    "taints": Message("TAINTS"),
    "to move": Message("TO MOVE"),
    "trusted by": Message("TRUSTED BY"),
    "unknown": Message("UNKNOWN"),
    "warned": Message("WARNED"),
    "warns": Message("WARNS"),
}
# Roles of certificates, by their value in JSON.
ROLES: Final = {
    "CA": Message("CA"),
    "old CA": Message("old CA"),
    "serving": Message("serving"),
}
_NONE: Final = {"none": Message("none")}
# Cells that have a fixed set of values, by the key of their column in JSON.
_VALUES: Final = {
    "action": {action.value: text for action, text in ACTIONS.items()}
    | {"inject": Message("inject"), "exempt": Message("exempt")},
    "certificate": ROLES,
    "effect": {
        "breaks": Message("breaks"),
        "freed": Message("freed"),
        "unknown": Message("unknown"),
        "fewer nodes": Message("fewer nodes"),
        "warns": Message("warns"),
        "more nodes": Message("more nodes"),
    },
    "kind": {
        "resource": Message("resource"),
        "injection": Message("injection"),
        "compatibility": Message("compatibility"),
        "exemption": Message("exemption"),
        "images": Message("images"),
        "profile": Message("profile"),
    },
    "mig": {"on": Message("on"), "no instances": Message("no instances")},
    "runs": {
        "no": Message("no"),
        "yes": Message("yes"),
        "yes, with a warning": Message("yes, with a warning"),
        "by minor version compatibility": Message("by minor version compatibility"),
        "by forward compatibility": Message("by forward compatibility"),
    },
    "state": {
        "enabled": Message("enabled"),
        "disabled": Message("disabled"),
        "expired": Message("expired"),
        "stale": Message("stale"),
        "refused": Message("invalid"),
        "present": Message("present"),
        "may come": Message("may come"),
        "cannot come": Message("cannot come"),
    },
    "labels at creation": _NONE,
    "resources": _NONE,
    "taints": _NONE,
    "trusted by": _NONE,
}

# Notes if objects are evaluated with other rules than those in force.
NO_CLUSTER_RULES: Final = Message("the cluster has no rules in namespace {namespace!r}")
RULES_ELSEWHERE: Final = Message(" (rule ConfigMaps are in {namespaces}: use --rules-namespace)")
BUILT_IN_INSTEAD: Final = Message("{why}; evaluated with the built-in rules")
LAST_VALID_USED: Final = Message(
    "the webhook keeps the last valid version of {rules}, which is used here, too"
)
LAST_VALID_KEPT: Final = Message(
    "the webhook keeps the last valid version of {rules}, if there is one, which could not be read: its "
    "decisions may differ"
)
WITHOUT_CLUSTER_RULES: Final = Message("{why}; evaluated with the built-in rules (use --rules for others)")
WITHOUT_CLUSTER_NODES: Final = Message("{why}; not compared with nodes (use --nodes FILE)")
GROUPED_WITHOUT_NAMESPACES: Final = Message("{why}; grouped only by labels of workloads")
OTHER_RULES: Final = Message("evaluated with the rules in {paths}, not with those of the cluster")
WITHOUT_BUILT_IN: Final = Message(
    "evaluated with the rules in {paths}, without the built-in rules (add them with --rules builtin)"
)

# Progress on a terminal.
READING_NODES: Final = Message("reading nodes")
READING_WORKLOADS: Final = Message("reading pods and workloads")
EVALUATING_WORKLOADS: Final = Message("evaluating workloads")

# `ui`.
CTRL_C_STOPS: Final = Message("press Ctrl-C to stop")

# `whatif`.
WHAT_IF_SUMMARY: Final = Message(
    "{workloads}: {breaks} break, {freed} freed, {unknown} unknown, {fewer_nodes} on fewer nodes, "
    "{warns} with new warnings"
)
WHAT_IF_CHANGE: Final = Message("change: {change}")
OUT_OF_SUPPORT: Final = Message("out of support: driver {branches}")
SUPPORT_ENDS: Final = Message("support ends: driver {branches}")

# Selections of rows.
NOT_NAMED: Final = Message("no {noun} is named {name!r}{hint}")
RULE_NOUN: Final = Message("rule")
WORKLOAD_NOUN: Final = Message("workload")
NODE_NOUN: Final = Message("node")
USE_FILENAME: Final = Message("; to read a file or folder, use -f")
USE_PATH_OPTION: Final = Message("; to read a file or folder, use --rules or --nodes")
INVALID_POD: Final = Message("invalid pod: metadata or spec is missing")
NOT_LISTENING: Final = Message("cannot listen on port {port}: {why}")
NO_FILTER: Final = Message("--filter: expected COLUMN=GLOB or COLUMN!=GLOB, got {text!r}")
NO_COLUMN: Final = Message("--filter: no column is named {name!r}; the columns are {columns}")

PREVIEW_SUMMARY: Final = Message(
    "{objects}: {patched} patched, {denied} denied, {unchanged} unchanged, {warned} with warnings"
)
FIXED: Final = Message("{place}: fix of {path}: {old} → {new}")
FIXED_BY_ADDING: Final = Message("{place}: fix of {path}: add {new}")
NOT_FIXED: Final = Message("{place}: no fix of {path}: {why}")
NO_NODES_FOUND: Final = Message("CUDA compatibility not checked: the cluster or file has no nodes")
NOT_CHECKED_LINE: Final = Message("– not checked: {what} ({workloads})")
NOT_READ: Final = Message("not checked: {why}")
IGNORED_NAMESPACES: Final = Message(
    "not checked: {workloads} in namespaces with the label gpugate.dev/ignore=true: {names}"
)
SKIPPED_COUNT: Final = Message(", {skipped} skipped")
PODS_PATCHED_COUNT: Final = Message("; the pods of {pods_patched} are patched")
ITS_PODS: Final = Message("its pods: ✎ patched")
BETWEEN: Final = Message("; ")  # the parts of a heading
NO_ACCELERATORS: Final = Message("no accelerators requested")
CUDA_NOT_CHECKED: Final = Message("CUDA not checked")
AUDIT_SUMMARY: Final = Message(
    "{workloads} with {pods}: {denied} would be denied now ({facts} by facts, {policy} by policy)"
)
# What to do first.
FIX_FIRST: Final = Message("Fix {fixes}, and {frees} of {workloads} can be admitted:")
FIX_NUMBERED: Final = Message("  {number}. {fix} ({workloads})")
EXPECTED_INSTEAD: Final = Message("expected {expected}")
OF_RESOURCE: Final = Message("{resource}: {fix}")
OLD_TOOLKITS: Final = Message(
    "images of CUDA {versions}: out of support by NVIDIA, so they get no fixes; use images of a newer CUDA"
)
# Reports of `audit`.
CLUSTER_CONTEXT: Final = Message("cluster, {context}")
CURRENT_CONTEXT: Final = Message("current context")
RULES_HEADING: Final = Message("Rules")
NODES_HEADING: Final = Message("Nodes")
TIME_HEADING: Final = Message("Evaluated at")
VERSION_HEADING: Final = Message("gpugate version")
REPORTS_WRITTEN: Final = Message("Reports: {written} written, {deleted} deleted")
# Lines of `why`.
CAUSE_SEEN: Final = Message("seen")
CAUSE_UNKNOWN: Final = Message("no known cause was found; the pod does not run")
NO_PODS_WANTED: Final = Message("The workload asks for no pods: replicas is 0, or it is suspended.")
NO_PODS: Final = Message("no known cause was found; its controller has created no pods")
POD_RUNS: Final = Message("The pod runs, and no known failure was found.")
EVENTS_EXPIRED: Final = Message("no events: the API server keeps them for an hour by default")
LOG_OF: Final = Message("log of {name}")
LOG_BEFORE: Final = Message("log of {name} (previous)")
LOOKED_AT: Final = Message("compared: rules and nodes of today, state, {events}, logs: {logs}")
LOOKED_AT_LOGS: Final = Message("compared: logs: {logs}")
# Lines of `explain`.
NO_RESOURCES: Final = Message("no resources requested")
REQUIRES: Final = Message("requires")
ASSUMES: Final = Message("assumes")
EXAMPLES: Final = Message("examples")
WOULD_INJECT: Final = Message("would inject {what}")
EXEMPT: Final = Message("exempt: {why}")
NOT_APPLICABLE_RULES: Final = Message("{rules} not applicable (use --all to list them)")
# Notes on rules.
EXEMPTION_SCOPE: Final = Message("until {until} from {rules}")
REPLACED_BY: Final = Message("{rule} is in force for {key}")
EXEMPT_PODS: Final = Message("some pods are exempt by {exemptions}")

COLON: Final = Message("{word}: ")
LEVELS: Final = {
    "error": Message("error"),
    "warning": Message("warning"),
    "notice": Message("notice"),
}
MORE_FINDINGS: Final = Message("{count} more findings")
MORE_WORKLOADS: Final = Message("{count} more workloads")
MORE_CHANGES: Final = Message("{count} more objects with changes")
LINT_SUMMARY: Final = Message("{rules}, {errors}, {warnings}")

# Counts of test cases and patches; see test_report.py.
PASSED: Final = Message("{count} passed")
FAILED: Final = Message("{count} failed")
NOT_SELECTED: Final = Message("{count} not selected")
PATCH_WRITTEN: Final = Message("{count} patch written")
PATCHES_WRITTEN: Final = Message("{count} patches written")
NO_CASES: Final = Message("no cases run")
TEST_SUMMARY: Final = Message("{cases} in {files}: {results}")
INVALID_FILES: Final = Message("{files} with errors")
LEGEND: Final = Message("; - expected, + actual")

# `certs`.
EMPTY_STORE: Final = Message("{store} is empty; next: gpugate certs init")
NO_SERVING_CERTIFICATE: Final = Message("the serving certificate is missing; next: gpugate certs init")
NO_CONFIGURATION: Final = Message(
    "webhook configuration {name} not found; the API server does not call this webhook"
)
EXPIRED_CERTIFICATE: Final = Message("{role}: expired {when}")
NOT_TRUSTED: Final = Message("{role}: not trusted by {kind} {name}")
VALID_UNTIL: Final = Message("until {day}")
ROTATING: Final = Message("a CA rotation is in progress; try again at {when}")
BOTH_TRUSTED: Final = Message("Both the new and the old CA are trusted. The new CA takes over at {when}.")
WHEN_TRUSTED: Final = Message("the time at which all webhook configurations trust it")

# `export`.
NOT_CONVERTED: Final = Message("{rule}: not converted: {reason}")
CONVERTED: Final = Message("{name}: {note}")
NO_EXEMPTIONS: Final = Message("policies do not support exemptions; they also check the exempted pods")
NO_COMPATIBILITY: Final = Message(
    "policies check neither drivers, images and nodes nor variables and privileges, "
    "such as privileged containers with shares"
)
ONLY_RESOURCE_RULES: Final = Message("policies support only resource rules")

# `version`.
CLIENT_VERSION: Final = Message("Client Version: {version} (Python {python}, {platform})")
BUILT_IN_RULES: Final = Message("Built-in Rules: {enabled} of {count} enabled, revision {revision}")
BUILT_IN_FACTS: Final = Message("Built-in Facts: {date}")
CLUSTER_RULES: Final = Message(
    "Cluster Rules: {enabled} of {count} enabled in namespace {namespace}, revision {revision}"
)
AS_BUILT_IN: Final = Message(" (equal to the built-in rules)")
WEBHOOK_VERSION: Final = Message(
    "Webhook Version: {version} ({namespace}/{name}, image {image}, {ready} of {replicas} replicas ready)"
)
CAPPED: Final = Message(", enforcement action {action}")
CAPPED_PREVIEW: Final = Message(
    "the webhook of this cluster runs with --enforcement-action={action}: it denies nothing; shown is what "
    "its rules say"
)
NO_WEBHOOK: Final = Message("Webhook Version: not installed (no Deployment with the labels of gpugate)")

# `node`.
NODE_VERSIONS: Final = Message("driver {driver}, CUDA {cuda}")
RANGE: Final = Message("{first} to {last}")
DATA_TYPES: Final = Message("data types")
TOPOLOGY: Final = Message("topology")
TOPOLOGIES: Final = {
    "nvlink": Message("nvlink: each GPU has NVLink to another one"),
    "pcie": Message("pcie: a GPU has no NVLink to another one"),
    None: Message("-"),
}
MPS_FIT: Final = {
    True: Message("can share these GPUs"),
    False: Message("cannot share these GPUs"),
    None: Message("-"),
}
MPS_DAEMON: Final = Message("; its daemon runs at {directories}")
TOOLKIT: Final = Message("mode {mode}, version {version}")
TOOLKIT_UNKNOWN: Final = Message("unknown: its configuration was not found, or another toolkit may be used")
LIBCUDA: Final = Message("a program sees CUDA {cuda}; devices: {devices}")
LIBCUDA_FAILS: Final = Message("{call} fails with error {error}")
LIBCUDA_MISSING: Final = Message("{library} was not found here: what a program sees is unknown")
NOT_COMPARED: Final = Message("labels are not compared: {why}")

# `image inspect`.
NO_IMAGES: Final = Message("{files}: no images in these objects")
BLOCKED_HINT: Final = Message(
    "use --allow-private if the registry is in your own network, --insecure-registry HOST if it has no TLS"
)

UNSUPPORTED_GPU: Final = Message("node {node} ({count} in all): {reason}; {remedy}")
MORE_UNSUPPORTED: Final = Message(
    "{count} more kinds of nodes whose driver does not support their GPU (use -o json to list all)"
)
UNREADABLE_LABEL: Final = Message("node {node}: label {label}: unsupported value {value}")
MORE_UNREADABLE: Final = Message("{count} more labels with unsupported values (use -o json to list all)")
UNREADABLE_DEVICE: Final = Message("{source}: {key} cannot be read, so not all devices are known: {value}")
MORE_UNREADABLE_DEVICES: Final = Message(
    "{count} more values of devices that cannot be read (use -o json to list all)"
)
PROFILE_DIFFERS: Final = Message(
    "node profile {profile!r} and reality differ: {fact} is {stated} in the profile, but {reported} on "
    "present nodes ({node!r}, {count} in all); correct the profile, or the labels in its match"
)
MORE_DIFFERENCES: Final = Message(
    "{count} more differences between node profiles and nodes (use -o json to list all)"
)
MORE_POOL_PROBLEMS: Final = Message("{count} more problems in declared pools (use -o json to list all)")
UNDECLARED: Final = Message(
    "an autoscaler may add nodes that are not declared ({signs}); describe them with a NodeProfile"
)
SNAPSHOT_WRITTEN: Final = Message(
    "{nodes} nodes and {others} other objects; values replaced of the labels: {labels}"
)
NO_LABELS: Final = Message("none")
UNLABELLED_NODES: Final = Message(
    "not in the table: {count} nodes without GPU labels: {names}; GPU Feature Discovery or "
    "`gpugate node label` adds labels"
)


def heading(column: str, language: Language) -> str:
    """Return the heading of a table column."""
    return _HEADINGS.get(column, Text(column.upper())).in_language(language)


def value(column: str, cell: str, language: Language) -> str:
    """Return the text of a table cell."""
    return _VALUES.get(column, {}).get(cell, Text(cell)).in_language(language)


def is_word(column: str, cell: str) -> bool:
    """Return whether a table cell has a fixed value of its column."""
    return cell in _VALUES.get(column, ())
