/**
 * Control messages of an edge to a worker about the streams that it receives: many
 * records of 25 bytes in one message, for any number of streams. Big-endian.
 *
 * ```
 * 0  u8   version        1
 * then for each record
 * 0  u8   type           1 ACK, 2 NAK, 3 CANCEL
 * 1  16   request id     the 32 hex characters as bytes
 * 17 u32  offer number   a worker ignores records for an offer that it does not run
 * 21 u32  value          ACK: the client has everything up to this number
 *                        NAK: send again from this number on
 *                        CANCEL: the reason, see CancelReason
 * ```
 *
 * A message without records is a probe: a worker answers it on its reply subject.
 */

import { readU32, writeU32 } from "./frame.ts";

const CONTROL_VERSION = 1;
/** The length of one record in a message. */
export const CONTROL_RECORD_BYTES = 25;

/**
 * Why the answer to an offer is cancelled. The index of a reason is its code on the
 * wire, so new ones are added at the end.
 */
export const CANCEL_REASONS = [
  "other",
  "client_gone",
  "slow_client",
  "not_accepted",
  "worker_lost",
  "edge_lost",
  "unknown_stream",
  "violation",
  "deadline",
  "key_revoked",
  "shutdown",
  "request_stopped",
] as const;

/**
 * One of {@link CANCEL_REASONS}. `unknown_stream`: the edge does not know the offer, or
 * has forgotten it. `other`: a reason that only another version knows.
 */
export type CancelReason = typeof CANCEL_REASONS[number];

/**
 * What an edge wants of the sender of a stream. `ack`: it may forget the frames up to
 * `sequence`. `nak`: it must send them again from `sequence` on. `cancel`: it must
 * stop.
 */
export type ControlAction =
  | { type: "ack" | "nak"; sequence: number }
  | { type: "cancel"; reason: CancelReason };

/**
 * An action and the stream it is for. `requestId` has 32 hex characters; a worker
 * ignores a record for an offer that it does not run.
 */
export type ControlRecord = ControlAction & {
  requestId: string;
  offerNumber: number;
};

const RECORD_TYPES = ["ack", "nak", "cancel"] as const;

/**
 * A message without records, which a worker answers: whoever receives that answer knows
 * that the worker is alive and in reach.
 */
export const CONTROL_PROBE: Uint8Array = Uint8Array.of(CONTROL_VERSION);

/**
 * Returns one message with these records. With the default limit of a NATS server
 * (1 MiB) it may carry up to 40,000.
 */
export function encodeControl(records: readonly ControlRecord[]): Uint8Array {
  const message = new Uint8Array(1 + records.length * CONTROL_RECORD_BYTES);
  message[0] = CONTROL_VERSION;
  let at = 1;
  for (const record of records) {
    message[at] = RECORD_TYPES.indexOf(record.type) + 1;
    message.subarray(at + 1, at + 17).setFromHex(record.requestId);
    writeU32(message, at + 17, record.offerNumber);
    const value = record.type === "cancel"
      ? CANCEL_REASONS.indexOf(record.reason)
      : record.sequence;
    writeU32(message, at + 21, value);
    at += CONTROL_RECORD_BYTES;
  }
  return message;
}

/**
 * Returns the records of a message, none if it is truncated or of another version.
 * Skips records of an unknown type.
 */
export function decodeControl(message: Uint8Array): ControlRecord[] {
  const records: ControlRecord[] = [];
  if (
    message[0] !== CONTROL_VERSION ||
    (message.length - 1) % CONTROL_RECORD_BYTES !== 0
  ) return records;
  for (let at = 1; at < message.length; at += CONTROL_RECORD_BYTES) {
    const type = RECORD_TYPES[(message[at] ?? 0) - 1];
    const requestId = message.subarray(at + 1, at + 17).toHex();
    const offerNumber = readU32(message, at + 17);
    const value = readU32(message, at + 21);
    if (type === "cancel") {
      const reason = CANCEL_REASONS[value] ?? "other";
      records.push({ type, requestId, offerNumber, reason });
    } else if (type !== undefined) {
      records.push({ type, requestId, offerNumber, sequence: value });
    }
  }
  return records;
}
