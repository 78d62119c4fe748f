// The result of an evaluation: the verdict, then findings, patch, nodes and rules of each object.

import { code, element } from "./dom.js";
import { say } from "./words.js";

const DIFF = { "+": "added", "-": "removed", "@": "place" };

// Shows the verdict on all objects in an element.
export function showVerdict(node, answer) {
  const { errors, objects } = answer;
  const levels = objects.flatMap((object) => object.findings.map((finding) => finding.level));
  const count = (level) => levels.filter((shown) => shown === level).length;
  const facts = [
    objects.length === 1 && isPending(objects[0]) && objects[0].result,
    errors.length && objects.length && say("errorCount", { count: errors.length }),
    count("warn") && say("warningCount", { count: count("warn") }),
    count("notChecked") && say("notCheckedCount", { count: count("notChecked") }),
  ].filter(Boolean);
  const words = [];
  let colour = "none";
  if (!objects.length && !errors.length) words.push(say("empty"));
  else if (!objects.length) words.push(element("strong", { textContent: `✗ ${say("errorCount", { count: errors.length })}` }));
  else if (objects.length === 1) words.push(...heading(objects[0]));
  else {
    const results = Map.groupBy(objects, (object) => resultOf(object));
    words.push(element("strong", { textContent: say("objectCount", { count: objects.length }) }), " ");
    words.push([...results].map(([result, members]) => `${members.length} ${result}`).join(" · "));
  }
  if (errors.length || objects.some((object) => !object.allowed)) colour = "red";
  else if (facts.length || objects.some((object) => colourOf(object) !== "green")) colour = "yellow";
  else if (objects.length) colour = "green";
  if (facts.length) words.push(element("span", { className: "facts", textContent: facts.join(" · ") }));
  show(node, colour, words);
}

// Shows words in a verdict; what is shown already is not announced again.
export function show(node, colour, words) {
  const shown = element("div", {}, ...words);
  if (node.textContent === shown.textContent && node.classList.contains(colour)) return;
  node.className = `verdict ${colour}`;
  node.replaceChildren(...shown.childNodes);
}

// Returns the item of an error in a text. show: called with the error when its line is clicked.
export function errorItem(error, show) {
  const place = error.where === "nodes" ? say("inNodes") : "";
  const name = error.level === "warn" ? say("warning") : say("error");
  return element("li", { className: error.level }, cause(name, error.message, lineButton(error.line, () => show(error), place)));
}

// Returns the element of an object. show, apply: called with a line, or a change, of the pod's text. alone: the verdict
// is its heading.
export function objectResult(object, { show, apply, alone }) {
  const parts = alone ? [] : [element("h2", { className: colourOf(object) }, ...heading(object))];
  if (object.outOfScope) parts.push(element("p", { className: "quiet", textContent: object.outOfScope }));
  if (object.findings.length) {
    parts.push(element("ul", { className: "findings" }, ...object.findings.map((finding) => findingItem(finding, show, apply))));
  }
  const part = (text) => element(alone ? "h2" : "h3", { className: "part", textContent: text });
  if (object.nodes.length) parts.push(part(say("candidates")), ...object.nodes.map(candidates));
  if (object.diff.length) parts.push(part(say("patch")), diff(object.diff));
  if (object.explanation.length) parts.push(explanation(object.explanation));
  return element("article", { className: "object" }, ...parts);
}

// Returns the item of a cause of `why`. show: called with its line when it is clicked.
export function causeItem(known, show) {
  const evidence = known.evidence.map(({ line, text }) =>
    element("p", { className: "evidence" }, lineButton(line, () => show(line)), element("code", { textContent: text })),
  );
  return element("li", { className: known.certain ? "deny" : "warn" }, cause(known.certainty, known.cause), ...fixes([known.fix]), ...evidence);
}

function isPending(object) {
  return object.nodes.some((nodes) => !nodes.count);
}

function resultOf(object) {
  return isPending(object) ? `! ${say("pending")}` : `${object.mark} ${object.result}`;
}

function colourOf(object) {
  return isPending(object) ? "yellow" : object.colour;
}

function heading(object) {
  return [element("strong", { textContent: resultOf(object) }), ` ${object.kind} ${object.namespace}/${object.name}`];
}

function lineButton(line, clicked, place = "") {
  if (!line) return "";
  const button = element("button", { type: "button", className: "line", textContent: `${place}${say("line", { line })}` });
  button.addEventListener("click", clicked);
  return button;
}

function applyButton(finding, apply) {
  const button = element("button", { type: "button", className: "apply", textContent: say("apply", { what: finding.change.what }) });
  button.addEventListener("click", () => apply(finding.change));
  return button;
}

// Returns what is wrong: a word for how bad it is, and the text. more: what follows the word.
function cause(name, text, ...more) {
  return element("p", { className: "cause" }, element("span", { className: "word", textContent: name }), " ", ...more, " ", ...code(text));
}

// Returns what to do: the first way is the largest thing in the page, others follow. actions: what does it.
function fixes(texts, ...actions) {
  const [first, ...others] = texts.filter(Boolean);
  if (!first) return [];
  const rest = others.map((text) => element("li", {}, ...code(text)));
  return [
    element("div", { className: "fix" }, element("span", { className: "word", textContent: say("fix") }), element("p", {}, ...code(first)),
      ...actions, ...(rest.length ? [element("ul", {}, ...rest)] : [])),
  ];
}

function findingItem(finding, show, apply) {
  const line = lineButton(finding.line, () => show(finding.line));
  const item = element("li", { className: finding.level }, cause(finding.word, finding.message, line));
  item.append(...fixes(finding.fixes, ...(finding.change ? [applyButton(finding, apply)] : [])));
  if (finding.table.length) {
    const [heads, ...rows] = finding.table;
    item.append(heads.length > 1 ? table(heads, rows) : list(finding.table));
  }
  if (finding.rule) item.append(element("p", { className: "rule", textContent: `${say("rule")} ${finding.rule}` }));
  return item;
}

function list(rows) {
  return element("ul", {}, ...rows.map((row) => element("li", { textContent: row.join(" ") })));
}

// Returns a table; on a small screen, each row is a card with the names of its cells.
function table(heads, rows) {
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col", textContent: name })));
  const body = rows.map((row) => {
    if (row.length === 1) return element("tr", {}, element("td", { colSpan: heads.length, textContent: row[0] }));
    return element("tr", {}, ...row.map((cell, at) => element("td", { "data-name": heads[at], textContent: cell ?? "–" })));
  });
  return element("table", { className: "nodes" }, element("thead", {}, head), element("tbody", {}, ...body));
}

function diff(lines) {
  const spans = lines.map((line) => element("span", { className: DIFF[line[0]] ?? "", textContent: line || " " }));
  return element("pre", { className: "diff" }, ...spans);
}

function candidates(nodes) {
  const summary = element("p", { textContent: say("candidateCount", { count: nodes.count, of: nodes.of }) });
  summary.className = nodes.count ? "quiet" : "yellow";
  if (!nodes.classes.length) return summary;
  const heads = [say("nodes"), say("gpu"), say("driver"), say("cuda"), say("compute"), say("names")];
  const rows = nodes.classes.map((group) => {
    const more = group.count - group.names.length;
    const names = group.names.join(", ") + (more > 0 ? say("more", { count: more }) : "");
    return [group.count, group.product, group.driver, group.cuda, group.compute, names];
  });
  return element("div", {}, summary, table(heads, rows));
}

function explanation(containers) {
  const parts = containers.map((container) => {
    const heading = element("p", { className: "part", textContent: `${container.kind} ${container.name}  ${container.image}` });
    return element("div", {}, heading, element("ul", { className: "rules" }, ...container.rules.map(ruleItem)));
  });
  return element("details", {}, element("summary", { textContent: say("explanation") }), ...parts);
}

function ruleItem(rule) {
  const colour = { matched: "green", "evaluation error": "yellow" }[rule.outcome] ?? "dim";
  const mark = element("span", { className: rule.mark === "✗" ? "red" : colour, textContent: `${rule.mark} ${rule.name}` });
  const item = element("li", {}, mark, " ", element("span", { className: "dim", textContent: rule.why || rule.source }));
  const lines = [
    ...rule.requirements.map((need) => ["dim", say("requires", { what: need })]),
    ...rule.edits.map((edit) => ["green", `+ ${edit.path}: ${JSON.stringify(edit.value)} (${edit.reason})`]),
    ...rule.would.map((change) => ["dim", say("would", { what: change })]),
    ...rule.unused.map((text) => ["dim", text]),
    ...rule.warnings.map((text) => ["yellow", text]),
  ];
  if (lines.length) item.append(element("ul", {}, ...lines.map(([style, text]) => element("li", { className: style }, ...code(text)))));
  return item;
}
