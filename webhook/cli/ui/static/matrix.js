// The compatibility matrix: tables of cells; a click on a cell shows its reasons.

import { byId, element, scrollable } from "./dom.js";
import { say } from "./words.js";

let pressed = null;

export function showMatrix(answer) {
  pressed = null;
  byId("reasons").replaceChildren();
  byId("legend").textContent = Object.values(answer.legend)
    .map((entry) => `${entry.mark} ${entry.text}`)
    .join(" · ");
  const parts = answer.tables.flatMap((matrix) => [
    element("h2", { textContent: matrix.title }),
    table(matrix, answer.legend),
  ]);
  if (!answer.tables.length) parts.push(element("p", { textContent: say("noLabels") }));
  else if (answer.unlabelled) {
    parts.push(element("p", { className: "quiet", textContent: say("unlabelled", { count: answer.unlabelled }) }));
  }
  byId("tables").replaceChildren(...parts);
}

function table(matrix, legend) {
  const heads = matrix.facts.map((fact) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", textContent: fact.name }),
      ...fact.values.map((value) => element("td", { textContent: value })),
    ),
  );
  const rows = matrix.rows.map((row) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", textContent: `CUDA ${row.cuda}` }),
      ...row.cells.map((cell, at) => element("td", {}, button(cell, `CUDA ${row.cuda}`, matrix.columns[at], legend))),
    ),
  );
  const inner = element("table", { className: "matrix" }, element("thead", {}, ...heads), element("tbody", {}, ...rows));
  return scrollable(matrix.title, inner);
}

function button(cell, runtime, column, legend) {
  const { mark, text } = legend[cell.level];
  const title = `${runtime}, ${column}: ${text}`;
  const node = element("button", {
    type: "button",
    className: cell.level,
    textContent: mark,
    "aria-label": title,
    "aria-pressed": "false",
  });
  node.addEventListener("click", () => {
    pressed?.setAttribute("aria-pressed", "false");
    node.setAttribute("aria-pressed", "true");
    pressed = node;
    const reasons = cell.reasons.flatMap((cause) => [
      element("p", { textContent: [cause.reason, cause.error].filter(Boolean).join(" · ") }),
      ...(cause.remedy ? [element("p", {}, element("strong", { textContent: `→ ${cause.remedy}` }))] : []),
    ]);
    byId("reasons").replaceChildren(element("h2", { textContent: `${mark} ${title}` }), ...reasons);
  });
  return node;
}
