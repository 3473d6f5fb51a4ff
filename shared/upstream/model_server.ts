/** One model server with OpenAI's HTTP API: its address, key and deadlines. */
import { Buffer } from "node:buffer";
import type { BackendConfig } from "../models/catalog.ts";
import type { MonotonicNow } from "../process/clock.ts";
import { Deadlines } from "../process/deadlines.ts";
import { encodeUtf8 } from "../text/utf8.ts";
import { VERSION } from "../version.ts";
import { AttemptDeadlines } from "./http/attempt_deadlines.ts";
import { type Connect, createConnect } from "./http/connect.ts";
import { HttpClient, type HttpConnection } from "./http/client.ts";
import type { ResponseHead } from "./http/framing.ts";
import type { PoolContext } from "./attempt.ts";
import { proxyOf, type ProxyVariables } from "./http/proxy.ts";
import {
  createRedact,
  createScrub,
  readErrorResponse,
  type Secrets,
} from "./error_response.ts";
import type { Redact } from "./own_answer.ts";

/** Some hosted servers refuse requests without one (RFC 9110, section 10.1.5). */
const USER_AGENT = `chat-completion-gateway/${VERSION}`;
/** A longer body is sent apart from its head: joining them makes two more copies. */
const JOINED_CHARS_MAX = 256 * 1024;
/**
 * Some servers say that they have created the answer, some proxies that it is theirs.
 */
const ANSWERED = [200, 201, 203];
const VISIBLE_ASCII = /^[\x20-\x7e\t]*$/;

/** The kind of a request, by default `POST` of JSON. */
export interface RequestOptions {
  method?: "GET" | "POST" | "DELETE";
  accept?: string;
  /** Null for a request without a body. */
  contentType?: string | null;
  /** Sent besides those of the models file, which were checked with it. */
  headers?: { readonly [name: string]: string };
  /** Sent where neither the models file nor the call has a header of this name. */
  defaults?: { readonly [name: string]: string };
}

/** What a {@link ModelServer} needs to know. */
export interface ModelServerOptions {
  config: BackendConfig;
  /** The model's name for callers. */
  publicModel: string;
  /** The value of one of `config.keys`; if null, no credential is sent. */
  apiKey: string | null;
  now: MonotonicNow;
  /** Opens connections. Default: to `config.base_url`. */
  connect?: Connect;
  /** The proxies that may lead to the server. */
  proxies?: ProxyVariables;
  /** Called with the head of each response. Must not throw. */
  onHead?: (head: ResponseHead) => void;
}

/**
 * Text, or pieces that are sent one after the other as they are: an upload is neither
 * joined nor copied, and a repeat sends the same pieces.
 */
export type RequestBody = string | readonly Uint8Array[];

/** Encodes requests of one kind; returns the pieces to send. */
export type RequestEncoder = (
  body: RequestBody,
  context: Omit<PoolContext, "signal">,
) => readonly Uint8Array[];

/** One request to a model server, encoded but for its body. */
export interface ServerRequest {
  encode: RequestEncoder;
  body: RequestBody;
  context: PoolContext;
  /** Ends the request when it aborts. Default: that of the call. */
  signal?: AbortSignal;
  /**
   * Whether the answer must begin within `first_token_ms`, and not only end in time.
   */
  mustBeginSoon: boolean;
  /** How long all of it may take. Default: `total_ms`. */
  totalMs?: number | undefined;
  /** The statuses that are answers, and not refusals. Default: 200, 201 and 203. */
  statuses?: readonly number[] | "all" | undefined;
  /** Whether the error of a refusal keeps what the server has said. */
  keepsRefusals?: boolean;
}

/** A response that is no refusal, of which the head was read. */
export interface ServerResponse {
  server: ModelServer;
  head: ResponseHead;
  connection: HttpConnection;
  deadlines: AttemptDeadlines;
}

/**
 * Nothing is repeated. Errors are `UpstreamError`s or the signal's reason, without key,
 * address or header.
 */
export class ModelServer {
  readonly config: BackendConfig;
  readonly redact: Redact;
  /** Takes out secrets and nothing else, see {@link createScrub}. */
  readonly scrub: Redact;
  readonly now: MonotonicNow;
  /** Up to and including `/v1`, without a slash at the end. */
  readonly #baseUrl: URL;
  readonly #credential: { readonly [header: string]: string };
  readonly #client: HttpClient;
  readonly #onHead: ModelServerOptions["onHead"];
  readonly #deadlines;

  /** Throws an Error if the key cannot be sent, without showing it. */
  constructor({ config, apiKey, publicModel, ...options }: ModelServerOptions) {
    if (!VISIBLE_ASCII.test(apiKey ?? "")) {
      throw new Error("The key of a backend is not visible ASCII");
    }
    this.config = config;
    this.now = options.now;
    this.#onHead = options.onHead;
    // Exact: callers wait, and other backends are tried only afterwards.
    this.#deadlines = new Deadlines(options.now, 0);
    this.#baseUrl = new URL(config.base_url);
    this.#credential = credentialOf(apiKey, config.dialect.key_header);
    this.#client = new HttpClient(
      options.connect ?? createConnect(this.#baseUrl, {
        proxy: options.proxies ? proxyOf(this.#baseUrl, options.proxies) : null,
      }),
      config.deadlines.connect_ms,
    );
    const secrets: Secrets = {
      secrets: [apiKey ?? "", ...Object.values(config.headers)],
      baseUrl: this.#baseUrl,
      model: { theirs: config.model, ours: publicModel },
    };
    this.redact = createRedact(secrets);
    this.scrub = createScrub(secrets);
  }

  /**
   * Encodes requests to a path below the base URL or to another URL of this server, the
   * constant part only once.
   */
  encoder(
    to: string | URL,
    {
      method = "POST",
      accept = "application/json",
      contentType = method === "POST" ? "application/json" : null,
      headers,
      defaults = {},
    }: RequestOptions,
  ): RequestEncoder {
    const url = typeof to === "string"
      ? new URL(`${this.config.base_url}${to}`)
      : to;
    const all: { [name: string]: string } = {
      host: url.host,
      accept,
      "user-agent": USER_AGENT,
      "accept-encoding": "identity",
      ...contentType !== null && { "content-type": contentType },
      ...this.#credential,
      ...inLowerCase(this.config.headers),
      ...headers,
    };
    const headerLines = Object.entries(all)
      .map(([name, value]) => `${name}: ${value}\r\n`);
    const fixed = `${method} ${url.pathname}${url.search} HTTP/1.1\r\n` +
      `${headerLines.join("")}content-length: `;
    return (body, { requestId, traceparent, headers: more = {} }) => {
      const bytes = typeof body === "string"
        ? Buffer.byteLength(body)
        : body.reduce((sum, piece) => sum + piece.length, 0);
      let head = `${fixed}${bytes}\r\nx-request-id: ${requestId}\r\n`;
      if (traceparent !== undefined) head += `traceparent: ${traceparent}\r\n`;
      for (const name in more) {
        // The operator's own come first.
        if (!Object.hasOwn(all, name)) head += `${name}: ${more[name]}\r\n`;
      }
      for (const name in defaults) {
        if (Object.hasOwn(all, name) || Object.hasOwn(more, name)) continue;
        head += `${name}: ${defaults[name]}\r\n`;
      }
      head += "\r\n";
      if (typeof body !== "string") return [Buffer.from(head), ...body];
      return body.length > JOINED_CHARS_MAX
        ? [Buffer.from(head), Buffer.from(body)]
        : [encodeUtf8(head + body)];
    };
  }

  /**
   * A URL that the server has sent, relative or not; null if it is on another server,
   * which is never asked.
   */
  ownUrl(address: string): URL | null {
    const url = URL.parse(address, `${this.#baseUrl.href}/`);
    return url?.origin === this.#baseUrl.origin ? url : null;
  }

  /** Sends a request and returns what `read` makes of the response. */
  async exchange<Result>(
    request: ServerRequest,
    read: (response: ServerResponse) => Promise<Result>,
  ): Promise<Result> {
    const { encode, body, context, signal = context.signal } = request;
    const { connect_ms, first_token_ms, total_ms } = this.config.deadlines;
    const { totalMs = total_ms, statuses = ANSWERED } = request;
    const deadlines = new AttemptDeadlines({
      deadlines: this.#deadlines,
      now: this.now,
      callSignal: signal,
      totalMs,
    });
    let connection: HttpConnection | null = null;
    let isDone = false;
    try {
      deadlines.throwIfEnded();
      let head: ResponseHead | null = null;
      // Twice if the server closes an idle connection at this moment, which is no
      // failure.
      while (connection === null || head === null) {
        connection = await this.#client.connection(deadlines, connection);
        if (request.mustBeginSoon) deadlines.arm("firstToken", first_token_ms);
        else deadlines.rest();
        head = await connection.exchange(encode(body, context), deadlines);
      }
      this.#onHead?.(head);
      if (statuses !== "all" && !statuses.includes(head.status)) {
        deadlines.arm("betweenTokens", connect_ms);
        throw await readErrorResponse(head, connection, {
          redact: this.redact,
          scrub: request.keepsRefusals ? this.scrub : undefined,
        });
      }
      const result = await read({ server: this, head, connection, deadlines });
      isDone = true;
      return result;
    } finally {
      deadlines.dispose();
      connection?.release({ isDone });
    }
  }

  /** Closes idle connections. Running requests continue. */
  close(): void {
    this.#client.close();
    this.#deadlines.closeWhenIdle();
  }
}

/** The header that carries the key of a server, if it has one. */
function credentialOf(
  apiKey: string | null,
  header: BackendConfig["dialect"]["key_header"],
): { readonly [header: string]: string } {
  if (apiKey === null) return {};
  return { [header]: header === "authorization" ? `Bearer ${apiKey}` : apiKey };
}

/** So that a header of the models file replaces the usual one of its name. */
function inLowerCase(
  headers: { readonly [name: string]: string },
): { [name: string]: string } {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]),
  );
}
