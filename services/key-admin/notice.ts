import { connect } from "nats";
import { keyChangedSubject } from "@gateway/shared/bus/subjects";

/** Tells every edge to end the running requests of a key. */
export interface StopNotice {
  keyId: string;
  ownerId: string;
}

/** Resolves when the notice is with the server; rejects when it is not after a second. */
export type SendStop = (notice: StopNotice) => Promise<void>;

const CONNECT_MS = 1_000;

/**
 * A sender that connects for each notice. They are rare, and a connection made
 * now cannot be one that died unnoticed yesterday: either the notice reaches the
 * server or the caller learns that it did not.
 */
export function createStopSender(natsUrl: string): SendStop {
  return async ({ keyId, ownerId }) => {
    const connection = await connect({
      ...parseNatsUrl(natsUrl),
      timeout: CONNECT_MS,
      reconnect: false,
      name: "key-admin",
    });
    try {
      connection.publish(
        keyChangedSubject,
        JSON.stringify({ keyId, ownerId, action: "stop" }),
      );
      await connection.flush();
    } finally {
      await connection.close();
    }
  };
}

/** The client takes addresses and credentials apart: `nats://user:pass@host:4222`. */
function parseNatsUrl(natsUrl: string) {
  const url = new URL(natsUrl);
  const servers = `${url.hostname}:${url.port || "4222"}`;
  if (url.username === "") return { servers };
  const user = decodeURIComponent(url.username);
  return url.password === ""
    ? { servers, token: user }
    : { servers, user, pass: decodeURIComponent(url.password) };
}
