/** The record of an answer that runs, as tests without a server read it. */
import { KEPT_KEY_BYTES } from "@gateway/shared/kept/entry";
import type { KeptRecord } from "../../services/edge-auth/kept/records.ts";

/** A record whose run may take this long, in ms. */
export const runningRecord = (endsByMs: number): KeptRecord => ({
  requestId: "0123456789abcdef0123456789abcdef",
  ownerId: "own",
  key: new Uint8Array(KEPT_KEY_BYTES).fill(7),
  state: "running",
  facts: {
    keyId: "key",
    model: "m",
    kind: "chat",
    endpoint: "chat",
    stream: true,
    createdAtMs: 0,
    keepMs: 60_000,
    endsByMs,
  },
  terms: null,
  end: null,
});
