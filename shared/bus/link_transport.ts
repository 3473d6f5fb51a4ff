import type { Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import type { ServerInfo } from "nats";
import { NodeTransport } from "nats/lib/node_transport.js";

/** The client hands its options down, so one of ours can be among them. */
export interface TransportOptions {
  /** Hears every error of a socket: they say more than the client's timeouts. */
  onSocketError: (error: Error) => void;
}

/**
 * The socket below the NATS client, with three faults of the client's own mended:
 *
 * - It leaves a stale connection only after it has written out what it still has to
 *   send. To a server that reads nothing this never ends, even with a healthy second
 *   server in the pool. Here the socket is destroyed at once.
 * - At moments while it dials or closes nobody listens for errors of the socket. One
 *   that comes then, say of a refused login or certificate, ends the whole process.
 * - It leaves the socket open when a server accepts the connection and says nothing.
 */
export class LinkTransport extends NodeTransport {
  /** Bytes that the operating system has not taken yet. */
  get pendingBytes(): number {
    return this.#currentSocket()?.writableLength ?? 0;
  }

  override async peekInfo(): Promise<ServerInfo> {
    const info = await this.#readInfo();
    this.#listenForErrors(this.socket);
    if (info.tls_verify === true && this.options.tls?.certFile === undefined) {
      throw new Error(
        "the server demands a client certificate, and none is configured",
      );
    }
    return info;
  }

  override async startTLS(): Promise<TLSSocket> {
    const { ca, cert, key } = await this.loadClientCerts() ?? {};
    const socket = connectTls({
      socket: this.socket,
      servername: this.tlsName,
      rejectUnauthorized: true,
      ...(ca === undefined ? {} : { ca }),
      ...(cert === undefined ? {} : { cert }),
      ...(key === undefined ? {} : { key }),
    });
    this.#listenForErrors(socket);
    const { promise, resolve, reject } = Promise.withResolvers<TLSSocket>();
    socket.once("secureConnect", () => resolve(socket));
    socket.once("error", reject);
    socket.once(
      "close",
      () => reject(new Error("the server hung up during TLS")),
    );
    return promise;
  }

  override disconnect(): void {
    this.#currentSocket()?.destroy();
  }

  override close(error?: Error): Promise<void> {
    const socket = this.#currentSocket();
    if (!this.connected) this.discard();
    const closed = super.close(error);
    this.#listenForErrors(socket);
    return closed;
  }

  override discard(): void {
    const socket = this.#currentSocket();
    super.discard();
    this.#listenForErrors(socket);
  }

  async #readInfo(): Promise<ServerInfo> {
    try {
      return await super.peekInfo();
    } catch (error) {
      throw error ?? new Error("the server hung up without a greeting");
    }
  }

  /** To be called again after the client has removed all listeners. */
  #listenForErrors(socket: Socket | undefined): void {
    socket?.on("error", (error) => onSocketErrorIn(this.options)(error));
  }

  /** There is none before a dial has got through and after the end. */
  #currentSocket(): Socket | undefined {
    return this.socket;
  }
}

function onSocketErrorIn(options: object): (error: Error) => unknown {
  if (
    "onSocketError" in options && typeof options.onSocketError === "function"
  ) {
    const listener = options.onSocketError;
    return (error) => listener(error);
  }
  return () => {};
}
