/** A value that is made of files, and made again when one of them has changed. */

/** Returns the text of a file. Throws if it cannot be read. */
export type ReadFile = (path: string) => string;

/** What files said, by their paths; null: the file could not be read. */
export type FileTexts = ReadonlyMap<string, string | null>;

/** Makes a value of files. Throws a `ConfigError` with every mistake in them. */
export type ReadValue<Value> = (readFile: ReadFile) => Value;

/** The value of files, and what these files said. */
export class Reading<Value> {
  readonly #read: ReadValue<Value>;
  readonly #readFile: ReadFile;
  #value: Value;
  #texts: FileTexts = new Map();

  /** Reads for the first time. Throws as `read`. */
  constructor(read: ReadValue<Value>, readFile: ReadFile) {
    this.#read = read;
    this.#readFile = readFile;
    this.#value = this.#make();
  }

  /** The last value that could be made. */
  get value(): Value {
    return this.#value;
  }

  /** The file that is read first, which names the others; none without a file. */
  get path(): string | undefined {
    const [path] = this.#texts.keys();
    return path;
  }

  /** What the files said that were read last, also if they had mistakes. */
  get texts(): FileTexts {
    return this.#texts;
  }

  /** Reads again. Throws as at first; the last value then stays. */
  again(): Value {
    this.#value = this.#make();
    return this.#value;
  }

  #make(): Value {
    const texts = new Map<string, string | null>();
    this.#texts = texts;
    return this.#read((path) => {
      texts.set(path, null);
      const text = this.#readFile(path);
      texts.set(path, text);
      return text;
    });
  }
}
