import { BusTimeoutError, NoRespondersError } from "./link_errors.ts";
import { type BusMessage, isNoResponders } from "./link_message.ts";
import type { Wait, Waits } from "./link_waits.ts";

/** A request that has no answer yet. */
interface Pending {
  subject: string;
  wait: Wait<BusMessage>;
}

/**
 * Questions and answers over one inbox. The client has this as well, but its
 * requests wait for their full timeout when the connection is lost, and only the
 * first of several to a forbidden subject is told.
 */
export class Requests {
  readonly #waits: Waits;
  readonly #inbox: string;
  readonly #pending = new Map<string, Pending>();
  #count = 0;

  constructor(waits: Waits, inbox: string) {
    this.#waits = waits;
    this.#inbox = inbox;
  }

  /**
   * Sends one question and waits for the first answer.
   *
   * @param send Publishes the question with this reply subject. What it throws is
   * what the promise rejects with.
   */
  async ask(
    subject: string,
    timeoutMs: number,
    send: (reply: string) => void,
  ): Promise<BusMessage> {
    const token = String(++this.#count);
    const wait = this.#waits.open<BusMessage>(
      timeoutMs,
      () =>
        new BusTimeoutError(
          `Cannot request "${subject}": no answer within ${timeoutMs} ms`,
        ),
    );
    this.#pending.set(token, { subject, wait });
    try {
      send(`${this.#inbox}.${token}`);
      return await wait.promise;
    } finally {
      this.#pending.delete(token);
      wait.cancel();
    }
  }

  /** Takes a message that came on the inbox. Answers that nobody awaits are dropped. */
  receive(message: BusMessage): void {
    const token = message.subject.slice(this.#inbox.length + 1);
    const pending = this.#pending.get(token);
    if (pending === undefined) return;
    if (isNoResponders(message)) {
      pending.wait.reject(new NoRespondersError(pending.subject));
    } else {
      pending.wait.resolve(message);
    }
  }

  /** Ends all requests to a subject, which the server refused to take. */
  reject(subject: string, createError: () => Error): void {
    for (const pending of this.#pending.values()) {
      if (pending.subject === subject) pending.wait.reject(createError());
    }
  }
}
