/**
 * One connection to one Redis server: signs in, sends commands, and matches the replies
 * to them by their order. It neither reconnects nor limits how long a reply may take:
 * that is the matter of its owner.
 */
import { connect as connectTcp, type Socket } from "node:net";
import { setImmediate } from "node:timers";
import { connect as connectTls } from "node:tls";
import { defined } from "../process/env.ts";
import type { RedisAccess } from "../process/service_variables.ts";
import { RedisReplyError } from "./errors.ts";
import { encodeCommand, type RedisReply, ReplyReader } from "./resp.ts";

/** The server, how to sign in, and the name to show there. */
export interface ServerAddress extends Omit<RedisAccess, "sentinels"> {
  /** Shown by `CLIENT LIST`. Letters, digits, `-`, `_`. */
  clientName?: string;
}

const DEFAULT_PORT = 6379;
/** After such a silence the kernel asks whether the other end still exists. */
const KEEP_ALIVE_MS = 30_000;

/** A command that was sent and has no reply yet. */
interface SentCommand {
  resolve(reply: RedisReply): void;
  reject(error: Error): void;
}

/** A connection from its first packet to its end. */
export class RedisClient {
  readonly #address: ServerAddress;
  readonly #socket: Socket;
  readonly #onLost: (cause: Error) => void;
  /** In the order in which they were sent, which is that of their replies. */
  readonly #sent: SentCommand[] = [];
  /** Before it lies what was answered; the list is shortened now and then. */
  #answered = 0;
  /** Commands of this turn of the event loop, which are sent in one write. */
  #unwritten = "";
  #signedIn = false;
  #isOver = false;

  /**
   * Begins to connect. `onLost` is called at most once, when the connection breaks or
   * cannot be made, and not after {@link destroy}.
   */
  constructor(address: ServerAddress, onLost: (cause: Error) => void) {
    this.#address = address;
    this.#onLost = onLost;
    this.#socket = openSocket(address);
    const reader = new ReplyReader((reply) => this.#answer(reply));
    this.#socket.on("data", (bytes: Uint8Array) => {
      try {
        reader.push(bytes);
      } catch (error) {
        this.#lose(asError(error));
      }
    });
    this.#socket.on("error", (error) => this.#lose(error));
    // A server that has ended a connection reads nothing that is written to it.
    for (const event of ["end", "close"]) {
      this.#socket.on(event, () => this.#lose(new Error("Connection closed")));
    }
  }

  /** Whether commands can be sent. */
  get isReady(): boolean {
    return this.#signedIn && !this.#isOver;
  }

  /**
   * Resolves when it is connected, signed in and in its database; rejects with
   * `RedisReplyError` if the server refuses that.
   */
  async signIn(): Promise<void> {
    await Promise.all(
      signInCommands(this.#address).map((args) => this.send(args)),
    );
    this.#signedIn = true;
  }

  /**
   * Sends a command after those already sent. Rejects with `RedisReplyError` if the
   * server refuses it, and with the cause if the connection is lost.
   */
  send(args: readonly string[]): Promise<RedisReply> {
    if (this.#isOver) return Promise.reject(new Error("Not connected"));
    if (this.#unwritten === "") setImmediate(() => this.#write());
    this.#unwritten += encodeCommand(args);
    const { promise, resolve, reject } = Promise.withResolvers<RedisReply>();
    this.#sent.push({ resolve, reject });
    return promise;
  }

  /** Ends the connection; commands without a reply reject. */
  destroy(): void {
    this.#end(new Error("Connection closed by this process"));
  }

  #write(): void {
    const text = this.#unwritten;
    this.#unwritten = "";
    if (!this.#isOver) this.#socket.write(text);
  }

  #answer(reply: RedisReply | RedisReplyError): void {
    const command = this.#sent[this.#answered];
    if (command === undefined) {
      return this.#lose(new Error("Redis sent a reply to nothing"));
    }
    this.#answered += 1;
    if (this.#answered * 2 > this.#sent.length) {
      this.#sent.splice(0, this.#answered);
      this.#answered = 0;
    }
    if (reply instanceof RedisReplyError) command.reject(reply);
    else command.resolve(reply);
  }

  #lose(cause: Error): void {
    if (this.#isOver) return;
    this.#end(cause);
    this.#onLost(cause);
  }

  #end(cause: Error): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#socket.destroy();
    const unanswered = this.#sent.splice(0).slice(this.#answered);
    for (const { reject } of unanswered) reject(cause);
  }
}

function openSocket({ url, tlsCa, tlsCert, tlsKey }: ServerAddress): Socket {
  const { protocol, hostname, port } = new URL(url);
  const target = {
    // URLs write IPv6 addresses in brackets.
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port: port === "" ? DEFAULT_PORT : Number(port),
    noDelay: true,
    keepAlive: true,
    keepAliveInitialDelay: KEEP_ALIVE_MS,
  };
  return protocol === "rediss:"
    ? connectTls({
      ...target,
      ...defined({ ca: tlsCa, cert: tlsCert, key: tlsKey }),
    })
    : connectTcp(target);
}

/** The sign-in of the URL comes before that of the variables. */
function signInCommands(
  { url, username, password, clientName }: ServerAddress,
): string[][] {
  const { username: urlUser, password: urlPassword, pathname } = new URL(url);
  const isInUrl = urlUser !== "" || urlPassword !== "";
  const user = isInUrl ? decodeURIComponent(urlUser) : username ?? "";
  const secret = isInUrl ? decodeURIComponent(urlPassword) : password ?? "";
  const database = Number(pathname.slice(1));
  const commands: string[][] = [];
  if (user !== "") commands.push(["AUTH", user, secret]);
  else if (secret !== "") commands.push(["AUTH", secret]);
  if (database !== 0) commands.push(["SELECT", String(database)]);
  if (clientName) commands.push(["CLIENT", "SETNAME", clientName]);
  return commands;
}

const asError = (error: unknown): Error =>
  error instanceof Error ? error : new Error(String(error));
