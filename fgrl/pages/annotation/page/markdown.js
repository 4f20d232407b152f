// How Markdown looks, without a change of the text: every character stays where it is, and some are drawn otherwise or not at all.

const LONGEST = 100_000;
const LONGEST_LINE = 2000;
const LINE = /^(\s{0,12})(?:(#{1,6}\s+)|([-*+]\s+(?!\s*$))|(>\s?))?/;
const INLINE = new RegExp(
  [
    "(?<!\\\\)(?<code>`{1,3})(?!`)(?<coded>.{1,500}?)(?<!`)\\k<code>(?!`)",
    "(?<!\\\\)(?<strong>\\*\\*|(?<!\\w)__)(?=\\S)(?<bold>.{1,500}?)(?<=\\S)\\k<strong>(?!\\*)",
    "(?<!\\\\)(?<em>\\*|(?<!\\w)_)(?=[^\\s*_])(?<italic>.{1,500}?)(?<=[^\\s\\\\])\\k<em>(?![\\w*])",
    "(?<!\\\\)\\[(?<linked>[^\\][]{1,300})\\]\\([^\\s()]{1,300}\\)",
  ].join("|"),
  "g",
);

/**
 * [{start, end, look, outer?}] in UTF-16 units: `hidden` and `bullet` are signs that are not shown, everything else is a style of its
 * characters. `outer`: where the signs around them begin and end. Long lines and texts stay as they are written.
 */
export function looksOf(text) {
  const found = [];
  if (text.length > LONGEST) return found;
  const add = (start, end, look, outer) => end > start && found.push({ start, end, look, ...(outer && { outer }) });

  const inline = (part, from) => {
    for (const match of part.matchAll(INLINE)) {
      const { code, coded, bold, strong, italic, em, linked } = match.groups;
      const [look, inner, sign] = coded ? ["code", coded, code] : bold ? ["strong", bold, strong] : italic ? ["em", italic, em] : ["link", linked, "["];
      const [start, outer] = [from + match.index + sign.length, [from + match.index, from + match.index + match[0].length]];
      add(outer[0], start, "hidden");
      add(start, start + inner.length, look, outer);
      add(start + inner.length, outer[1], "hidden");
      if (look !== "code") inline(inner, start);
    }
  };

  let [fence, at] = [null, 0];
  for (const line of text.split(/(?<=\n)/)) {
    const end = at + line.trimEnd().length;
    const bars = /^\s{0,3}(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence ? bars?.startsWith(fence) : bars) {
      add(at, end, "faint");
      fence = fence ? null : bars;
    } else if (fence || line.startsWith("|")) add(at, end, "code");
    else if (line.length <= LONGEST_LINE) {
      const [whole, indent, heading, bullet, quote] = LINE.exec(line);
      const [sign, inner] = [at + indent.length, at + whole.length];
      if (heading) add(inner, end, "heading");
      if (quote) add(inner, end, "quote");
      if (heading || bullet || quote) add(sign, inner, bullet ? "bullet" : "hidden");
      inline(line.slice(whole.length), inner);
    }
    at += line.length;
  }
  return found;
}
