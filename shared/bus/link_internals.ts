import {
  type NatsConnection,
  NatsConnectionImpl,
  type ProtocolHandler,
} from "nats";
import { LinkTransport } from "./link_transport.ts";

/**
 * The parts of the client that its documented interface hides and that this link
 * cannot do without. The client's version is pinned; whatever a new version moves
 * is found when the first connection is made, not when it is needed.
 */
export class ClientInternals {
  readonly #protocol: ProtocolHandler;

  /** @throws Error when the client is not built as expected. */
  constructor(client: NatsConnection) {
    if (
      !(client instanceof NatsConnectionImpl) ||
      !(client.protocol.transport instanceof LinkTransport)
    ) {
      throw new Error("Cannot use the NATS client: it has an unknown form");
    }
    this.#protocol = client.protocol;
  }

  /** Exact at once, while the client's status events come some turns later. */
  get isConnected(): boolean {
    return this.#protocol.connected;
  }

  /** Bytes that were published and not yet taken by the operating system. */
  get pendingBytes(): number {
    const { outbound, transport } = this.#protocol;
    const inSocket = transport instanceof LinkTransport
      ? transport.pendingBytes
      : 0;
    return outbound.size() + inSocket;
  }
}
