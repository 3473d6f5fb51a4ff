/** How the bus fails. Each class is one thing that a caller can act on. */

/**
 * Nothing can be sent or received now: the connection is down, was lost while an
 * answer was awaited, or is closed. What was to be sent was not sent.
 */
export class BusUnavailableError extends Error {
  override readonly name = "BusUnavailableError";
}

/**
 * No answer in time. What was sent may have arrived and may have had its effect.
 */
export class BusTimeoutError extends Error {
  override readonly name = "BusTimeoutError";
}

/** The server knows nobody who subscribes to the subject of a request. */
export class NoRespondersError extends Error {
  override readonly name = "NoRespondersError";
  readonly subject: string;

  constructor(subject: string) {
    super(`Cannot request "${subject}": nobody subscribes to it`);
    this.subject = subject;
  }
}

/** The message is larger than the server takes. Nothing was sent. */
export class PayloadTooLargeError extends Error {
  override readonly name = "PayloadTooLargeError";

  constructor(subject: string, bytes: number, cause: unknown) {
    super(
      `Cannot publish to "${subject}": ${bytes} bytes are more than the server's max_payload`,
      { cause },
    );
  }
}

/** The server forbids this connection to publish or to subscribe to a subject. */
export class BusRefusedError extends Error {
  override readonly name = "BusRefusedError";
  readonly operation: "publish" | "subscribe";
  readonly subject: string;

  constructor(operation: "publish" | "subscribe", subject: string) {
    super(`Cannot ${operation} to "${subject}": the server denies it`);
    this.operation = operation;
    this.subject = subject;
  }
}

/** An option cannot work, however long one waits: a malformed address or seed. */
export class BusConfigError extends Error {
  override readonly name = "BusConfigError";
}
