// Saving: every span, answer and verdict is an entry of its own, sent at once, kept in this browser until the server has
// acknowledged it, and never written over a version that this page has not seen.

import { newId, same } from "./dom.js";
import { browserStorage } from "./storage.js";

const PREFIX = "annotate";
const DELAYS = [1000, 2000, 4000, 8000, 15000];

/** The server could not be reached, or did not answer. */
export class Unreachable extends Error {}

let session = null;

/** From now on every request carries this session's key, which no page of another port can read. */
export function requestWith(key) {
  session = key;
}

export async function request(method, path, body, { keepalive = false } = {}) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (session !== null) headers["X-Session"] = session;
  let response;
  try {
    response = await fetch(path, {
      method,
      keepalive,
      credentials: "same-origin",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: keepalive ? undefined : AbortSignal.timeout(30000),
    });
  } catch (error) {
    throw new Unreachable(String(error));
  }
  let data = null;
  try {
    data = await response.json();
  } catch {
    if (response.ok) throw new Unreachable("the answer was cut off");
  }
  return { status: response.status, ok: response.ok, data };
}

/** What waits in this browser's storage: one entry for each unsaved span, answer, verdict and piece of active time. */
export class Drafts {
  constructor(annotator) {
    this.prefix = `${PREFIX}:${annotator}:`;
  }

  name(item, key) {
    return `${this.prefix}${encodeURIComponent(item)}:${key}`;
  }

  put(item, key, value) {
    browserStorage.set(this.name(item, key), JSON.stringify(value));
  }

  get(item, key) {
    return JSON.parse(browserStorage.get(this.name(item, key)) ?? "null");
  }

  remove(item, key) {
    browserStorage.remove(this.name(item, key));
  }

  /** {item: {key: value}} of everything that waits. */
  all() {
    const waiting = {};
    for (const name of browserStorage.names()) {
      if (!name.startsWith(this.prefix)) continue;
      const rest = name.slice(this.prefix.length);
      const item = decodeURIComponent(rest.slice(0, rest.indexOf(":")));
      (waiting[item] ??= {})[rest.slice(rest.indexOf(":") + 1)] = JSON.parse(browserStorage.get(name));
    }
    return waiting;
  }
}

/** The versioned entries of one item. `body` of an entry is what the page wants, `version` what it is based on. */
export class Saving {
  /** `changed(key)` is called whenever an entry's state or, after a conflict, its body differs. */
  constructor(item, drafts, changed) {
    this.item = item;
    this.drafts = drafts;
    this.changed = changed;
    this.entries = new Map();
    this.times = new Map();
    this.failures = 0;
    this.signedOut = false;
    this.timer = null;
    for (const [key, draft] of Object.entries(drafts.all()[item] ?? {})) {
      if (key.startsWith("time/")) this.times.set(key.slice(5), draft);
      else if (!key.startsWith("page/")) {
        this.entries.set(key, { version: draft.base, acknowledged: null, body: draft.body, sent: draft.sent, state: "waiting" });
      }
    }
  }

  path(key = "") {
    return `/api/items/${encodeURIComponent(this.item)}${key && "/"}${key.split("/").map(encodeURIComponent).join("/")}`;
  }

  /** Takes over what the server has; an entry with unsaved changes keeps them, and the server decides when they are sent. */
  adopt(key, version, body) {
    const entry = this.entries.get(key);
    if (entry && (entry.state !== "saved" || version < entry.version)) return;
    this.entries.set(key, { version, acknowledged: body, body, sent: [], state: "saved" });
  }

  body(key) {
    return this.entries.get(key)?.body ?? null;
  }

  change(key, body) {
    const entry = this.entries.get(key) ?? { version: 0, acknowledged: null, body: null, sent: [], state: "saved" };
    this.entries.set(key, entry);
    entry.body = body;
    if (entry.state !== "conflict") entry.state = entry.state === "saving" ? "saving" : "waiting";
    entry.error = null;
    this.keep(key, entry);
    this.send(key);
  }

  keep(key, entry) {
    this.drafts.put(this.item, key, { base: entry.version, body: entry.body, sent: entry.sent });
  }

  async send(key) {
    const entry = this.entries.get(key);
    if (entry.busy || entry.state === "conflict" || entry.state === "refused") return;
    entry.busy = true;
    try {
      while (!(same(entry.body, entry.acknowledged) && entry.sent.length === 0)) {
        entry.state = "saving";
        this.changed(key);
        if (!(await this.sendOnce(key, entry))) return;
      }
      entry.state = "saved";
      // another window of this browser may have left a draft of its own here
      if (same(this.drafts.get(this.item, key)?.body, entry.acknowledged)) this.drafts.remove(this.item, key);
    } finally {
      entry.busy = false;
      this.changed(key);
    }
  }

  /** Sends the entry as it is now. Returns whether to go on: false after a failure, a conflict or a refusal. */
  async sendOnce(key, entry) {
    const body = entry.body;
    const payload = key.startsWith("spans/") ? { ...body, base: entry.version } : { base: entry.version, body };
    let answer;
    // it counts as sent before the answer is known: a lost answer must not look like somebody else's change
    if (!entry.sent.some((earlier) => same(earlier, body))) entry.sent.push(body);
    this.keep(key, entry);
    try {
      answer = await request("PUT", this.path(key), payload);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return this.fail(entry);
    }
    if (answer.ok) {
      Object.assign(entry, { version: answer.data.version, acknowledged: body, sent: [] });
      this.failures = 0;
      this.signedOut = false;
      const draft = this.drafts.get(this.item, key);
      if (!draft || same(draft.body, body) || same(draft.body, entry.body)) this.keep(key, entry);
      return true;
    }
    if (answer.status === 409) {
      const current = withoutVersion(key, answer.data.current);
      const version = answer.data.current?.version ?? 0;
      if (same(current, entry.body) || entry.sent.some((earlier) => same(earlier, current))) {
        Object.assign(entry, { version, acknowledged: current, sent: [] });
        this.keep(key, entry);
        return true;
      }
      Object.assign(entry, { state: "conflict", current, currentVersion: version });
      return false;
    }
    if (answer.status === 401) {
      this.signedOut = true;
      return this.fail(entry);
    }
    if (answer.status >= 500 || answer.status === 429) return this.fail(entry);
    Object.assign(entry, { state: "refused", error: answer.data?.error ?? `the server answered ${answer.status}` });
    return false;
  }

  fail(entry) {
    entry.state = "waiting";
    this.failures += 1;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.sendAll(), DELAYS[Math.min(this.failures, DELAYS.length) - 1]);
    return false;
  }

  sendAll() {
    for (const [key, entry] of this.entries) if (entry.state === "waiting") this.send(key);
    this.sendTimes();
  }

  /** Ends a conflict: with `mine` this page's version is saved as the next one, else the other one is taken over. */
  resolve(key, mine) {
    const entry = this.entries.get(key);
    Object.assign(entry, { version: entry.currentVersion, acknowledged: entry.current, sent: [], state: "waiting" });
    if (!mine) entry.body = entry.current;
    this.keep(key, entry);
    this.send(key);
  }

  /** After a refusal: `again` sends the entry once more, else it goes back to what the server has. */
  afterRefusal(key, again) {
    const entry = this.entries.get(key);
    Object.assign(entry, { state: "waiting", error: null });
    if (!again) {
      Object.assign(entry, { body: entry.acknowledged, sent: [], state: "saved" });
      this.drafts.remove(this.item, key);
      if (entry.acknowledged === null) this.entries.delete(key);
      this.changed(key);
    } else this.send(key);
  }

  /** Adds a piece of active time; its id lets the server count it once, however often it arrives. */
  addTime(seconds, { leaving = false } = {}) {
    const id = newId();
    this.times.set(id, seconds);
    this.drafts.put(this.item, `time/${id}`, seconds);
    return this.sendTimes(leaving);
  }

  async sendTimes(keepalive = false) {
    for (const [id, seconds] of [...this.times]) {
      let answer;
      try {
        answer = await request("POST", this.path("time"), { id, seconds }, { keepalive });
      } catch (error) {
        if (!(error instanceof Unreachable)) throw error;
        return;
      }
      if (answer.status === 401 || answer.status >= 500) return;
      this.times.delete(id);
      this.drafts.remove(this.item, `time/${id}`);
    }
  }

  /** How many entries are in each state. */
  counts() {
    const counts = { saved: 0, saving: 0, waiting: 0, conflict: 0, refused: 0 };
    for (const entry of this.entries.values()) counts[entry.state] += 1;
    return counts;
  }
}

export function withoutVersion(key, record) {
  if (!record) return null;
  if (!key.startsWith("spans/")) return record.body;
  const { version: _, base: __, ...body } = record;
  return body;
}
