// A canvas that fills: cells, the edits that change them, and any moment of the run again.

const END = "∎";

/** How sure an unmasker was, from 0 to 1: scales below 0 are log-like, others probabilities. */
function sureness(confidence) {
  if (confidence === null) return 0;
  return confidence < 0 ? Math.exp(confidence) : Math.min(confidence, 1);
}

export class Canvas {
  /** Draws the start of a run into `root`. `whole` also shows what was given. */
  constructor(root, start, whole) {
    this.root = root;
    this.steps = [];
    this.shown = 0;
    this.over = false;
    this.cells = start.canvas.map((cell, position) => this.#cell(cell, position));
    this.blocks = start.blocks.map((span) => ({ ...span, node: document.createElement("div") }));
    root.classList.toggle("flow", whole);
    let position = whole ? 0 : (this.blocks[0]?.start ?? 0);
    for (const block of this.blocks) {
      block.node.className = "block";
      if (whole) for (; position < block.start; position++) root.append(this.cells[position].node);
      for (position = block.start; position < block.end; position++) {
        const { node, given } = this.cells[position];
        if (!given || whole) block.node.append(node);
      }
      root.append(block.node);
    }
    if (whole) for (; position < this.cells.length; position++) root.append(this.cells[position].node);
    this.show(0);
  }

  #cell(cell, position) {
    const node = document.createElement("span");
    if (!cell.open) {
      node.className = "cell given";
      node.textContent = cell.special ? "" : cell.text;
    }
    return { node, position, given: !cell.open, past: [], look: "" };
  }

  /** Takes a step of the run. */
  add(step) {
    this.steps.push(step);
    const number = this.steps.length;
    for (const edit of step.edits) this.cells[edit.position].past.push({ number, step: step.step, edit });
    if (this.shown === number - 1) this.show(number);
  }

  /** The run has ended: what wasn't needed is put away. */
  finish() {
    this.over = true;
    this.show(this.steps.length);
  }

  /** Shows the canvas as it was after so many steps. */
  show(number) {
    this.shown = number;
    const last = this.over && number === this.steps.length;
    this.root.classList.toggle("over", last);
    let ended = false;
    for (const cell of this.cells) {
      if (cell.given) continue;
      let now = null;
      for (const entry of cell.past) { if (entry.number > number) break; now = entry; }
      ended = this.#draw(cell, now, number, ended);
    }
    const current = last ? -1 : this.#current();
    this.blocks.forEach((block, index) => {
      block.node.classList.toggle("now", index === current);
      const cells = this.cells.slice(block.start, block.end);
      block.node.classList.toggle("spare", !this.root.classList.contains("flow")
        && cells.every(({ node }) => node.classList.contains("open") || node.classList.contains("after")));
    });
  }

  /** The first block with an open position; none once the steps are over. */
  #current() {
    return this.blocks.findIndex(({ start, end }) => {
      for (let position = start; position < end; position++) {
        if (this.cells[position].node.classList.contains("open")) return true;
      }
      return false;
    });
  }

  /** Draws one cell; tells whether the answer has ended at or before it. */
  #draw(cell, now, number, ended) {
    const { node } = cell;
    const open = !now || now.edit.kind === "remask" || now.edit.kind === "renoise";
    const fresh = !open && now.number === number && !(this.over && number === this.steps.length);
    const isEnd = !open && now.edit.special;
    const look = open ? `open ${ended}` : `${now.number} ${fresh} ${ended}`;
    if (look !== cell.look) {
      cell.look = look;
      node.className = open ? "cell open" : "cell done";
      if (open) {
        node.textContent = "";
        node.removeAttribute("title");
      } else {
        const { text, confidence } = now.edit;
        const percent = Math.round(sureness(confidence) * 100);
        node.style.setProperty("--p", `${percent}%`);
        node.textContent = isEnd ? END : text;
        node.title = `${isEnd ? text : JSON.stringify(text)} · ${percent} % sure · step ${now.step + 1} · position ${cell.position}`;
        node.classList.toggle("end", isEnd);
      }
      node.classList.toggle("fresh", fresh);
      // In a text with blanks an end token only means that the blank is shorter.
      node.classList.toggle("after", ended && !this.root.classList.contains("flow"));
    }
    return ended || isEnd;
  }
}

/** Slider, play button and speed for a canvas. */
export class Replay {
  constructor(canvas) {
    this.canvas = canvas;
    this.timer = null;
    this.node = document.createElement("div");
    this.node.className = "replay";
    this.play = element("button", { type: "button", className: "play", disabled: true });
    this.slider = element("input", { type: "range", min: 0, max: 0, value: 0, step: 1, disabled: true });
    this.slider.setAttribute("aria-label", "Step of the run");
    this.place = element("output", {});
    this.speed = element("select", { disabled: true });
    this.speed.setAttribute("aria-label", "Speed of the replay");
    for (const speed of [0.5, 1, 2, 4]) this.speed.append(new Option(`${speed}×`, speed, speed === 1, speed === 1));
    this.node.append(this.play, this.slider, this.place, this.speed);
    this.#label(false);
    this.play.addEventListener("click", () => this.toggle());
    this.slider.addEventListener("input", () => { this.pause(); this.#go(Number(this.slider.value)); });
    this.grew();
  }

  #label(playing) {
    this.play.textContent = playing ? "❚❚" : "▶";
    this.play.setAttribute("aria-label", playing ? "Pause the replay" : "Replay");
  }

  /** The run went on. */
  grew() {
    this.slider.max = this.canvas.steps.length;
    this.slider.value = this.canvas.shown;
    this.#tell();
  }

  /** The run has ended: it can be replayed. */
  ready() {
    const none = this.canvas.steps.length === 0;
    for (const part of [this.play, this.slider, this.speed]) part.disabled = none;
    this.grew();
  }

  #tell() {
    this.place.value = `${this.canvas.shown} / ${this.canvas.steps.length}`;
    this.slider.setAttribute("aria-valuetext", `step ${this.canvas.shown} of ${this.canvas.steps.length}`);
  }

  #go(number) {
    const most = this.canvas.steps.length;
    // The canvas above has another height then; the bar stays where the reader holds it.
    const top = this.node.getBoundingClientRect().top;
    this.canvas.show(Math.max(0, Math.min(most, number)));
    scrollBy(0, this.node.getBoundingClientRect().top - top);
    this.slider.value = this.canvas.shown;
    this.#tell();
  }

  /** One step back or on. */
  move(by) {
    if (this.slider.disabled) return;
    this.pause();
    this.#go(this.canvas.shown + by);
  }

  toggle() {
    if (this.play.disabled) return;
    if (this.timer) return this.pause();
    if (this.canvas.shown >= this.canvas.steps.length) this.#go(0);
    this.#label(true);
    const tick = () => {
      this.#go(this.canvas.shown + 1);
      if (this.canvas.shown >= this.canvas.steps.length) return this.pause();
      this.timer = setTimeout(tick, 120 / Number(this.speed.value));
    };
    this.timer = setTimeout(tick, 120);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    this.#label(false);
  }
}

/** A DOM element with properties. */
export function element(name, properties, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}
