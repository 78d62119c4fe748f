// The compatibility matrix: tables of cells; a click on a cell shows its reasons.

import { byId, element, scrollable } from "./dom.js";
import { say } from "./words.js";

let pressed = null;

export function showMatrix(answer) {
  pressed = null;
  byId("reasons").replaceChildren();
  byId("legend").textContent = Object.values(answer.legend)
    .map((each) => `${each.mark} ${each.text}`)
    .join(" · ");
  const parts = answer.tables.flatMap((each) => [
    element("h2", { textContent: each.title }),
    table(each, answer.legend),
  ]);
  if (!answer.tables.length) parts.push(element("p", { textContent: say("noLabels") }));
  else if (answer.unlabelled) {
    parts.push(element("p", { className: "quiet", textContent: say("unlabelled", { count: answer.unlabelled }) }));
  }
  byId("tables").replaceChildren(...parts);
}

function table(found, legend) {
  const heads = found.facts.map((fact) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", textContent: fact.name }),
      ...fact.values.map((value) => element("td", { textContent: value })),
    ),
  );
  const rows = found.rows.map((row) =>
    element(
      "tr",
      {},
      element("th", { scope: "row", textContent: `CUDA ${row.cuda}` }),
      ...row.cells.map((cell, at) => element("td", {}, button(cell, `CUDA ${row.cuda}`, found.columns[at], legend))),
    ),
  );
  const inner = element("table", { className: "matrix" }, element("thead", {}, ...heads), element("tbody", {}, ...rows));
  return scrollable(found.title, inner);
}

function button(cell, runtime, column, legend) {
  const { mark, text } = legend[cell.level];
  const title = `${runtime}, ${column}: ${text}`;
  const found = element("button", {
    type: "button",
    className: cell.level,
    textContent: mark,
    "aria-label": title,
    "aria-pressed": "false",
  });
  found.addEventListener("click", () => {
    pressed?.setAttribute("aria-pressed", "false");
    found.setAttribute("aria-pressed", "true");
    pressed = found;
    const reasons = cell.reasons.flatMap((each) => [
      element("p", { textContent: [each.reason, each.error].filter(Boolean).join(" · ") }),
      ...(each.remedy ? [element("p", {}, element("strong", { textContent: `→ ${each.remedy}` }))] : []),
    ]);
    byId("reasons").replaceChildren(element("h2", { textContent: `${mark} ${title}` }), ...reasons);
  });
  return found;
}
