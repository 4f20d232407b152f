// Small helpers for the page's elements. Text always arrives as text: nothing here parses markup.

/** An element with attributes, listeners (`on`), data (`data`), text (`text`) and children. */
export function el(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [type, handler] of Object.entries(value)) element.addEventListener(type, handler);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "checked" || name === "value" || name === "disabled" || name === "hidden") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A random identifier. `crypto.randomUUID` exists on secure origins only, and the page may be served by plain HTTP. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** At most `length` code points of a text in one line. */
export function shorten(text, length = 90) {
  const line = text.slice(0, 4 * length).replace(/\s+/g, " ").trim();
  const points = Array.from(line);
  return points.length <= length && text.length <= 4 * length ? line : `${points.slice(0, length - 1).join("")}…`;
}

export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** The same value, independent of the order of an object's keys. */
export function same(left, right) {
  if (left === right) return true;
  if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) return false;
  if (Array.isArray(left) !== Array.isArray(right)) return false;
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => key in right && same(left[key], right[key]));
}

/** Tells a screen reader; several messages in a row are all read. */
export function announce(message) {
  const region = byId("announcements");
  region.append(el("p", { text: message }));
  while (region.childElementCount > 6) region.firstElementChild.remove();
}
