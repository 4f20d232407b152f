// The annotation page: session, items, saving, keys. Texts of models and people reach the page through textContent only.

import { Clock } from "./clock.js";
import { announce, byId, el, plural, shorten } from "./dom.js";
import { ReasonsPopup, Sheet, askConflict, trapFocus } from "./dialogs.js";
import { ItemView } from "./item.js";
import { itemList } from "./itemlist.js";
import { REPEAT, drawLegend, keyOf, reasonKeys } from "./reasons.js";
import { Drafts, Saving, Unreachable, request, requestWith } from "./saving.js";
import { browserStorage, tabStorage } from "./storage.js";

const KEYS = [
  ["Reading and choosing", [
    ["Q", "Go to the query"],
    ["K", "Open or close the knowledge source"],
    ["A, B", "Go into the text of response A or B"],
    ["V, then 1, 2 or 3", "Prefer response A, B or neither"],
    ["J", "The item cannot be judged"],
    ["Ctrl+Enter", "Mark the item as done and go to the next one"],
  ]],
  ["In a response", [
    ["S, Shift+S", "Select the next or the previous sentence, over both responses"],
    ["F, Shift+F", "Select the next or the previous word; in a selected sentence its first one"],
    ["X, Shift+X", "One sentence or word more, or less"],
    ["1 to 0, Q to P, -", "Mark the selection with this reason; the list at the bottom says which"],
    [".", "Mark the selection with the reasons of the mark before"],
    ["C", "Marks cover whole words, or exactly what is selected"],
    ["Arrow keys", "Move the caret; with Ctrl by words (Option on a Mac)"],
    ["Home, End", "Go to the beginning or the end of the line; with Ctrl of the text"],
    ["Shift with any of these", "Select"],
    ["M or Enter", "Mark the selection"],
    ["Enter", "Without a selection: edit the mark at the caret"],
    ["Delete", "Delete the mark at the caret"],
    ["Escape", "Drop the selection"],
  ]],
  ["Marks", [
    ["L, D", "Mark as like, mark as dislike"],
    ["H", "Go to the next suggestion; Enter accepts it, Delete rejects it"],
    ["N, P", "Go to the next or the previous mark, also to one under another"],
    ["Ctrl+Z", "Undo"],
    ["Ctrl+Y or Ctrl+Shift+Z", "Redo"],
  ]],
  ["In the pop-up", [
    ["1 to 0, Q to P, -", "Tick a reason; . those of the mark before"],
    ["S, F, N, A, B, V, H, J", "Save, and do what the key does on the page"],
    ["L, D", "Change it to a like or a dislike"],
    ["Tab, Space", "Go through the reasons and tick them"],
    ["Enter", "Save; in the text field Ctrl+Enter"],
    ["Escape", "Cancel"],
  ]],
  ["Help", [["G", "Guidelines"], ["?", "This list"]]],
];

const SESSION = "annotate:session";
const WHO = "annotate:annotator";

const STATES = { new: "not begun", started: "begun", done: "done", cannot_judge: "cannot be judged" };
const stateOf = (item) => (item.cannot_judge ? "cannot_judge" : item.state);

/** Parts of this list that a page without marks has no use for. */
const ABOUT_MARKS = ["In a response", "Marks", "In the pop-up"];

class Page {
  constructor() {
    this.savings = new Map();
    this.sheets = { guidelines: new Sheet("guidelines"), help: new Sheet("help"), items: new Sheet("items") };
    this.view = null;
    this.label = -1;
    this.wasSaved = true;
    this.wasUnreachable = false;
    this.wasSignedOut = false;
    this.deferred = new Set();
    this.resolving = false;
    this.finishing = false;
    this.last = {};
    trapFocus(byId("conflict"));
    this.applyDisplay();
  }

  // ----- what this browser remembers ----------------------------------------------------------------------------------

  preference(name) {
    return browserStorage.get(`annotate:page:${name}`);
  }

  setPreference(name, value) {
    browserStorage.set(`annotate:page:${name}`, value);
  }

  applyDisplay() {
    const { dataset } = document.documentElement;
    dataset.theme = this.preference("theme") ?? "system";
    dataset.size = this.preference("size") ?? "medium";
  }

  // ----- start and items ----------------------------------------------------------------------------------------------

  /** The session that a link has just started, or that of this tab, or the one that was started last in this browser. */
  signIn() {
    const [, opened] = location.hash.match(/^#session=([\w-]+\.[\w-]+)$/) ?? [];
    if (opened) {
      history.replaceState(null, "", location.pathname);
      tabStorage.set(SESSION, opened);
    }
    const key = tabStorage.get(SESSION) ?? browserStorage.get(SESSION);
    requestWith(key);
    return key;
  }

  /** A page of another person can open a link of theirs here: whose work this is must be said before it begins. */
  confirmed(name) {
    const last = browserStorage.get(WHO);
    if (last === null || last === name || tabStorage.get(WHO) === name) return true;
    byId("loading").hidden = true;
    this.notice(`This link belongs to ${name}, and this browser was last used by ${last}.`, `I am ${name}`, () => {
      browserStorage.set(WHO, name);
      this.notice(null);
      this.start();
    });
    return false;
  }

  async start() {
    const key = this.signIn();
    const answer = await this.ask("GET", "/api/session");
    if (!answer || !this.confirmed(answer.data.annotator)) return;
    browserStorage.set(SESSION, key);
    for (const storage of [browserStorage, tabStorage]) storage.set(WHO, answer.data.annotator);
    this.session = answer.data;
    byId("annotator").textContent = answer.data.annotator;
    byId("who").hidden = false;
    this.settings = answer.data.settings;
    this.drafts = new Drafts(`${answer.data.store}:${answer.data.annotator}`);
    this.popup = new ReasonsPopup(this);
    this.showProgress(answer.data.progress);
    document.title = this.settings.title;
    byId("title").textContent = this.settings.title;
    this.setUpBar();
    this.listen();
    this.clock = new Clock((seconds, leaving) => this.addTime(seconds, leaving));
    setInterval(() => this.showTime(), 5000);
    this.sendOtherDrafts();
    const wanted = decodeURIComponent(location.hash.replace(/^#item=/, ""));
    if (!(wanted && (await this.open(wanted, { quiet: true })))) await this.next();
  }

  /** A request whose failure is shown. Returns the answer, or null where there is none to work with. */
  async ask(method, path, body, { quiet = [] } = {}) {
    let answer;
    try {
      answer = await request(method, path, body);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      this.notice("The server cannot be reached. What you have marked is kept in this browser.", "Try again", () => this.retry());
      return null;
    }
    if (answer.ok || quiet.includes(answer.status)) return answer;
    if (answer.status === 401) this.showSignedOut();
    else this.notice(answer.data?.error ?? `The server answered ${answer.status}.`);
    return null;
  }

  retry() {
    this.notice(null);
    for (const saving of this.savings.values()) saving.sendAll();
    if (!this.session) this.start();
    else if (!this.view && !byId("finished")) this.next();
  }

  showSignedOut() {
    const who = this.session ? `is no longer signed in as ${this.session.annotator}` : "is not signed in, or no longer";
    this.notice(`This browser ${who}. Open your personal link again; what you have marked is kept in this browser.`);
    if (!this.session) byId("loading").hidden = true;
  }

  notice(text, button = null, act = null) {
    const notice = byId("notice");
    notice.hidden = text === null;
    if (text === null) {
      notice.replaceChildren();
      return;
    }
    const dismiss = { type: "button", class: "plain", text: "Dismiss", on: { click: () => this.notice(null) } };
    notice.replaceChildren(
      el("span", { text }),
      ...(button ? [el("button", { type: "button", text: button, on: { click: act } })] : []),
      el("button", dismiss),
    );
  }

  savingOf(item) {
    if (!this.savings.has(item)) {
      this.savings.set(item, new Saving(item, this.drafts, (key) => this.saved(item, key)));
    }
    return this.savings.get(item);
  }

  /** Sends what other items still have in this browser; what the server refuses is shown as not saved. */
  sendOtherDrafts() {
    for (const item of Object.keys(this.drafts.all())) this.savingOf(item).sendAll();
  }

  async open(id, { quiet = false } = {}) {
    this.leave();
    const answer = await this.ask("GET", `/api/items/${encodeURIComponent(id)}`, undefined, { quiet: quiet ? [403, 404, 409, 422] : [] });
    if (!answer?.ok) return false;
    this.show(answer.data);
    return true;
  }

  async next() {
    const current = this.view?.data.id;
    this.leave();
    const answer = await this.ask("POST", "/api/items/next", current === undefined ? {} : { current });
    if (!answer) return;
    if (answer.data.item === null) {
      this.showFinished();
      return;
    }
    if (typeof answer.data.item === "object") this.show(answer.data.item);
    else await this.open(answer.data.item);
  }

  leave() {
    this.view?.flush();
    this.clock?.flush();
    this.notice(null);
  }

  show(data) {
    const saving = this.savingOf(String(data.id));
    this.view = new ItemView(this, data, saving);
    history.replaceState(null, "", `#item=${encodeURIComponent(data.id)}`);
    const main = byId("main");
    byId("bar").hidden = false;
    this.view.build(main);
    main.append(this.actions(data));
    this.clock.seconds = 0;
    this.active = (data.seconds ?? 0) + [...saving.times.values()].reduce((sum, seconds) => sum + seconds, 0);
    this.showTime();
    saving.sendAll();
    scrollTo(0, 0);
    byId("query-title").focus({ preventScroll: true });
    this.refreshProgress();
    this.changed(this.view);
  }

  showFinished() {
    this.view = null;
    history.replaceState(null, "", location.pathname);
    byId("bar").hidden = true;
    byId("main").replaceChildren(
      el(
        "section",
        { class: "finished", id: "finished" },
        el("h2", { tabindex: "-1", text: "No item is left for you" }),
        el("p", { text: "Thank you. You can still look at your items and change what you have marked." }),
        el("button", { type: "button", class: "primary", text: "Show my items", on: { click: () => this.showItems() } }),
        el("button", { type: "button", text: "Look for new items", on: { click: () => this.next() } }),
      ),
    );
    byId("main").querySelector("h2").focus();
    this.refreshProgress();
  }

  addTime(seconds, leaving) {
    if (!this.view) return;
    this.active += seconds;
    this.view.saving.addTime(seconds, { leaving });
  }

  showTime() {
    if (!this.view) return;
    const seconds = Math.floor((this.active + this.clock.seconds) / 5) * 5;
    byId("active").textContent = `Active ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  }

  actions(data) {
    const button = (id, text, act, options = {}) => el("button", { type: "button", id, text, on: { click: act }, ...options });
    const finish = { class: "primary", "aria-keyshortcuts": "Control+Enter" };
    return el(
      "section",
      { class: "actions", "aria-label": "Finish this item" },
      el("div", { id: "missing", role: "alert" }),
      el(
        "div",
        { class: "row" },
        button("earlier", "Earlier item", () => this.goEarlier()),
        button("skip", "Skip for now", () => this.skip()),
        el("span", { class: "quiet time", id: "active", title: "Time in which you were active on this item; pauses do not count" }),
        el("span", { class: "spring" }),
        el("span", { class: "quiet", id: "finished-state", text: data.done ? "This item is done; you can still change it." : "" }),
        data.done && button("reopen", "Mark as not done", () => this.reopen()),
        button("finish", data.done ? "Save and continue" : "Done, next item", () => this.finish(), finish),
      ),
    );
  }

  async goEarlier() {
    const answer = await this.ask("GET", "/api/items");
    if (!answer) return;
    const ids = answer.data.filter((item) => item.state !== "new").map((item) => String(item.id));
    const here = ids.indexOf(String(this.view.data.id));
    const earlier = here < 0 ? ids.at(-1) : ids[here - 1];
    if (earlier === undefined) announce("There is no earlier item.");
    else await this.open(earlier);
  }

  async skip() {
    const { id } = this.view.data;
    this.leave();
    if (await this.ask("POST", `/api/items/${encodeURIComponent(id)}/release`, {})) await this.next();
  }

  async reopen() {
    const { id } = this.view.data;
    if (await this.ask("POST", `/api/items/${encodeURIComponent(id)}/done`, { done: false })) await this.open(id);
  }

  /** Marks the item as done once everything is saved, and goes on. */
  async finish() {
    if (!this.view || this.popup.open || this.finishing) return;
    this.finishing = true;
    const button = byId("finish");
    button.disabled = true;
    try {
      await this.finishNow();
    } finally {
      this.finishing = false;
      button.disabled = false;
    }
  }

  async finishNow() {
    const { view } = this;
    this.leave();
    const unsaved = () => Object.entries(view.saving.counts()).reduce((sum, [state, count]) => sum + (state === "saved" ? 0 : count), 0);
    for (let tries = 0; unsaved() && view.saving.counts().saving + view.saving.counts().waiting > 0 && tries < 50; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    if (unsaved()) {
      this.showMissing([`${plural(unsaved(), "change")} not saved yet; the item can be finished when they are`]);
      return;
    }
    const answer = await this.ask("POST", `/api/items/${encodeURIComponent(view.data.id)}/done`, { done: true }, { quiet: [422] });
    if (!answer) return;
    if (answer.status === 422) {
      this.showMissing(answer.data.missing ?? [answer.data.error]);
      return;
    }
    announce("Done.");
    this.showProgress(answer.data.progress);
    await this.next();
  }

  showMissing(missing) {
    const points = missing.map((text) => el("li", { text }));
    byId("missing").replaceChildren(el("p", { text: "Before this item is done:" }), el("ul", {}, ...points));
    byId("missing").scrollIntoView({ block: "nearest" });
  }

  async refreshProgress() {
    try {
      const { ok, data } = await request("GET", "/api/session");
      if (ok) this.showProgress(data.progress);
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error; // shown by the next request that matters
    }
  }

  showProgress({ done, remaining, total }) {
    byId("progress-text").textContent = `${done} of ${total} done, ${remaining} left`;
    Object.assign(byId("progress-bar"), { max: Math.max(total, 1), value: done });
  }

  async showItems() {
    const answer = await this.ask("GET", "/api/items");
    if (!answer) return;
    const open = (item) => (this.sheets.items.dialog.close(), this.open(item.id));
    const row = (item) =>
      el(
        "button",
        {
          type: "button",
          "aria-current": String(item.id) === String(this.view?.data.id) ? "true" : null,
          on: { click: () => open(item) },
        },
        el("span", { class: "name" }, `Item ${item.id} `, el("bdi", { class: "quiet", text: shorten(item.query, 110) })),
        el("span", { class: `item-state ${stateOf(item)}`, text: STATES[stateOf(item)] }),
        this.unsavedIn(String(item.id)) && el("span", { class: "lacking", text: "unsaved changes" }),
      );
    this.sheets.items.show(
      "Your items",
      answer.data.length ? itemList(answer.data, { states: STATES, is: (item, state) => stateOf(item) === state, row }) : el("p", { text: "You have not begun any item yet." }),
    );
  }

  unsavedIn(item) {
    const counts = this.savings.get(item)?.counts();
    return counts ? counts.waiting + counts.saving + counts.conflict + counts.refused > 0 : false;
  }

  // ----- the bar ------------------------------------------------------------------------------------------------------

  setUpBar() {
    const { spans } = this.settings.modes;
    byId("modes").hidden = spans !== "both";
    byId("mark").hidden = spans === "none";
    const remembered = Number(this.preference("mode"));
    this.setMode(spans === "both" && [1, -1].includes(remembered) ? remembered : -1, { quiet: true });
    for (const input of document.querySelectorAll("input[name=mode]")) {
      input.addEventListener("change", () => this.setMode(Number(input.value)));
    }
    // pressing Mark with the mouse must not take the selection away
    byId("mark").addEventListener("mousedown", (event) => event.preventDefault());
    byId("mark").addEventListener("click", () => this.view?.markSelection());
    byId("exact").hidden = spans === "none";
    byId("exact").addEventListener("click", () => this.setExact(!this.exact()));
    this.setExact(this.exact(), { quiet: true });
    byId("undo").addEventListener("click", () => this.view?.undo());
    byId("redo").addEventListener("click", () => this.view?.redo());
    byId("state").addEventListener("click", () => this.explainState());
    byId("open-items").addEventListener("click", () => this.showItems());
    byId("open-guidelines").addEventListener("click", () => this.showGuidelines());
    byId("open-help").addEventListener("click", () => this.showHelp());
    byId("open-guidelines").hidden = Object.keys(this.settings.guidelines).length === 0;
  }

  mode() {
    return this.label;
  }

  setMode(label, { quiet = false } = {}) {
    this.label = label;
    this.setPreference("mode", String(label));
    for (const input of document.querySelectorAll("input[name=mode]")) input.checked = Number(input.value) === label;
    document.documentElement.dataset.mode = label < 0 ? "dislike" : "like";
    if (!quiet) announce(label < 0 ? "Marking what you dislike." : "Marking what you like.");
  }

  exact() {
    return this.preference("exact") === "on";
  }

  setExact(exact, { quiet = false } = {}) {
    this.setPreference("exact", exact ? "on" : "off");
    byId("exact").setAttribute("aria-pressed", String(!exact));
    if (!quiet) announce(exact ? "Marks cover exactly what is selected." : "Marks cover whole words.");
  }

  formatted() {
    return this.settings.markdown && this.preference("markdown") !== "raw";
  }

  /** Shows which key ticks which reason, while a passage is selected by keyboard. */
  showLegend(shown) {
    const legend = byId("legend");
    legend.hidden = !(shown && this.letterKeys() && this.settings.modes.reasons === "taxonomy" && this.view?.selected());
    if (!legend.hidden) drawLegend(legend, this.settings, this.label);
  }

  /** Called when a view's history or state has changed. */
  changed(view) {
    if (view !== this.view) return;
    for (const [id, actions] of [["undo", view.history.done], ["redo", view.history.undone]]) {
      byId(id).disabled = actions.length === 0;
      byId(id).title = actions.at(-1)?.label ?? "";
    }
    document.body.classList.toggle("moving", view.moving !== null);
    this.showState();
  }

  // ----- saving -------------------------------------------------------------------------------------------------------

  saved(item, key) {
    const view = this.view && String(this.view.data.id) === item ? this.view : null;
    const entry = this.savings.get(item)?.entries.get(key);
    this.showState();
    if (view && entry?.state === "conflict" && !this.deferred.has(key)) this.resolveConflicts();
  }

  totals() {
    const totals = { saved: 0, saving: 0, waiting: 0, conflict: 0, refused: 0, failing: false, signedOut: false };
    for (const saving of this.savings.values()) {
      for (const [state, count] of Object.entries(saving.counts())) totals[state] += count;
      totals.failing ||= saving.failures > 0;
      totals.signedOut ||= saving.signedOut;
    }
    return totals;
  }

  showState() {
    const totals = this.totals();
    const open = totals.saving + totals.waiting;
    const unreachable = open > 0 && (totals.failing || !navigator.onLine);
    let [kind, text] = ["saved", "Saved"];
    if (totals.conflict) [kind, text] = ["conflict", totals.conflict === 1 ? "Conflict" : `${totals.conflict} conflicts`];
    else if (totals.refused) [kind, text] = ["refused", `${totals.refused} not saved`];
    else if (totals.signedOut && open) [kind, text] = ["offline", `Signed out, ${open} waiting`];
    else if (unreachable) [kind, text] = ["offline", `Offline, ${open} waiting`];
    else if (open) [kind, text] = ["saving", "Saving…"];
    else if (this.view?.reasonWaits) [kind, text] = ["offline", "The reason waits for a choice"];
    const state = byId("state");
    if (state.textContent !== text) state.textContent = text;
    state.className = `state ${kind}`;
    if (kind === "saved" && !this.wasSaved) announce("Saved.");
    if (unreachable && !totals.signedOut && !this.wasUnreachable) announce("No connection. Your changes are kept in this browser and sent later.");
    if (totals.signedOut && !this.wasSignedOut) this.showSignedOut();
    else if (!totals.signedOut && this.wasSignedOut) this.notice(null);
    this.wasSignedOut = totals.signedOut;
    this.wasSaved = kind === "saved";
    this.wasUnreachable = unreachable;
  }

  explainState() {
    const totals = this.totals();
    if (totals.conflict) {
      this.deferred.clear();
      this.goToConflict();
    } else if (totals.refused) this.showRefused();
    else if (totals.waiting) {
      announce("Trying to save.");
      for (const saving of this.savings.values()) saving.sendAll();
    } else if (totals.saving) announce("Saving.");
    else if (this.view?.reasonWaits) announce("The reason is kept in this browser until you choose a response.");
    else announce("Everything is saved.");
  }

  /** Shows the conflicts of the open item, or of the first item that has one. */
  async goToConflict() {
    const savings = [...this.savings.values()].filter((saving) => saving.counts().conflict);
    if (!savings.includes(this.view?.saving) && !(await this.open(savings[0].item))) return;
    await this.resolveConflicts();
  }

  showRefused() {
    for (const saving of this.savings.values()) {
      for (const [key, entry] of saving.entries) {
        if (entry.state !== "refused") continue;
        const where = saving === this.view?.saving ? "" : ` in item ${saving.item}`;
        this.notice(`Not saved${where}: ${entry.error}`, "Drop this change", () => {
          saving.afterRefusal(key, false);
          this.notice(null);
          this.view?.refresh(saving === this.view.saving ? null : key);
        });
        return;
      }
    }
  }

  /** Shows the conflicts of the open item one after another. */
  async resolveConflicts() {
    if (this.resolving || this.popup.open) return;
    this.resolving = true;
    try {
      for (;;) {
        const { view } = this;
        const key = [...(view?.saving.entries ?? [])].find(([key, entry]) => entry.state === "conflict" && !this.deferred.has(key))?.[0];
        if (!key) return;
        const entry = view.saving.entries.get(key);
        announce("Changed in two places: choose which version counts.");
        const choice = await askConflict(this.settings, {
          key,
          mine: entry.body,
          theirs: entry.current,
          names: (name, value) => this.nameField(name, value),
        });
        if (choice === null) this.deferred.add(key);
        else {
          view.saving.resolve(key, choice === "mine");
          view.refresh(key);
        }
      }
    } finally {
      this.resolving = false;
      this.showState();
    }
  }

  /** Title and value of a field of answers or of a preference, as the page shows them. */
  nameField(name, value) {
    if (name === "better") return ["Preferred", value === null ? "Tie" : `Response ${this.view.letter(value)}`];
    if (name === "accepted") return ["Suggestion", value === null ? "Undecided" : value ? "Accepted" : "Rejected"];
    if (name === "cannot") return ["Cannot be judged", value ? "Yes" : "No"];
    if (name === "deleted") return ["Withdrawn", value ? "Yes" : "No"];
    const question = this.settings.questions.find((other) => other.id === name);
    const texts = Array.isArray(value) ? value.map((id) => question?.options.find((option) => option.id === id)?.text ?? id) : [value];
    return [question?.text ?? "Why", texts.join(" ") || "(empty)"];
  }

  // ----- help ---------------------------------------------------------------------------------------------------------

  showGuidelines() {
    const sections = Object.entries(this.settings.guidelines).map(([title, text]) =>
      el("section", {}, el("h3", { text: title }), ...text.split("\n\n").map((paragraph) => el("p", { text: paragraph }))),
    );
    if (sections.length) this.sheets.guidelines.show("Guidelines", el("div", { class: "prose" }, ...sections));
  }

  showHelp() {
    const input = (type, text, checked, change, more = {}) =>
      el("label", { class: "tick" }, el("input", { type, checked, ...more, on: { change } }), el("span", { text }));
    const choice = (title, name, standard, values) => {
      const current = this.preference(name) ?? standard;
      const choose = (value) => () => {
        this.setPreference(name, value);
        this.applyDisplay();
      };
      const options = values.map(([value, text]) => input("radio", text, current === value, choose(value), { name, value }));
      return el("fieldset", {}, el("legend", { text: title }), ...options);
    };
    const raw = [["formatted", "Formatted"], ["raw", "As it is written"]];
    const letters = input("checkbox", "Use single letters as keys (L, D, N, ...)", this.letterKeys(), (event) =>
      this.setPreference("letters", event.target.checked ? "on" : "off"),
    );
    const row = ([key, text]) => el("div", {}, el("dt", {}, el("kbd", { text: key })), el("dd", { text }));
    const marks = this.settings.modes.spans !== "none";
    this.sheets.help.show(
      "Keys and display",
      el(
        "div",
        { class: "display" },
        choice("Colours", "theme", "system", [["system", "Like the system"], ["light", "Light"], ["dark", "Dark"]]),
        choice("Size of the texts", "size", "medium", [["small", "Small"], ["medium", "Medium"], ["large", "Large"]]),
        this.settings.markdown && choice("Markdown, from the next item on", "markdown", "formatted", raw),
        el("fieldset", {}, el("legend", { text: "Keyboard" }), letters),
      ),
      ...KEYS.filter(([title]) => marks || !ABOUT_MARKS.includes(title)).map(([title, keys]) =>
        el("section", { class: "keys" }, el("h3", { text: title }), el("dl", {}, ...keys.map(row))),
      ),
    );
  }

  letterKeys() {
    return this.preference("letters") !== "off";
  }

  // ----- events of the whole page -------------------------------------------------------------------------------------

  listen() {
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keyup", () => this.showLegend(!this.popup.open));
    document.addEventListener("pointerdown", () => this.showLegend(false));
    addEventListener("online", () => this.retry());
    addEventListener("offline", () => this.showState());
    addEventListener("pagehide", () => this.view?.flush());
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.catchUp();
      else this.view?.flush();
    });
    addEventListener("beforeunload", (event) => {
      if (!browserStorage.lasting && [...this.savings.keys()].some((item) => this.unsavedIn(item))) event.preventDefault();
    });
  }

  /** Takes over what was changed in another window while this one was hidden. */
  async catchUp() {
    const { view } = this;
    if (!view || this.popup.open) return;
    try {
      const { ok, data } = await request("GET", `/api/items/${encodeURIComponent(view.data.id)}`);
      if (!ok || view !== this.view || this.popup.open) return;
      view.adopt(data);
      view.refresh();
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error; // the state of the connection is shown already
    }
  }

  key(event) {
    if (document.querySelector("dialog[open]") || event.isComposing) return;
    const { view } = this;
    const typing = event.target.closest?.("textarea, select, input[type=text]");
    const control = (event.ctrlKey || event.metaKey) && !event.altKey;
    const letter = event.key.toLowerCase();
    if (control && event.key === "Enter") this.act(event, () => event.repeat || this.finish());
    else if (control && letter === "z" && !typing) this.act(event, () => (event.shiftKey ? view?.redo() : view?.undo()));
    else if (control && letter === "y" && !typing) this.act(event, () => view?.redo());
    if (event.defaultPrevented || typing) return;
    this.press(event);
  }

  /** Does what a single key of the page does. */
  press(event) {
    const key = keyOf(event);
    const { view } = this;
    if (key === null || !this.letterKeys() || (!view && !"?g".includes(key))) return;
    const marks = view?.marks;
    const step = event.shiftKey ? -1 : 1;
    const reason = view?.selected() && reasonKeys(this.settings, this.label).get(key);
    const both = this.settings.modes.spans === "both";
    const jobs = {
      "?": () => this.showHelp(),
      g: () => this.showGuidelines(),
      q: () => byId("query-title").focus(),
      k: () => byId("source") && (byId("source").open = !byId("source").open),
      v: () => document.querySelector("input[name=better]:checked, input[name=better]")?.focus(),
      a: () => this.goToResponse(0),
      b: () => this.goToResponse(1),
      j: () => view.toggleCannotJudge(),
      s: marks && (() => view.selectUnit("sentence", step)),
      f: marks && (() => view.selectUnit("word", step)),
      x: marks && (() => view.extend(step)),
      c: marks && (() => this.setExact(!this.exact())),
      h: this.settings.modes.suggestions && (() => view.suggestions.next()),
      [REPEAT]: marks && (() => view.repeat()),
      l: both && (() => this.setMode(1)),
      d: both && (() => this.setMode(-1)),
      m: marks && (() => view.markSelection()),
      n: marks && (() => view.walk(1)),
      p: marks && (() => view.walk(-1)),
    };
    if (reason) this.act(event, () => view.markSelection(undefined, { reason: reason.id }));
    else if (jobs[key]) this.act(event, jobs[key]);
  }

  act(event, job) {
    event.preventDefault();
    job();
  }

  goToResponse(number) {
    const response = this.view.data.responses[number];
    if (!response) return;
    const target = this.view.marks ? byId(`text-${response.place}`) : byId(`response-${response.place}`);
    target.focus();
  }
}

const page = new Page();
await page.start();
