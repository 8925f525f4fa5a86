// Talking to the server: JSON, and server-sent events of a run.

/** A failure that the server explained. */
export class Refusal extends Error {
  constructor(status, error) {
    super(error?.message ?? `the server answered ${status}`);
    this.status = status;
    this.code = error?.code ?? null;
    this.param = error?.param ?? null;
  }
}

function headers(key) {
  const all = { "content-type": "application/json" };
  if (key) all.authorization = `Bearer ${key}`;
  return all;
}

async function refusal(response) {
  let body = null;
  try { body = await response.json(); } catch { /* no body, or another program's */ }
  return new Refusal(response.status, body?.error);
}

/** GET of JSON. */
export async function get(path, key) {
  const response = await fetch(path, { headers: headers(key) });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** Runs a request; yields [name, data] for each event. */
export async function* denoise(body, key, signal) {
  const response = await fetch("/api/denoise", {
    method: "POST", headers: headers(key), body: JSON.stringify(body), signal,
  });
  if (!response.ok) throw await refusal(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    rest += value;
    let at;
    while ((at = rest.indexOf("\n\n")) >= 0) {
      const event = parse(rest.slice(0, at));
      rest = rest.slice(at + 2);
      if (!event) continue;
      if (event[0] === "error") throw new Refusal(500, event[1].error);
      yield event;
      if (event[0] === "end") return;
    }
  }
  throw new Refusal(500, { message: "the connection broke off before the end of the run" });
}

function parse(text) {
  let name = "message", data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
  }
  return data ? [name, JSON.parse(data)] : null;
}
