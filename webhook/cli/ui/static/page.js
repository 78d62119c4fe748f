// The page: what the user chooses and writes is evaluated at each pause in typing.

import { byId, download, element, tabs } from "./dom.js";
import { Editor } from "./editor.js";
import { showMatrix } from "./matrix.js";
import { causeItem, errorItem, objectResult, show, showVerdict } from "./results.js";
import { currentLanguage, loadWords, say, setLanguage } from "./words.js";

const PAUSE_MS = 250; // after the last key, before the text is evaluated
const LONGEST_UNDONE = 500; // lines of a file: a browser takes a second to write as many as if typed
// What the user has written, while the tab is open.
const OWN_CASE = "gpugate-own-case";
const LOG = "gpugate-log";

const choices = Object.fromEntries(
  ["example", "rules", "nodes", "namespace", "language", "sharing"].map((name) => [name, byId(name)]),
);
const pod = new Editor(byId("pod"), typed);
const nodeText = new Editor(byId("node-text"), () => {
  choices.nodes.value = "text";
  typed();
});
const log = new Editor(byId("log"), () => {
  sessionStorage.setItem(LOG, log.text);
  later();
}, { yaml: false });
const showView = tabs([byId("tab-pod"), byId("tab-log"), byId("tab-matrix")], (tab) => {
  view = tab.id.slice("tab-".length);
  for (const node of document.querySelectorAll("[data-views]")) node.hidden = !node.dataset.views.split(" ").includes(view);
  ask();
});
const showText = tabs([byId("tab-pod-text"), byId("tab-node-text")]);
let view = "pod";
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
  later();
}

function later() {
  clearTimeout(waiting);
  waiting = setTimeout(ask, PAUSE_MS);
}

// Evaluates what is chosen and written now; an answer to an older question is not shown.
async function ask() {
  clearTimeout(waiting);
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  try {
    const [path, body, shown] = {
      pod: () => ["/api/evaluate", question(), showResult],
      log: () => ["/api/why", { text: log.text, language: currentLanguage() }, showCauses],
      matrix: () => ["/api/matrix", question(), showMatrix],
    }[view]();
    const answer = await post(path, body, signal);
    if (signal.aborted) return;
    tell("");
    shown(answer);
  } catch (error) {
    if (error.name !== "AbortError") tell(error instanceof TypeError ? say("stopped") : error.message);
  }
}

function showResult(answer) {
  const errors = answer.errors.map((error) => ({ ...error, level: "error" }));
  const duplicates = answer.duplicates.map((duplicate) => ({ ...duplicate, level: "warn" }));
  const problems = [...errors, ...duplicates];
  showVerdict(byId("verdict"), answer);
  byId("errors").replaceChildren(...problems.map((problem) => errorItem(problem, showError)));
  const alone = answer.objects.length === 1;
  const text = pod.text;
  const apply = ({ start, end, text: changed }) => {
    if (pod.text !== text) return; // another answer follows
    showText(byId("tab-pod-text"));
    pod.replace(start, end, changed);
  };
  const shown = { show: showLine, apply, alone };
  byId("objects").replaceChildren(...answer.objects.map((object) => objectResult(object, shown)));
  const findings = answer.objects.flatMap((object) => object.findings).filter((finding) => finding.level !== "notChecked");
  pod.mark([...problems.filter((problem) => problem.where === "pod"), ...findings]);
  nodeText.mark(problems.filter((problem) => problem.where === "nodes"));
}

function showCauses({ causes }) {
  const [first] = causes;
  const words = !log.text.trim() ? [say("logEmpty")] : [element("strong", { textContent: first ? say("causeCount", { count: causes.length }) : say("noCause") })];
  show(byId("log-verdict"), first ? (first.certain ? "red" : "yellow") : "none", words);
  byId("causes").replaceChildren(...causes.map((cause) => causeItem(cause, (line) => log.show(line))));
  log.mark(causes.flatMap(({ certain, evidence }) => evidence.map(({ line }) => ({ line, level: certain ? "deny" : "warn" }))));
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
  const nodes = [["text", say("nodeText")], ["none", say("nodesNone")]];
  const given = settings.nodes;
  if (given) nodes.unshift(["given", say("nodesGiven", { names: given.names, count: given.count })]);
  fill(choices.nodes, nodes);
}

// Returns the chosen example with comments in the language of the page.
function chosenExample() {
  const example = settings.examples[Number(choices.example.value)];
  return { ...example, pod: example.pod[currentLanguage()] };
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
    const opened = await post("/api/open", { text: await file.text(), language: currentLanguage() });
    const { pod: text } = opened;
    if (text.split("\n").length > LONGEST_UNDONE) showCase(opened);
    else {
      showCase({ ...opened, pod: pod.text });
      pod.replace(0, pod.text.length, text); // undo brings the text before back
    }
    keep();
    tell("");
    await ask();
  } catch (error) {
    tell(error instanceof TypeError ? say("stopped") : error.message);
  }
}

function listen() {
  choices.example.addEventListener("change", () => {
    const chosen = choices.example.value ? chosenExample() : ownCase();
    if (chosen) showCase(chosen);
    ask();
  });
  choices.language.addEventListener("change", () => {
    setLanguage(choices.language.value);
    fillChoices();
    if (choices.example.value) showCase(chosenExample());
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
  log.text = sessionStorage.getItem(LOG) ?? "";
  const own = ownCase();
  if (own) {
    showCase(own);
  } else if (settings.pod) {
    showCase({ pod: settings.pod, nodes: settings.nodeText, namespace: settings.namespace });
  } else {
    choices.example.value = "0";
    showCase({ ...chosenExample(), ...(settings.nodes ? { nodes: "" } : {}) });
  }
  showView(byId("tab-pod"));
}

start();
