// The result of an evaluation: findings, patch, nodes and rules of each object.

import { element, scrollable } from "./dom.js";
import { say } from "./words.js";

const DIFF = { "+": "added", "-": "removed", "@": "place" };

// Returns the heading for all objects: its text, and its colour.
export function verdict(answer) {
  const { errors, objects } = answer;
  if (!objects.length) return { text: say("errorCount", { count: errors.length }), colour: "red" };
  const parts = objects.map((each) => `${each.mark} ${titleOf(each)}: ${each.result}`);
  const levels = objects.flatMap((each) => each.findings.map((found) => found.level));
  const count = (level) => levels.filter((each) => each === level).length;
  const facts = [
    errors.length && say("errorCount", { count: errors.length }),
    count("warn") && say("warningCount", { count: count("warn") }),
    count("notChecked") && say("notCheckedCount", { count: count("notChecked") }),
  ].filter(Boolean);
  const denied = errors.length || objects.some((each) => !each.allowed);
  const unsure = count("warn") || count("notChecked") || objects.some((each) => each.colour === "dim");
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
export function objectResult(found, show) {
  const heading = element("h2", {}, element("span", { className: found.colour, textContent: `${found.mark} ${found.result}` }), ` ${titleOf(found)}`);
  const parts = [heading];
  if (found.outOfScope) parts.push(element("p", { className: "quiet", textContent: found.outOfScope }));
  if (found.findings.length) {
    parts.push(element("ul", { className: "findings" }, ...found.findings.map((each) => findingItem(each, show))));
  }
  if (found.diff.length) parts.push(element("h3", { textContent: say("patch") }), diff(found.diff));
  if (found.nodes.length) parts.push(element("h3", { textContent: say("candidates") }), ...found.nodes.map(candidates));
  if (found.explanation.length) parts.push(explanation(found.explanation));
  return element("article", { className: "object" }, ...parts);
}

function titleOf(found) {
  return `${found.kind} ${found.namespace}/${found.name}`;
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

function findingItem(found, show) {
  const [first, ...table] = found.message.split("\n");
  const item = element("li", { className: found.level }, word(found.word), lineButton(found.line, () => show(found.line)), first);
  if (found.rule) item.append(" ", element("span", { className: "rule", textContent: `[${found.rule}]` }));
  if (table.length) item.append(block(table));
  if (found.fix) item.append(element("strong", { className: "fix", textContent: `→ ${found.fix}` }));
  return item;
}

// Returns lines with aligned columns; the keyboard scrolls them.
function block(lines) {
  const text = lines.map((each) => each.trim()).join("\n");
  return scrollable(say("nodes"), element("pre", { textContent: text }));
}

function diff(lines) {
  const spans = lines.map((line) => element("span", { className: DIFF[line[0]] ?? "", textContent: line || " " }));
  return scrollable(say("patch"), element("pre", {}, ...spans), "diff");
}

function candidates(found) {
  const summary = element("p", { textContent: say("candidateCount", { count: found.count, of: found.of }) });
  summary.className = found.count ? "quiet" : "yellow";
  if (!found.classes.length) return summary;
  const heads = ["nodes", "gpu", "driver", "cuda", "compute", "names"];
  const head = element("tr", {}, ...heads.map((key) => element("th", { scope: "col", textContent: say(key) })));
  const rows = found.classes.map((each) => {
    const more = each.count - each.names.length;
    const names = each.names.join(", ") + (more > 0 ? say("more", { count: more }) : "");
    const cells = [each.count, each.product, each.driver, each.cuda, each.compute, names];
    return element("tr", {}, ...cells.map((cell) => element("td", { textContent: cell ?? "-" })));
  });
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", {}, summary, scrollable(say("candidates"), table));
}

function explanation(containers) {
  const parts = containers.map((each) => {
    const heading = element("h3", { textContent: `${each.kind} ${each.name}  ${each.image}` });
    return element("div", {}, heading, element("ul", { className: "rules" }, ...each.rules.map(rule)));
  });
  return element("details", { open: true }, element("summary", { textContent: say("explanation") }), ...parts);
}

function rule(found) {
  const colour = { matched: "green", "evaluation error": "yellow" }[found.outcome] ?? "dim";
  const mark = element("span", { className: found.mark === "✗" ? "red" : colour, textContent: `${found.mark} ${found.name}` });
  const item = element("li", {}, mark, " ", element("span", { className: "dim", textContent: found.why || found.source }));
  const lines = [
    ...found.requirements.map((each) => ["dim", `${say("requires")} ${each}`]),
    ...found.edits.map((each) => ["green", `+ ${each.path}: ${JSON.stringify(each.value)} (${each.reason})`]),
    ...found.would.map((each) => ["dim", say("would", { what: each })]),
    ...found.unused.map((each) => ["dim", each]),
    ...found.warnings.map((each) => ["yellow", each]),
  ];
  if (lines.length) item.append(element("ul", {}, ...lines.map(([style, text]) => element("li", { className: style, textContent: text }))));
  return item;
}
