/**
 * An answer as agents' endpoints send it: blocks of thinking, text and calls, one after
 * the other. Pure.
 */
import { newRequestId } from "@gateway/shared/process/ids";
import type { Step } from "../chat/step.ts";

/** A part of an answer, as it is at one time. */
export interface Block {
  readonly index: number;
  /** Hexadecimal; each endpoint has its own prefixes for it. */
  readonly id: string;
  readonly kind: "thinking" | "text" | "call";
  /** The text so far; for a call, its arguments as JSON. */
  readonly text: string;
  /** The name of the tool that is called; empty for other kinds. */
  readonly name: string;
}

/** What happens to a block of an answer that is streamed. */
export interface BlockEvent {
  readonly what: "begin" | "piece" | "end";
  readonly block: Block;
  /** What the piece adds. */
  readonly piece: string;
}

/** The blocks of one answer. */
export class Blocks {
  readonly all: Block[] = [];
  /** How the answer ended; undefined while it is written. */
  last: Step | undefined;
  /** How many tokens were written, and how many of them in thinking. */
  tokens = 0;
  thinkingTokens = 0;
  readonly #steps: Generator<Step>;

  constructor(steps: Generator<Step>) {
    this.#steps = steps;
  }

  /** What each token does. */
  *run(): Generator<readonly BlockEvent[]> {
    for (const step of this.#steps) {
      this.tokens += 1;
      if (step.delta.reasoning_content) this.thinkingTokens += 1;
      const events = [...this.#eventsOf(step)];
      if (step.finish !== undefined) {
        this.last = step;
        events.push(...this.#end());
      }
      yield events;
    }
  }

  *#eventsOf({ delta }: Step): Generator<BlockEvent> {
    const { reasoning_content = "", content, tool_calls = [] } = delta;
    if (reasoning_content !== "") {
      yield* this.#add("thinking", reasoning_content);
    }
    if (content !== undefined && content !== null && content !== "") {
      yield* this.#add("text", content);
    }
    for (const { function: call } of tool_calls) {
      if (call.name !== undefined) yield* this.#begin("call", call.name);
      if (call.arguments) yield* this.#add("call", call.arguments);
    }
  }

  *#add(kind: Block["kind"], piece: string): Generator<BlockEvent> {
    if (this.all.at(-1)?.kind !== kind) yield* this.#begin(kind);
    const last = this.all.pop();
    if (last === undefined) return;
    const block = { ...last, text: last.text + piece };
    this.all.push(block);
    yield { what: "piece", block, piece };
  }

  *#begin(kind: Block["kind"], name = ""): Generator<BlockEvent> {
    yield* this.#end();
    const index = this.all.length;
    const block = { index, id: newRequestId(), kind, text: "", name };
    this.all.push(block);
    yield { what: "begin", block, piece: "" };
  }

  *#end(): Generator<BlockEvent> {
    const block = this.all.at(-1);
    if (block !== undefined) yield { what: "end", block, piece: "" };
  }
}
