"""The words that commands print, in English and Chinese. JSON keys and constants are not translated."""

from __future__ import annotations

from typing import Final

from rules import Action, Language
from rules.text.i18n import Text

# The result for an object.
DENIED: Final = Text("denied", "拒绝")
PATCHED: Final = Text("patched", "已修改")
UNCHANGED: Final = Text("unchanged", "未修改")
SKIPPED: Final = Text("skipped", "已跳过")

ACTIONS: Final = {
    Action.DENY: Text("deny", "拒绝"),
    Action.WARN: Text("warn", "警告"),
    Action.DRYRUN: Text("dryrun", "试运行"),
}
HINT: Final = Text("hint", "提示")
NOT_CHECKED: Final = Text("not checked", "未检查")
NOT_CHECKED_MARK: Final = "–"  # neither right nor wrong
NOTE: Final = Text("note", "说明")
QUOTA: Final = Text("quota", "配额")

# Table headings, by the key of the column in JSON; the key itself in upper case for any other column.
_HEADINGS: Final = {
    "about": Text("DESCRIPTION", "说明"),
    "action": Text("ACTION", "动作"),
    "certificate": Text("CERTIFICATE", "证书"),
    "compatible nodes": Text("NODES", "兼容节点"),
    "breaks": Text("BREAKS", "中断"),
    "compute": Text("COMPUTE", "计算能力"),
    "cuda": Text("CUDA"),
    "days left": Text("DAYS LEFT", "剩余天数"),
    "driver": Text("DRIVER", "驱动"),
    "effect": Text("EFFECT", "影响"),
    "fewer nodes": Text("FEWER NODES", "节点减少"),
    "finding": Text("FINDING", "问题"),
    "found": Text("VIOLATIONS", "违规次数"),
    "freed": Text("FREED", "恢复可用"),
    "image": Text("IMAGE", "镜像"),
    "kind": Text("KIND", "类型"),
    "labels at creation": Text("LABELS AT CREATION", "创建时的标签"),
    "level": Text("LEVEL", "级别"),
    "matched": Text("MATCHED", "匹配次数"),
    "memory": Text("MEMORY", "显存"),
    "mode": Text("MODE", "模式"),
    "not ready": Text("NOT READY", "未就绪"),
    "name": Text("NAME", "名称"),
    "names": Text("NAMES", "名称"),
    "new pools": Text("NEW NODES OF", "可新增节点池"),
    "namespace": Text("NAMESPACE", "命名空间"),
    "nodes": Text("NODES", "节点数"),
    "not after": Text("NOT AFTER", "失效日期"),
    "not before": Text("NOT BEFORE", "生效日期"),
    "note": Text("NOTE", "备注"),
    "platforms": Text("PLATFORMS", "平台"),
    "pool": Text("POOL", "节点池"),
    "pods": Text("PODS", "POD 数"),
    "workload": Text("WORKLOAD", "工作负载"),
    "workloads": Text("WORKLOADS", "工作负载数"),
    "product": Text("PRODUCT", "产品"),
    "reason": Text("REASON", "原因"),
    "requires": Text("REQUIRES", "要求"),
    "resources": Text("RESOURCES", "资源"),
    "rule": Text("RULE", "规则"),
    "runs": Text("RUNS", "可运行"),
    "sharing": Text("SHARING", "共享方式"),
    "source": Text("SOURCE", "来源"),
    "state": Text("STATE", "状态"),
    "subject": Text("SUBJECT", "主体"),
    "taints": Text("TAINTS", "污点"),
    "to move": Text("TO MOVE", "需迁移"),
    "trusted by": Text("TRUSTED BY", "受信任于"),
    "unknown": Text("UNKNOWN", "未知"),
    "warns": Text("WARNS", "警告"),
}
# Roles of certificates, by their value in JSON.
ROLES: Final = {
    "CA": Text("CA"),
    "old CA": Text("old CA", "旧 CA"),
    "serving": Text("serving", "服务证书"),
}
_NONE: Final = {"none": Text("none", "无")}
# Cells that have a fixed set of values, by the key of their column in JSON.
_VALUES: Final = {
    "action": {action.value: text for action, text in ACTIONS.items()}
    | {"inject": Text("inject", "注入"), "exempt": Text("exempt", "豁免")},
    "certificate": ROLES,
    "effect": {
        "breaks": Text("breaks", "中断"),
        "freed": Text("freed", "恢复可用"),
        "unknown": Text("unknown", "未知"),
        "fewer nodes": Text("fewer nodes", "节点减少"),
        "warns": Text("warns", "新增警告"),
        "more nodes": Text("more nodes", "节点增加"),
    },
    "kind": {
        "resource": Text("resource", "资源"),
        "injection": Text("injection", "注入"),
        "compatibility": Text("compatibility", "兼容性"),
        "exemption": Text("exemption", "豁免"),
        "images": Text("images", "镜像目录"),
        "profile": Text("profile", "节点画像"),
    },
    "mig": {"on": Text("on", "已启用"), "no instances": Text("no instances", "没有实例")},
    "runs": {
        "no": Text("no", "否"),
        "yes": Text("yes", "是"),
        "yes, with a warning": Text("yes, with a warning", "是，有警告"),
        "by minor version compatibility": Text("by minor version compatibility", "通过次版本兼容性"),
        "by forward compatibility": Text("by forward compatibility", "通过前向兼容性"),
    },
    "state": {
        "enabled": Text("enabled", "已启用"),
        "disabled": Text("disabled", "已停用"),
        "expired": Text("expired", "已过期"),
        "stale": Text("stale", "旧版本"),
        "refused": Text("invalid", "无效"),
        "present": Text("present", "现有"),
        "may come": Text("may come", "可能新增"),
        "cannot come": Text("cannot come", "不会新增"),
    },
    "labels at creation": _NONE,
    "resources": _NONE,
    "taints": _NONE,
    "trusted by": _NONE,
}

# Which rules objects are evaluated with, if not those in force.
NO_CLUSTER_RULES: Final = Text(
    "the cluster has no rules in namespace {namespace!r}", "集群的命名空间 {namespace!r} 中没有规则"
)
RULES_ELSEWHERE: Final = Text(
    " (rule ConfigMaps are in {namespaces}: use --rules-namespace)",
    "（规则 ConfigMap 位于 {namespaces}：请使用 --rules-namespace）",
)
BUILT_IN_INSTEAD: Final = Text("{why}; evaluated with the built-in rules", "{why}；使用内置规则评估")
LAST_VALID_USED: Final = Text(
    "the webhook keeps the last valid version of {rules}, which is used here, too",
    "webhook 保留 {rules} 的最后一个有效版本，此处同样使用它",
)
LAST_VALID_KEPT: Final = Text(
    "the webhook keeps the last valid version of {rules}, if there is one, which could not be read: its "
    "decisions may differ",
    "webhook 保留 {rules} 的最后一个有效版本（如果有），但无法读取：其决定可能不同",
)
WITHOUT_CLUSTER_RULES: Final = Text(
    "{why}; evaluated with the built-in rules (use --rules for others)",
    "{why}；使用内置规则评估（可用 --rules 指定其他规则）",
)
WITHOUT_CLUSTER_NODES: Final = Text(
    "{why}; not compared with nodes (use --nodes FILE)", "{why}；未与节点比较（可用 --nodes FILE 指定）"
)
OTHER_RULES: Final = Text(
    "evaluated with the rules in {paths}, not with those of the cluster",
    "使用 {paths} 中的规则评估，而非集群中的规则",
)
WITHOUT_BUILT_IN: Final = Text(
    "evaluated with the rules in {paths}, without the built-in rules (add them with --rules builtin)",
    "仅使用 {paths} 中的规则评估，不含内置规则（使用 --rules builtin 添加）",
)

# What is shown on a terminal while it takes long.
READING_NODES: Final = Text("reading nodes", "正在读取节点")
READING_WORKLOADS: Final = Text("reading pods and workloads", "正在读取 Pod 和工作负载")
EVALUATING_WORKLOADS: Final = Text("evaluating workloads", "正在评估工作负载")

# `ui`.
CTRL_C_STOPS: Final = Text("press Ctrl-C to stop", "按 Ctrl-C 停止")

# `whatif`.
WHAT_IF_SUMMARY: Final = Text(
    "{workloads}: {breaks} break, {freed} freed, {unknown} unknown, {fewer_nodes} on fewer nodes, "
    "{warns} with new warnings",
    "{count} 个工作负载：{breaks} 个中断，{freed} 个恢复可用，{unknown} 个未知，{fewer_nodes} 个节点减少，"
    "{warns} 个新增警告",
)
WHAT_IF_CHANGE: Final = Text("change: {change}", "变更：{change}")

# Selections of rows.
NOT_NAMED: Final = Text("no {noun} is named {name!r}", "没有名为 {name!r} 的{noun}")
RULE_NOUN: Final = Text("rule", "规则")
WORKLOAD_NOUN: Final = Text("workload", "工作负载")
NODE_NOUN: Final = Text("node", "节点")
USE_FILENAME: Final = Text("; to read a file or folder, use -f", "；如需读取文件或文件夹，请使用 -f")
USE_PATH_OPTION: Final = Text(
    "; to read a file or folder, use --rules or --nodes", "；如需读取文件或文件夹，请使用 --rules 或 --nodes"
)
NO_FILTER: Final = Text(
    "--filter: expected COLUMN=GLOB or COLUMN!=GLOB, got {text!r}",
    "--filter：应为 COLUMN=GLOB 或 COLUMN!=GLOB，当前为 {text!r}",
)
NO_COLUMN: Final = Text(
    "--filter: no column is named {name!r}; the columns are {columns}",
    "--filter：没有名为 {name!r} 的列；可用的列为 {columns}",
)

PREVIEW_SUMMARY: Final = Text(
    "{objects}: {patched} patched, {denied} denied, {unchanged} unchanged, {warned} with warnings",
    "{count} 个对象：{patched} 个已修改，{denied} 个拒绝，{unchanged} 个未修改，{warned} 个有警告",
)
NO_NODES_FOUND: Final = Text(
    "CUDA compatibility not checked: the cluster or file has no nodes",
    "未检查 CUDA 兼容性：集群或文件中没有节点",
)
NOT_CHECKED_LINE: Final = Text(
    "– not checked: {what} ({workloads})", "– 未检查：{what}（{count} 个工作负载）"
)
NOT_READ: Final = Text("not checked: {why}", "未检查：{why}")
IGNORED_NAMESPACES: Final = Text(
    "not checked: {workloads} in namespaces with the label gpugate.dev/ignore=true: {names}",
    "未检查：带有标签 gpugate.dev/ignore=true 的命名空间 {names} 中的 {count} 个工作负载",
)
SKIPPED_COUNT: Final = Text(", {skipped} skipped", "，{skipped} 个已跳过")
AUDIT_SUMMARY: Final = Text(
    "{workloads} with {pods}: {denied} would be denied now ({facts} by facts, {policy} by policy)",
    "{count} 个工作负载（{pod_count} 个 Pod）：其中 {denied} 个现在会被拒绝"
    "（{facts} 个基于事实，{policy} 个基于策略）",
)
# Reports of `audit`.
REPORT_TITLE: Final = Text("gpugate: workloads and their GPUs", "gpugate：工作负载与 GPU")
CLUSTER_CONTEXT: Final = Text("cluster, {context}", "集群，{context}")
CURRENT_CONTEXT: Final = Text("current context", "当前上下文")
RULES_HEADING: Final = Text("Rules", "规则")
NODES_HEADING: Final = Text("Nodes", "节点")
TIME_HEADING: Final = Text("Evaluated at", "评估时间")
VERSION_HEADING: Final = Text("gpugate version", "gpugate 版本")
REPORTS_WRITTEN: Final = Text(
    "Reports: {written} written, {deleted} deleted", "Report：写入 {written} 个，删除 {deleted} 个"
)
# Lines of `why`.
CAUSE_SEEN: Final = Text("seen", "依据")
CAUSE_UNKNOWN: Final = Text(
    "no known cause was found; the pod does not run", "未发现已知的原因；该 Pod 未在运行"
)
NO_PODS_WANTED: Final = Text(
    "The workload asks for no pods: replicas is 0, or it is suspended.",
    "该工作负载不需要 Pod：replicas 为 0，或已暂停。",
)
NO_PODS: Final = Text(
    "no known cause was found; its controller has created no pods", "未发现已知的原因；其控制器没有创建 Pod"
)
POD_RUNS: Final = Text("The pod runs, and no known failure was found.", "该 Pod 正在运行，未发现已知的故障。")
EVENTS_EXPIRED: Final = Text(
    "no events: the API server keeps them for an hour by default",
    "没有事件：API Server 默认只保留一小时",
)
LOG_OF: Final = Text("log of {name}{which}", "{name} 的日志{which}")
LOOKED_AT: Final = Text(
    "compared: rules and nodes of today, state, {events}, logs: {logs}",
    "已比较：当前的规则和节点、状态、{count} 个事件、日志：{logs}",
)
# Lines of `explain`.
NO_RESOURCES: Final = Text("no resources requested", "未申请资源")
REQUIRES: Final = Text("requires", "要求")
ASSUMES: Final = Text("assumes", "假设")
WOULD_INJECT: Final = Text("would inject {what}", "将会注入 {what}")
EXEMPT: Final = Text("exempt: {why}", "已豁免：{why}")
NOT_APPLICABLE_RULES: Final = Text(
    "{rules} not applicable (use --all to list them)", "{count} 条规则不适用（使用 --all 列出）"
)
# Notes on rules.
EXEMPTION_SCOPE: Final = Text("until {until} from {rules}", "{until} 之前豁免 {rules}")
REPLACED_BY: Final = Text("{rule} is in force for {key}", "{key} 由 {rule} 生效")
EXEMPT_PODS: Final = Text("some pods are exempt by {exemptions}", "{exemptions} 豁免了部分 Pod")

LEVELS: Final = {
    "error": Text("error", "错误"),
    "warning": Text("warning", "警告"),
    "notice": Text("notice", "提示"),
}
MORE_FINDINGS: Final = Text("{count} more findings", "另有 {count} 个问题")
# Three numbers, then the same with their English nouns.
LINT_SUMMARY: Final = Text("{3}, {4}, {5}", "{0} 条有效规则，{1} 个错误，{2} 个警告")

# Counts of test cases and patches; see test_report.py.
PASSED: Final = Text("{count} passed", "{count} 个通过")
FAILED: Final = Text("{count} failed", "{count} 个失败")
NOT_SELECTED: Final = Text("{count} not selected", "{count} 个未选中")
PATCH_WRITTEN: Final = Text("{count} patch written", "已写入 {count} 个补丁")
PATCHES_WRITTEN: Final = Text("{count} patches written", "已写入 {count} 个补丁")
NO_CASES: Final = Text("no cases run", "未运行任何用例")
TEST_SUMMARY: Final = Text(
    "{cases} in {files}: {results}", "{file_count} 个文件中的 {case_count} 个用例：{results}"
)
INVALID_FILES: Final = Text("{files} with errors", "{count} 个文件有错误")
LEGEND: Final = Text("; - expected, + actual", "；- 期望，+ 实际")
SEPARATOR: Final = Text(", ", "，")

# `certs`.
EMPTY_STORE: Final = Text(
    "{store} is empty; next: gpugate certs init", "{store} 为空；下一步：gpugate certs init"
)
NO_SERVING_CERTIFICATE: Final = Text(
    "the serving certificate is missing; next: gpugate certs init",
    "缺少服务证书；下一步：gpugate certs init",
)
NO_CONFIGURATION: Final = Text(
    "webhook configuration {name} not found; the API server does not call this webhook",
    "未找到 webhook 配置 {name}；API Server 不会调用此 webhook",
)
EXPIRED_CERTIFICATE: Final = Text("{role}: expired {when}", "{role}：已于 {when} 过期")
NOT_TRUSTED: Final = Text("{role}: not trusted by {kind} {name}", "{role}：不受 {kind} {name} 信任")
VALID_UNTIL: Final = Text("until {day}", "有效期至 {day}")
ROTATING: Final = Text(
    "a CA rotation is in progress; try again at {when}", "CA 轮换正在进行；请在此时间重试：{when}"
)
BOTH_TRUSTED: Final = Text(
    "Both the new and the old CA are trusted. The new CA takes over at {when}.",
    "新旧 CA 均受信任。新 CA 开始签发的时间：{when}。",
)
WHEN_TRUSTED: Final = Text(
    "the time at which all webhook configurations trust it", "所有 webhook 配置都信任新 CA 时"
)

# `export`.
NOT_CONVERTED: Final = Text("{rule}: not converted: {reason}", "{rule}：未转换：{reason}")
NO_EXEMPTIONS: Final = Text(
    "policies do not support exemptions; they also check the exempted pods",
    "策略不支持豁免；被豁免的 Pod 也会被检查",
)
ONLY_RESOURCE_RULES: Final = Text("policies support only resource rules", "策略仅支持资源规则")

# `version`.
CLIENT_VERSION: Final = Text(
    "Client Version: {version} (Python {python}, {platform})",
    "客户端版本：{version}（Python {python}，{platform}）",
)
BUILT_IN_RULES: Final = Text(
    "Built-in Rules: {count}, revision {revision}", "内置规则：{count} 条，修订 {revision}"
)
CLUSTER_RULES: Final = Text(
    "Cluster Rules: {count} in namespace {namespace}, revision {revision}",
    "集群规则：命名空间 {namespace} 中 {count} 条，修订 {revision}",
)
AS_BUILT_IN: Final = Text(" (equal to the built-in rules)", "（与内置规则相同）")
WEBHOOK_VERSION: Final = Text(
    "Webhook Version: {version} ({namespace}/{name}, image {image}, {ready} of {replicas} replicas ready)",
    "Webhook 版本：{version}（{namespace}/{name}，镜像 {image}，{replicas} 个副本中 {ready} 个就绪）",
)
CAPPED: Final = Text(", enforcement action {action}", "，执行动作 {action}")
CAPPED_PREVIEW: Final = Text(
    "the webhook of this cluster runs with --enforcement-action={action}: it denies nothing; shown is what "
    "its rules say",
    "该集群的 webhook 以 --enforcement-action={action} 运行：不会拒绝任何对象；此处显示规则本身的结果",
)
NO_WEBHOOK: Final = Text(
    "Webhook Version: not installed (no Deployment with the labels of gpugate)",
    "Webhook 版本：未安装（没有带 gpugate 标签的 Deployment）",
)

# `node`.
NODE_VERSIONS: Final = Text("driver {driver}, CUDA {cuda}", "驱动 {driver}，CUDA {cuda}")
RANGE: Final = Text("{first} to {last}", "{first} 至 {last}")
DATA_TYPES: Final = Text("data types", "数据类型")
TOPOLOGY: Final = Text("topology", "拓扑")
TOPOLOGIES: Final = {
    "nvlink": Text(
        "nvlink: each GPU has NVLink to another one", "nvlink：每块 GPU 都通过 NVLink 与其他 GPU 相连"
    ),
    "pcie": Text("pcie: a GPU has no NVLink to another one", "pcie：有 GPU 没有通过 NVLink 与其他 GPU 相连"),
    None: Text("-"),
}
MPS_FIT: Final = {
    True: Text("can share these GPUs", "可以共享这些 GPU"),
    False: Text("cannot share these GPUs", "不能共享这些 GPU"),
    None: Text("-"),
}
MPS_DAEMON: Final = Text("; its daemon runs at {directories}", "；守护进程目录：{directories}")
NOT_COMPARED: Final = Text("labels are not compared: {why}", "未比较标签：{why}")

# `image inspect`.
NO_IMAGES: Final = Text("{files}: no images in these objects", "{files}：这些对象中没有镜像")
BLOCKED_HINT: Final = Text(
    "use --allow-private if the registry is in your own network, --insecure-registry HOST if it has no TLS",
    "如果镜像仓库在你自己的网络中，请使用 --allow-private；如果它没有 TLS，请使用 --insecure-registry HOST",
)

UNSUPPORTED_GPU: Final = Text(
    "node {node} ({count} in all): {reason}; {remedy}", "节点 {node}（共 {count} 个）：{reason}；{remedy}"
)
MORE_UNSUPPORTED: Final = Text(
    "{count} more kinds of nodes whose driver does not support their GPU (use -o json to list all)",
    "另有 {count} 类节点的驱动不支持其 GPU（使用 -o json 列出全部）",
)
UNREADABLE_LABEL: Final = Text(
    "node {node}: label {label}: unsupported value {value}", "节点 {node}：标签 {label} 的值 {value} 无法识别"
)
MORE_UNREADABLE: Final = Text(
    "{count} more labels with unsupported values (use -o json to list all)",
    "另有 {count} 个标签的值无法识别（使用 -o json 列出全部）",
)
UNREADABLE_DEVICE: Final = Text(
    "{source}: {key} cannot be read, so not all devices are known: {value}",
    "{source}：无法读取 {key}，因此设备信息不完整：{value}",
)
MORE_UNREADABLE_DEVICES: Final = Text(
    "{count} more values of devices that cannot be read (use -o json to list all)",
    "另有 {count} 个设备的值无法读取（使用 -o json 列出全部）",
)
PROFILE_DIFFERS: Final = Text(
    "node profile {profile!r} and reality differ: {fact} is {stated} in the profile, but {reported} on "
    "present nodes ({node!r}, {count} in all); correct the profile, or the labels in its match",
    "节点画像 {profile!r} 与实际不符：配置中 {fact} 为 {stated}，现有节点上为 {reported}"
    "（例如 {node!r}，共 {count} 个）；请更正该配置，或其 match 中的标签",
)
MORE_DIFFERENCES: Final = Text(
    "{count} more differences between node profiles and nodes (use -o json to list all)",
    "节点画像与节点之间另有 {count} 处不符（使用 -o json 列出全部）",
)
MORE_POOL_PROBLEMS: Final = Text(
    "{count} more problems in declared pools (use -o json to list all)",
    "声明的节点池另有 {count} 个问题（使用 -o json 列出全部）",
)
UNDECLARED: Final = Text(
    "an autoscaler may add nodes that are not declared ({signs}); describe them with a NodeProfile",
    "自动扩缩容器可能新增未声明的节点（{signs}）；请用 NodeProfile 描述这些节点",
)
SNAPSHOT_WRITTEN: Final = Text(
    "{nodes} nodes and {others} other objects; values replaced of the labels: {labels}",
    "{nodes} 个节点，{others} 个其他对象；以下标签的值已替换：{labels}",
)
NO_LABELS: Final = Text("none", "无")
UNLABELLED_NODES: Final = Text(
    "not in the table: {count} nodes without GPU labels: {names}; GPU Feature Discovery or "
    "`gpugate node label` adds labels",
    "未列入表中：{count} 个节点没有 GPU 标签：{names}；可由 GPU Feature Discovery 或 "
    "`gpugate node label` 添加标签",
)


def heading(column: str, language: Language) -> str:
    """Return the heading of a table column."""
    return _HEADINGS.get(column, Text(column.upper())).in_language(language)


def value(column: str, cell: str, language: Language) -> str:
    """Return the text of a table cell."""
    return _VALUES.get(column, {}).get(cell, Text(cell)).in_language(language)


def is_word(column: str, cell: str) -> bool:
    """Return whether a table cell has one of the fixed values of its column."""
    return cell in _VALUES.get(column, ())
