// The reasons of marks, and the keys that tick them: the row of digits, then the row of letters below it, as the legend says.

import { el } from "./dom.js";

export const OTHER = "other";
export const REPEAT = ".";
const KEYS = [..."1234567890qwertyuiop"];
const OTHER_KEY = "-";

export function sideName(label) {
  return label < 0 ? "Dislike" : "Like";
}

/** The reasons that a span with this label may have. */
export function reasonsOf(settings, label) {
  return label < 0 ? settings.taxonomy?.dislikes : settings.taxonomy?.likes;
}

const attributesOf = (settings, label) => (reasonsOf(settings, label)?.groups ?? []).flatMap((group) => group.attributes);

/** What a span's reasons read like, in the taxonomy's order. */
export function reasonTexts(settings, span) {
  const attributes = attributesOf(settings, span.label);
  const texts = attributes.filter(({ id }) => span.reasons.includes(id)).map(({ text }) => text);
  const unknown = span.reasons.filter((id) => id !== OTHER && !attributes.some((attribute) => attribute.id === id));
  return [...texts, ...unknown, ...(span.note ? [`“${span.note}”`] : [])];
}

export function hasReason(span) {
  return span.note.trim() !== "" || (span.reasons.length > 0 && !span.reasons.includes(OTHER));
}

/** {key: {id, text}} of the reasons that have a key; further ones are ticked by Tab and Space. */
export function reasonKeys(settings, label) {
  if (settings.modes.reasons !== "taxonomy") return new Map();
  const keyed = attributesOf(settings, label).slice(0, KEYS.length);
  return new Map([...keyed.map((attribute, number) => [KEYS[number], attribute]), [OTHER_KEY, { id: OTHER, text: "Other" }]]);
}

/** The character of a key, a digit also where the keyboard has it above another sign; null for a key of a combination. */
export function keyOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.key.length > 1) return null;
  return /^(?:Digit|Numpad)(\d)$/.exec(event.code)?.[1] ?? event.key.toLowerCase();
}

/** Draws which key ticks what. */
export function drawLegend(host, settings, label) {
  host.replaceChildren(
    el("strong", { text: `${sideName(label)}:` }),
    ...[...reasonKeys(settings, label)].map(([key, { text }]) => el("span", { title: text }, el("kbd", { text: key }), text)),
    el("span", {}, el("kbd", { text: REPEAT }), "The same reasons as before"),
  );
}
