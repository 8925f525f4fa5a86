// The page: a conversation whose answers are canvases.

import { Canvas, Replay, element } from "./canvas.js";
import { Settings } from "./settings.js";
import { Refusal, denoise, get } from "./stream.js";

const byId = (id) => document.getElementById(id);
const prompt = byId("prompt"), turns = byId("turns"), send = byId("send"), mode = byId("mode");
const settings = new Settings();
/** What was said: the model sees all of it. */
let messages = [];
/** The run under way. */
let running = null;
/** The replay that keys move. */
let latest = null;
let blank = 4;

/** Open positions of a text with blanks; null if it has none. The server reads it by the same rule. */
function blanks(text) {
  let count = 0, open = 0;
  for (const [, slashes, digits] of text.matchAll(/(\\*)\[\[(\d*)\]\]/g)) {
    if (slashes.length % 2) continue;
    count += 1;
    open += digits ? Number(digits) : blank;
  }
  return count ? { count, open } : null;
}

function showMode() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
  const found = blanks(prompt.value);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  mode.textContent = found ? `fills ${plural(found.count, "blank")}, ${plural(found.open, "position")}` : "";
}

function showSend() {
  send.textContent = running ? "Stop" : "Send";
  send.classList.toggle("stop", Boolean(running));
}

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 }));

/** The lines below a canvas. */
class Facts {
  constructor() {
    this.node = element("dl", { className: "facts" });
    this.values = {};
    for (const [name, about] of [["steps", "Denoising steps"], ["NFE", "Forward passes"], ["R", "Rows run per visible token"],
      ["tokens", "Visible tokens"], ["tok/s", "Visible tokens per second"]]) {
      const value = element("dd", { textContent: "–" });
      this.values[name] = value;
      this.node.append(element("div", { title: about }, element("dt", { textContent: name }), value));
    }
    const legend = element("div", { className: "legend", title: "How sure the unmasker was of a token" });
    legend.append(element("dt", { textContent: "unsure" }),
      element("dd", { className: "scale" }), element("dt", { textContent: "sure" }));
    this.node.append(legend);
  }

  set(facts) {
    for (const [name, value] of Object.entries(facts)) this.values[name].textContent = number(value);
  }

  /** A button among the facts. */
  button(text, act) {
    const button = element("button", { type: "button", textContent: text });
    button.addEventListener("click", () => act(button));
    this.node.insertBefore(element("div", {}, button), this.node.lastChild);
  }
}

/** Keeps the newest in view, unless the reader has scrolled away. */
function follow() {
  const end = document.documentElement;
  if (end.scrollHeight - end.scrollTop - end.clientHeight < 260) end.scrollTop = end.scrollHeight;
}

function say(text) { byId("said").textContent = text; }

function note(text) { turns.append(element("p", { className: "note", textContent: text })); }

function trouble(text) {
  turns.append(element("div", { className: "trouble", role: "alert", textContent: text }));
}

/** Runs a request and draws it; gives the text that is final. */
async function run(body, whole, abort) {
  const drawing = element("div", { className: "canvas", role: "group" });
  drawing.setAttribute("aria-label", "Canvas of the answer");
  const card = element("article", { className: "answer running" }, drawing);
  const facts = new Facts();
  let canvas = null, replay = null, text = "", nfe = 0, rows = 0, stopped = false;
  try {
    for await (const [name, data] of denoise(body, settings.key, abort.signal)) {
      if (name === "start") {
        canvas = new Canvas(drawing, data, whole);
        replay = new Replay(canvas);
        card.append(element("div", { className: "foot" }, replay.node, facts.node));
        turns.append(card);
      } else if (name === "step") {
        nfe += data.nfe;
        rows += data.rows;
        text += data.text;
        canvas.add(data);
        replay.grew();
        facts.set({ steps: canvas.steps.length, NFE: nfe });
      } else if (name === "end") {
        text = data.text;
        facts.set({ steps: data.steps, NFE: data.nfe, R: data.rows_per_visible_token, tokens: data.visible_tokens,
          "tok/s": data.visible_tokens_per_s });
      }
      follow();
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      card.classList.remove("running");
      if (replay) replay.ready();
      throw error;
    }
    stopped = true;
  }
  card.classList.remove("running");
  if (!canvas) return null;
  if (!stopped) canvas.finish();
  replay.ready();
  latest = replay;
  if (stopped) note("Stopped. What was final is kept.");
  else if (text.trim() === "") drawing.append(element("span", { className: "empty", textContent: "The answer is empty." }));
  facts.button("copy", async (button) => {
    try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "can't copy"; }
  });
  say(stopped ? "Stopped." : `Answer: ${text}`);
  follow();
  return text;
}

/** Asks; the oldest turns go where the context is full. */
async function ask(text) {
  byId("hello").hidden = true;
  turns.append(element("div", { className: "asked", textContent: text }));
  follow();
  const abort = new AbortController();
  running = abort;
  showSend();
  try {
    const found = blanks(text);
    const fields = settings.fields();
    if (found) {
      delete fields.max_tokens;
      if (fields.eos === "stop") delete fields.eos;
      await run({ ...fields, text }, true, abort);
      return;
    }
    messages.push({ role: "user", content: text });
    const system = settings.system ? [{ role: "system", content: settings.system }] : [];
    for (;;) {
      try {
        const answer = await run({ ...fields, messages: [...system, ...messages] }, false, abort);
        if (answer) messages.push({ role: "assistant", content: answer }); else messages.pop();
        return;
      } catch (error) {
        if (error.code !== "context_length_exceeded" || messages.length < 3) {
          messages.pop();
          throw error;
        }
        messages = messages.slice(2);
        note("The oldest turn no longer fits the model's context and is left out.");
      }
    }
  } catch (error) {
    trouble(error.message);
    if (error instanceof Refusal && error.status === 401) openKey();
  } finally {
    running = null;
    showSend();
    follow();
  }
}

function openKey() {
  settings.dialog.showModal();
  byId("key").focus();
}

function restart() {
  running?.abort();
  messages = [];
  latest = null;
  turns.replaceChildren();
  byId("hello").hidden = false;
  prompt.focus();
}

function submit() {
  if (running) return running.abort();
  const text = prompt.value.trim();
  if (!text) return;
  prompt.value = "";
  showMode();
  ask(text);
}

/** Dark or light: the reader's choice, else the system's. */
function theme(flip) {
  const system = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
  let chosen = null;
  try { chosen = localStorage.getItem("demask.theme"); } catch { /* private window */ }
  let now = chosen ?? system;
  if (flip) {
    now = now === "dark" ? "light" : "dark";
    try { localStorage.setItem("demask.theme", now); } catch { /* private window */ }
  }
  document.documentElement.dataset.theme = now;
}

/** The little picture of the start: cells that fill in no order. */
function motif() {
  const cells = Array.from({ length: 48 }, () => element("i", {}));
  byId("motif").append(...cells);
  const order = cells.map((_, i) => i).sort((a, b) => (a * 31 + 7) % 48 - (b * 31 + 7) % 48);
  const light = (i) => {
    cells[order[i]].style.setProperty("--p", `${30 + ((order[i] * 37) % 71)}%`);
    cells[order[i]].classList.add("lit");
  };
  const most = 38;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) {
    for (let i = 0; i < most; i++) light(i);
    return;
  }
  let i = 0;
  const timer = setInterval(() => { if (i < most) light(i++); else clearInterval(timer); }, 70);
}

function key(event) {
  if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) return running.abort();
  const inField = event.target.closest?.("textarea, input, select, button, a, summary, dialog");
  if (inField || event.ctrlKey || event.metaKey || event.altKey) return;
  const acts = {
    "/": () => prompt.focus(),
    "?": () => byId("help").showModal(),
    ",": () => settings.dialog.showModal(),
    n: restart,
    t: () => theme(true),
    " ": () => latest?.toggle(),
    ArrowLeft: () => latest?.move(-1),
    ArrowRight: () => latest?.move(1),
  };
  if (acts[event.key]) {
    event.preventDefault();
    acts[event.key]();
  }
}

async function start() {
  try {
    const { models: [model] } = await get("/api/models", settings.key);
    blank = model.blank;
    byId("model").textContent = model.id;
    byId("model").title = `${model.name}: ${model.family}, ${model.layers} layers, context ${model.context}`;
    settings.describe(model);
  } catch (error) {
    byId("model").textContent = "no model";
    trouble(error.message);
    if (error.status === 401) openKey();
  }
}

theme(false);
matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => theme(false));
motif();
start();
byId("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
prompt.addEventListener("input", showMode);
prompt.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) submit(); }
});
byId("examples").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button && !running) ask(button.textContent);
});
byId("new").addEventListener("click", restart);
byId("theme").addEventListener("click", () => theme(true));
byId("open-settings").addEventListener("click", () => settings.dialog.showModal());
byId("open-help").addEventListener("click", () => byId("help").showModal());
settings.dialog.addEventListener("keychange", () => { turns.querySelector(".trouble")?.remove(); start(); });
document.addEventListener("keydown", key);
// On a phone this would raise the keyboard over the page.
if (matchMedia("(pointer: fine)").matches) prompt.focus();
