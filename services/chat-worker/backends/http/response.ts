import type { Lifeline } from "../lifeline.ts";
import { truncatedAnswer } from "../upstream_error.ts";
import { createBodyDecoder } from "./body_decoder.ts";
import type { Connection } from "./connection.ts";
import type { ResponseHead } from "./response_head.ts";

/** What may follow the part of a body that mattered, before the connection is given up. */
const DRAIN_BYTES_MAX = 64 * 1024;

/** A response whose head has been read. One of `release` and `close` must be called. */
export interface HttpResponse {
  readonly head: ResponseHead;
  /**
   * The next bytes of the body, valid until the next call, or null at its end.
   * Reads from the connection only when called. Rejects with the lifeline's
   * reason, `upstream_truncated` or `upstream_invalid`.
   */
  read(): Promise<Uint8Array | null>;
  /** Nothing more is wanted: keeps the connection if the body ends soon, else closes it. */
  release(): void;
  /** Hangs up. Without effect after {@link release}. */
  close(): void;
}

/** What {@link createResponse} needs. */
export interface ResponseParts {
  connection: Connection;
  head: ResponseHead;
  /** `[from, to)` of the connection's buffer is the beginning of the body. */
  from: number;
  to: number;
  lifeline: Lifeline;
  /** Whether the connection is in a state to carry another request. */
  isReusable: () => boolean;
  recycle: (connection: Connection) => void;
  /** Knows the connections whose body is being read to its end. */
  draining: Set<Connection>;
}

/** Makes the response that begins in the connection's buffer. */
export function createResponse(parts: ResponseParts): HttpResponse {
  const { connection, head, lifeline } = parts;
  const decoder = createBodyDecoder(head.framing);
  let { from, to } = parts;
  let isLeft = false;

  const read = async (): Promise<Uint8Array | null> => {
    lifeline.throwIfEnded();
    for (;;) {
      if (from < to) {
        const piece = decoder.decode(connection.buffer, from, to);
        from = to;
        if (piece.length > 0) return piece;
      }
      if (decoder.isComplete) return null;
      const bytes = await readSome();
      if (bytes === null) return null;
      from = 0;
      to = bytes;
    }
  };

  const readSome = async (): Promise<number | null> => {
    let bytes: number | null;
    try {
      bytes = await connection.read(0);
    } catch {
      lifeline.throwIfEnded();
      throw truncatedAnswer("Connection lost within the body");
    }
    if (bytes !== null || decoder.mayEnd) return bytes;
    lifeline.throwIfEnded();
    throw truncatedAnswer("Connection closed within the body");
  };

  const canRecycle = () =>
    decoder.isComplete && decoder.surplusBytes === 0 && head.isKeepAlive &&
    connection.isOpen && parts.isReusable();

  const drain = async () => {
    let bytes = 0;
    for (;;) {
      const piece = await read();
      if (piece === null) return;
      bytes += piece.length;
      if (bytes > DRAIN_BYTES_MAX) return;
    }
  };

  const settle = () => {
    parts.draining.delete(connection);
    if (canRecycle()) parts.recycle(connection);
    else connection.close();
  };

  return {
    head,
    read,
    release() {
      if (isLeft) return;
      isLeft = true;
      // From here on the connection may serve another request.
      lifeline.onEnd(() => {});
      const isWorthDraining = head.isKeepAlive && head.framing.kind !== "close";
      if (decoder.isComplete && from === to) return settle();
      if (!isWorthDraining) return connection.close();
      parts.draining.add(connection);
      // A body that ends badly now has already said all that mattered.
      drain().then(settle, settle);
    },
    close() {
      if (isLeft) return;
      isLeft = true;
      lifeline.onEnd(() => {});
      connection.close();
    },
  };
}
