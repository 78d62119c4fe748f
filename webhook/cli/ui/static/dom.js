// Elements. Text from the server is set as textContent only, so nothing in it is read as HTML.

export const byId = (id) => document.getElementById(id);

// Returns a new element. props: properties, or attributes if their name has a dash or is `role`.
export function element(name, props = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (key.includes("-") || key === "role") node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children);
  return node;
}

// Returns the parts of a text: what is between backquotes is code.
export function code(text) {
  return text.split(/`([^`\n]+)`/).map((part, at) => (at % 2 ? element("code", { textContent: part }) : part));
}

// Returns a part that scrolls sideways, with the keyboard, too.
export function scrollable(label, child, name = "") {
  return element("section", { className: `scroll ${name}`.trim(), tabIndex: 0, "aria-label": label }, child);
}

// Makes the buttons of a tablist show one panel each: arrow keys move between them.
export function tabs(buttons, changed = () => {}) {
  const select = (chosen) => {
    for (const button of buttons) {
      const selected = button === chosen;
      button.setAttribute("aria-selected", selected);
      button.tabIndex = selected ? 0 : -1;
      byId(button.getAttribute("aria-controls")).hidden = !selected;
    }
    changed(chosen);
  };
  for (const [at, button] of buttons.entries()) {
    button.addEventListener("click", () => select(button));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = buttons[(at + step + buttons.length) % buttons.length];
      next.focus();
      select(next);
    });
  }
  return select;
}

// Gives the user a text as a file.
export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/yaml" }));
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
