/** Which message of the bus goes where, and what an edge says there by itself. */
import { z } from "zod";
import { type BusLink, isNoResponders } from "@gateway/shared/bus/link";
import {
  edgeBeatSubject,
  edgeStreamWildcard,
  keyChangedSubject,
  workerBeatWildcard,
} from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS, STREAM_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import type { ChatDispatcher } from "./dispatcher.ts";

const EMPTY = new Uint8Array(0);

const stopNoticeSchema = z.object({
  keyId: z.string(),
  action: z.literal("stop"),
});

/** What the messages of the bus are for. */
export interface BusParts {
  bus: BusLink;
  edgeId: string;
  dispatcher: ChatDispatcher;
  log: Log;
}

/** Connects the dispatcher to the bus and the clock, and beats. Returns what ends the latter two. */
export async function joinBus(parts: BusParts): Promise<() => void> {
  const { bus, edgeId, dispatcher } = parts;
  bus.subscribe(edgeStreamWildcard(edgeId), (message) => {
    const isLost = isNoResponders(message);
    dispatcher.onStreamMessage(message.subject, message.data, isLost);
  });
  bus.subscribe(
    workerBeatWildcard,
    ({ subject, data }) => dispatcher.onBeatMessage(subject, data),
  );
  bus.subscribe(keyChangedSubject, ({ data }) => stopKeyRequests(data, parts));
  await bus.flush();
  // The bus flows from here on: losing it before the first tick counts as an outage.
  dispatcher.tick();
  const beat = () => {
    if (bus.isConnected) bus.publish(edgeBeatSubject(edgeId), EMPTY);
  };
  beat();
  const beats = setInterval(beat, DISPATCH_LIMITS.edgeBeatMs);
  const ticks = setInterval(() => dispatcher.tick(), STREAM_LIMITS.tickMs);
  return () => {
    clearInterval(beats);
    clearInterval(ticks);
  };
}

/**
 * Takes in a message on the key subject: the running requests of a key are to be
 * stopped. The state of the key itself is read from Redis by every request and
 * needs no notice. Anything but a notice to stop is ignored.
 */
export function stopKeyRequests(
  data: Uint8Array,
  { dispatcher, log }: {
    dispatcher: Pick<ChatDispatcher, "stopKey">;
    log: Log;
  },
): void {
  let notice;
  try {
    notice = stopNoticeSchema.parse(JSON.parse(new TextDecoder().decode(data)));
  } catch {
    return; // Not a notice of this version.
  }
  const { keyId } = notice;
  const requests = dispatcher.stopKey(keyId);
  log.info("key_requests_stopped", { keyId, requests });
}
