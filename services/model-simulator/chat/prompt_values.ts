/**
 * What a prompt gives: names, numbers and quotes that become the arguments of a tool,
 * as a model would take them. Pure.
 */

/** How much of a prompt is searched. */
const LOOK_CHARS = 2_000;
const VALUE_CHARS_MAX = 200;

const QUOTED =
  /"([^"\n]{1,200})"|(?<!\w)'([^'\n]{1,200})'(?!\w)|`([^`\n]{1,200})`|“([^”\n]{1,200})”/g;
const NUMBER =
  /(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.\d{1,10})?(?!\w|\.\d)/g;
/** `San Francisco, CA`: words that begin with a capital letter. */
const NAME =
  /\p{Lu}[\p{L}\p{N}’'-]*(?: \p{Lu}[\p{L}\p{N}’'-]*)*(?:, \p{Lu}{2}\b)?/gu;
const BEFORE_SENTENCE = /(?:^|[.?!]\s|\n)\s*$/;
/** Words that begin a sentence and are no part of a name. */
const OPENING =
  /^(?:(?:A|Add|An|And|Answer|Are|As|Ask|At|Book|But|Buy|Call|Can|Compute|Could|Create|Do|Does|Extract|Find|For|From|Get|Give|Hello|Hey|Hi|How|I|If|In|Is|It|JSON|Let|List|Look|Make|My|No|Of|On|Open|Or|Order|Please|Read|Return|Run|Save|Say|Search|Send|Set|Show|Tell|That|The|Then|There|These|They|This|To|Today|Turn|Use|Using|We|What|What's|When|Where|Which|Who|Why|Will|With|Would|Write|Yes|You|Your)(?: |$))+/;
/** `weather in paris`, `a joke about cats`. */
const TOPIC =
  /\b(?:about|called|for|in|named|of|on)\s+(?:an?\s+|the\s+)?([\p{L}\p{N}][\p{L}\p{N}’' -]{1,60}?)(?=\s*[?.!,;:\n]|\s+(?:and|for|in|on|to|with)\s|$)/gu;
const PATH = /(?<![\w/])~?(?:[\w.-]*\/[\w.\/-]+|[\w-]+\.[a-z]\w{0,4}\b)/g;
const URL_FORM = /https?:\/\/[^\s"'<>)\]]+[^\s"'<>)\].,;:!?]/g;

/** Formats of JSON schemas that can be found in a text. */
const FORMATS: ReadonlyMap<unknown, RegExp> = new Map([
  ["email", /[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g],
  ["uri", URL_FORM],
  ["date-time", /\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g],
  ["date", /(?<!\d)\d{4}-\d\d-\d\d(?!\d)/g],
  ["time", /(?<!\d)\d\d:\d\d:\d\d(?!\d)/g],
  ["uuid", /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/gi],
]);

const IS_PATH = /path|file|folder|dir(?:ectory)?$|^cwd$/i;
const IS_URL = /url|uri|link|website/i;
const IS_QUESTION =
  /query|question|^(?:q|input|message|prompt|request|search|task|text|topic)$/i;
/** What a path is if the prompt has none: nothing that anybody needs. */
const OTHER_PATH = "/tmp/model-simulator.txt";
const OTHER_URL = "https://example.com/";

/** An argument of a tool for which a prompt is searched. */
export interface ValueQuestion<Value> {
  /** The name of the property; empty for an element of a list. */
  readonly name: string;
  /** Whether the schema allows a value. */
  readonly fits: (value: Value) => boolean;
  /** An optional property has only what the prompt gives by name. */
  readonly isOptional: boolean;
}

/** The values of one prompt. Each is given once; the order is that of the text. */
export class PromptValues {
  readonly #text: string;
  readonly #lower: string;
  readonly #numbers: number[];
  readonly #texts: string[];

  constructor(prompt: string) {
    this.#text = prompt.slice(0, LOOK_CHARS);
    this.#lower = this.#text.toLowerCase();
    this.#numbers = (this.#text.match(NUMBER) ?? []).map(toNumber);
    const quoted = [...this.#text.matchAll(QUOTED)]
      .map((found) => found.slice(1).find((each) => each !== undefined) ?? "");
    const plain = this.#text.replace(QUOTED, " . ");
    const found = [...plain.matchAll(NAME)].map(({ 0: name, index }) => ({
      name: name.replace(OPENING, ""),
      isFirst: !name.includes(" ") &&
        BEFORE_SENTENCE.test(plain.slice(0, index)),
    })).filter(({ name }) => name !== "");
    const names = found.map(({ name }) => name);
    // Any word is large at the beginning of a sentence.
    const { first = [], later = [] } = Object.groupBy(
      found,
      ({ isFirst }) => isFirst ? "first" : "later",
    );
    const topics = [...plain.matchAll(TOPIC)].map(([, topic = ""]) => topic)
      .filter((topic) => !names.some((name) => topic.includes(name)));
    this.#texts = [
      ...new Set([
        ...quoted,
        ...later.map(({ name }) => name),
        ...topics,
        ...first.map(({ name }) => name),
      ]),
    ];
  }

  /** Whether the prompt has this word, in any case. */
  mentions(word: string): boolean {
    return word !== "" && this.#lower.includes(word.toLowerCase());
  }

  /** The first of the values that the prompt mentions. */
  oneOf(values: readonly unknown[]): unknown {
    return values.find((value) =>
      typeof value === "string" && this.mentions(value)
    );
  }

  /** A number for a property: what follows its name, or the next one. */
  number(
    { name, fits, isOptional }: ValueQuestion<number>,
  ): number | undefined {
    const [value] = (this.#after(name)?.match(NUMBER) ?? []).map(toNumber);
    if (value !== undefined && fits(value)) {
      return takeValue(this.#numbers, value);
    }
    return isOptional ? undefined : takenIf(this.#numbers, fits);
  }

  /**
   * A text for a property: one of its format, what follows its name, or the next quote,
   * name or topic.
   */
  text(
    { name, fits, isOptional }: ValueQuestion<string>,
    format: unknown,
  ): string | undefined {
    const form = FORMATS.get(format) ??
      (isOptional ? undefined : formOfName(name));
    if (form !== undefined) {
      const found = this.#text.match(form)?.find(fits);
      if (found !== undefined || isOptional) return found;
      return format === undefined ? [otherOf(name)].find(fits) : undefined;
    }
    const value = /^\s*(?:is|are|=|:|to|called|named)\s*["'`]?([^"'`,.;\n]+)/
      .exec(this.#after(name) ?? "")?.[1]?.trim();
    if (value !== undefined && fits(value)) {
      return takeValue(this.#texts, value);
    }
    if (isOptional) return undefined;
    const isWhole = IS_QUESTION.test(name) && this.#texts.length === 0;
    const whole = this.#text.trim().slice(0, VALUE_CHARS_MAX);
    return isWhole && whole !== "" && fits(whole)
      ? whole
      : takenIf(this.#texts, (text) => text !== name && fits(text));
  }

  /** What follows the name of a property, whose words may be written apart. */
  #after(name: string): string | undefined {
    if (name === "") return undefined;
    const spaced = name.replace(/([a-z])([A-Z])/g, "$1 $2")
      .replace(/[_-]+/g, " ").toLowerCase();
    for (const word of new Set([name.toLowerCase(), spaced])) {
      const at = this.#lower.indexOf(word);
      const end = at + word.length;
      const isWord = !/[\p{L}\p{N}]/u.test(
        (this.#lower[at - 1] ?? "") + (this.#lower[end] ?? ""),
      );
      if (at >= 0 && isWord) {
        return this.#text.slice(end, end + VALUE_CHARS_MAX);
      }
    }
  }
}

const toNumber = (text: string): number => Number(text.replaceAll(",", ""));

/** A value that is in the list no more. */
function takeValue<Value>(list: Value[], value: Value): Value {
  const at = list.indexOf(value);
  if (at >= 0) list.splice(at, 1);
  return value;
}

function takenIf<Value>(
  list: Value[],
  fits: (value: Value) => boolean,
): Value | undefined {
  const found = list.find(fits);
  return found === undefined ? undefined : takeValue(list, found);
}

function formOfName(name: string): RegExp | undefined {
  if (IS_URL.test(name)) return URL_FORM;
  return IS_PATH.test(name) ? PATH : undefined;
}

const otherOf = (name: string): string =>
  IS_URL.test(name) ? OTHER_URL : OTHER_PATH;
