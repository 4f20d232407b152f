// What this browser keeps: localStorage and sessionStorage, or, where the browser forbids or has no room for them, memory.

class BrowserStorage {
  constructor(name) {
    this.memory = new Map();
    this.lasting = true;
    try {
      this.area = window[name];
      this.area.setItem("annotate:probe", "1");
      this.area.removeItem("annotate:probe");
    } catch {
      this.area = null;
      this.lasting = false;
    }
  }

  get(name) {
    return this.memory.get(name) ?? this.area?.getItem(name) ?? null;
  }

  /** Keeps a text. What does not fit stays in memory, and `lasting` turns false: it ends with the page. */
  set(name, value) {
    try {
      if (!this.area) throw new DOMException("no storage");
      this.area.setItem(name, value);
      this.memory.delete(name);
    } catch {
      this.lasting = false;
      this.memory.set(name, value);
    }
  }

  remove(name) {
    this.memory.delete(name);
    this.area?.removeItem(name);
  }

  names() {
    const stored = this.area ? Array.from({ length: this.area.length }, (_, number) => this.area.key(number)) : [];
    return [...new Set([...stored, ...this.memory.keys()])];
  }
}

export const browserStorage = new BrowserStorage("localStorage");
export const tabStorage = new BrowserStorage("sessionStorage");
