// Dialogs: the pop-up with the reasons of a span, and the sheets with guidelines, keys, items and conflicts.

import { byId, el, newId, plural, shorten } from "./dom.js";
import { OTHER, REPEAT, keyOf, reasonKeys, reasonTexts, reasonsOf, sideName } from "./reasons.js";

const FOCUSABLE = "a[href], button:not([disabled]), input:not([disabled]), textarea:not([disabled]), select, [tabindex='0']";
const GO_ON = "sfnabvhj"; // keys of the page that save the pop-up and then do their work

/** Keeps the Tab key inside a dialog. */
export function trapFocus(dialog) {
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "Tab") return;
    const stops = [...dialog.querySelectorAll(FOCUSABLE)].filter(
      (stop) => stop.offsetParent !== null && (stop.type !== "radio" || stop.checked || !anyChecked(dialog, stop.name)),
    );
    const [first, last] = [stops[0], stops[stops.length - 1]];
    if (event.shiftKey ? document.activeElement === first || document.activeElement === dialog : document.activeElement === last) {
      event.preventDefault();
      (event.shiftKey ? last : first).focus();
    }
  });
}

const anyChecked = (dialog, name) => dialog.querySelector(`input[name="${CSS.escape(name)}"]:checked`) !== null;

/** The pop-up in which a span's reasons are ticked. */
export class ReasonsPopup {
  /** `app` gives settings, letterKeys() and last, the reasons that were saved last by label. */
  constructor(app) {
    this.app = app;
    this.settings = app.settings;
    this.dialog = byId("reasons");
    trapFocus(this.dialog);
    this.dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      this.close("cancel");
    });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        event.stopPropagation();
        this.close("save");
      } else this.key(event);
    });
    addEventListener("resize", () => this.dialog.open && this.place());
  }

  get open() {
    return this.dialog.open;
  }

  /**
   * Asks for the reasons of `span`. `others` are further spans at the same place, to which one can switch; `draft` is what had
   * been entered before a reload; `rects()` gives the places of the passage on the screen; `entered(draft)` is called at every
   * change. Returns {action: save, cancel, delete, switch or passage, dirty, label, reasons, note, to, then}; `then`: the key of the
   * page that ended it.
   */
  ask({ span, others, draft, rects, entered, labels }) {
    this.span = span;
    this.rects = rects;
    this.entered = entered;
    this.label = draft?.label ?? span.label;
    this.reasons = new Map([[this.label, new Set(draft?.reasons ?? span.reasons)]]);
    this.note = draft?.note ?? span.note;
    this.noteSetAside = "";
    this.dirty = Boolean(draft);
    this.labels = labels;
    this.others = others;
    this.build();
    this.dialog.showModal();
    this.place();
    (this.dialog.querySelector(".choices input:checked, .choices input, .choices textarea") ?? this.dialog).focus();
    return new Promise((resolve) => {
      this.resolve = resolve;
    });
  }

  chosen() {
    const all = this.reasons.get(this.label) ?? new Set();
    const known = (reasonsOf(this.settings, this.label)?.groups ?? []).flatMap((group) => group.attributes.map(({ id }) => id));
    const free = this.settings.modes.reasons === "free_text";
    const note = free || all.has(OTHER) ? this.note : "";
    return { label: this.label, reasons: free ? [] : [...known, OTHER].filter((id) => all.has(id)), note };
  }

  close(action, to = null, then = null) {
    const { resolve } = this;
    this.resolve = null;
    this.dialog.close();
    resolve?.({ action, to, then, dirty: this.dirty, ...this.chosen() });
  }

  /** A reason's key ticks it, the repeating key ticks those of the mark before, and a key of the page saves and goes on. */
  key(event) {
    const key = keyOf(event);
    if (key === null || event.target.matches("textarea") || !this.app.letterKeys()) return;
    const reason = reasonKeys(this.settings, this.label).get(key);
    const last = this.app.last[this.label];
    if (reason) this.dialog.querySelector(`input[value="${CSS.escape(reason.id)}"]`).click();
    else if (key === REPEAT && last) {
      this.reasons.set(this.label, new Set(last.reasons));
      this.note = last.note;
      this.changed();
      this.build();
      this.dialog.querySelector(".primary").focus();
    } else if ("ld".includes(key) && this.labels.length > 1) this.flip(key === "l" ? 1 : -1);
    else if (GO_ON.includes(key)) this.close("save", null, event);
    else return;
    event.preventDefault();
  }

  changed() {
    this.dirty = true;
    this.entered(this.chosen());
  }

  build() {
    const { span, label } = this;
    const side = sideName(label).toLowerCase();
    const other = this.labels.length > 1 ? -label : null;
    this.dialog.className = `popup ${side}`;
    this.dialog.replaceChildren(
      el(
        "form",
        { method: "dialog", on: { submit: (event) => (event.preventDefault(), this.close("save")) } },
        el(
          "header",
          {},
          el(
            "div",
            { class: "row" },
            el("h2", { id: "reasons-title", text: this.settings.modes.reasons === "none" ? sideName(label) : `${sideName(label)}: why?` }),
            other !== null &&
              el("button", {
                type: "button",
                class: "plain",
                text: `Change to ${sideName(other).toLowerCase()}`,
                on: { click: () => this.flip(other) },
              }),
            el("button", { type: "button", class: "plain", text: "Change passage", on: { click: () => this.close("passage") } }),
          ),
          el("blockquote", { class: side }, el("bdi", { text: shorten(span.quote, 160) })),
          this.others.length > 1 && this.chips(),
        ),
        el("div", { class: "choices" }, ...this.choices(side)),
        el(
          "footer",
          {},
          el("button", { type: "button", class: "danger", text: "Delete", on: { click: () => this.close("delete") } }),
          el("span", { class: "spring" }),
          el("button", { type: "button", text: "Cancel", on: { click: () => this.close("cancel") } }),
          el("button", { type: "submit", class: "primary", text: "Save" }),
        ),
      ),
    );
  }

  chips() {
    return el(
      "div",
      { class: "chips", role: "group", "aria-label": "Marks at this place" },
      ...this.others.map((span) =>
        el(
          "button",
          {
            type: "button",
            class: sideName(span.label).toLowerCase(),
            "aria-pressed": String(span.id === this.span.id),
            on: { click: () => span.id !== this.span.id && this.close("switch", span.id) },
          },
          `${sideName(span.label)}: `,
          el("bdi", { text: shorten(span.quote, 28) }),
        ),
      ),
    );
  }

  flip(label) {
    this.label = label;
    this.changed();
    this.build();
    this.place();
    this.dialog.querySelector(".choices input, .choices textarea, .primary").focus();
  }

  choices(side) {
    if (this.settings.modes.reasons === "none") return [];
    if (this.settings.modes.reasons === "free_text") return [this.noteField(`What do you ${side} about this passage?`, null)];
    const { lead, groups, other } = reasonsOf(this.settings, this.label);
    const ticked = this.reasons.get(this.label) ?? this.reasons.set(this.label, new Set()).get(this.label);
    if (this.note.trim()) ticked.add(OTHER); // a note that is shown is saved
    const keys = new Map([...reasonKeys(this.settings, this.label)].map(([key, { id }]) => [id, key]));
    const box = (id, text) =>
      el(
        "label",
        { class: "tick" },
        this.app.letterKeys() && el("kbd", { text: keys.get(id) ?? "", "aria-hidden": "true" }),
        el("input", {
          type: "checkbox",
          value: id,
          checked: ticked.has(id),
          on: {
            change: (event) => {
              if (event.target.checked) ticked.add(id);
              else ticked.delete(id);
              if (id === OTHER) this.turnNote(event.target.checked);
              this.changed();
            },
          },
        }),
        el("span", { text }),
      );
    const otherBox = box(OTHER, "Other");
    return [
      lead && el("p", { class: "lead", text: lead }),
      el(
        "div",
        { class: "groups" },
        ...groups.map((group) =>
          el("fieldset", {}, el("legend", { text: group.title }), ...group.attributes.map(({ id, text }) => box(id, text))),
        ),
        el("fieldset", { class: "other" }, el("legend", { text: "Other" }), otherBox, this.noteField(other, () => {
          const input = otherBox.querySelector("input");
          if (!input.checked && this.note.trim()) {
            input.checked = true;
            ticked.add(OTHER);
          }
        })),
      ),
    ];
  }

  /** Without Other there is no note: its text is set aside, and comes back when Other is ticked again. */
  turnNote(on) {
    const field = this.dialog.querySelector("textarea");
    if (on) this.note ||= this.noteSetAside;
    else [this.noteSetAside, this.note] = [this.note, ""];
    field.value = this.note;
    if (on) field.focus();
  }

  noteField(question, typed) {
    const id = `note-${newId()}`;
    return el(
      "div",
      { class: "note" },
      el("label", { for: id, text: question }),
      el("textarea", {
        id,
        rows: typed ? 2 : 4,
        value: this.note,
        maxlength: 20000,
        on: {
          input: (event) => {
            this.note = event.target.value;
            typed?.();
            this.changed();
          },
        },
      }),
    );
  }

  /** Puts the pop-up below the passage, above it or beside it, so that the passage stays visible wherever there is room. */
  place() {
    const { dialog } = this;
    const gap = 10;
    for (const name of ["--left", "--top", "--room"]) dialog.style.removeProperty(name);
    const rects = this.rects();
    if (!rects.length || innerWidth < 720) return;
    const inside = (value) => Math.max(0, Math.min(value, innerHeight));
    const top = inside(Math.min(...rects.map((rect) => rect.top)));
    const bottom = inside(Math.max(...rects.map((rect) => rect.bottom)));
    const left = Math.min(...rects.map((rect) => rect.left));
    const right = Math.max(...rects.map((rect) => rect.right));
    const { width, height } = dialog.getBoundingClientRect();
    const below = innerHeight - bottom - 2 * gap;
    const above = top - 2 * gap;
    const within = (value, size, whole) => Math.max(gap, Math.min(value, whole - size - gap));
    const beside = { top: within(top, height, innerHeight), room: innerHeight - 2 * gap };
    let place = { left: within(left, width, innerWidth), top: bottom + gap, room: below };
    if (below < height) {
      if (above >= height) place = { ...place, top: top - gap - height, room: above };
      else if (innerWidth - right - 2 * gap >= width) place = { ...beside, left: right + gap };
      else if (left - 2 * gap >= width) place = { ...beside, left: left - gap - width };
      else if (Math.max(below, above) >= 300) {
        place = below >= above ? place : { ...place, top: gap, room: above };
      } else place = { ...place, top: gap, room: beside.room };
    }
    dialog.style.setProperty("--left", `${Math.round(place.left)}px`);
    dialog.style.setProperty("--top", `${Math.round(place.top)}px`);
    dialog.style.setProperty("--room", `${Math.floor(place.room)}px`);
  }
}

/** A dialog with a title and a Close button, opened and filled by `show`. */
export class Sheet {
  constructor(id) {
    this.id = id;
    this.dialog = byId(id);
    trapFocus(this.dialog);
  }

  show(title, ...content) {
    this.dialog.replaceChildren(
      el(
        "div",
        { class: "row" },
        el("h2", { id: `${this.id}-title`, text: title }),
        el("button", { type: "button", text: "Close", on: { click: () => this.dialog.close() } }),
      ),
      ...content,
    );
    if (!this.dialog.open) this.dialog.showModal();
  }
}

const describeSpan = (settings, span, heading) =>
  el(
    "section",
    { class: "version" },
    el("h3", { text: heading }),
    span === null || span.deleted
      ? el("p", { class: "deleted", text: span ? "Deleted" : "Not there" })
      : [
          el("p", {}, el("strong", { text: sideName(span.label) }), ` of ${plural(span.end - span.start, "character")}`),
          el("blockquote", { class: sideName(span.label).toLowerCase() }, el("bdi", { text: shorten(span.quote, 300) })),
          el("ul", {}, ...reasonTexts(settings, span).map((text) => el("li", { text }))),
        ],
  );

const describeBody = (body, heading, names) =>
  el(
    "section",
    { class: "version" },
    el("h3", { text: heading }),
    el(
      "dl",
      {},
      ...Object.entries(body ?? {}).flatMap(([key, value]) => {
        const [title, text] = names(key, value);
        return [el("dt", { text: title }), el("dd", { text })];
      }),
    ),
  );

/** Shows both versions of an entry and returns "mine", "theirs", or null to decide later. */
export function askConflict(settings, { key, mine, theirs, names }) {
  const dialog = byId("conflict");
  const isSpan = key.startsWith("spans/");
  const describe = (body, heading) => (isSpan ? describeSpan(settings, body, heading) : describeBody(body, heading, names));
  return new Promise((resolve) => {
    const finish = (choice) => {
      dialog.close();
      resolve(choice);
    };
    dialog.oncancel = (event) => {
      event.preventDefault();
      finish(null);
    };
    dialog.replaceChildren(
      el("h2", { id: "conflict-title", text: "Changed in two places" }),
      el("p", {
        text: "This was also changed in another window or on another computer. Choose the version that counts; the other one is dropped.",
      }),
      el("div", { class: "versions" }, describe(mine, "This window"), describe(theirs, "The other version")),
      el(
        "footer",
        {},
        el("button", { type: "button", text: "Decide later", on: { click: () => finish(null) } }),
        el("span", { class: "spring" }),
        el("button", { type: "button", text: "Take the other version", on: { click: () => finish("theirs") } }),
        el("button", { type: "button", class: "primary", text: "Keep my version", on: { click: () => finish("mine") } }),
      ),
    );
    if (!dialog.open) dialog.showModal();
  });
}
