// Active time: it counts while the page is visible and was used within the last minute.

const IDLE = 60_000;
const PIECE = 15;
const SIGNS = ["pointerdown", "pointermove", "keydown", "wheel", "scroll", "touchstart", "input"];

export class Clock {
  /** `piece(seconds, leaving)` receives the time in pieces. */
  constructor(piece) {
    this.piece = piece;
    this.seconds = 0;
    this.lastSign = performance.now();
    this.lastTick = performance.now();
    const sign = () => {
      this.tick();
      this.lastSign = performance.now();
    };
    for (const type of SIGNS) addEventListener(type, sign, { passive: true, capture: true });
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.lastTick = this.lastSign = performance.now();
      else this.flush(true);
    });
    addEventListener("pagehide", () => this.flush(true));
    setInterval(() => {
      this.tick();
      if (this.seconds >= PIECE) this.flush();
    }, 1000);
  }

  /** Adds the time since the last tick, as far as it lies within a minute after the last sign of activity. */
  tick() {
    const now = performance.now();
    const until = Math.min(now, this.lastSign + IDLE);
    if (document.visibilityState === "visible" && until > this.lastTick) this.seconds += (until - this.lastTick) / 1000;
    this.lastTick = now;
  }

  flush(leaving = false) {
    if (!leaving || document.visibilityState === "visible") this.tick();
    const seconds = Math.round(this.seconds * 10) / 10;
    this.seconds = 0;
    this.lastTick = performance.now();
    if (seconds > 0) this.piece(seconds, leaving);
  }
}
