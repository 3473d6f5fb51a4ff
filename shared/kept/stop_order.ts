/** The order to stop a request whose answer is kept, wherever it runs. */
import { z } from "zod";
import { encodeJson, parsePayload } from "../bus/stream/frame.ts";

const orderSchema = z.object({
  /** 32 hexadecimal digits. */
  requestId: z.string(),
  /** Whose request it is. */
  account: z.string(),
});

/** Which request is to be stopped. */
export type StopOrder = z.infer<typeof orderSchema>;

/** Returns the message of an order. */
export const encodeStopOrder = (order: StopOrder): Uint8Array =>
  encodeJson(order);

/** Reads an order; null if it is malformed. */
export const decodeStopOrder = (bytes: Uint8Array): StopOrder | null =>
  parsePayload(orderSchema, bytes);

/** The notice of key-admin to stop the running requests of a key. */
const keyNoticeSchema = z.object({
  keyId: z.string(),
  action: z.literal("stop"),
});

/** The key whose requests are to be stopped; null: it is another notice. */
export const stoppedKeyIn = (bytes: Uint8Array): string | null =>
  parsePayload(keyNoticeSchema, bytes)?.keyId ?? null;
