// The page: what the user chooses and writes is evaluated at each pause in typing.

import { byId, download, element, tabs } from "./dom.js";
import { Editor } from "./editor.js";
import { showMatrix } from "./matrix.js";
import { errorItem, objectResult, verdict } from "./results.js";
import { currentLanguage, loadWords, say, setLanguage } from "./words.js";

const PAUSE_MS = 250; // after the last key, before the text is evaluated
const OWN_CASE = "gpugate-own-case"; // what the user has written, while the tab is open

const choices = Object.fromEntries(
  ["example", "rules", "nodes", "namespace", "language", "sharing"].map((name) => [name, byId(name)]),
);
const pod = new Editor(byId("pod"), typed);
const nodeText = new Editor(byId("node-text"), () => {
  choices.nodes.value = "text";
  typed();
});
const showView = tabs([byId("tab-pod"), byId("tab-matrix")], () => ask());
const showText = tabs([byId("tab-pod-text"), byId("tab-node-text")]);
let settings = null;
let waiting = null;
let running = null;

function question() {
  return {
    pod: pod.text,
    rules: choices.rules.value,
    nodes: choices.nodes.value,
    nodeText: choices.nodes.value === "text" ? nodeText.text : "",
    namespace: choices.namespace.value || "default",
    language: currentLanguage(),
    sharing: choices.sharing.value,
  };
}

// Sends a question; returns the answer, or throws an Error with the server's message.
async function post(path, body, signal) {
  const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await fetch(path, request);
  if (response.status === 403) throw new Error(say("refused"));
  const answer = await response.json();
  if (!response.ok) {
    const place = answer.line ? `${answer.where}:${answer.line}: ` : "";
    throw new Error(`${place}${answer.error}`);
  }
  return answer;
}

// Keeps what the user has written or opened, so that no example replaces it for ever.
function keep() {
  choices.example.value = "";
  const own = { pod: pod.text, nodes: nodeText.text, namespace: choices.namespace.value };
  sessionStorage.setItem(OWN_CASE, JSON.stringify(own));
}

function typed() {
  keep();
  clearTimeout(waiting);
  waiting = setTimeout(ask, PAUSE_MS);
}

// Evaluates what is chosen and written now; an answer to an older question is not shown.
async function ask() {
  clearTimeout(waiting);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  const matrix = byId("tab-matrix").getAttribute("aria-selected") === "true";
  try {
    const answer = await post(matrix ? "/api/matrix" : "/api/evaluate", question(), signal);
    if (signal.aborted) return;
    tell("");
    if (matrix) showMatrix(answer);
    else showResult(answer);
  } catch (error) {
    if (error.name !== "AbortError") tell(error instanceof TypeError ? say("stopped") : error.message);
  }
}

function showResult(answer) {
  const errors = answer.errors.map((error) => ({ ...error, level: "error" }));
  const duplicates = answer.duplicates.map((duplicate) => ({ ...duplicate, level: "warn" }));
  const problems = [...errors, ...duplicates];
  const { text, colour } = verdict(answer);
  const heading = byId("verdict");
  if (heading.textContent !== text) heading.textContent = text;
  heading.className = colour;
  byId("errors").replaceChildren(...problems.map((problem) => errorItem(problem, showError)));
  byId("objects").replaceChildren(...answer.objects.map((object) => objectResult(object, showLine)));
  const findings = answer.objects.flatMap((object) => object.findings).filter((finding) => finding.level !== "notChecked");
  pod.mark([...problems.filter((problem) => problem.where === "pod"), ...findings]);
  nodeText.mark(problems.filter((problem) => problem.where === "nodes"));
}

function showError(error) {
  if (error.where === "nodes") {
    showText(byId("tab-node-text"));
    nodeText.show(error.line);
  } else showLine(error.line);
}

function showLine(line) {
  showText(byId("tab-pod-text"));
  pod.show(line);
}

function tell(text, note = false) {
  const message = byId("message");
  message.textContent = text;
  message.hidden = !text;
  message.className = note ? "note" : "";
}

function fill(select, options) {
  const value = select.value;
  select.replaceChildren(...options.map(([key, text]) => element("option", { value: key, textContent: text })));
  if (options.some(([key]) => key === value)) select.value = value;
}

// Writes what can be chosen, in the language of the page.
function fillChoices() {
  const language = currentLanguage();
  const titles = settings.examples.map((example, at) => [String(at), example.title[language]]);
  fill(choices.example, [["", say("ownText")], ...titles]);
  const rules = Object.entries(settings.rules);
  fill(choices.rules, rules.map(([key, names]) => [key, key === "builtin" ? say("builtIn") : names]));
  const nodes = [["text", say("nodesText")], ["none", say("nodesNone")]];
  const given = settings.nodes;
  if (given) nodes.unshift(["given", say("nodesGiven", { names: given.names, count: given.count })]);
  fill(choices.nodes, nodes);
  byId("node-note").textContent = say("nodeNote");
}

// Returns what the user has written in this tab, or null.
function ownCase() {
  return JSON.parse(sessionStorage.getItem(OWN_CASE));
}

function showCase(example) {
  pod.text = example.pod;
  nodeText.text = example.nodes;
  choices.namespace.value = example.namespace;
  choices.nodes.value = example.nodes ? "text" : settings.nodes ? "given" : "none";
  showText(byId("tab-pod-text"));
}

async function save(path, name) {
  try {
    download(name, (await post(path, question())).text);
    tell(say("saved", { name }), true);
  } catch (error) {
    tell(error instanceof TypeError ? say("stopped") : error.message);
  }
}

async function open(file) {
  try {
    showCase(await post("/api/open", { text: await file.text() }));
    keep();
    tell("");
    await ask();
  } catch (error) {
    tell(error instanceof TypeError ? say("stopped") : error.message);
  }
}

function listen() {
  choices.example.addEventListener("change", () => {
    const chosen = choices.example.value ? settings.examples[Number(choices.example.value)] : ownCase();
    if (chosen) showCase(chosen);
    ask();
  });
  choices.language.addEventListener("change", () => {
    setLanguage(choices.language.value);
    fillChoices();
    ask();
  });
  for (const name of ["rules", "nodes", "sharing"]) choices[name].addEventListener("change", ask);
  choices.namespace.addEventListener("input", typed);
  byId("open").addEventListener("click", () => byId("file").click());
  byId("file").addEventListener("change", () => {
    const [file] = byId("file").files;
    if (file) open(file);
    byId("file").value = "";
  });
  byId("save").addEventListener("click", () => save("/api/case", "case.yaml"));
  byId("save-test").addEventListener("click", () => save("/api/ruletest", "case.test.yaml"));
}

async function start() {
  await loadWords();
  settings = await (await fetch("/api/session")).json();
  const nameOf = (code) => new Intl.DisplayNames([code], { type: "language" }).of(code);
  fill(choices.language, settings.languages.map((code) => [code, nameOf(code)]));
  choices.language.value = settings.language;
  setLanguage(settings.language);
  fillChoices();
  listen();
  const own = ownCase();
  if (own) {
    showCase(own);
  } else if (settings.pod) {
    showCase({ pod: settings.pod, nodes: settings.nodeText, namespace: settings.namespace });
  } else {
    const [first] = settings.examples;
    const nodes = settings.nodes ? "" : first.nodes;
    showCase({ ...first, nodes });
    choices.example.value = "0";
  }
  showView(byId("tab-pod"));
}

start();
