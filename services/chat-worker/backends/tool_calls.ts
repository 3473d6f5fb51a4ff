/** The tool calls of an answer, in the many forms in which servers stream them. */
import { REQUEST_LIMITS } from "@gateway/shared/limits";
import type { ToolCallDelta } from "@gateway/shared/openai/completion";
import { invalidAnswer } from "@gateway/shared/upstream/errors";
import { isJsonObject, parseJson, textOf } from "@gateway/shared/upstream/json";

interface Call {
  index: number;
  id: string;
  /** Empty until the server has sent it; nothing is passed on before. */
  name: string;
  /** Arguments that arrived before the name. */
  held: string;
  hasArguments: boolean;
}

const CALLS_MAX = REQUEST_LIMITS.toolCallsPerMessageMax;
/** A server that sends this much before the name of a call is broken. */
const HELD_CHARS_MAX = 64 * 1024;

/**
 * Converts tool calls for SDKs: an index in each fragment, id and name in a call's
 * first one, arguments as text.
 */
export class ToolCallFragments {
  readonly #calls: Call[] = [];
  /** The latest call at each index that the server uses. */
  readonly #byIndex = new Map<unknown, Call>();
  #sent = 0;
  #last: Call | undefined;

  /** A call without an id gets one that begins with `idPrefix`. */
  constructor(readonly idPrefix: string) {}

  get hasCalls(): boolean {
    return this.#sent > 0;
  }

  /** Reads the `tool_calls` of one delta and returns the fragments to pass on. */
  take(fragments: unknown): ToolCallDelta[] {
    if (!Array.isArray(fragments)) {
      throw invalidAnswer("Tool calls are not an array");
    }
    return fragments.map((each) => this.#takeFragment(each))
      .filter((delta) => delta !== null);
  }

  /**
   * Called when the choice has finished: throws `upstream_invalid` if a call has no
   * name.
   */
  end(): void {
    if (this.#calls.length !== this.#sent) {
      throw invalidAnswer("Tool call without a name");
    }
  }

  #takeFragment(fragment: unknown): ToolCallDelta | null {
    if (!isJsonObject(fragment)) throw invalidAnswer("Not a tool call");
    const detail = isJsonObject(fragment.function) ? fragment.function : {};
    const index = Number.isInteger(fragment.index) ? fragment.index : null;
    const id = textOf(fragment.id);
    const name = textOf(detail.name);
    // Arguments should be JSON text, but some servers send the object itself.
    const text = isJsonObject(detail.arguments)
      ? JSON.stringify(detail.arguments)
      : textOf(detail.arguments);
    const call = this.#callOf({ index, id, name, text });
    this.#last = call;
    call.hasArguments ||= text !== "";
    call.id ||= id;
    if (call.name !== "") {
      if (text === "") return null;
      return { index: call.index, function: { arguments: text } };
    }
    call.held += text;
    if (call.held.length > HELD_CHARS_MAX) {
      throw invalidAnswer("Tool call without a name");
    }
    if (name === "") return null;
    call.name = name;
    call.index = this.#sent;
    this.#sent += 1;
    call.id ||= `${this.idPrefix}_${call.index}`;
    const called = { name, arguments: call.held };
    return {
      index: call.index,
      id: call.id,
      type: "function",
      function: called,
    };
  }

  /** The call that a fragment continues, or a new one. */
  #callOf({ index, id, name, text }: {
    index: unknown;
    id: string;
    name: string;
    text: string;
  }): Call {
    const known = index !== null
      ? this.#byIndex.get(index)
      : id === ""
      ? this.#last
      : this.#calls.findLast((call) => call.id === id);
    if (known === undefined) return this.#open(index, id);
    if (known.name === "" || name === "") return known;
    // A second name starts a new call if it comes with a new id. Without an id, it does
    // if the server sends no indices, if the name differs, or if complete arguments
    // follow others; otherwise it is a repeat. A new id without a name proves nothing:
    // some servers generate one per fragment.
    const isNext = id === ""
      ? index === null || name !== known.name ||
        (known.hasArguments && isJsonObject(parseJson(text)))
      : id !== known.id;
    return isNext ? this.#open(index, id) : known;
  }

  #open(index: unknown, id: string): Call {
    if (this.#calls.length === CALLS_MAX) {
      throw invalidAnswer(`More than ${CALLS_MAX} tool calls`);
    }
    const call = { index: -1, id, name: "", held: "", hasArguments: false };
    this.#calls.push(call);
    if (index !== null) this.#byIndex.set(index, call);
    return call;
  }
}
