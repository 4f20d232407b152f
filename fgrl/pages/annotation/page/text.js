// A text with marked spans: offsets in code points, pieces of the text as the browser's nodes, the caret and the selection.

const STEP = 4096;
const PIECE = 8192;
const LONG_LINE = 16384;
const LANES = 3;

const high = (unit) => unit >= 0xd800 && unit <= 0xdbff;
const low = (unit) => unit >= 0xdc00 && unit <= 0xdfff;

/** Converts between UTF-16 units, which the browser counts, and code points, which annotations count. */
export class Points {
  constructor(text) {
    this.text = text;
    this.plain = !/[\ud800-\udbff][\udc00-\udfff]/.test(text);
    // before[k]: how many code points start before unit k * STEP
    this.before = [0];
    if (this.plain) return;
    for (let unit = 0, count = 0; unit < text.length; unit += 1) {
      if (!this.insidePair(unit)) count += 1;
      if ((unit + 1) % STEP === 0) this.before.push(count);
    }
  }

  /** Is this place between the two halves of a surrogate pair? */
  insidePair(unit) {
    return (
      unit > 0 && unit < this.text.length && low(this.text.charCodeAt(unit)) && high(this.text.charCodeAt(unit - 1))
    );
  }

  get length() {
    return this.toPoint(this.text.length);
  }

  /** The code point at a UTF-16 place. A place inside a pair goes to the pair's start, or with `up` to its end. */
  toPoint(unit, up = false) {
    if (this.plain) return unit;
    const checkpoint = Math.min(Math.floor(unit / STEP), this.before.length - 1);
    let count = this.before[checkpoint];
    for (let place = checkpoint * STEP; place < unit; place += 1) if (!this.insidePair(place)) count += 1;
    return this.insidePair(unit) && !up ? count - 1 : count;
  }

  toUnit(point) {
    if (this.plain) return point;
    let first = 0;
    for (let last = this.before.length - 1; first < last; ) {
      const middle = Math.ceil((first + last) / 2);
      if (this.before[middle] <= point) first = middle;
      else last = middle - 1;
    }
    let unit = first * STEP;
    if (this.insidePair(unit)) unit += 1;
    for (let count = this.before[first]; count < point && unit < this.text.length; count += 1) {
      unit += this.insidePair(unit + 1) ? 2 : 1;
    }
    return unit;
  }

  slice(start, end) {
    return this.text.slice(this.toUnit(start), this.toUnit(end));
  }
}

/**
 * Where a text is cut into blocks, so that a change lays out one block and not the whole text: behind a line's end, and in a line
 * that is very much longer than a block behind a space, where the line wraps earlier than it would have to.
 */
export function pieces(text) {
  const starts = [0];
  for (let from = PIECE; from < text.length; from = starts.at(-1) + PIECE) {
    const newline = text.indexOf("\n", from) + 1;
    const last = from + LONG_LINE;
    const start = newline > 0 && newline <= last ? newline : last < text.length ? insideLine(text, last) : text.length;
    if (start === text.length) break;
    starts.push(start);
  }
  return starts.map((start, number) => ({ start, end: starts[number + 1] ?? text.length }));
}

/** A place in a long line at which a block may begin: behind a space near `place`, or else at `place`, outside a pair. */
function insideLine(text, place) {
  const space = text.lastIndexOf(" ", place) + 1;
  if (space > place - PIECE) return space;
  return low(text.charCodeAt(place)) ? place + 1 : place;
}

/** Fills an element with a text in blocks. */
export function fillWithText(host, text) {
  host.replaceChildren(
    ...pieces(text).map(({ start, end }) => {
      const block = document.createElement("div");
      block.className = "block";
      block.textContent = text.slice(start, end);
      return block;
    }),
  );
}

/** Reading order: by start, then the longer one first. */
export function inOrder(left, right) {
  return left.start - right.start || right.end - left.end || (left.id < right.id ? -1 : 1);
}

/** The lane of each span's underline: overlapping spans get different ones, as far as there are lanes. */
export function lanes(spans) {
  const free = [];
  const lane = new Map();
  for (const span of [...spans].sort(inOrder)) {
    let number = free.findIndex((end) => end <= span.start);
    if (number < 0) number = free.length;
    free[number] = span.end;
    lane.set(span.id, Math.min(number, LANES - 1));
  }
  return lane;
}

/**
 * A response's text inside `host`. Overlapping spans are drawn as segments: each stretch of text lies in one `<mark>` for every
 * span that covers it, the longest outermost. `looks` (markdown.js) style characters, of which none is added or left out. With `caret`, the host is an editing area that refuses every change, so that the
 * browser's own caret, selection keys and screen reader support work in it.
 */
export class MarkedText {
  constructor(host, text, { caret, looks = [] }) {
    this.host = host;
    this.text = text;
    this.looks = looks;
    this.points = new Points(text);
    this.spans = [];
    this.flags = { editing: null, current: null };
    if (caret) this.allowCaret();
    this.build();
  }

  allowCaret() {
    const refuse = (event) => event.preventDefault();
    this.host.contentEditable = "true";
    for (const type of ["beforeinput", "paste", "cut", "drop", "dragstart"]) this.host.addEventListener(type, refuse);
    // an input method can write without asking: the text is drawn again
    this.host.addEventListener("input", () => {
      const selection = this.selection();
      this.build();
      if (selection) this.select(0, 0);
    });
  }

  build() {
    fillWithText(this.host, this.text);
    const blocks = [...this.host.children];
    this.blocks = pieces(this.text).map((piece, number) => {
      const looks = this.looks.filter((look) => look.start < piece.end && look.end > piece.start);
      return { ...piece, looks, element: blocks[number], drawn: looks.length ? null : "[]" };
    });
    this.draw(this.spans, this.flags);
  }

  /** Draws the spans ({id, start, end, label}, in code points); only blocks that look different are touched. */
  draw(spans, flags = this.flags) {
    this.spans = spans;
    this.flags = flags;
    const lane = lanes(spans);
    const drawn = spans
      .filter((span) => span.end > span.start)
      .map((span) => ({
        id: span.id,
        start: this.points.toUnit(span.start),
        end: this.points.toUnit(span.end),
        look: [
          span.label < 0 ? "dislike" : "like",
          `lane-${lane.get(span.id)}`,
          span.id === flags.editing ? "editing" : "",
          span.id === flags.current ? "current" : "",
          span.suggested ? "suggested" : "",
        ]
          .filter(Boolean)
          .join(" "),
      }))
      .sort((left, right) => right.end - right.start - (left.end - left.start) || inOrder(left, right));
    let selection;
    for (const block of this.blocks) {
      const here = drawn.filter((span) => span.start < block.end && span.end > block.start);
      const look = JSON.stringify(here);
      if (look === block.drawn) continue;
      if (selection === undefined) selection = this.selection();
      block.drawn = look;
      this.drawBlock(block, here);
    }
    if (selection) this.select(selection.anchor, selection.focus);
  }

  drawBlock(block, spans) {
    const places = new Set([block.start, block.end]);
    for (const range of [...spans, ...block.looks]) {
      places.add(Math.max(range.start, block.start));
      places.add(Math.min(range.end, block.end));
    }
    const cuts = [...places].sort((left, right) => left - right);
    const parts = [];
    for (let number = 0; number + 1 < cuts.length; number += 1) {
      const [start, end] = [cuts[number], cuts[number + 1]];
      let part = document.createTextNode(this.text.slice(start, end));
      const looks = block.looks.filter((look) => look.start <= start && look.end >= end);
      if (looks.length) {
        const styled = document.createElement("span");
        styled.className = looks.map(({ look }) => `md-${look}`).join(" ");
        styled.append(part);
        part = styled;
      }
      for (const span of spans.filter((span) => span.start <= start && span.end >= end).reverse()) {
        const mark = document.createElement("mark");
        mark.className = span.look;
        mark.dataset.span = span.id;
        mark.append(part);
        part = mark;
      }
      parts.push(part);
    }
    block.element.replaceChildren(...parts);
  }

  /** Ids of the spans at a node, the shortest first. */
  spansAtNode(node) {
    const ids = [];
    for (let element = node; element && element !== this.host; element = element.parentNode) {
      if (element.dataset?.span) ids.push(element.dataset.span);
    }
    return ids;
  }

  /** Ids of the spans around or directly beside a UTF-16 place, the shortest first. */
  spansAtUnit(unit) {
    const point = this.points.toPoint(unit);
    return this.spans
      .filter((span) => span.start <= point && point <= span.end)
      .sort((left, right) => left.end - left.start - (right.end - right.start) || inOrder(left, right))
      .map((span) => span.id);
  }

  /** {anchor, focus, start, end} in UTF-16 units, or null where the selection is not in this text. */
  selection() {
    const selection = document.getSelection();
    if (!selection.rangeCount) return null;
    const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
    if (!this.host.contains(anchorNode) || !this.host.contains(focusNode)) return null;
    const anchor = this.unitOf(anchorNode, anchorOffset);
    const focus = selection.isCollapsed ? anchor : this.unitOf(focusNode, focusOffset);
    return { anchor, focus, start: Math.min(anchor, focus), end: Math.max(anchor, focus) };
  }

  unitOf(node, offset) {
    if (node === this.host) return this.blocks[offset]?.start ?? this.text.length;
    const block = this.blocks.find(({ element }) => element.contains(node));
    const range = document.createRange();
    range.setStart(block.element, 0);
    range.setEnd(node, offset);
    return block.start + range.toString().length;
  }

  nodeOf(unit) {
    const block = this.blocks.findLast(({ start }) => start <= unit) ?? this.blocks[0];
    const walker = document.createTreeWalker(block.element, NodeFilter.SHOW_TEXT);
    let left = unit - block.start;
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      if (left <= node.length) return [node, left];
      left -= node.length;
    }
    return [block.element, block.element.childNodes.length];
  }

  select(anchor, focus = anchor) {
    document.getSelection().setBaseAndExtent(...this.nodeOf(anchor), ...this.nodeOf(focus));
  }

  rangeOf(start, end) {
    const range = document.createRange();
    range.setStart(...this.nodeOf(this.points.toUnit(start)));
    range.setEnd(...this.nodeOf(this.points.toUnit(end)));
    return range;
  }
}
