// A list of items that can be searched and filtered.

import { el, plural } from "./dom.js";

/**
 * `states`: {state: its name}; `is(item, state)`: is the item in it?; `row(item)`: its element. Every word of the search must occur in
 * the item's number, query or domain.
 */
export function itemList(items, { states, is, row }) {
  const list = el("ol", { class: "items" });
  const count = el("p", { class: "quiet", role: "status" });
  const rows = items.map((item) => ({ item, text: `${item.id} ${item.query} ${item.domain ?? ""}`.toLowerCase(), element: el("li", {}, row(item)) }));
  const search = el("input", { type: "search", placeholder: "Search", "aria-label": "Search items", on: { input: () => draw() } });
  const options = Object.entries({ "": "All states", ...states }).map(([value, text]) => el("option", { value, text }));
  const state = el("select", { "aria-label": "State", on: { change: () => draw() } }, ...options);
  const draw = () => {
    const words = search.value.toLowerCase().split(/\s+/);
    const fits = ({ item, text }) => words.every((word) => text.includes(word)) && (!state.value || is(item, state.value));
    const shown = rows.filter(fits);
    list.replaceChildren(...shown.map(({ element }) => element));
    count.textContent = `${plural(shown.length, "item")} of ${rows.length}`;
  };
  draw();
  return el("div", {}, el("div", { class: "row finder" }, search, state), count, list);
}
