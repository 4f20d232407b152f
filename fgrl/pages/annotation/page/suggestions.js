// Suggested spans of one item: each is accepted, and becomes a mark of the annotator's own, or rejected.

import { announce, el, newId, shorten } from "./dom.js";
import { hasReason, reasonTexts, sideName } from "./reasons.js";
import { inOrder } from "./text.js";

export class Suggestions {
  /** `suggested`: {key: {place, start, end, quote, label, reasons, note}}. */
  constructor(view, suggested) {
    this.view = view;
    this.all = Object.entries(suggested).map(([key, body]) => ({ key, id: `suggested/${key}`, suggested: true, ...body }));
    this.current = null;
  }

  /** The suggestions of a response that are not accepted, in reading order; `open`: undecided ones only. */
  of(place, { open = false } = {}) {
    const wanted = (own) => own.place === place && (open ? this.decision(own) === null : this.decision(own) !== true);
    return this.all.filter(wanted).sort(inOrder);
  }

  /** true, false or null: accepted, rejected or undecided. A mark that was deleted again is no accepted suggestion. */
  decision({ key }) {
    const body = this.view.saving.body(`suggestions/${key}`);
    if (!body?.accepted) return body?.accepted ?? null;
    const span = this.view.span(body.span);
    return Boolean(span && !span.deleted);
  }

  /** Draws the list of a response's suggestions. */
  draw(host, place) {
    const entry = (own) => {
      const button = (text, accepted) => el("button", { type: "button", text, on: { click: () => this.decide(own, accepted) } });
      const rejected = this.decision(own) === false;
      return el(
        "li",
        { class: `entry ${sideName(own.label).toLowerCase()} ${own.id === this.current ? "active" : ""} ${rejected ? "rejected" : ""}` },
        el("span", { class: "side", text: sideName(own.label) }),
        el("bdi", { class: "quote", text: shorten(own.quote, 80) }),
        hasReason(own) && el("span", { class: "why", text: reasonTexts(this.view.settings, own).join(" ") }),
        el("span", { class: "row" }, button("Accept", true), rejected ? el("span", { class: "quiet", text: "Rejected" }) : button("Reject", false)),
      );
    };
    const entries = this.of(place).map(entry);
    host.hidden = entries.length === 0;
    host.replaceChildren(el("h3", { class: "count", text: "Suggested" }), el("ol", { class: "marks" }, ...entries));
  }

  /** Goes to the next undecided suggestion behind the current one. */
  next() {
    const open = this.view.data.responses.flatMap(({ place }) => this.of(place, { open: true }));
    const own = open[(open.findIndex(({ id }) => id === this.current) + 1) % open.length] ?? null;
    this.go(own);
    if (!own) announce("No suggestion is left.");
    else announce(`Suggested ${sideName(own.label).toLowerCase()}: ${shorten(own.quote, 120)}. Enter accepts, Delete rejects.`);
  }

  go(own) {
    this.view.setCurrent(null);
    this.current = own?.id ?? null;
    if (own) this.view.selectRange(own.place, this.view.unit(own), this.view.unit(own));
    for (const { place } of this.view.data.responses) this.view.drawSpans(place);
  }

  /** The current suggestion, when it is undecided still. */
  chosen() {
    return this.all.find((own) => own.id === this.current && this.decision(own) === null);
  }

  /** Accepts or rejects. One without a reason asks for it. */
  async decide(own, accepted) {
    const { view } = this;
    const { key, id: _, suggested: __, ...passage } = own;
    const entry = `suggestions/${key}`;
    const same = (span) => span.start === own.start && span.end === own.end && span.label === own.label;
    const twin = view.spansOf(own.place).find(same);
    const span = twin ?? { id: newId(), ...passage, deleted: false };
    const changes = accepted && !twin ? [{ key: `spans/${span.id}`, before: null, after: span }] : [];
    changes.push({ key: entry, before: view.saving.body(entry), after: { accepted, span: accepted ? span.id : null } });
    this.current = null;
    view.commit(`${accepted ? "accepting" : "rejecting"} a suggestion`, changes, view.caretIn(own.place));
    if (accepted && view.asksWhy && !hasReason(span)) await view.edit(span.id);
    this.next();
  }
}
