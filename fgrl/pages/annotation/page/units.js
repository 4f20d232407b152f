// Sentences and words of a text, and selections snapped to whole words. Places count UTF-16 units.

const SIGNS = /^(?:\s|[#>*+-]+\s|\d{1,3}[.)]\s)+/; // of headings, quotes and lists: they belong to no sentence
const segmenters = {};

function segmentsOf(text, kind) {
  segmenters[kind] ??= new Intl.Segmenter(undefined, { granularity: kind });
  return segmenters[kind].segment(text);
}

/** The sentence or word at a place: `start` and `end` without white space, `from` and `to` with it. */
function unitAt(segments, place) {
  const { index: from, segment } = segments.containing(place);
  const start = from + (SIGNS.exec(segment)?.[0].length ?? 0);
  const end = Math.max(start, from + segment.trimEnd().length);
  return { from, to: from + segment.length, start, end, real: /[\p{L}\p{N}]/u.test(segment.slice(start - from)) };
}

/** The first unit that ends behind a place, or null. `kind`: sentence or word. */
export function unitBehind(text, kind, place) {
  const segments = segmentsOf(text, kind);
  for (let from = place; from < text.length; ) {
    const unit = unitAt(segments, from);
    if (unit.real && unit.end > place) return unit;
    from = unit.to;
  }
  return null;
}

/** The last unit that begins before a place, or null. */
export function unitBefore(text, kind, place) {
  const segments = segmentsOf(text, kind);
  for (let from = place - 1; from >= 0; ) {
    const unit = unitAt(segments, from);
    if (unit.real && unit.start < place) return unit;
    from = unit.from - 1;
  }
  return null;
}

/** The first unit of a selection; where exactly that is selected already, the next (1) or the previous one (-1). */
export function unitFrom(text, kind, { start, end }, step) {
  if (step < 0) return unitBefore(text, kind, start);
  const first = unitBehind(text, kind, start);
  return first && first.start === start && first.end === end ? unitBehind(text, kind, end) : first;
}

/** A selection without white space at its ends, made longer where it cuts a word, or the signs of Markdown off their words. */
export function snapped(text, start, end, looks) {
  const inner = text.slice(start, end);
  if (!inner.trim()) return null;
  start += inner.length - inner.trimStart().length;
  end -= inner.length - inner.trimEnd().length;
  const words = segmentsOf(text, "word");
  const last = words.containing(end - 1);
  const range = { start: words.containing(start).index, end: last.index + last.segment.length };
  for (const { start: from, end: to, outer } of looks) {
    if (!outer || range.start > from || range.end < to) continue;
    range.start = Math.min(range.start, outer[0]);
    range.end = Math.max(range.end, outer[1]);
  }
  return range;
}
