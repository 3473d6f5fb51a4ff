/** A map of which most have one entry, which costs a fifth of a `Map` then. */
export class NamedValues<Value> {
  #name = "";
  #only: Value | undefined = undefined;
  /** All entries, once there were two. */
  #all: Map<string, Value> | null = null;

  /** The value of this name; undefined if there is none. */
  get(name: string): Value | undefined {
    if (this.#all !== null) return this.#all.get(name);
    return name === this.#name ? this.#only : undefined;
  }

  /** Adds a value, whose name it does not have yet. */
  add(name: string, value: Value): void {
    if (this.#all === null && this.#only === undefined) {
      this.#name = name;
      this.#only = value;
      return;
    }
    this.#all ??= new Map();
    if (this.#only !== undefined) this.#all.set(this.#name, this.#only);
    this.#only = undefined;
    this.#all.set(name, value);
  }

  /** Removes the value of this name, if there is one. */
  delete(name: string): void {
    if (this.#all === null) {
      if (name === this.#name) this.#only = undefined;
      return;
    }
    this.#all.delete(name);
    if (this.#all.size === 0) this.#all = null;
  }

  /** Calls a function for each value, with its name. */
  forEach(run: (value: Value, name: string) => void): void {
    this.#all?.forEach(run);
    if (this.#only !== undefined) run(this.#only, this.#name);
  }
}
