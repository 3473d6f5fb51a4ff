import * as z from "zod";

/** One environment variable: how it is called, what it means, what it may be. */
export interface Variable<T> {
  readonly name: string;
  /** For the operator, as the start of a sentence: "Where clients connect". */
  readonly meaning: string;
  /** What a value must be, with unit and bounds, as in "expected …". */
  readonly expects: string;
  readonly presence: "required" | "optional";
  /** The value when the variable is absent and optional. */
  readonly fallback: T | undefined;
  /** Never shown; may come from the file that `<name>_FILE` names. */
  readonly isSecret: boolean;
  /** Turns the text, trimmed and not empty, into the value. */
  readonly schema: z.ZodType<T, string>;
  /**
   * Makes the value of a secret whose file may hold another one later, from what
   * it holds now and a way to read it again. Absent: what it holds now is the value.
   */
  readonly fromFile?: (first: string, read: () => string) => T;
}

/** What every kind of variable is told. Without `fallback` the variable is required. */
export interface VariableOptions<T> {
  name: string;
  meaning: string;
  fallback?: T;
}

const PORT_MAX = 65_535;

function variable<T>(
  { name, meaning, fallback }: VariableOptions<T>,
  kind: { expects: string; schema: z.ZodType<T, string>; isSecret?: boolean },
): Variable<T> {
  return {
    name,
    meaning,
    expects: kind.expects,
    presence: fallback === undefined ? "required" : "optional",
    fallback,
    isSecret: kind.isSecret ?? false,
    schema: kind.schema,
  };
}

/** Lets a variable be absent without a default: the value is then undefined. */
export function optional<T>(required: Variable<T>): Variable<T | undefined> {
  return { ...required, presence: "optional" };
}

const integerText = z.string().regex(/^[+-]?\d+$/).transform(Number);
const decimalText = z.string().regex(/^[+-]?(\d+\.?\d*|\.\d+)$/)
  .transform(Number);

/** A TCP port; 0 stands for any free one. */
export function port(options: VariableOptions<number>): Variable<number> {
  return variable(options, {
    expects: `a port number from 0 to ${PORT_MAX}, 0 for any free port`,
    schema: integerText.pipe(z.int().min(0).max(PORT_MAX)),
  });
}

/** Bounds and unit of a number, both bounds included. */
export interface NumberOptions extends VariableOptions<number> {
  /** Plural: "milliseconds", "bytes", "requests". */
  unit: string;
  min: number;
  max?: number;
}

/** A whole number with a unit. */
export function integer(options: NumberOptions): Variable<number> {
  const max = options.max ?? Number.MAX_SAFE_INTEGER;
  return variable(options, {
    expects: `a whole number of ${options.unit}${rangeOf(options)}`,
    schema: integerText.pipe(z.int().min(options.min).max(max)),
  });
}

/** A number with a unit, such as a share from 0 to 1. */
export function decimal(options: NumberOptions): Variable<number> {
  const max = options.max ?? Number.MAX_VALUE;
  return variable(options, {
    expects: `a number of ${options.unit}${rangeOf(options)}`,
    schema: decimalText.pipe(z.number().min(options.min).max(max)),
  });
}

function rangeOf({ min, max }: NumberOptions): string {
  return max === undefined ? `, at least ${min}` : ` from ${min} to ${max}`;
}

/** `true`, `false`, `1` or `0`. */
export function flag(options: VariableOptions<boolean>): Variable<boolean> {
  return variable(options, {
    expects: "true, false, 1 or 0",
    schema: z.string().toLowerCase()
      .pipe(z.enum(["true", "false", "1", "0"]))
      .transform((text) => text === "true" || text === "1"),
  });
}

/** One of a few words. */
export function choice<const T extends string>(
  options: VariableOptions<NoInfer<T>> & { values: readonly T[] },
): Variable<T> {
  return variable<T>(options, {
    expects: `one of ${options.values.join(", ")}`,
    schema: z.string().pipe(z.enum(options.values)),
  });
}

/** What the words of a list must be. */
export interface ListOptions extends VariableOptions<readonly string[]> {
  isWord?: (word: string) => boolean;
  /** How to say that. */
  expects?: string;
}

/** Words separated by commas; blanks around them and empty ones do not count. */
export function list(options: ListOptions): Variable<readonly string[]> {
  const { isWord = () => true } = options;
  return variable(options, {
    expects: options.expects ?? "a list separated by commas",
    schema: z.string().transform(splitList)
      .refine((words) => words.every(isWord)),
  });
}

function splitList(text: string): readonly string[] {
  return Object.freeze(
    text.split(",").map((word) => word.trim()).filter((word) => word !== ""),
  );
}

/** What a URL may look like. */
export interface UrlOptions<T> extends VariableOptions<T> {
  /** As in "https:". */
  protocols: readonly string[];
  /** The URL holds a password: it is not shown and may come from a file. */
  isSecret?: boolean;
}

/** An absolute URL, kept as it was written. */
export function url(options: UrlOptions<string>): Variable<string> {
  return variable(options, {
    expects: `a URL that begins with ${prefixesOf(options)}`,
    schema: z.string().refine((text) => isUrl(text, options.protocols)),
    isSecret: options.isSecret ?? false,
  });
}

/** One or more absolute URLs, separated by commas. */
export function urls(
  options: UrlOptions<readonly string[]>,
): Variable<readonly string[]> {
  return variable(options, {
    expects: `one or more URLs that begin with ${
      prefixesOf(options)
    }, separated by commas`,
    schema: z.string().transform(splitList).refine((texts) =>
      texts.length > 0 &&
      texts.every((text) => isUrl(text, options.protocols))
    ),
    isSecret: options.isSecret ?? false,
  });
}

function isUrl(text: string, protocols: readonly string[]): boolean {
  const parsed = URL.parse(text);
  return parsed !== null && protocols.includes(parsed.protocol) &&
    parsed.hostname !== "";
}

function prefixesOf({ protocols }: { protocols: readonly string[] }): string {
  return protocols.map((protocol) => `${protocol}//`).join(" or ");
}

/** Text that must not be seen. */
export function secret(
  options: VariableOptions<string> & { charsMin?: number },
): Variable<string> {
  const charsMin = options.charsMin ?? 1;
  return variable(options, {
    expects: charsMin === 1
      ? "a secret text"
      : `a secret text of at least ${charsMin} characters`,
    schema: z.string().min(charsMin),
    isSecret: true,
  });
}

/**
 * Text that must not be seen and may be another one later. The value is asked for
 * whenever it is needed: from a file it is read anew, and while that cannot be
 * read or is empty, what was read last goes on.
 */
export function changingSecret(
  options: VariableOptions<() => string>,
): Variable<() => string> {
  return {
    ...variable(options, {
      expects: "a secret text",
      schema: z.string().min(1).transform((text) => () => text),
      isSecret: true,
    }),
    fromFile: rereading,
  };
}

function rereading(first: string, read: () => string): () => string {
  let last = first;
  return () => {
    try {
      last = read() || last;
    } catch {
      // It is being replaced, or gone: what was good until now may still be.
    }
    return last;
  };
}

/** A path of a file or directory; whether it exists is not checked. */
export function path(options: VariableOptions<string>): Variable<string> {
  return variable(options, {
    expects: "a path",
    schema: z.string().regex(/^[^\0]+$/),
  });
}

/** Text of one line. */
export function text(
  options: VariableOptions<string> & { pattern?: RegExp; expects?: string },
): Variable<string> {
  return variable(options, {
    expects: options.expects ?? "a text of one line",
    schema: z.string().regex(options.pattern ?? /^\P{Cc}*$/u),
  });
}
