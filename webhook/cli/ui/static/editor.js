// A text area with line numbers, of which some are marked.

import { element } from "./dom.js";

const LINE_PX = 20; // as in page.css

export class Editor {
  constructor(area, changed) {
    this.area = area;
    this.gutter = area.parentElement.querySelector(".gutter");
    this.marks = new Map();
    area.addEventListener("input", () => {
      this.number();
      changed();
    });
    area.addEventListener("scroll", () => this.align());
    this.number();
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    this.area.value = text;
    this.area.scrollTop = 0;
    this.marks.clear();
    this.number();
  }

  // Marks lines. problems: objects with a line, a level and a message; the first of a line counts.
  mark(problems) {
    this.marks.clear();
    for (const problem of problems) if (problem.line && !this.marks.has(problem.line)) this.marks.set(problem.line, problem);
    this.number();
  }

  // Selects a line and scrolls to it.
  show(line) {
    const lines = this.text.split("\n");
    const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
    this.area.scrollTop = Math.max(0, (line - 5) * LINE_PX);
  }

  number() {
    const count = this.text.split("\n").length;
    const numbers = [];
    for (let line = 1; line <= count; line += 1) {
      const marked = this.marks.get(line);
      numbers.push(
        element("span", { textContent: line, className: marked?.level ?? "", title: marked?.message ?? "" }),
      );
    }
    this.gutter.replaceChildren(...numbers);
    this.align();
  }

  align() {
    this.gutter.scrollTop = this.area.scrollTop;
  }
}
