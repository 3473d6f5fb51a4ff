/** The header block of a message. */
export interface BusHeaders {
  /** Status set by the server, 0 for ordinary messages. */
  readonly code: number;
  /** The first value under exactly this name, empty when there is none. */
  get(name: string): string;
}

/**
 * One message as it arrived. The fields are read lazily where that costs
 * something, so a handler pays only for what it looks at.
 *
 * `data` is a view of the piece of up to 64 KiB that was read from the socket. It
 * stays valid, but keeping it keeps the whole piece: copy what lives longer than
 * the handler.
 */
export interface BusMessage {
  readonly subject: string;
  readonly data: Uint8Array;
  /** Where an answer is expected; absent or empty when none is. */
  readonly reply?: string;
  readonly headers?: BusHeaders;
}

const NO_RESPONDERS_CODE = 503;

/**
 * Whether this is the server's own word that nobody subscribes to what was
 * published. It comes on the reply subject of the message, within a round trip:
 *
 * ```ts
 * link.publish(chatAnySubject, job, { reply: edgeStreamSubject(edgeId, requestId) });
 * // and in the handler of the edge's streams: no worker anywhere
 * if (isNoResponders(message)) …
 * ```
 */
export function isNoResponders(message: BusMessage): boolean {
  return message.data.length === 0 &&
    message.headers?.code === NO_RESPONDERS_CODE;
}
