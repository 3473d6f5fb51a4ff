/** The tool calls of one choice, as model servers send them, converted for SDKs. */
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import { unsupportedAnswer } from "@gateway/shared/upstream/http/errors";
import {
  isJsonObject,
  type JsonObject,
  parseJson,
  textOf,
} from "@gateway/shared/upstream/json";
import { ArgumentsRepair } from "./arguments_repair.ts";

/**
 * The text of a call, by its form: functions get arguments as JSON, custom tools any
 * text (OpenAI, "Custom tools").
 */
const TEXT_MEMBERS = { function: "arguments", custom: "input" } as const;

/**
 * Where a call has its name and its text; `other`: only the model server and the client
 * know.
 */
type CallForm = keyof typeof TEXT_MEMBERS | "other";

/** A part of a tool call: the first one has id, type and name. */
export interface ToolCallFragment {
  index: number;
  id?: string;
  type?: string;
  function?: { name?: string; arguments: string; [member: string]: unknown };
  custom?: { name?: string; input: string; [member: string]: unknown };
  /** What only the model server and the client know, such as Gemini's signatures. */
  [member: string]: unknown;
}

/** A tool call while its fragments arrive. */
interface StreamedToolCall {
  index: number;
  /** The index that the server uses for it; null: none. */
  readonly serverIndex: unknown;
  id: string;
  readonly form: CallForm;
  /** Empty until the server has sent it; nothing is passed on before. */
  name: string;
  /** Arguments that arrived before the name. */
  earlyArguments: string;
  hasArguments: boolean;
  readonly repair: ArgumentsRepair;
}

/** The members of a server's fragment, as they were read. */
interface Reading {
  index: unknown;
  id: string;
  form: CallForm;
  /** The name of the function, or the type of a call of another form. */
  name: string;
  text: string;
  /** Members besides those, of the call and of its function or custom tool. */
  more: JsonObject;
  detailMore: JsonObject;
}

const CALLS_MAX = REQUEST_LIMITS.toolCallsPerMessageMax;
/** A server that sends this much before the name of a call is broken. */
const EARLY_CHARS_MAX = 64 * 1024;

/**
 * Converts tool calls for SDKs: an index in each fragment, id and name in a call's
 * first one, arguments as text, each part of them once.
 */
export class ToolCallFragments {
  readonly #idPrefix: string;
  readonly #calls: StreamedToolCall[] = [];
  #callsSent = 0;
  #last: StreamedToolCall | undefined;

  /** A call without an id gets one that begins with `idPrefix`. */
  constructor(idPrefix: string) {
    this.#idPrefix = idPrefix;
  }

  /** Whether any call was passed on. */
  get hasCalls(): boolean {
    return this.#callsSent > 0;
  }

  /** How often arguments came twice, or were preceded by an empty object. */
  get repairs(): number {
    return this.#calls.reduce((sum, { repair }) => sum + repair.count, 0);
  }

  /** Reads the `tool_calls` of one delta and returns the fragments to pass on. */
  take(fragments: unknown): ToolCallFragment[] {
    if (!Array.isArray(fragments)) {
      throw unsupportedAnswer("Tool calls are not an array");
    }
    return fragments.flatMap((each) => {
      const reading = readFragment(each);
      const before = this.#last;
      const call = this.#callOf(reading);
      this.#last = call;
      // Some SDKs consider a call complete when the next one begins.
      const isNext = before !== undefined && before !== call;
      const rest = isNext ? restOf(before) : [];
      const fragment = this.#takeFragment(call, reading);
      return fragment === null ? rest : [...rest, fragment];
    });
  }

  /**
   * Called when the choice has finished: returns what was held back, and throws
   * `upstream_invalid` if a call has no name.
   */
  end(): ToolCallFragment[] {
    if (this.#calls.length !== this.#callsSent) {
      throw unsupportedAnswer("Tool call without a name");
    }
    return this.#calls.flatMap((call) => [...restOf(call), ...emptyOf(call)]);
  }

  #takeFragment(
    call: StreamedToolCall,
    reading: Reading,
  ): ToolCallFragment | null {
    const { id, name, text, more, detailMore } = reading;
    call.hasArguments ||= text !== "";
    call.id ||= id;
    if (call.name !== "") {
      const fragment = fragmentOf(call, taken(call, text), detailMore);
      Object.assign(fragment, more);
      const isEmpty = textOfFragment(fragment) === "" &&
        Object.keys(more).length + Object.keys(detailMore).length === 0;
      return isEmpty ? null : fragment;
    }
    call.earlyArguments += text;
    if (call.earlyArguments.length > EARLY_CHARS_MAX) {
      throw unsupportedAnswer("Tool call without a name");
    }
    if (name === "") return null;
    call.name = name;
    call.index = this.#callsSent;
    this.#callsSent += 1;
    call.id ||= `${this.#idPrefix}_${call.index}`;
    const first = taken(call, call.earlyArguments);
    const { form } = call;
    return {
      index: call.index,
      id: call.id,
      type: form === "other" ? name : form,
      ...more,
      ...detailOf(form, first, { name, ...detailMore }),
    };
  }

  /** The call that a fragment continues, or a new one. */
  #callOf({ index, id, form, name, text }: Reading): StreamedToolCall {
    const current = index !== null
      ? this.#calls.findLast((call) => call.serverIndex === index)
      : id === ""
      ? this.#last
      : this.#calls.findLast((call) => call.id === id);
    if (current === undefined) return this.#open(index, id, form);
    if (current.name === "" || name === "") return current;
    // A second name starts a new call if it comes with a new id. Without an id, it does
    // if the server sends no indices, if the name differs, or if complete arguments
    // follow others; otherwise it is a repeat. A new id without a name proves nothing:
    // some servers generate one per fragment.
    const isNext = id === ""
      ? index === null || name !== current.name ||
        (current.hasArguments && isJsonObject(parseJson(text)))
      : id !== current.id;
    return isNext ? this.#open(index, id, form) : current;
  }

  #open(index: unknown, id: string, form: CallForm): StreamedToolCall {
    if (this.#calls.length === CALLS_MAX) {
      throw unsupportedAnswer(`More than ${CALLS_MAX} tool calls`);
    }
    const call: StreamedToolCall = {
      index: -1,
      serverIndex: index,
      id,
      form,
      name: "",
      earlyArguments: "",
      hasArguments: false,
      repair: new ArgumentsRepair(),
    };
    this.#calls.push(call);
    return call;
  }
}

/** The text that a fragment adds to its call. */
export const textOfFragment = (
  { function: called, custom }: ToolCallFragment,
): string => called?.arguments ?? custom?.input ?? "";

/** The member of a fragment that has its text, and more of the same; `other`: none. */
function detailOf(
  form: CallForm,
  text: string,
  more: JsonObject,
): Pick<ToolCallFragment, "function" | "custom"> {
  if (form === "function") return { function: { ...more, arguments: text } };
  return form === "custom" ? { custom: { ...more, input: text } } : {};
}

const fragmentOf = (
  { index, form }: StreamedToolCall,
  text: string,
  more: JsonObject = {},
): ToolCallFragment => ({ index, ...detailOf(form, text, more) });

/** What to pass on of a text; only arguments are repaired, which are JSON. */
const taken = ({ form, repair }: StreamedToolCall, text: string): string =>
  form === "function" ? repair.take(text) : text;

/** The arguments of a call that has none, as JSON: agents parse them. */
const emptyOf = (call: StreamedToolCall) =>
  call.hasArguments || call.form !== "function" ? [] : [fragmentOf(call, "{}")];

/** The arguments of a call that were held back until now, if there are any. */
function restOf(call: StreamedToolCall): ToolCallFragment[] {
  const text = call.repair.end();
  return text === "" ? [] : [fragmentOf(call, text)];
}

/** The form of a fragment; of a stream, only a call's first one need have a type. */
function formOf({ type, function: called, custom }: JsonObject): CallForm {
  if (isJsonObject(called)) return "function";
  if (isJsonObject(custom) || type === "custom") return "custom";
  return textOf(type) === "" || type === "function" ? "function" : "other";
}

function readFragment(fragment: unknown): Reading {
  if (!isJsonObject(fragment)) throw unsupportedAnswer("Not a tool call");
  const form = formOf(fragment);
  const { index, id, type, ...members } = fragment;
  const place = {
    index: Number.isInteger(index) ? index : null,
    id: textOf(id),
    form,
  };
  if (form === "other") {
    return {
      ...place,
      name: textOf(type),
      text: "",
      more: members,
      detailMore: {},
    };
  }
  const { [form]: detail, ...more } = members;
  const { name, [TEXT_MEMBERS[form]]: text, ...detailMore } =
    isJsonObject(detail) ? detail : {};
  return {
    ...place,
    name: textOf(name),
    // Arguments should be JSON text, but some servers send the object itself.
    text: isJsonObject(text) ? JSON.stringify(text) : textOf(text),
    more,
    detailMore,
  };
}
