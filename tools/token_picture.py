"""Draw answers of the newest run of a recipe, their tokens coloured by a reward, as an SVG for light and dark pages:

    fgrl run recipes/quickstart.yaml
    python tools/token_picture.py runs/quickstart docs/images/tokens.svg topics:514 topics:506

Reads `answers.jsonl` of the run's stage `evaluate`. Colours are those of `report.html`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fgrl.base.visible import visible
from fgrl.pages.report.drawing import Scale, scale

ADVANCE, LINE, MARGIN, COLUMNS = 8.43, 25, 20, 92
"""Width of a character of 14 px in common monospaced fonts, line height, margin (px), and characters in a line."""
INDENT = 8 * ADVANCE
"""Where the tokens of an answer start, behind "before" and "after"."""
LIGHT = {
    "bg": "#ffffff", "ink": "#22201c", "muted": "#6b665d", "line": "#dedad2", "z": "#f0eee9",
    "n5": "#ea8a34", "n4": "#f3a860", "n3": "#f8c48d", "n2": "#fbdcb9", "n1": "#fdeedd",
    "p1": "#e4eefa", "p2": "#c9def5", "p3": "#a3c7ee", "p4": "#79ade6", "p5": "#5297de",
}  # fmt: skip
DARK = {
    "bg": "#16181c", "ink": "#e9e6e0", "muted": "#a39e95", "line": "#2e3137", "z": "#25272b",
    "n5": "#94581a", "n4": "#794c1b", "n3": "#5c3e1d", "n2": "#42301e", "n1": "#2e261e",
    "p1": "#1d2731", "p2": "#1e3347", "p3": "#204467", "p4": "#235686", "p5": "#2967a3",
}  # fmt: skip
TITLES = {"sft": "before", "policy": "after"}


@dataclass
class Canvas:
    parts: list[str]
    x: float = MARGIN
    y: float = MARGIN

    def text(self, words: str, kind: str) -> None:
        self.parts.append(f'<text class="{kind}" x="{self.x:.1f}" y="{self.y:.1f}">{escape(words)}</text>')

    def newline(self, height: float = LINE) -> None:
        self.x, self.y = MARGIN, self.y + height

    def token(self, words: str, level: str) -> None:
        """One token on its colour; its width is that of its characters, whatever font is found."""
        width = len(words) * ADVANCE
        if self.x + width > MARGIN + COLUMNS * ADVANCE:
            self.newline()
            self.x += INDENT
            words = words.removeprefix(" ")
            width = len(words) * ADVANCE
        box = f'x="{self.x:.1f}" y="{self.y - 16:.1f}" width="{width:.1f}" height="22" rx="2"'
        self.parts.append(f'<rect {box} style="fill:var(--{level or "bg"})"/>')
        shown = words.replace(" ", "\u00a0")
        self.parts.append(
            f'<text x="{self.x:.1f}" y="{self.y:.1f}" textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs">'
            f"{escape(shown)}</text>"
        )
        self.x += width


def numbers(line: dict[str, Any], reward: str) -> list[float | None]:
    return line["token_rewards"].get(reward, [])


def newest(folder: Path) -> list[dict[str, Any]]:
    """The answers of the newest finished run."""
    run = max(path for path in folder.iterdir() if (path / "summary.json").exists())
    stage = json.loads((run / "summary.json").read_text(encoding="utf-8"))["stages"]["evaluate"]
    answers = (run / stage["dir"]).resolve() / "out" / "answers.jsonl"
    return [json.loads(line) for line in answers.open(encoding="utf-8")]


def draw(lines: list[dict[str, Any]], ids: list[str], reward: str) -> str:
    tint: Scale = scale(reward, [value for line in lines for value in numbers(line, reward) if value is not None])
    canvas = Canvas([])
    for id in ids:
        chosen = {line["model"]: line for line in lines if line["sample"]["id"] == id}
        canvas.y += 14
        canvas.text(chosen["sft"]["sample"]["prompt"], "prompt")
        canvas.newline()
        for model, title in TITLES.items():
            line = chosen[model]
            canvas.text(title, "muted")
            canvas.x += INDENT
            for token, value in zip(line["tokens"], numbers(line, reward), strict=True):
                if value is not None and not token.startswith("<|"):
                    canvas.token(visible(token), tint.level(value))
            canvas.newline(LINE + 5)
        canvas.y += 4
    for level in ("n5", "n3", "n1", "z", "p1", "p3", "p5"):
        canvas.parts.append(
            f'<rect x="{canvas.x:.1f}" y="{canvas.y - 2:.1f}" width="34" height="12" style="fill:var(--{level})"/>'
        )
        canvas.x += 34
    canvas.x, canvas.y = canvas.x + 10, canvas.y + 9
    canvas.text("reward of each token, low to high", "muted")
    width, height = 2 * MARGIN + COLUMNS * ADVANCE, canvas.y + MARGIN

    def colours(palette: dict[str, str]) -> str:
        return " ".join(f"--{name}: {value};" for name, value in palette.items())

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="Answers before and after training, each token coloured by its reward">\n'
        f"<style>svg {{ {colours(LIGHT)} }} @media (prefers-color-scheme: dark) {{ svg {{ {colours(DARK)} }} }} "
        "text { font: 14px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: var(--ink); } "
        ".prompt { font: 600 14px system-ui, sans-serif; } .muted { font: 13px system-ui, sans-serif; fill: var(--muted); }"
        "</style>\n"
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" style="fill:var(--bg);stroke:var(--line)"/>\n'
        + "\n".join(canvas.parts)
        + "\n</svg>\n"
    )


def main(runs: str, target: str, *ids: str, reward: str = "segment") -> None:
    Path(target).write_text(draw(newest(Path(runs)), list(ids), reward), encoding="utf-8")
    print(target)


if __name__ == "__main__":
    main(*sys.argv[1:])
