/** A client that loses its connection again and again, and reads on. */
import assert from "node:assert/strict";
import { callApi, postChat } from "../../support/chat_request.ts";
import { sleep } from "../../support/wait_for.ts";
import { contentOf, EventReader } from "./kept_rig.ts";

/** How a request ended for its client. */
export interface ChaosEnd {
  readonly prompt: string;
  /** Which answer it is. */
  readonly id: string;
  readonly text: string;
  /** The code of the error that ended it; null: it is complete. */
  readonly code: string | null;
  /** How often its connection was lost or closed. */
  readonly cuts: number;
  /** The errors with which it was told to send its request again. */
  readonly refusals: readonly string[];
}

const PAUSE_MS = 200;
/** An answer whose edge was killed before it began is given up within a minute. */
const TRIES_MAX = 1_000;

/** Asks for the answer to a prompt, which is kept; the same prompt has the same key. */
export function askChaos(
  baseUrl: string,
  key: string,
  prompt: string,
): Promise<Response> {
  return postChat(baseUrl, key, {
    body: {
      messages: [{ role: "user", content: prompt }],
      stream: true,
      max_tokens: 100,
    },
    headers: { "idempotency-key": prompt, "x-gateway-keep": "300" },
  });
}

/** Reads an answer to its end, whatever happens meanwhile. */
export class ChaosClient {
  readonly #key: string;
  readonly #edges: () => string[];
  readonly #random: () => number;
  #id: string | null = null;
  #after = "0";
  #text = "";
  #cuts = 0;
  readonly #refusals: string[] = [];
  /** Why the last connection did not bring an answer. */
  #refusal = "";

  constructor(
    { key, edges, random }: {
      key: string;
      edges: () => string[];
      random: () => number;
    },
  ) {
    this.#key = key;
    this.#edges = edges;
    this.#random = random;
  }

  /** Asks, and reads on at any edge until the answer has ended. */
  async read(prompt: string): Promise<ChaosEnd> {
    for (let tries = 0; tries < TRIES_MAX; tries += 1) {
      const code = await this.#go(prompt).catch((error: unknown) => {
        // The edge was killed.
        assert.ok(error instanceof TypeError, `${error}`);
        return undefined;
      });
      if (code !== undefined) {
        return {
          prompt,
          id: this.#id ?? "",
          text: this.#text,
          code,
          cuts: this.#cuts,
          refusals: this.#refusals,
        };
      }
      this.#cuts += 1;
      await sleep(PAUSE_MS);
    }
    assert.fail(`${prompt} has no end after ${this.#text}: ${this.#refusal}`);
  }

  /** One connection. Returns how the answer has ended; undefined: it has not. */
  async #go(prompt: string): Promise<string | null | undefined> {
    const edges = this.#edges();
    const edge = edges[Math.floor(this.#random() * edges.length)] ?? "";
    const answer =
      await (this.#id === null
        ? askChaos(edge, this.#key, prompt)
        : callApi(`${edge}/answers/${this.#id}`, this.#key, {
          headers: { "last-event-id": this.#after },
        }));
    if (answer.status !== 200) {
      const { error } = await answer.json();
      this.#refusal = `${answer.status} ${error.code}`;
      const isForgotten = error.code === "answer_not_found" &&
        this.#text === "";
      if (isForgotten) {
        // It has failed before its first token: it is sent again.
        this.#refusals.push(this.#refusal);
        this.#id = null;
        return undefined;
      }
      if (this.#id === null) this.#refusals.push(this.#refusal);
      // Nothing of it was remembered, or the gateway is not whole at the moment.
      const isLater = answer.status >= 500 || this.#id === null;
      assert.ok(isLater, `${answer.status} ${error.code}`);
      const isFinal = this.#id !== null && error.code !== "keep_failed" &&
        answer.status !== 503;
      return isFinal ? error.code : undefined;
    }
    if (this.#id === null) {
      this.#id = answer.headers.get("x-gateway-answer");
      this.#after = "0";
      this.#text = "";
    }
    return await this.#readSome(answer);
  }

  async #readSome(answer: Response): Promise<string | null | undefined> {
    const reader = new EventReader(answer);
    let left = this.#random() < 0.3 ? Infinity : this.#random() * 20;
    for (; left > 0; left -= 1) {
      const event = await reader.next();
      if (event === null) return undefined;
      if (event.includes("[DONE]")) return null;
      const code = /^data: \{"error":.*"code":"(\w+)"/m.exec(event)?.[1];
      if (code !== undefined) return code;
      if (reader.lastId !== "0") this.#after = reader.lastId;
      this.#text += contentOf(event);
    }
    await reader.cut();
    return undefined;
  }
}
