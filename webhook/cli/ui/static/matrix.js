// The compatibility matrix: tables of cells; a click on a cell shows its reasons beside them.

import { byId, code, element, scrollable } from "./dom.js";
import { say } from "./words.js";

let pressed = null;

export function showMatrix(answer) {
  release();
  byId("legend").replaceChildren(
    ...Object.entries(answer.legend).map(([level, { mark, text }]) =>
      element("li", {}, element("span", { className: `cell ${level}`, textContent: mark }), ` ${text}`),
    ),
  );
  const parts = answer.tables.flatMap((matrix) => [
    element("h2", { textContent: matrix.title }),
    table(matrix, answer.legend),
    ...about(matrix),
  ]);
  if (!answer.tables.length) parts.push(element("p", { textContent: say("noLabels") }));
  else if (answer.unlabelled) {
    parts.push(element("p", { className: "quiet", textContent: say("unlabelled", { count: answer.unlabelled }) }));
  }
  byId("tables").replaceChildren(...parts);
}

function table(matrix, legend) {
  const heads = matrix.facts.map((fact) =>
    element("tr", {}, element("th", { scope: "row", textContent: fact.name }), ...fact.values.map((value) => element("td", { textContent: value }))),
  );
  const rows = matrix.rows.map((row) =>
    element("tr", {}, element("th", { scope: "row", textContent: `CUDA ${row.cuda}` }),
      ...row.cells.map((cell, at) => element("td", {}, button(cell, `CUDA ${row.cuda}`, matrix.columns[at], legend)))),
  );
  const inner = element("table", { className: "matrix" }, element("thead", {}, ...heads), element("tbody", {}, ...rows));
  return scrollable(matrix.title, inner);
}

// Returns what the columns are, if they have more than facts.
function about(matrix) {
  const rows = matrix.columns.flatMap((name, at) => (matrix.about[at] ? [element("dt", { textContent: name }), element("dd", { textContent: matrix.about[at] })] : []));
  return rows.length ? [element("details", {}, element("summary", { textContent: say("about") }), element("dl", {}, ...rows))] : [];
}

// Shows no reasons, but where they will be.
function release() {
  pressed?.setAttribute("aria-pressed", "false");
  pressed = null;
  byId("reasons").className = "none";
  byId("reasons").replaceChildren(element("p", { className: "quiet", textContent: say("chooseCell") }));
}

function button(cell, runtime, column, legend) {
  const { mark, text } = legend[cell.level];
  const title = `${runtime}, ${column}: ${text}`;
  const node = element("button", { type: "button", className: `cell ${cell.level}`, textContent: mark, "aria-label": title, "aria-pressed": "false" });
  node.addEventListener("click", () => {
    pressed?.setAttribute("aria-pressed", "false");
    node.setAttribute("aria-pressed", "true");
    pressed = node;
    const close = element("button", { type: "button", className: "close", textContent: "×", "aria-label": say("close") });
    close.addEventListener("click", () => {
      release();
      node.focus();
    });
    const heading = element("h2", {}, element("span", { className: `cell ${cell.level}`, textContent: mark }), ` ${title}`);
    byId("reasons").className = "";
    byId("reasons").replaceChildren(close, heading, ...cell.reasons.flatMap(reason));
  });
  return node;
}

function reason(cause) {
  const parts = [element("p", {}, ...code([cause.reason, cause.error].filter(Boolean).join(" · ")))];
  if (cause.remedy) parts.push(element("div", { className: "fix" }, element("span", { className: "word", textContent: say("fix") }), element("p", {}, ...code(cause.remedy))));
  return parts;
}
