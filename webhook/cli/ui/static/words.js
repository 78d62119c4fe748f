// The words of the page; English ones where a language has none.

let known = {};
let language = "en";

export async function loadWords() {
  known = await (await fetch("/static/words.json")).json();
}

export const currentLanguage = () => language;

// Returns a text of words.json with {names} replaced.
export function say(key, facts = {}) {
  const text = known[key]?.[language] ?? known[key]?.en ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => facts[name] ?? "");
}

// Shows the page in a language.
export function setLanguage(chosen) {
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : chosen;
  for (const node of document.querySelectorAll("[data-text]")) node.textContent = say(node.dataset.text);
  for (const node of document.querySelectorAll("[data-label]")) {
    node.setAttribute("aria-label", say(node.dataset.label));
  }
}
