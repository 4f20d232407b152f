// One item on the page: the query, its knowledge source, the responses with their marked spans, the questions, the preference.

import { announce, byId, el, newId, plural, same, shorten } from "./dom.js";
import { History } from "./history.js";
import { looksOf } from "./markdown.js";
import { OTHER, hasReason, keyOf, reasonTexts, sideName } from "./reasons.js";
import { Suggestions } from "./suggestions.js";
import { MarkedText, inOrder } from "./text.js";
import { snapped, unitBefore, unitBehind, unitFrom } from "./units.js";

const TYPING = 700;
const LONG = 30_000;
const NARROW = 720;
const HINT = "S selects a sentence, F a word, Shift and the arrow keys anything. M marks. N goes through the marks, ? lists all keys.";
const ABOUT_TIES =
  "Choose a tie very rarely: only where you see no difference between the two responses, or both are equally poor.";

export class ItemView {
  /** `app` gives settings, mode(), exact(), formatted(), last, popup, drafts, press() and changed(); `saving` holds the item's entries. */
  constructor(app, data, saving) {
    this.app = app;
    this.settings = app.settings;
    this.modes = app.settings.modes;
    this.data = data;
    this.saving = saving;
    this.history = new History(`${app.session.store}:${app.session.annotator}:${data.id}`);
    this.marks = this.modes.spans !== "none";
    this.asksWhy = this.modes.reasons !== "none";
    this.letters = data.responses.map((_, number) => String.fromCharCode(65 + number));
    this.current = null;
    this.editing = null;
    this.moving = null;
    this.presses = 0;
    this.typing = new Map();
    this.leaveField = null;
    this.focused = data.responses[0]?.place;
    this.unitKind = "word";
    this.suggestions = new Suggestions(this, data.suggested);
    this.adopt(data);
  }

  // ----- what the server has ------------------------------------------------------------------------------------------

  adopt(data) {
    for (const { version, ...body } of Object.values(data.spans)) this.saving.adopt(`spans/${body.id}`, version, body);
    for (const [place, { version, body }] of Object.entries(data.answers)) this.saving.adopt(`answers/${place}`, version, body);
    for (const [key, { version, body }] of Object.entries(data.suggestions)) this.saving.adopt(`suggestions/${key}`, version, body);
    for (const key of ["verdict", "cannot_judge"]) if (data[key]) this.saving.adopt(key, data[key].version, data[key].body);
  }

  span(id) {
    return this.saving.body(`spans/${id}`);
  }

  /** The spans of a response that are not deleted, in reading order. */
  spansOf(place) {
    const spans = [];
    for (const [key, { body }] of this.saving.entries) {
      if (key.startsWith("spans/") && body && !body.deleted && body.place === place) spans.push(body);
    }
    return spans.sort(inOrder);
  }

  /** All spans in the order in which the page shows them. */
  allSpans() {
    return this.data.responses.flatMap(({ place }) => this.spansOf(place));
  }

  letter(place) {
    return this.letters[this.data.responses.findIndex((response) => response.place === place)];
  }

  // ----- building -----------------------------------------------------------------------------------------------------

  /** Fills `main` with the item. */
  build(main) {
    const { data } = this;
    this.texts = new Map();
    this.parts = new Map();
    main.replaceChildren(
      el(
        "section",
        { class: "query", "aria-labelledby": "query-title" },
        el(
          "div",
          { class: "row" },
          el("h2", { id: "query-title", tabindex: "-1", text: "Query" }),
          data.domain && el("span", { class: "badge", text: data.domain }),
        ),
        this.prompt(data.prompt),
      ),
      ...(data.document ? [this.source(data.document)] : []),
      el(
        "div",
        { class: `responses of-${data.responses.length}`, id: "responses" },
        ...data.responses.map((response, number) => this.response(response, number)),
      ),
      ...(this.modes.preference && data.responses.length > 1 ? [this.preference()] : []),
      this.cannotJudge(),
    );
    for (const { place, text } of data.responses) this.texts.set(place, this.drawText(byId(`text-${place}`), text, this.marks));
    this.refresh();
    this.reopenPopup();
  }

  prompt(prompt) {
    const text = (value) => el("p", { class: "prompt", dir: "auto", text: value });
    if (typeof prompt === "string") return text(prompt);
    return el("div", {}, ...prompt.map(({ role, content }) => el("div", { class: "turn" }, el("h3", { text: role }), text(content))));
  }

  drawText(host, text, caret = false) {
    return new MarkedText(host, text, { caret, looks: this.app.formatted() ? looksOf(text) : [] });
  }

  source(document) {
    const body = el("div", { class: "text source-text", tabindex: "0", role: "region", "aria-label": "Knowledge source" });
    const details = el("details", { class: "source", id: "source" }, el("summary", { text: "Knowledge source" }), body);
    details.open = this.app.preference("source") !== "closed";
    this.drawText(body, document);
    details.addEventListener("toggle", () => this.app.setPreference("source", details.open ? "open" : "closed"));
    return details;
  }

  response({ place, text }, number) {
    const letter = this.letters[number];
    const name = this.data.responses.length > 1 ? `Response ${letter}` : "Response";
    const host = el("div", { class: `text ${text.length > LONG ? "long" : ""}`, id: `text-${place}`, dir: "auto", translate: "no" });
    const list = el("ol", { class: "marks" });
    const count = el("h3", { class: "count" });
    const hint = `keys-${place}`;
    if (this.marks) {
      const attributes = {
        role: "textbox",
        "aria-multiline": "true",
        "aria-readonly": "true",
        "aria-label": name,
        "aria-describedby": hint,
        spellcheck: "false",
        autocorrect: "off",
        autocapitalize: "off",
        inputmode: "none",
        "data-gramm": "false",
        tabindex: "0",
      };
      for (const [attribute, value] of Object.entries(attributes)) host.setAttribute(attribute, value);
      host.addEventListener("focus", () => (this.focused = place));
      host.addEventListener("mousedown", (event) => this.pressed(event, place));
      host.addEventListener("click", (event) => this.clicked(event, place));
      host.addEventListener("keydown", (event) => this.keyInText(event, place));
    } else if (text.length > LONG) {
      for (const [attribute, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", name]]) host.setAttribute(attribute, value);
    }
    const suggested = el("div", { class: "marked", hidden: true });
    this.parts.set(place, { list, count, host, suggested });
    return el(
      "section",
      { class: "response", "aria-labelledby": `response-${place}` },
      el("h2", { id: `response-${place}`, tabindex: "-1", text: name }),
      this.marks && el("p", { class: "hide", id: hint, text: HINT }),
      host,
      this.marks && suggested,
      this.marks && el("div", { class: "marked" }, count, list),
      this.settings.questions.length > 0 && this.questions(place, name),
    );
  }

  questions(place, name) {
    const key = `answers/${place}`;
    return el(
      "div",
      { class: "questions" },
      ...this.settings.questions.map((question) => {
        const id = `question-${place}-${question.id}`;
        const needed = question.required ? " (needed)" : "";
        if (question.kind === "text") {
          return el(
            "div",
            { class: "question" },
            el("label", { for: id, text: question.text + needed }, el("span", { class: "hide", text: ` (${name})` })),
            this.textField(id, key, question.id, question.text),
          );
        }
        return el(
          "fieldset",
          { class: "question" },
          el("legend", {}, question.text + needed, el("span", { class: "hide", text: ` (${name})` })),
          ...question.options.map((option) =>
            el(
              "label",
              { class: "tick" },
              el("input", {
                type: "checkbox",
                value: option.id,
                data: { key, field: question.id },
                on: {
                  change: () => {
                    const fieldset = byId("main").querySelectorAll(`input[data-key="${key}"][data-field="${question.id}"]`);
                    const ticked = [...fieldset].filter((input) => input.checked).map((input) => input.value);
                    this.setField(key, question.id, ticked, `answer to “${question.text}”`);
                  },
                },
              }),
              el("span", { text: option.text }),
            ),
          ),
        );
      }),
    );
  }

  preference() {
    const choice = (value, text, number) =>
      el(
        "label",
        { class: "choice" },
        this.app.letterKeys() && el("kbd", { text: number + 1, "aria-hidden": "true" }),
        el("input", {
          type: "radio",
          name: "better",
          value,
          on: { change: () => this.choose(value === "tie" ? null : Number(value)) },
        }),
        el("span", { text }),
      );
    return el(
      "section",
      { class: "preference" },
      el(
        "fieldset",
        {},
        el("legend", { id: "preference-title", text: "Which response do you prefer?" }),
        el(
          "div",
          { class: "choices-row", on: { keydown: (event) => this.keyInPreference(event) } },
          ...this.data.responses.map(({ place }, number) => choice(String(place), `Response ${this.letters[number]}`, number)),
          this.modes.tie && choice("tie", "Tie", this.data.responses.length),
        ),
        this.modes.tie &&
          el("p", { class: "quiet", text: ABOUT_TIES }),
      ),
      el(
        "div",
        { class: "question" },
        el("label", { for: "preference-reason", text: this.modes.preference_reason ? "Why? (needed)" : "Why?" }),
        this.textField("preference-reason", "verdict", "reason", "reason for the preference"),
      ),
    );
  }

  cannotJudge() {
    const key = "cannot_judge";
    const box = el("input", {
      type: "checkbox",
      id: "cannot-judge",
      data: { key, field: "cannot" },
      on: { change: () => this.setField(key, "cannot", box.checked, "choice that the item cannot be judged") },
    });
    return el(
      "section",
      { class: "cannot-judge" },
      el("label", { class: "tick" }, box, el("span", { text: "I cannot judge this item" })),
      el(
        "div",
        { class: "question", id: "cannot-judge-why" },
        el("label", { for: "cannot-judge-comment", text: "Why not? (needed)" }),
        this.textField("cannot-judge-comment", key, "comment", "reason why the item cannot be judged"),
      ),
    );
  }

  /** Turns "cannot be judged" on or off, as its box does. */
  toggleCannotJudge() {
    const box = byId("cannot-judge");
    box.click();
    (box.checked ? byId("cannot-judge-comment") : box).focus();
  }

  /** A text field that is saved while one types, and becomes one action of the history when it is left. */
  textField(id, key, field, what) {
    let before = null;
    let typed = false;
    const leave = () => {
      store();
      const after = this.saving.body(key);
      if (typed && after && !same(before, after)) {
        this.history.push({ label: what, changes: [{ key, before, after }], caret: null });
        before = after;
        this.app.changed(this);
      }
      typed = false;
    };
    const store = () => {
      clearTimeout(this.typing.get(id)?.timer);
      this.typing.delete(id);
      this.writeField(key, field, input.value);
    };
    const input = el("textarea", {
      id,
      rows: 2,
      maxlength: 20000,
      data: { key, field },
      on: {
        focus: () => (before = this.saving.body(key)),
        input: () => {
          typed = true;
          this.leaveField = leave;
          clearTimeout(this.typing.get(id)?.timer);
          this.typing.set(id, { timer: setTimeout(store, TYPING), store });
        },
        change: leave,
        blur: () => (this.leaveField = null),
      },
    });
    return input;
  }

  /** Saves what is being typed now, as an action of the history. */
  flush() {
    this.leaveField?.();
    for (const { store } of [...this.typing.values()]) store();
  }

  fieldsOf(key) {
    const body = this.saving.body(key);
    if (key === "cannot_judge") return body ?? emptied(key);
    if (key !== "verdict") return body ?? {};
    return this.verdict() ?? { reason: this.app.drafts.get(this.data.id, "page/reason") ?? body?.reason ?? "" };
  }

  /** The preference, or null where there is none or it was withdrawn. */
  verdict() {
    const body = this.saving.body("verdict");
    return body && !body.deleted ? body : null;
  }

  /** Is there a reason for a preference that has not been chosen? */
  get reasonWaits() {
    return this.verdict() === null && (this.app.drafts.get(this.data.id, "page/reason") ?? "").trim() !== "";
  }

  writeField(key, field, value) {
    if (key === "verdict" && !this.verdict()) {
      // a reason without a choice is no preference yet: it waits in this browser
      this.app.drafts.put(this.data.id, "page/reason", value);
      this.app.changed(this);
      return;
    }
    this.saving.change(key, { ...this.fieldsOf(key), [field]: value });
  }

  setField(key, field, value, what) {
    const before = this.saving.body(key);
    this.commit(what, [{ key, before, after: { ...this.fieldsOf(key), [field]: value } }]);
  }

  choose(better) {
    this.flush();
    const before = this.saving.body("verdict");
    const reason = byId("preference-reason").value;
    this.commit(better === null ? "choice of a tie" : `choice of response ${this.letter(better)}`, [
      { key: "verdict", before, after: { better, reason } },
    ]);
    this.app.drafts.remove(this.data.id, "page/reason");
  }

  // ----- drawing ------------------------------------------------------------------------------------------------------

  /** Draws what an entry of this key shows. */
  refresh(key = null) {
    const marks = key === null || key.startsWith("spans/") || key.startsWith("suggestions/");
    const places = marks ? this.data.responses.map(({ place }) => place) : [];
    const only = key?.startsWith("spans/") ? this.saving.body(key)?.place : undefined;
    for (const place of places) if (only === undefined || only === place) this.drawSpans(place);
    if (key === null || !marks) this.fillFields();
    this.app.changed(this);
  }

  drawSpans(place) {
    if (!this.marks) return;
    const spans = this.spansOf(place);
    const suggested = this.suggestions.of(place, { open: true });
    this.texts.get(place).draw([...spans, ...suggested], { editing: this.editing, current: this.current ?? this.suggestions.current });
    this.suggestions.draw(this.parts.get(place).suggested, place);
    const { list, count } = this.parts.get(place);
    const likes = spans.filter((span) => span.label > 0).length;
    const dislikes = spans.length - likes;
    count.textContent = spans.length
      ? [likes && plural(likes, "like"), dislikes && plural(dislikes, "dislike")].filter(Boolean).join(", ")
      : "Nothing marked yet";
    const focusedId = list.contains(document.activeElement) ? document.activeElement.dataset.span : null;
    list.replaceChildren(...spans.map((span) => this.listEntry(span)));
    if (focusedId) list.querySelector(`[data-span="${CSS.escape(focusedId)}"]`)?.focus();
  }

  listEntry(span) {
    const texts = reasonTexts(this.settings, span);
    const side = sideName(span.label);
    return el(
      "li",
      {},
      el(
        "button",
        {
          type: "button",
          class: `entry ${side.toLowerCase()} ${span.id === this.current || span.id === this.editing ? "active" : ""}`,
          data: { span: span.id },
          on: { click: () => this.edit(span.id, { from: "list" }) },
        },
        el("span", { class: "side", text: side }),
        el("bdi", { class: "quote", text: shorten(span.quote, 80) }),
        this.asksWhy && (hasReason(span)
          ? el("span", { class: "why", text: texts.join(" ") })
          : el("span", { class: "why lacking", text: span.reasons.includes(OTHER) ? "Other: not described yet" : "No reason yet" })),
      ),
    );
  }

  fillFields() {
    for (const input of byId("main").querySelectorAll("[data-key]")) {
      const value = this.fieldsOf(input.dataset.key)[input.dataset.field];
      if (input.dataset.field === "cannot") input.checked = value;
      else if (input.type === "checkbox") input.checked = Array.isArray(value) && value.includes(input.value);
      else if (!this.typing.has(input.id) && input.value !== (value ?? "")) input.value = value ?? "";
    }
    const verdict = this.verdict();
    for (const input of byId("main").querySelectorAll("input[name=better]")) {
      input.checked = verdict !== null && input.value === (verdict.better === null ? "tie" : String(verdict.better));
    }
    byId("cannot-judge-why").hidden = !byId("cannot-judge").checked;
  }

  // ----- actions and their history ------------------------------------------------------------------------------------

  /** Does something that can be undone. */
  commit(label, changes, caret = null) {
    this.history.push({ label, changes, caret });
    this.apply(changes.map(({ key, after }) => ({ key, body: after })));
  }

  apply(bodies) {
    for (const { key, body } of bodies) {
      this.saving.change(key, body);
      this.refresh(key);
    }
  }

  undo() {
    this.flush();
    this.travel(this.history.undo(), "before", "after", "Undone");
  }

  redo() {
    this.flush();
    this.travel(this.history.redo(), "after", "before", "Redone");
  }

  travel(action, to, from, said) {
    if (!action) {
      announce(said === "Undone" ? "Nothing to undo." : "Nothing to redo.");
      return;
    }
    const entry = (change, side, other) => change[side] ?? emptied(change.key, change[other]);
    if (action.changes.some((change) => !same(this.saving.body(change.key), entry(change, from, to)))) {
      this.history.discard(action);
      this.app.changed(this);
      announce(`Not ${said.toLowerCase()}, because it was changed elsewhere since: ${action.label}.`);
      return;
    }
    this.apply(action.changes.map((change) => ({ key: change.key, body: entry(change, to, from) })));
    announce(`${said}: ${action.label}.`);
    if (action.caret) this.restore(action.caret);
  }

  // ----- marking ------------------------------------------------------------------------------------------------------

  pressed(event, place) {
    if (event.button !== 0) return;
    // a drag that begins inside an old selection would move that text instead of selecting
    if (event.detail < 2 && !event.shiftKey && this.texts.get(place).selection()?.start !== this.texts.get(place).selection()?.end) {
      document.getSelection().removeAllRanges();
    }
    const press = (this.presses += 1);
    const released = (up) => {
      // a double or triple click selects a word or a line: only a drag marks by itself. The click event comes first
      if (up.detail > 1 || up.button !== 0) return;
      setTimeout(() => press === this.presses && this.markSelection(place, { quiet: true }));
    };
    document.addEventListener("mouseup", released, { once: true });
  }

  clicked(event, place) {
    const selection = this.texts.get(place).selection();
    if (selection && selection.start !== selection.end) return;
    const at = this.texts.get(place).spansAtNode(event.target);
    const ids = at.filter((id) => this.span(id));
    const suggestion = this.suggestions.all.find(({ id }) => id === at[0]);
    if (suggestion) this.suggestions.go(suggestion);
    else if (ids.length && !this.moving && event.detail < 2) this.edit(ids[0], { at: ids });
    else if (this.current) this.setCurrent(null);
  }

  caretIn(place) {
    const selection = this.texts.get(place)?.selection();
    return selection ? { place, anchor: selection.anchor, focus: selection.focus } : null;
  }

  restore(caret) {
    const text = this.texts.get(caret.place);
    text.host.focus({ preventScroll: true });
    text.select(caret.anchor, caret.focus);
  }

  /** {anchor, focus, start, end} of what is selected in the response in use, or null. */
  selected() {
    const text = this.marks ? this.texts.get(this.focused) : null;
    const selection = text && text.host === document.activeElement ? text.selection() : null;
    return selection && selection.start !== selection.end ? selection : null;
  }

  /** Selects from one place to another, in UTF-16 units, and scrolls there. */
  selectRange(place, start, end) {
    const text = this.texts.get(place);
    text.host.focus({ preventScroll: true });
    text.select(start, end);
    const rects = text.rangeOf(text.points.toPoint(start), text.points.toPoint(Math.max(end, start + 1))).getClientRects();
    const [first, last, box] = [rects[0], rects[rects.length - 1], text.host.getBoundingClientRect()];
    if (!first) return;
    const inside = text.host.scrollHeight > text.host.clientHeight + 1 && (first.top < box.top || last.bottom > box.bottom);
    if (inside) text.host.scrollTop += first.top - box.top - text.host.clientHeight / 3;
    else if (first.top < 70 || last.bottom > innerHeight - 190) scrollBy({ top: first.top - innerHeight / 4 });
  }

  /** Selects the sentence or word at the caret, or the next (1) or previous (-1) one; behind a response the next one follows. */
  selectUnit(kind, step) {
    this.unitKind = kind;
    const order = this.data.responses.map(({ place }) => place);
    for (let number = order.indexOf(this.focused), first = true; order[number] !== undefined; number += step, first = false) {
      const marked = this.texts.get(order[number]);
      const { text } = marked;
      const edge = step > 0 ? 0 : text.length;
      const from = (first && marked.selection()) || { start: edge, end: edge };
      let unit = unitFrom(text, kind, from, step);
      // behind a mark of some words of a sentence the next sentence follows
      if (step > 0 && unit?.start < from.start && from.start === from.end && this.markEndsAt(order[number], from.end)) {
        unit = unitBehind(text, kind, unit.end);
      }
      if (!unit) continue;
      this.setCurrent(null);
      this.selectRange(order[number], unit.start, unit.end);
      announce(`${kind === "word" ? "" : `Response ${this.letter(order[number])}: `}${shorten(text.slice(unit.start, unit.end), 200)}`);
      return;
    }
    announce(`There is no further ${kind}.`);
  }

  markEndsAt(place, unit) {
    return this.spansOf(place).some(({ end }) => this.texts.get(place).points.toUnit(end) === unit);
  }

  /** Makes the selection longer (1) or shorter (-1) by the kind of unit that was selected last. */
  extend(step) {
    const { text } = this.texts.get(this.focused);
    const own = this.selected() ?? this.texts.get(this.focused).selection() ?? { start: 0, end: 0 };
    const last = step > 0 ? null : unitBefore(text, this.unitKind, own.end);
    const unit = step > 0 ? unitBehind(text, this.unitKind, own.end) : unitBefore(text, this.unitKind, last?.start ?? 0);
    if (!unit || unit.end <= own.start) announce("The selection ends here.");
    else this.selectRange(this.focused, own.start, unit.end);
  }

  /** Marks the selection with the reasons of the last mark of the same kind. */
  repeat() {
    const last = this.app.last[this.app.mode()];
    if (!last) announce("There are no reasons to repeat yet.");
    else this.markSelection(this.focused, { repeated: last });
  }

  /**
   * Marks the selection in a response, or gives it to the span whose passage is being changed. `reason`: one that is ticked already;
   * `repeated`: {reasons, note} with which the mark is saved at once.
   */
  async markSelection(place = this.focused, { quiet = false, reason = null, repeated = null } = {}) {
    const text = this.texts.get(place);
    const selection = text?.selection();
    const range = selection && (this.app.exact() ? selection : snapped(text.text, selection.start, selection.end, text.looks));
    if (!range || range.start === range.end) {
      if (!quiet) announce("Nothing is selected. Select a passage of a response first.");
      return;
    }
    if (this.app.popup.open) return;
    this.suggestions.current = null;
    const caret = { place, anchor: selection.anchor, focus: selection.focus };
    const start = text.points.toPoint(range.start);
    const end = text.points.toPoint(range.end, true);
    const passage = { place, start, end, quote: text.points.slice(start, end) };
    if (this.moving) {
      this.movePassage(passage, caret);
      return;
    }
    const label = this.app.mode();
    const earlier = this.spansOf(place).find((each) => each.start === start && each.end === end && each.label === label);
    if (earlier) {
      announce("This passage has this mark already. Its reasons are open.");
      await this.edit(earlier.id, { caret });
      return;
    }
    const span = { id: newId(), ...passage, label, reasons: repeated?.reasons ?? [], note: repeated?.note ?? "", deleted: false };
    this.saving.change(`spans/${span.id}`, span);
    announce(`${sideName(span.label)} marked in response ${this.letter(place)}: ${shorten(span.quote, 120)}`);
    if (!this.asksWhy || repeated) {
      this.finishEdit({ action: "save", dirty: false, ...span }, { before: span, isNew: true, back: caret });
      this.restore({ ...caret, anchor: caret.focus });
    } else await this.edit(span.id, { isNew: true, caret, draft: reason && { label, reasons: [reason], note: "" } });
  }

  movePassage(passage, caret) {
    const before = this.span(this.moving);
    this.moving = null;
    this.app.notice(null);
    this.app.changed(this);
    if (before.place !== passage.place) {
      announce("A mark stays in its response. Nothing was changed.");
      return;
    }
    this.commit("change of a marked passage", [{ key: `spans/${before.id}`, before, after: { ...before, ...passage } }], caret);
    announce(`The mark now covers: ${shorten(passage.quote, 120)}`);
    this.restore({ ...caret, anchor: caret.focus });
  }

  stopMoving() {
    this.moving = null;
    this.app.notice(null);
    this.app.changed(this);
    announce("The passage stays as it was.");
  }

  /**
   * Opens the pop-up for a span. `at`: spans at the same place, between which one can switch. `isNew`: it was marked just now,
   * and cancelling takes it away. `caret`: the selection to come back to. `draft`: what was entered before a reload.
   */
  async edit(id, { at = [id], isNew = false, caret = null, draft = null, from = "text" } = {}) {
    const before = this.span(id);
    const { place } = before;
    const text = this.texts.get(place);
    const back = caret ?? this.caretIn(place);
    const page = { id, isNew, caret: back };
    const walked = this.current === id;
    this.suggestions.current = null;
    this.editing = id;
    this.current = null;
    this.drawSpans(place);
    const rects = () => [...text.rangeOf(before.start, before.end).getClientRects()].filter((rect) => rect.width > 0);
    this.bringIntoView(id, text.host, rects());
    document.getSelection().removeAllRanges();
    const keep = (entered) => this.app.drafts.put(this.data.id, "page/popup", { ...page, entered });
    if (isNew) keep(draft);
    const answer = await this.app.popup.ask({
      span: before,
      others: at.map((other) => this.span(other)).filter(Boolean),
      draft,
      rects,
      entered: keep,
      labels: this.modes.spans === "both" ? [1, -1] : [-1],
    });
    this.app.drafts.remove(this.data.id, "page/popup");
    this.editing = null;
    this.finishEdit(answer, { before, isNew, back });
    if (answer.action === "switch") {
      await this.edit(answer.to, { at, caret: back });
      return;
    }
    if (back && answer.action !== "passage") {
      const kept = answer.action === "cancel" ? back : { ...back, anchor: back.focus };
      if (from === "text" || !this.parts.get(place).list.querySelector(`[data-span="${CSS.escape(id)}"]`)) this.restore(kept);
    }
    if (walked && this.span(id) && !this.span(id).deleted) this.setCurrent(id);
    if (from === "list") this.parts.get(place).list.querySelector(`[data-span="${CSS.escape(id)}"]`)?.focus();
    else if (!back) text.host.focus({ preventScroll: true });
    this.app.resolveConflicts();
    if (answer.then) this.app.press(answer.then);
  }

  /** Scrolls only where the passage is hidden: outside the window or its text's part of it, or behind the pop-up of a small window. */
  bringIntoView(id, host, rects) {
    const box = host.getBoundingClientRect();
    const lowest = Math.min(innerWidth < NARROW ? innerHeight * 0.25 : innerHeight - 40, box.bottom);
    const top = rects[0]?.top ?? -1;
    if (top >= Math.max(60, box.top) && top <= lowest) return;
    const mark = host.querySelector(`[data-span="${CSS.escape(id)}"]`);
    mark?.scrollIntoView({ block: innerWidth < NARROW ? "start" : "center" });
  }

  finishEdit({ action, dirty, label, reasons, note }, { before, isNew, back }) {
    const key = `spans/${before.id}`;
    const entered = { ...before, label, reasons, note };
    const gone = { ...before, deleted: true };
    const what = `${sideName(before.label).toLowerCase()} “${shorten(before.quote, 60)}”`;
    const act = (name, from, to) => this.commit(name, [{ key, before: from, after: to }], back);
    if (action === "save" || (action === "switch" && dirty) || action === "passage") {
      if (reasons.length || note) this.app.last[label] = { reasons, note };
      if (isNew) act(`marking ${what}`, null, entered);
      else if (!same(before, entered)) act(`editing ${what}`, before, entered);
      else this.refresh(key);
      announce(`${sideName(label)} kept${this.asksWhy ? ` with ${plural(reasons.length || (note ? 1 : 0), "reason")}` : ""}.`);
      if (action === "passage") {
        this.moving = before.id;
        this.app.notice("Select the new passage of this mark.", "Keep the passage", () => this.stopMoving());
        this.app.changed(this);
        this.restore(back ?? { place: before.place, anchor: this.unit(before), focus: this.unit(before) });
      }
    } else if (action === "delete") {
      if (isNew) act(`marking ${what}`, null, dirty ? entered : before);
      act(`deleting ${what}`, dirty && isNew ? entered : before, gone);
      announce(`Deleted: ${what}. Undo brings it back.`);
    } else if (action === "cancel" && isNew) {
      // what had been entered can be brought back: a slip of the Escape key costs nothing
      if (dirty) act(`dropping ${what}`, entered, gone);
      else this.apply([{ key, body: gone }]);
      announce(dirty ? "Not marked. Undo brings back what you had entered." : "Not marked.");
    } else {
      if (action === "cancel" && dirty && !same(before, entered)) {
        this.history.push({ label: `dropping changes to ${what}`, changes: [{ key, before: entered, after: before }], caret: back });
        announce("Changes dropped. Undo brings them back.");
      }
      this.refresh(key);
    }
  }

  unit(span) {
    return this.texts.get(span.place).points.toUnit(span.start);
  }

  remove(id) {
    const before = this.span(id);
    const what = `${sideName(before.label).toLowerCase()} “${shorten(before.quote, 60)}”`;
    const caret = this.caretIn(before.place);
    this.current = null;
    this.commit(`deleting ${what}`, [{ key: `spans/${id}`, before, after: { ...before, deleted: true } }], caret);
    announce(`Deleted: ${what}. Undo brings it back.`);
  }

  /** After a reload in the middle of the pop-up, it opens again with what had been entered. */
  reopenPopup() {
    const kept = this.app.drafts.get(this.data.id, "page/popup");
    if (!kept) return;
    if (this.span(kept.id) && !this.span(kept.id).deleted && this.texts.has(this.span(kept.id).place)) {
      this.edit(kept.id, { isNew: kept.isNew, caret: kept.caret, draft: kept.entered });
    } else this.app.drafts.remove(this.data.id, "page/popup");
  }

  // ----- keys ---------------------------------------------------------------------------------------------------------

  setCurrent(id) {
    this.suggestions.current = null;
    const places = new Set([this.span(this.current ?? "")?.place, this.span(id ?? "")?.place]);
    this.current = id;
    for (const place of places) if (place !== undefined) this.drawSpans(place);
  }

  /** Goes to the next (1) or the previous (-1) span, one that others cover included. */
  walk(step) {
    const spans = this.allSpans();
    if (!spans.length) {
      announce("Nothing is marked yet.");
      return;
    }
    const number = spans.findIndex((span) => span.id === this.current);
    const next = number < 0 ? this.nearest(spans, step) : (number + step + spans.length) % spans.length;
    const span = spans[next];
    const text = this.texts.get(span.place);
    this.setCurrent(span.id);
    text.host.focus({ preventScroll: true });
    text.select(text.points.toUnit(span.start));
    text.host.querySelector(`[data-span="${CSS.escape(span.id)}"]`)?.scrollIntoView({ block: "nearest" });
    const crosses = (other) => other.place === span.place && other.start < span.end && other.end > span.start;
    const over = spans.filter((other) => other.id !== span.id && crosses(other));
    const texts = reasonTexts(this.settings, span);
    announce(
      `${sideName(span.label)} ${next + 1} of ${spans.length}, response ${this.letter(span.place)}: ${shorten(span.quote, 120)}. ` +
        (texts.length ? texts.join(" ") : this.asksWhy ? "No reason yet." : "") +
        (over.length ? ` Overlaps ${plural(over.length, "other mark")}.` : ""),
    );
  }

  /** The span to begin with: the first one behind the caret, or the last one before it. */
  nearest(spans, step) {
    const selection = this.texts.get(this.focused)?.selection();
    if (!selection) return step > 0 ? 0 : spans.length - 1;
    const point = this.texts.get(this.focused).points.toPoint(selection.focus);
    const order = this.data.responses.map(({ place }) => place);
    const here = order.indexOf(this.focused);
    const later = (span) => order.indexOf(span.place) > here || (span.place === this.focused && span.start >= point);
    const first = spans.findIndex(later);
    if (step > 0) return first < 0 ? 0 : first;
    return ((first < 0 ? spans.length : first) - 1 + spans.length) % spans.length;
  }

  /** Ids of the spans that a key at the caret is about, the first one first. */
  spansAtCaret(place) {
    const text = this.texts.get(place);
    const selection = text.selection();
    const at = selection ? text.spansAtUnit(selection.focus).filter((id) => this.span(id)) : [];
    return this.current && this.span(this.current)?.place === place ? [this.current, ...at.filter((id) => id !== this.current)] : at;
  }

  /** A digit chooses; a reason that is needed comes next. */
  keyInPreference(event) {
    const input = this.app.letterKeys() ? document.querySelectorAll("input[name=better]")[Number(keyOf(event) ?? 0) - 1] : null;
    if (!input) return;
    event.preventDefault();
    input.focus();
    input.click();
    if (this.modes.preference_reason) byId("preference-reason").focus();
  }

  keyInText(event, place) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const selection = this.texts.get(place).selection();
    const selected = selection && selection.start !== selection.end;
    const { key } = event;
    const suggestion = selected ? null : this.suggestions.chosen();
    if (suggestion && ["Enter", "Delete", "Backspace"].includes(key)) {
      event.preventDefault();
      this.suggestions.decide(suggestion, key === "Enter");
    } else if (key === "Enter") {
      event.preventDefault();
      if (selected) this.markSelection(place);
      else {
        const at = this.spansAtCaret(place);
        if (at.length) this.edit(at[0], { at });
        else announce("No mark here, and nothing selected.");
      }
    } else if (key === "Delete" || key === "Backspace") {
      event.preventDefault();
      const at = this.spansAtCaret(place);
      if (this.current || at.length === 1) this.remove(at[0]);
      else announce(at.length ? `${at.length} marks are here. Choose one with N first.` : "No mark here.");
    } else if (key === "Escape") {
      if (this.moving) {
        this.stopMoving();
      } else if (selected) this.texts.get(place).select(selection.focus);
      else if (this.current) this.setCurrent(null);
    } else if (/^(Arrow|Home|End|Page)/.test(key)) {
      if (this.current) this.setCurrent(null);
      else if (this.suggestions.current) this.suggestions.go(null);
    }
  }
}

/** What an entry becomes when the action that first wrote it is undone. */
function emptied(key, body) {
  if (key.startsWith("suggestions/")) return { accepted: null, span: null };
  if (key === "cannot_judge") return { cannot: false, comment: "" };
  return key.startsWith("answers/") ? {} : { ...body, deleted: true };
}
