// Undo and redo of everything that was done to one item; it survives a reload of the page in the same tab.

import { tabStorage } from "./storage.js";

const LIMIT = 500;

export class History {
  constructor(name) {
    this.name = `annotate:history:${name}`;
    const stored = JSON.parse(tabStorage.get(this.name) ?? "null");
    this.done = stored?.done ?? [];
    this.undone = stored?.undone ?? [];
  }

  /** An action: {label, changes: [{key, before, after}], caret}. */
  push(action) {
    this.done.push(action);
    this.undone = [];
    if (this.done.length > LIMIT) this.done.shift();
    this.keep();
  }

  /** The action to take back, or null. */
  undo() {
    return this.move(this.done, this.undone);
  }

  /** The action to do again, or null. */
  redo() {
    return this.move(this.undone, this.done);
  }

  move(from, to) {
    const action = from.pop();
    if (!action) return null;
    to.push(action);
    this.keep();
    return action;
  }

  /** Forgets an action that can be neither taken back nor done again. */
  discard(action) {
    this.done = this.done.filter((other) => other !== action);
    this.undone = this.undone.filter((other) => other !== action);
    this.keep();
  }

  keep() {
    tabStorage.set(this.name, JSON.stringify({ done: this.done, undone: this.undone }));
  }
}
