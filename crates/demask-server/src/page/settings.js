// The settings of a run: a form made from what the server says it takes, kept in this browser.

import { element } from "./canvas.js";

const STORE = "demask.settings";
const MAIN = ["steps", "block_length", "unmask", "threshold", "cache", "temperature", "seed", "eos"];
/** Set beside the prompt. */
const ELSEWHERE = ["recipe", "max_tokens"];
const LENGTHS = [16, 32, 64, 128, 256, 512];

const byId = (id) => document.getElementById(id);

export class Settings {
  constructor() {
    try { this.values = JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { this.values = {}; }
    this.dialog = byId("settings");
    this.schemas = {};
    byId("system").value = this.values.system ?? "";
    byId("system").addEventListener("change", () => this.#set("system", byId("system").value));
    byId("key").value = sessionStorage.getItem("demask.key") ?? "";
    byId("key").addEventListener("change", () => {
      sessionStorage.setItem("demask.key", byId("key").value);
      this.dialog.dispatchEvent(new Event("keychange"));
    });
    byId("reset").addEventListener("click", () => { this.values = {}; this.#store(); this.#fill(); });
  }

  get key() { return byId("key").value.trim(); }
  get system() { return (this.values.system ?? "").trim(); }

  /** Makes the form for a model. */
  describe(model) {
    this.model = model;
    this.schemas = model.settings;
    this.schemas.unmask.enum = model.unmaskers;
    byId("main-settings").replaceChildren(...MAIN.map((name) => this.#field(name)));
    const others = Object.keys(this.schemas).filter((name) => !MAIN.includes(name) && !ELSEWHERE.includes(name));
    byId("more-settings").replaceChildren(...others.map((name) => this.#field(name)));
    byId("recipe").replaceChildren(...model.recipes.map(({ name, description }) =>
      element("option", { value: name, textContent: name, title: description })));
    const lengths = LENGTHS.filter((length) => length <= model.max_tokens);
    byId("length").replaceChildren(...lengths.map((length) => new Option(length, length)));
    byId("recipe").onchange = () => this.#set("recipe", byId("recipe").value);
    byId("length").onchange = () => this.#set("max_tokens", byId("length").value);
    this.#fill();
  }

  #field(name) {
    const schema = this.schemas[name];
    let input;
    if (schema.enum || schema.type === "boolean") {
      input = element("select", {});
      input.append(new Option("default", ""));
      for (const choice of schema.enum ?? ["true", "false"]) input.append(new Option(choice, choice));
    } else {
      const number = schema.type === "integer" || schema.type === "number";
      input = element("input", { type: number ? "number" : "text", placeholder: schema.default ?? "default" });
      if (number) { input.step = schema.type === "integer" ? 1 : "any"; input.min = 0; }
    }
    input.id = `set-${name}`;
    input.addEventListener("change", () => this.#set(name, input.value));
    return element("label", { className: "field", title: schema.description },
      element("span", { textContent: name.replaceAll("_", " ") }), input);
  }

  #fill() {
    for (const name of Object.keys(this.schemas)) {
      const input = byId(`set-${name}`);
      if (input) input.value = this.values[name] ?? "";
    }
    byId("system").value = this.values.system ?? "";
    byId("recipe").value = this.values.recipe ?? "exact";
    byId("length").value = this.values.max_tokens ?? Math.min(128, this.model?.max_tokens ?? 128);
    this.#about();
  }

  #about() {
    const row = this.model?.recipes.find(({ name }) => name === byId("recipe").value);
    byId("recipe-about").textContent = row ? `${row.name}: ${row.description}${row.settings ? ` (${row.settings})` : ""}` : "";
  }

  #set(name, value) {
    if (value === "") delete this.values[name]; else this.values[name] = value;
    this.#store();
    this.#about();
  }

  #store() {
    try { localStorage.setItem(STORE, JSON.stringify(this.values)); } catch { /* private window */ }
  }

  /** The fields of a request. */
  fields() {
    const fields = { recipe: byId("recipe").value, max_tokens: Number(byId("length").value) };
    for (const [name, schema] of Object.entries(this.schemas)) {
      const value = this.values[name];
      if (value === undefined || ELSEWHERE.includes(name)) continue;
      if (schema.type === "integer" || schema.type === "number") fields[name] = Number(value);
      else if (schema.type === "boolean") fields[name] = value === "true";
      else if (schema.type === "array") fields[name] = value.split(/[\s,]+/).filter(Boolean).map(Number);
      else fields[name] = value;
    }
    return fields;
  }
}
