// A text field over a copy of its lines: the copy has their numbers, marks and colours, and wraps as the text does.
// What the editor writes is written as if typed, so the browser undoes it, and searches the text.

import { element } from "./dom.js";

const INDENT = "  ";
const LONGEST = 1000; // characters of a line that has colours
const KEY = /^(\s*(?:- +)*)([^\s#:"'-][^#:"']*|"[^"]*"|'[^']*'):(?=\s|$)/;
const COMMENT = /^((?:"[^"]*"|'[^']*'|(?!\s#)[^"'])*\s)?#.*$/;

export class Editor {
  // changed: called after each change by the user. yaml: whether Tab and Enter indent, and keys are coloured.
  constructor(area, changed, { yaml = true } = {}) {
    this.area = area;
    this.copy = area.previousElementSibling;
    this.yaml = yaml;
    this.lines = [];
    this.leaving = false; // Escape was the last key: Tab leaves the text
    area.addEventListener("input", () => {
      this.draw();
      changed();
    });
    if (yaml) area.addEventListener("keydown", (event) => this.pressed(event));
    this.draw();
  }

  get text() {
    return this.area.value;
  }

  set text(text) {
    this.area.value = text;
    this.draw();
    this.mark([]);
    this.area.closest(".editor").scrollTop = 0;
  }

  // Marks lines. problems: objects with a line and a level; the first of a line counts.
  mark(problems) {
    for (const line of this.copy.querySelectorAll("[class]")) if (line.parentElement === this.copy) line.removeAttribute("class");
    for (const { line, level } of problems) {
      const marked = line && this.copy.children[line - 1];
      if (marked && !marked.className) marked.className = level;
    }
  }

  // Selects a line and scrolls to it.
  show(line) {
    const start = this.lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
    const view = this.area.closest(".editor");
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(start, start + (this.lines[line - 1] ?? "").length);
    view.scrollTop = Math.max(0, (this.copy.children[line - 1]?.offsetTop ?? 0) - view.clientHeight / 3);
    view.scrollIntoView({ block: "nearest" });
  }

  // Replaces a part of the text as if it were typed.
  replace(start, end, text) {
    this.area.focus({ preventScroll: true });
    this.area.setSelectionRange(start, end);
    document.execCommand(text ? "insertText" : "delete", false, text);
  }

  // Draws the lines that have changed; others keep their marks.
  draw() {
    const lines = this.text.split("\n");
    const old = this.lines;
    const shorter = Math.min(old.length, lines.length);
    let same = 0;
    while (same < shorter && old[same] === lines[same]) same += 1;
    let rest = 0;
    while (rest < shorter - same && old.at(-1 - rest) === lines.at(-1 - rest)) rest += 1;
    for (let at = old.length - rest - 1; at >= same; at -= 1) this.copy.children[at].remove();
    const drawn = document.createDocumentFragment();
    drawn.append(...lines.slice(same, lines.length - rest).map((line) => element("div", {}, ...this.colours(line))));
    this.copy.insertBefore(drawn, this.copy.children[same] ?? null);
    this.lines = lines;
  }

  // Returns the parts of a line: the key and the comment of YAML have colours.
  colours(line) {
    if (!this.yaml || line.length > LONGEST) return [line];
    const comment = COMMENT.exec(line);
    const code = comment ? (comment[1] ?? "") : line;
    const key = KEY.exec(code);
    const parts = key ? [key[1], element("span", { className: "key", textContent: key[2] }), code.slice(key[1].length + key[2].length)] : [code];
    if (comment) parts.push(element("span", { className: "comment", textContent: line.slice(code.length) }));
    return parts;
  }

  pressed(event) {
    const { key, isComposing, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (isComposing || ["Shift", "Control", "Alt", "Meta"].includes(key)) return;
    const leaving = this.leaving;
    this.leaving = key === "Escape";
    const command = ctrlKey || metaKey;
    if (altKey) return;
    if (key === "Tab" && !command && !leaving) this.indent(shiftKey);
    else if (key === "Enter" && !command && !shiftKey) this.breakLine();
    else if (key === "/" && command) this.comment();
    else return;
    event.preventDefault();
  }

  // Indents the selected lines, or the other way; without a selection, inserts spaces.
  indent(back) {
    const { selectionStart: start, selectionEnd: end } = this.area;
    if (!back && start === end) this.replace(start, end, INDENT);
    else this.change((line) => (back ? line.replace(/^ {1,2}/, "") : line && INDENT + line));
  }

  // Makes the selected lines comments, or the other way.
  comment() {
    this.change((line, lines) => (lines.every((other) => /^\s*(#|$)/.test(other)) ? line.replace(/^(\s*)# ?/, "$1") : line.replace(/^(\s*)(?=\S)/, "$1# ")));
  }

  // Begins a line with the indentation of the last one; below a key without a value, with more.
  breakLine() {
    const { selectionStart: start, selectionEnd: end } = this.area;
    const line = this.text.slice(this.text.lastIndexOf("\n", start - 1) + 1, start);
    const [, dashes] = KEY.exec(line) ?? [line, /^\s*/.exec(line)[0]];
    const more = /:(\s+[|>][+-]?)?\s*$/.test(line) ? INDENT : "";
    this.replace(start, end, `\n${dashes.replaceAll("-", " ")}${more}`);
  }

  // Changes the lines of the selection, and selects them.
  change(changed) {
    const { selectionStart, selectionEnd } = this.area;
    const start = this.text.lastIndexOf("\n", selectionStart - 1) + 1;
    const end = (this.text.indexOf("\n", Math.max(selectionStart, selectionEnd - 1)) + this.text.length + 1) % (this.text.length + 1);
    const lines = this.text.slice(start, end).split("\n");
    const text = lines.map((line) => changed(line, lines)).join("\n");
    this.replace(start, end, text);
    if (selectionStart !== selectionEnd) this.area.setSelectionRange(start, start + text.length);
  }
}
