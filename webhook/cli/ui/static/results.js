// The result of an evaluation: findings, patch, nodes and rules of each object.

import { element, scrollable } from "./dom.js";
import { say } from "./words.js";

const DIFF = { "+": "added", "-": "removed", "@": "place" };

// Returns the heading for all objects: its text, and its colour.
export function verdict(answer) {
  const { errors, objects } = answer;
  if (!objects.length) return { text: say("errorCount", { count: errors.length }), colour: "red" };
  const parts = objects.map((object) => `${object.mark} ${titleOf(object)}: ${object.result}`);
  const levels = objects.flatMap((object) => object.findings.map((finding) => finding.level));
  const count = (level) => levels.filter((shown) => shown === level).length;
  const facts = [
    errors.length && say("errorCount", { count: errors.length }),
    count("warn") && say("warningCount", { count: count("warn") }),
    count("notChecked") && say("notCheckedCount", { count: count("notChecked") }),
  ].filter(Boolean);
  const denied = errors.length || objects.some((object) => !object.allowed);
  const unsure = count("warn") || count("notChecked") || objects.some((object) => object.colour === "dim");
  return { text: [parts.join("; "), ...facts].join(" · "), colour: denied ? "red" : unsure ? "yellow" : "green" };
}

// Returns the item of an error in a text. show: called with the error when its line is clicked.
export function errorItem(error, show) {
  const place = error.where === "nodes" ? say("inNodes") : say("inPod");
  return element(
    "li",
    { className: error.level ?? "error" },
    word(error.level === "warn" ? say("warning") : say("error")),
    lineButton(error.line, () => show(error), place),
    error.message,
  );
}

// Returns the element of an object. show: called with a line of the pod's text when it is clicked.
export function objectResult(object, show) {
  const heading = element("h2", {}, element("span", { className: object.colour, textContent: `${object.mark} ${object.result}` }), ` ${titleOf(object)}`);
  const parts = [heading];
  if (object.outOfScope) parts.push(element("p", { className: "quiet", textContent: object.outOfScope }));
  if (object.findings.length) {
    parts.push(element("ul", { className: "findings" }, ...object.findings.map((finding) => findingItem(finding, show))));
  }
  if (object.diff.length) parts.push(element("h3", { textContent: say("patch") }), diff(object.diff));
  if (object.nodes.length) parts.push(element("h3", { textContent: say("candidates") }), ...object.nodes.map(candidates));
  if (object.explanation.length) parts.push(explanation(object.explanation));
  return element("article", { className: "object" }, ...parts);
}

function titleOf(object) {
  return `${object.kind} ${object.namespace}/${object.name}`;
}

function word(text) {
  return element("span", { className: "word", textContent: text });
}

function lineButton(line, clicked, place = "") {
  if (!line) return "";
  const button = element("button", { type: "button", className: "line", textContent: `${place}${say("line", { line })}` });
  button.addEventListener("click", clicked);
  return button;
}

function findingItem(finding, show) {
  const [first, ...table] = finding.message.split("\n");
  const item = element("li", { className: finding.level }, word(finding.word), lineButton(finding.line, () => show(finding.line)), first);
  if (finding.rule) item.append(" ", element("span", { className: "rule", textContent: `[${finding.rule}]` }));
  if (table.length) item.append(block(table));
  if (finding.fix) item.append(element("strong", { className: "fix", textContent: `→ ${finding.fix}` }));
  return item;
}

// Returns lines with aligned columns; the keyboard scrolls them.
function block(lines) {
  const text = lines.map((line) => line.trim()).join("\n");
  return scrollable(say("nodes"), element("pre", { textContent: text }));
}

function diff(lines) {
  const spans = lines.map((line) => element("span", { className: DIFF[line[0]] ?? "", textContent: line || " " }));
  return scrollable(say("patch"), element("pre", {}, ...spans), "diff");
}

function candidates(nodes) {
  const summary = element("p", { textContent: say("candidateCount", { count: nodes.count, of: nodes.of }) });
  summary.className = nodes.count ? "quiet" : "yellow";
  if (!nodes.classes.length) return summary;
  const heads = ["nodes", "gpu", "driver", "cuda", "compute", "names"];
  const head = element("tr", {}, ...heads.map((key) => element("th", { scope: "col", textContent: say(key) })));
  const rows = nodes.classes.map((group) => {
    const more = group.count - group.names.length;
    const names = group.names.join(", ") + (more > 0 ? say("more", { count: more }) : "");
    const cells = [group.count, group.product, group.driver, group.cuda, group.compute, names];
    return element("tr", {}, ...cells.map((cell) => element("td", { textContent: cell ?? "-" })));
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", {}, summary, scrollable(say("candidates"), table));
}

function explanation(containers) {
  const parts = containers.map((container) => {
    const heading = element("h3", { textContent: `${container.kind} ${container.name}  ${container.image}` });
    return element("div", {}, heading, element("ul", { className: "rules" }, ...container.rules.map(ruleItem)));
  });
  return element("details", { open: true }, element("summary", { textContent: say("explanation") }), ...parts);
}

function ruleItem(rule) {
  const colour = { matched: "green", "evaluation error": "yellow" }[rule.outcome] ?? "dim";
  const mark = element("span", { className: rule.mark === "✗" ? "red" : colour, textContent: `${rule.mark} ${rule.name}` });
  const item = element("li", {}, mark, " ", element("span", { className: "dim", textContent: rule.why || rule.source }));
  const lines = [
    ...rule.requirements.map((need) => ["dim", `${say("requires")} ${need}`]),
    ...rule.edits.map((edit) => ["green", `+ ${edit.path}: ${JSON.stringify(edit.value)} (${edit.reason})`]),
    ...rule.would.map((change) => ["dim", say("would", { what: change })]),
    ...rule.unused.map((text) => ["dim", text]),
    ...rule.warnings.map((text) => ["yellow", text]),
  ];
  if (lines.length) item.append(element("ul", {}, ...lines.map(([style, text]) => element("li", { className: style, textContent: text }))));
  return item;
}
