// The manager's page: progress of each annotator, agreement, and the work of all of them on one item. Texts arrive through textContent only.

import { byId, el, shorten } from "./dom.js";
import { Sheet } from "./dialogs.js";
import { itemList } from "./itemlist.js";
import { looksOf } from "./markdown.js";
import { reasonTexts, sideName } from "./reasons.js";
import { Unreachable, request, requestWith } from "./saving.js";
import { tabStorage } from "./storage.js";
import { MarkedText, inOrder } from "./text.js";

const SESSION = "manage:session";
const STATES = { started: "begun", done: "done", cannot_judge: "cannot be judged" };
const sheet = new Sheet("review");
let overview = null;

/** The answer to a request; null where there is none, which is shown. */
async function ask(method, path, body) {
  let answer = { data: { error: "The server cannot be reached." } };
  try {
    answer = await request(method, `/api/manage/${path}`, body);
  } catch (error) {
    if (!(error instanceof Unreachable)) throw error;
  }
  byId("notice").hidden = Boolean(answer.ok);
  byId("notice").textContent = answer.status === 401 ? "Open the manager's link that the server printed at its last start." : answer.data?.error;
  return answer.ok ? answer.data : null;
}

/** A table with a title. The first row is the head; a table of two columns has none, its rows are names and values. */
function table(title, rows) {
  const [head, body] = rows[0].length > 2 ? [rows[0], rows.slice(1)] : [null, rows];
  const line = ([name, ...values]) => el("tr", {}, el("th", { scope: "row", text: name }), ...values.map((text) => el("td", { text })));
  const columns = head && el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col", text }))));
  const scrolls = el("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": title }, el("table", {}, columns, el("tbody", {}, ...body.map(line))));
  return el("div", {}, el("h3", { text: title }), scrolls);
}

function annotators() {
  const head = ["Annotator", "Done", "Begun", "Left", "Cannot be judged", "Likes", "Dislikes", "Median time"];
  const time = (seconds) => (seconds === null ? "–" : `${Math.floor(seconds / 60)}:${String(Math.round(seconds) % 60).padStart(2, "0")}`);
  const row = (own) => [own.name, own.done, own.started, own.remaining, own.cannot_judge, own.likes, own.dislikes, time(own.seconds)];
  return table("Annotators", [head, ...overview.annotators.map(row)]);
}

function items() {
  const states = { none: "not begun by anybody", ...STATES, differ: "preferences differ" };
  const inState = (item, state) => (state === "none" ? !Object.keys(item.by).length : state === "differ" ? item.differ : Object.values(item.by).includes(state));
  const row = (item) =>
    el(
      "button",
      { type: "button", on: { click: () => review(item.id) } },
      el("span", { class: "name" }, `Item ${item.id} `, el("bdi", { class: "quiet", text: shorten(item.query, 140) })),
      el("span", { class: "item-state" }, ...Object.entries(item.by).map(([name, state]) => el("span", { class: "by" }, el("bdi", { text: name }), ` ${STATES[state]}`))),
      item.differ && el("span", { class: "lacking", text: "differ" }),
    );
  return el("section", {}, el("h2", { text: "Items" }), itemList(overview.items, { states, is: inState, row }));
}

async function show() {
  const answer = await ask("GET", "overview");
  if (!answer) return;
  overview = answer;
  byId("title").textContent = `${overview.settings.title}: manage`;
  document.title = byId("title").textContent;
  const statistics = overview.tables.map(({ title, rows }) => table(title, rows));
  byId("main").replaceChildren(el("section", {}, annotators()), el("section", { class: "tables" }, ...statistics), items());
}

async function review(id) {
  const item = await ask("GET", `items/${encodeURIComponent(id)}`);
  if (!item) return;
  const names = Object.keys(item.people);
  const letter = (place) => String.fromCharCode(65 + item.responses.findIndex((response) => response.place === place));
  const spansOf = (name, place) => Object.values(item.people[name].spans).filter((span) => !span.deleted && span.place === place).sort(inOrder);

  const texts = item.responses.map(({ place, text }) => {
    const host = el("div", { class: "text", dir: "auto", translate: "no" });
    const marked = new MarkedText(host, text, { caret: false, looks: overview.settings.markdown ? looksOf(text) : [] });
    const list = el("ol", { class: "marks" });
    const draw = (who) => {
      const spans = who.flatMap((name) => spansOf(name, place).map((span) => ({ ...span, id: `${name}/${span.id}`, name })));
      marked.draw(spans);
      const why = (span) => reasonTexts(overview.settings, span).join(" ");
      list.replaceChildren(...spans.map((span) => el("li", { class: `entry ${sideName(span.label).toLowerCase()}` }, el("span", { class: "side", text: sideName(span.label) }), el("span", {}, el("bdi", { class: "quote", text: shorten(span.quote, 90) }), el("bdi", { class: "badge", text: span.name })), el("span", { class: "why", text: why(span) }))));
    };
    const section = el("section", { class: "response" }, el("h3", { text: `Response ${letter(place)}` }), host, el("div", { class: "marked" }, list));
    return { draw, section };
  });

  const person = (name) => {
    const { done, seconds, verdict, cannot_judge: cannot, answers, suggestions } = item.people[name];
    const body = verdict && !verdict.body.deleted ? verdict.body : null;
    const decided = Object.values(suggestions).filter((own) => own.body.accepted !== null);
    const lines = [
      `${done ? "Done" : "Not done"}, ${Math.round(seconds)} s active.`,
      cannot?.body.cannot && `Cannot be judged: ${cannot.body.comment}`,
      body && `Prefers ${body.better === null ? "neither" : `response ${letter(body.better)}`}: ${body.reason}`,
      ...Object.entries(answers).map(([place, own]) => `On response ${letter(Number(place))}: ${Object.entries(own.body).filter(([, value]) => value.length).map(([key, value]) => `${key}: ${[value].flat().join(", ")}`).join("; ")}`),
      decided.length && `Suggestions: ${decided.filter((own) => own.body.accepted).length} of ${decided.length} accepted.`,
    ];
    const again = () => ask("POST", `items/${item.id}/reopen`, { annotator: name }).then((answer) => answer && review(id)).then(show);
    return el("section", { class: "version" }, el("h3", {}, el("bdi", { text: name })), ...lines.filter(Boolean).map((text) => el("p", { text })), done && el("button", { type: "button", text: "Give back to the annotator", on: { click: again } }));
  };

  const draw = (value) => texts.forEach((text) => text.draw(value ? names.filter((name) => `=${name}` === value) : names));
  const choices = [["", "Marks of everybody"], ...names.map((name) => [`=${name}`, `Marks of ${name}`])];
  const whose = el("select", { "aria-label": "Whose marks", on: { change: () => draw(whose.value) } }, ...choices.map(([value, text]) => el("option", { value, text })));
  draw("");
  const query = typeof item.prompt === "string" ? item.prompt : item.prompt.map((turn) => `${turn.role}: ${turn.content}`).join("\n\n");
  sheet.show(
    `Item ${item.id}`,
    el("p", { class: "prompt", dir: "auto", text: query }),
    names.length ? whose : el("p", { class: "quiet", text: "Nobody has begun this item yet." }),
    el("div", { class: "responses" }, ...texts.map(({ section }) => section)),
    el("div", { class: "versions" }, ...names.map(person)),
  );
}

const [, opened] = location.hash.match(/^#session=([\w-]+\.[\w-]+)$/) ?? [];
if (opened) {
  history.replaceState(null, "", location.pathname);
  tabStorage.set(SESSION, opened);
}
requestWith(tabStorage.get(SESSION));
byId("refresh").addEventListener("click", show);
await show();
