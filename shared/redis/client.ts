/**
 * The client of one connection to Redis: a socket and node-redis' decoder. The client
 * of that package would load all 450 commands of Redis, of which we send none by name;
 * that takes longer than the rest of a service's start.
 */
import { Buffer } from "node:buffer";
import net from "node:net";
import tls from "node:tls";
import { Decoder } from "redis/dist/lib/RESP/decoder.js";
import { defined } from "../process/env.ts";

/** A reply in protocol version 2: bulk and simple strings, integers, nil, arrays. */
export type RedisReply = string | number | null | RedisReply[];

/** The server of a {@link RedisClient}, and how to sign in there. */
export interface RedisServer {
  /** `redis:` or `rediss:`; its user, password and database win over the others. */
  url: string;
  username?: string;
  password?: string;
  /** PEM texts, for `rediss:`: the authorities to trust, and a certificate. */
  tlsCa?: string;
  tlsCert?: string;
  tlsKey?: string;
  clientName?: string;
}

type Waiting = Pick<PromiseWithResolvers<RedisReply>, "resolve" | "reject">;

const PORT = 6379;
const KEEP_ALIVE_AFTER_MS = 30_000;

/**
 * Connects at once. What is sent before waits for the connection, without a limit: the
 * caller has the deadline, and destroys the client.
 */
export class RedisClient {
  readonly #socket: net.Socket;
  readonly #onLost: (cause: unknown) => void;
  readonly #decoder: Decoder;
  /** In the order of the commands, which is that of the replies. */
  readonly #waiting: Waiting[] = [];
  /** Commands of this turn of the event loop, sent in one write. */
  #unsent = "";
  #isOpen = true;

  /** `onLost` is called once, unless the client was destroyed before. */
  constructor(server: RedisServer, onLost: (cause: unknown) => void) {
    this.#onLost = onLost;
    this.#decoder = new Decoder({
      onReply: (reply: RedisReply) => this.#next().resolve(reply),
      onErrorReply: (error) => this.#next().reject(error),
      onPush: () => {}, // Only in protocol version 3.
      getTypeMapping: () => ({}),
    });
    const close = () => this.#lose(new Error("Redis closed the connection"));
    this.#socket = openSocket(server)
      .on("data", (bytes) => this.#read(bytes))
      .on("error", (cause) => this.#lose(cause))
      .on("end", close)
      .on("close", close);
  }

  /** False as soon as the connection is lost or destroyed. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Sends a command after those already sent. Rejects with an `ErrorReply` if the
   * server refuses it, with the cause if the connection is lost.
   */
  send(args: readonly string[]): Promise<RedisReply> {
    if (!this.#isOpen) return Promise.reject(new Error("Not connected"));
    const { promise, resolve, reject } = Promise.withResolvers<RedisReply>();
    this.#waiting.push({ resolve, reject });
    if (this.#unsent === "") setImmediate(() => this.#write());
    this.#unsent += encode(args);
    return promise;
  }

  /** Closes the connection now, and fails what waits for a reply. */
  destroy(cause: unknown = new Error("The connection was given up")): void {
    this.#isOpen = false;
    this.#socket.destroy();
    for (const { reject } of this.#waiting.splice(0)) reject(cause);
  }

  #lose(cause: unknown): void {
    if (!this.#isOpen) return;
    this.destroy(cause);
    this.#onLost(cause);
  }

  #write(): void {
    if (this.#isOpen) this.#socket.write(this.#unsent);
    this.#unsent = "";
  }

  #read(bytes: Buffer): void {
    if (!this.#isOpen) return;
    try {
      this.#decoder.write(bytes);
    } catch (cause) {
      this.#lose(cause);
    }
  }

  #next(): Waiting {
    const waiting = this.#waiting.shift();
    if (waiting === undefined) throw new Error("A reply to no command");
    return waiting;
  }
}

/**
 * The commands that sign in, name the connection and choose the database, as far as
 * the server's address says so.
 */
export function signInCommands(
  { url, username, password, clientName }: RedisServer,
): string[][] {
  const login = new URL(url);
  const user = decodeURIComponent(login.username) || username;
  const secret = decodeURIComponent(login.password) || password;
  const database = login.pathname.slice(1);
  const commands: string[][] = [];
  if (user || secret) {
    commands.push(["AUTH", ...(user ? [user] : []), secret ?? ""]);
  }
  if (clientName) commands.push(["CLIENT", "SETNAME", clientName]);
  if (database !== "") commands.push(["SELECT", database]);
  return commands;
}

function openSocket(
  { url, tlsCa, tlsCert, tlsKey }: RedisServer,
): net.Socket {
  const { protocol, hostname, port } = new URL(url);
  const options = {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port: Number(port || PORT),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_AFTER_MS,
  };
  if (protocol !== "rediss:") return net.createConnection(options);
  return tls.connect({
    ...options,
    ...defined({ ca: tlsCa, cert: tlsCert, key: tlsKey }),
  });
}

/** A command as an array of bulk strings. */
function encode(args: readonly string[]): string {
  let text = `*${args.length}\r\n`;
  for (const arg of args) {
    text += `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`;
  }
  return text;
}
