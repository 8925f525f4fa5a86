// Drives the page in headless Chromium: types a prompt, sees cells fill, replays, changes a recipe, infills, talks on.
//
// node page.mjs http://127.0.0.1:PORT [FOLDER]; with a folder, pictures are kept there. The package puppeteer-core is looked
// for in NODE_MODULES, the browser is CHROMIUM.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_MODULES}/`);
const puppeteer = require("puppeteer-core");
const [base, folder] = process.argv.slice(2);

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none"],
});

const complaints = [];
let weight = 0;

/** A fresh page; everything that it complains about is kept. */
async function open(options = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  // A busy machine is no reason to fail.
  page.setDefaultTimeout(180_000);
  page.setDefaultNavigationTimeout(180_000);
  await page.setViewport({ width: 1180, height: 820, deviceScaleFactor: 1, ...options.viewport });
  await page.emulateMediaFeatures([
    { name: "prefers-color-scheme", value: options.scheme ?? "dark" },
    { name: "prefers-reduced-motion", value: options.motion ?? "no-preference" },
  ]);
  page.on("console", (message) => { if (["error", "warn"].includes(message.type())) complaints.push(message.text()); });
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("requestfailed", (request) => {
    if (request.failure()?.errorText !== "net::ERR_ABORTED") complaints.push(`${request.url()}: ${request.failure()?.errorText}`);
  });
  page.on("request", (request) => { if (!request.url().startsWith(base)) complaints.push(`asks elsewhere: ${request.url()}`); });
  await page.goto(base, { waitUntil: "networkidle0" });
  await page.waitForFunction(() => document.querySelector("#recipe option"));
  return page;
}

const picture = async (page, name) => { if (folder) await page.screenshot({ path: `${folder}/${name}.png`, optimizeForSpeed: false }); };
const count = (page, selector) => page.$$eval(selector, (all) => all.length);
const say = async (page, text) => { await page.type("#prompt", text); await page.keyboard.press("Enter"); };
/** Closes a dialog as a keyboard does. */
const leave = async (page, dialog) => {
  await page.keyboard.press("Escape");
  await page.waitForFunction((id) => !document.querySelector(id).open, {}, dialog);
};
const settled = (page, answers) => page.waitForFunction(
  (wanted) => document.querySelectorAll(".answer:not(.running)").length === wanted, {}, answers);

// What the page weighs, as the browser got it.
const page = await open();
const files = await page.evaluate(() => performance.getEntriesByType("resource").map((entry) => [entry.name, entry.encodedBodySize]));
const html = await page.evaluate(async () => (await (await fetch("/")).arrayBuffer()).byteLength);
weight = html + files.filter(([name]) => name.includes("/page/")).reduce((sum, [, size]) => sum + size, 0);
assert.ok(weight > 10_000 && weight < 150_000, `${weight} bytes`);
await picture(page, "start-dark");

// A prompt: cells fill while the run goes on.
// Every change of the document counts as a moment: how often a busy machine paints is another matter.
const watched = page.evaluate(() => new Promise((done) => {
  const seen = new Set();
  new MutationObserver((_, observer) => {
    seen.add(document.querySelectorAll(".cell.done:not(.open)").length);
    if (document.querySelector(".answer:not(.running)")) { observer.disconnect(); done([...seen]); }
  }).observe(document.querySelector("#turns"), { subtree: true, childList: true, attributes: true });
}));
await say(page, "List the planets separated by commas.");
await page.waitForFunction(() => document.querySelectorAll(".cell.done:not(.open)").length > 8);
await picture(page, "filling-dark");
await settled(page, 1);
const seen = await watched;
assert.ok(seen.length > 4, `the canvas was seen at ${seen.length} moments`);
const text = await page.$eval(".answer .canvas", (canvas) => canvas.innerText);
assert.ok(text.trim().length > 3, text);
const facts = await page.$$eval(".facts dd", (all) => all.slice(0, 5).map((dd) => dd.textContent));
assert.ok(facts.every((fact) => /^[\d,.]+$/.test(fact)), facts.join(" "));
await picture(page, "answer-dark");

// Replay: the slider goes to any step, keys move by one, play ends at the last.
const steps = Number(await page.$eval(".replay input", (input) => input.max));
assert.ok(steps > 4);
const moveTo = (step) => page.$eval(".replay input", (input, value) => {
  input.value = value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}, step);
await moveTo(0);
assert.equal(await count(page, ".cell.done:not(.open)"), 0, "at the start nothing is decided");
await moveTo(Math.floor(steps / 2));
const half = await count(page, ".cell.done:not(.open)");
assert.ok(half > 0 && await count(page, ".cell.open") > 0);
await moveTo(Math.floor(steps * 0.8));
await picture(page, "replay-dark");
await moveTo(Math.floor(steps / 2));
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("ArrowRight");
assert.equal(Number(await page.$eval(".replay input", (input) => input.value)), Math.floor(steps / 2) + 1);
await page.select(".replay select", "4");
const played = () => page.waitForFunction((last) => Number(document.querySelector(".replay input").value) === last, {}, steps);
await page.click(".replay .play");
await played();
await moveTo(0);
await page.focus(".replay .play");
await page.keyboard.press("Enter");
await played();
assert.equal((await page.$eval(".answer .canvas", (canvas) => canvas.innerText)).trim(), text.trim(), "the replay ends as the run did");

// Another recipe takes fewer steps for the same prompt.
await page.select("#recipe", "fast");
await say(page, "List the planets separated by commas.");
await settled(page, 2);
const fewer = Number(await page.$$eval(".replay input", (all) => all[1].max));
assert.ok(fewer < steps, `${fewer} of ${steps}`);

// Blanks: what stands around them stays.
await page.click("#new");
await page.type("#prompt", "The capital of [[3]] is Copenhagen.");
assert.match(await page.$eval("#mode", (mode) => mode.textContent), /1 blank, 3 positions/);
await page.keyboard.press("Enter");
await settled(page, 1);
const filled = await page.$eval(".answer .canvas", (canvas) => canvas.innerText);
assert.match(filled, /^The capital of.* is Copenhagen\.$/s, filled);
await picture(page, "infill-dark");

// Settings: kept, sent, and a mistake is explained.
await page.click("#open-settings");
await page.waitForSelector("#settings[open]");
await picture(page, "settings-dark");
await page.$eval("#set-steps", (input) => { input.value = "1"; input.dispatchEvent(new Event("change")); });
await leave(page, "#settings");
await page.select("#recipe", "exact");
await say(page, "Count from 1 to 10.");
await page.waitForSelector(".trouble");
assert.match(await page.$eval(".trouble", (trouble) => trouble.textContent), /steps/);
const refusals = complaints.filter((line) => line.includes("400"));
complaints.splice(0, complaints.length, ...complaints.filter((line) => !line.includes("400")));
assert.ok(refusals.length <= 1, "one request was refused, on purpose");
await page.click("#open-settings");
await page.click("#reset");
await leave(page, "#settings");

// Keys: everything can be reached without a mouse.
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("?");
await page.waitForSelector("#help[open]");
await leave(page, "#help");
await page.evaluate(() => document.activeElement.blur());
await page.keyboard.press("t");
assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
await page.keyboard.press("t");
await page.keyboard.press("/");
assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");

// A conversation goes on, and a run can be stopped.
await page.click("#new");
await say(page, "What is 12 + 7?");
await settled(page, 1);
await say(page, "Name the months.");
await settled(page, 2);
await page.select("#length", "512");
await say(page, "Count from 1 to 10.");
await page.waitForFunction(() => document.querySelectorAll(".answer.running .cell.done:not(.open)").length > 0);
await page.keyboard.press("Escape");
await settled(page, 3);

// Names, roles and contrast that assistive technology needs.
const tree = JSON.stringify(await page.accessibility.snapshot({ interestingOnly: false }));
for (const name of ["Send", "Settings", "Canvas of the answer", "Step of the run", "Replay", "recipe"]) {
  assert.ok(tree.includes(name), `${name} has no name for screen readers`);
}
assert.equal(await page.$$eval("button, select, input, textarea", (all) => all.filter((one) =>
  !one.closest("[hidden]") && !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim())).length), 0);

/** The least contrast of texts with what is behind them (WCAG). */
const contrast = (of) => of.evaluate(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let least = 99, where = "";
  for (const node of document.querySelectorAll("h1, p, dt, dd, button, .cell.done, .asked, .chip, label, output, select")) {
    if (!node.textContent.trim() || !node.checkVisibility() || node.disabled || node.closest(".unseen")) continue;
    const behind = [];
    for (let up = node; up; up = up.parentElement) behind.unshift(getComputedStyle(up).backgroundColor);
    const [a, b] = [over([...behind, getComputedStyle(node).color]), over(behind)].map(light);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least) { least = ratio; where = `${node.tagName} ${node.className} "${node.textContent.slice(0, 30)}"`; }
  }
  return { least, where };
});
// Colours are measured at rest.
await page.evaluate(() => {
  for (const animation of document.getAnimations()) {
    if (Number.isFinite(animation.effect.getComputedTiming().endTime)) animation.finish();
  }
});
const contrasts = { dark: await contrast(page) };
await page.close();

// Light, and on a phone.
const light = await open({ scheme: "light" });
await picture(light, "start-light");
await say(light, "List the planets separated by commas.");
await settled(light, 1);
await light.waitForFunction(() => !document.querySelector(".cell.fresh"));
await picture(light, "answer-light");
contrasts.light = await contrast(light);
await light.close();
for (const scheme of ["dark", "light"]) {
  const phone = await open({ scheme, viewport: { width: 390, height: 780, deviceScaleFactor: 2, isMobile: true, hasTouch: true } });
  await picture(phone, `phone-start-${scheme}`);
  await say(phone, "List the planets separated by commas.");
  await settled(phone, 1);
  const wide = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${wide} px too wide for a phone`);
  await picture(phone, `phone-answer-${scheme}`);
  await phone.close();
}
for (const [scheme, { least, where }] of Object.entries(contrasts)) assert.ok(least >= 4.5, `${scheme}: ${least} at ${where}`);

// Without motion it is the same page.
const calm = await open({ motion: "reduce" });
await say(calm, "What is 12 + 7?");
await settled(calm, 1);
assert.equal(await calm.evaluate(() => document.getAnimations().length), 0);
await calm.close();

await browser.close();
assert.deepEqual(complaints, [], "the console is silent");
const round = (value) => Math.round(value * 100) / 100;
console.log(`page: ok, ${weight} bytes, ${seen.length} moments seen, contrast ${round(contrasts.dark.least)} dark, ${round(contrasts.light.least)} light`);
