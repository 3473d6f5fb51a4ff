import type { MonotonicNow } from "@gateway/shared/process/clock";
import type { Lifeline } from "../lifeline.ts";
import { UpstreamError } from "../upstream_error.ts";
import { type Connect } from "./connect.ts";
import { type Connection, createConnection } from "./connection.ts";
import { ConnectionLostError, readHead } from "./read_head.ts";
import { createResponse, type HttpResponse } from "./response.ts";

/** Idle connections kept. One per request that may run at once would be the most that helps. */
const IDLE_CONNECTIONS_MAX = 256;
/** Idle connections are closed after this long: under what load balancers allow, which is 60 s and more. */
const IDLE_MS = 30_000;
const REQUEST_TIMEOUT_STATUS = 408;

/** What {@link createHttpClient} needs. */
export interface HttpClientOptions {
  connect: Connect;
  /** Bound of connecting, and of each step of sending a request. */
  connectMs: number;
  now: MonotonicNow;
}

/**
 * An HTTP/1.1 client of one server, made for streams: a response is read only as
 * fast as its reader asks, through one buffer, and ending the attempt's lifeline
 * closes the connection at once.
 *
 * It exists because the library clients are slower where it counts. CPU per
 * exchange of 64 events in one packet, Deno 2.9.6, all against one server: 40 us
 * here, 140 us `node:http` with an agent, 1,100 us `fetch`, which does not set
 * TCP_NODELAY either; a JSON answer of 0.7 kB: 30, 47 and 115 us.
 */
export interface HttpClient {
  /**
   * Sends a request, head and body in one piece, and resolves with the response
   * as soon as its head is there. `onSent` is called when the request is out,
   * or answered before it is. A used connection that turns out to be dead is
   * replaced once.
   * Rejects with the lifeline's reason, or `upstream_unreachable`,
   * `upstream_truncated`, `upstream_invalid`.
   */
  send(
    request: Uint8Array,
    lifeline: Lifeline,
    onSent: () => void,
  ): Promise<HttpResponse>;
  /** Connections that are ready for a request. */
  readonly idleConnections: number;
  /** Closes what is idle. Running responses go on and are not kept afterwards. */
  close(): void;
}

/** Makes a client with no connection yet. */
export function createHttpClient(options: HttpClientOptions): HttpClient {
  const { now } = options;
  /** Ready for a request, the last used at the end. */
  const idle: Connection[] = [];
  /** Answered, but the end of the body is not in yet. */
  const draining = new Set<Connection>();
  let sweepTimer: ReturnType<typeof setTimeout> | undefined;
  let isClosed = false;

  const open = async (lifeline: Lifeline): Promise<Connection> => {
    const controller = new AbortController();
    lifeline.arm("connect", options.connectMs);
    lifeline.onEnd(() => controller.abort());
    try {
      return createConnection(await options.connect(controller.signal));
    } catch (cause) {
      lifeline.throwIfEnded();
      throw new UpstreamError("unreachable", { cause });
    }
  };

  const takeIdle = (): Connection | null => {
    const connection = idle.pop();
    if (connection === undefined) return null;
    if (now() - connection.idleSinceMs >= IDLE_MS) {
      connection.close();
      return null;
    }
    connection.wake();
    return connection;
  };

  const exchange = async (
    connection: Connection,
    request: Uint8Array,
    lifeline: Lifeline,
    onSent: () => void,
  ): Promise<HttpResponse> => {
    lifeline.onEnd(connection.close);
    lifeline.arm("connect", options.connectMs);
    let isSent = false;
    let isAnswered = false;
    connection.write(request, () => {
      if (!isAnswered) lifeline.arm("connect", options.connectMs);
    }).then(() => {
      isSent = true;
      if (!isAnswered) onSent();
    }, () => {
      // The read that runs beside it learns of the loss, or of an early answer.
    });
    const { head, from, to } = await readHead(connection);
    isAnswered = true;
    if (!isSent) onSent();
    const isStale = head.status === REQUEST_TIMEOUT_STATUS &&
      connection.isReused;
    if (isStale) throw new ConnectionLostError("Idle connection timed out");
    return createResponse({
      connection,
      head,
      from,
      to,
      lifeline,
      isReusable: () => isSent && !isClosed,
      recycle,
      draining,
    });
  };

  const recycle = (connection: Connection) => {
    draining.delete(connection);
    if (isClosed || idle.length >= IDLE_CONNECTIONS_MAX) {
      return connection.close();
    }
    idle.push(connection);
    connection.sleep(now(), () => {
      // The server hung up, or said something nobody asked for.
      idle.splice(idle.indexOf(connection), 1);
      connection.close();
    });
    sweepLater();
  };

  const sweepLater = () => {
    if (sweepTimer !== undefined) return;
    sweepTimer = setTimeout(sweep, IDLE_MS);
    // Waiting for idle connections must not keep the process alive.
    sweepTimer.unref();
  };

  const sweep = () => {
    sweepTimer = undefined;
    const before = now() - IDLE_MS;
    const fresh = idle.findIndex((connection) =>
      connection.idleSinceMs > before
    );
    const old = idle.splice(0, fresh < 0 ? idle.length : fresh);
    for (const connection of old) connection.close();
    // Whoever began to drain just now loses no more than the reuse.
    for (const connection of draining) connection.close();
    draining.clear();
    if (idle.length > 0) sweepLater();
  };

  return {
    async send(request, lifeline, onSent) {
      let connection = takeIdle();
      for (;;) {
        connection ??= await open(lifeline);
        try {
          return await exchange(connection, request, lifeline, onSent);
        } catch (error) {
          connection.close();
          lifeline.throwIfEnded();
          if (!(error instanceof ConnectionLostError)) throw error;
          if (!connection.isReused) {
            throw new UpstreamError("unreachable", { cause: error });
          }
          connection = null;
        }
      }
    },
    get idleConnections() {
      return idle.length;
    },
    close() {
      isClosed = true;
      clearTimeout(sweepTimer);
      for (const connection of idle.splice(0)) connection.close();
      for (const connection of draining) connection.close();
      draining.clear();
    },
  };
}
