/** A model server that begins answers and then vanishes, by a reset or into silence. */
import assert from "node:assert/strict";
import net from "node:net";
import type { Step } from "./scripted_server.ts";

/** A server that sends the start of an answer to each request, and nothing by itself. */
export class VanishingServer implements AsyncDisposable {
  readonly #server: net.Server;
  /** As an SDK takes it. */
  readonly url: string;
  /** Its connections, each with one request, in the order in which they came. */
  readonly sockets: net.Socket[] = [];
  /** What it says of each answer before it vanishes. */
  start = "";
  /** How many requests have come. */
  requests = 0;

  static async open(): Promise<VanishingServer> {
    const server = net.createServer();
    await new Promise<void>((resolve) =>
      server.listen(0, "127.0.0.1", resolve)
    );
    const address = server.address();
    assert.ok(address !== null && typeof address === "object");
    return new VanishingServer(server, address.port);
  }

  private constructor(server: net.Server, port: number) {
    this.#server = server;
    this.url = `http://127.0.0.1:${port}/v1`;
    server.on("connection", (socket) => {
      this.sockets.push(socket);
      socket.on("error", () => socket.destroy()); // The worker has left first.
      socket.once("data", () => {
        this.requests += 1;
        if (this.start !== "") socket.write(this.start);
      });
    });
  }

  /** Ends all connections as the kernel of a machine does whose process died. */
  reset(): void {
    for (const socket of this.sockets) socket.resetAndDestroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.reset();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

/** What these steps of a scripted server send. */
export const textOf = (steps: Iterable<Step>): string =>
  [...steps].map((step) => ("send" in step ? `${step.send}` : "")).join("");
