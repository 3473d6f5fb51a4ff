// A server on raw TCP or within the process: every byte that it sends, and every pause,
// is in the script of the test. Tests of the whole product use the simulator.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import {
  type BackendConfig,
  parseCatalog,
} from "@gateway/shared/models/catalog";
import type { ByteConnection } from "@gateway/shared/upstream/http/proxy";
import type { Connect } from "@gateway/shared/upstream/http/connect";
import { close } from "../servers/tcp_proxy.ts";
import { until } from "../wait_for.ts";

/** What of a backend differs from the defaults of the models file. */
export type BackendChange =
  & Partial<Omit<BackendConfig, "deadlines">>
  & { deadlines?: Partial<BackendConfig["deadlines"]> | undefined };

/** The backend at this address that has the model `theirs`. */
export function backendAt(
  base_url: string,
  { deadlines, ...change }: BackendChange = {},
): BackendConfig {
  const backends = [{ type: "openai", base_url, model: "theirs" }];
  const models = [{ id: "ours", kind: "image", backends }];
  const ours = parseCatalog({ models }).get("ours");
  const [config = assert.fail("no backend")] = ours?.backends ?? [];
  const times = { ...config.deadlines, ...deadlines };
  return { ...config, ...change, deadlines: times };
}

/** One thing the server does for a request, in order. */
export type Step =
  /** Writes these bytes, in one packet if they are few. */
  | { send: string | Uint8Array }
  | { pauseMs: number }
  /** Goes on when the promise settles. */
  | { until: Promise<unknown> }
  /** Does nothing until the client closes the connection. */
  | { stall: true }
  /** Closes the connection. */
  | { close: true };

type Steps = Iterable<Step> | AsyncIterable<Step>;
/** What the server does for a request. */
export type Reply = (request: WholeRequest) => Steps;

/** A request that has been read whole. */
export class WholeRequest {
  readonly method: string;
  readonly path: string;
  /** By name in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  /** `performance.now()` of the moment of {@link left}, or null. */
  leftAtMs: number | null = null;
  /** Bytes the kernel has taken for this request so far. */
  bytesSent = 0;
  isOver = false;
  readonly #left = Promise.withResolvers<void>();
  /**
   * Settles when the client closes the connection before the script is over; never
   * otherwise.
   */
  readonly left = this.#left.promise;

  constructor(
    /** 1 for the first request of the server. */
    readonly number: number,
    head: string,
    readonly body: string,
  ) {
    const [first = "", ...lines] = head.trimEnd().split("\r\n");
    [this.method = "", this.path = ""] = first.split(" ");
    this.headers = new Map(lines.map((line): [string, string] => {
      const colon = line.indexOf(":");
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }));
  }

  json(): unknown {
    return JSON.parse(this.body);
  }

  leave(): void {
    this.leftAtMs ??= performance.now();
    this.#left.resolve();
  }
}

/** A server that answers as its test says. */
export interface ScriptedServer extends AsyncDisposable {
  readonly port: number;
  /** `http://127.0.0.1:<port>/v1`, or `https://localhost:<port>/v1` */
  readonly baseUrl: string;
  readonly requests: WholeRequest[];
  /** How many connections there have been. */
  readonly connections: number;
  readonly openConnections: number;
  /** What to do from the next request on. */
  reply: Reply;
  /** The request with this number, as soon as it has come. */
  request(number: number): Promise<WholeRequest>;
}

const BLANK_LINE = "\r\n\r\n";
const encoder = new TextEncoder();

/**
 * Starts a server on a free port of 127.0.0.1. Disposing of it ends every connection.
 */
export function startScriptedServer(
  { reply, tls }: {
    reply: Reply;
    /** PEM texts; with them the server speaks TLS. */
    tls?: { cert: string; key: string };
  },
): ScriptedServer {
  const where = { hostname: "127.0.0.1", port: 0 };
  const listener = tls
    ? Deno.listenTls({ ...where, ...tls })
    : Deno.listen(where);
  const port = listener.addr.transport === "tcp" ? listener.addr.port : 0;
  const requests: WholeRequest[] = [];
  const open = new Map<Deno.Conn, Promise<void>>();
  let connections = 0;
  const replyTo: ReplyTo = (head, body) => {
    const request = new WholeRequest(requests.length + 1, head, body);
    requests.push(request);
    return [request, server.reply(request)];
  };
  const accepting = (async () => {
    for await (const conn of listener) {
      if ("setNoDelay" in conn && typeof conn.setNoDelay === "function") {
        conn.setNoDelay(true);
      }
      connections++;
      open.set(conn, serve(conn, replyTo).finally(() => open.delete(conn)));
    }
  })();
  const server: ScriptedServer = {
    port,
    baseUrl: `${tls ? "https://localhost" : "http://127.0.0.1"}:${port}/v1`,
    requests,
    get connections() {
      return connections;
    },
    get openConnections() {
      return open.size;
    },
    reply,
    request: (number) => until(() => requests[number - 1]),
    async [Symbol.asyncDispose]() {
      listener.close();
      for (const conn of open.keys()) close(conn);
      await Promise.all([accepting, ...open.values()]);
    },
  };
  return server;
}

/**
 * Makes connections within the process to a server with this script. A packet is made
 * when the last one has been read.
 */
export function connectTo(reply: Reply): Connect {
  let requests = 0;
  const replyTo: ReplyTo = (head, body) => {
    const request = new WholeRequest(++requests, head, body);
    return [request, reply(request)];
  };
  return () => {
    const up = new TransformStream<Uint8Array, Uint8Array>();
    const down = new TransformStream<Uint8Array, Uint8Array>();
    void serve(endOf(up.readable, down.writable), replyTo);
    return Promise.resolve(endOf(down.readable, up.writable));
  };
}

function endOf(
  readable: ReadableStream<Uint8Array>,
  writable: WritableStream<Uint8Array>,
): ByteConnection {
  const [reader, writer] = [readable.getReader(), writable.getWriter()];
  // The other side is gone: reads and writes say it.
  for (const { closed } of [reader, writer]) closed.catch(() => {});
  let rest = new Uint8Array();
  return {
    async read(buffer) {
      while (rest.length === 0) {
        const { value, done } = await reader.read();
        if (done) return null;
        rest = new Uint8Array(value);
      }
      const bytes = Math.min(rest.length, buffer.length);
      buffer.set(rest.subarray(0, bytes));
      rest = rest.subarray(bytes);
      return bytes;
    },
    async write(bytes) {
      await writer.write(bytes.slice());
      return bytes.length;
    },
    close() {
      reader.cancel().catch(() => {});
      writer.close().catch(() => {});
    },
  };
}

type ReplyTo = (head: string, body: string) => [WholeRequest, Steps];

/** Answers the requests that a connection brings, one after the other. */
async function serve(conn: ByteConnection, replyTo: ReplyTo): Promise<void> {
  let script: Promise<void> = Promise.resolve();
  let last: WholeRequest | undefined;
  for await (const { head, body } of requestsOf(conn)) {
    await script;
    const [request, steps] = replyTo(head, body);
    last = request;
    script = run(conn, steps, request);
  }
  if (last?.isOver === false) last.leave();
  await script;
  close(conn);
}

/** Runs a script until it ends or the client leaves. */
async function run(conn: ByteConnection, steps: Steps, request: WholeRequest) {
  const { left } = request;
  for await (const step of steps) {
    if (request.leftAtMs !== null) return;
    if ("send" in step) {
      if (!await writeAll(conn, step.send, request)) return;
    } else if ("pauseMs" in step) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, step.pauseMs);
      await Promise.race([promise, left]);
      clearTimeout(timer);
    } else if ("until" in step) await Promise.race([step.until, left]);
    else if ("stall" in step) await left;
    else {
      request.isOver = true;
      return close(conn);
    }
  }
  request.isOver = true;
}

/** False when the client is gone. */
async function writeAll(
  conn: ByteConnection,
  data: string | Uint8Array,
  request: WholeRequest,
): Promise<boolean> {
  let rest = typeof data === "string" ? encoder.encode(data) : data;
  try {
    while (rest.length > 0) {
      const written = await conn.write(rest);
      request.bytesSent += written;
      rest = rest.subarray(written);
    }
    return true;
  } catch {
    // A broken pipe is how a writer learns that its client left.
    request.leave();
    return false;
  }
}

async function* requestsOf(conn: ByteConnection) {
  const buffer = new Uint8Array(64 * 1024);
  let bytes = Buffer.alloc(0);
  for (;;) {
    const blankLine = bytes.indexOf(BLANK_LINE);
    const headEnd = blankLine + BLANK_LINE.length;
    const head = blankLine < 0 ? "" : bytes.toString("utf8", 0, headEnd);
    const length = /^content-length: *(\d+)/im.exec(head)?.[1] ?? "0";
    const end = headEnd + Number(length);
    if (blankLine >= 0 && bytes.length >= end) {
      yield { head, body: bytes.toString("utf8", headEnd, end) };
      bytes = bytes.subarray(end);
      continue;
    }
    // Whatever ends the connection, the client is gone.
    const count = await conn.read(buffer).catch(() => null);
    if (count === null) return;
    bytes = Buffer.concat([bytes, buffer.subarray(0, count)]);
  }
}
