/** Which message of the bus goes where, and what an edge says there by itself. */
import { type BusLink, isNoResponders } from "@gateway/shared/bus/link";
import {
  edgeBeatSubject,
  edgeStreamWildcard,
  keyChangedSubject,
  workerBeatWildcard,
} from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/process/log";
import { type ChatDispatcher, DISPATCH_TICK_MS } from "./dispatcher.ts";
import { type RunningRequests, stopKeyRequests } from "./running_requests.ts";

const EMPTY = new Uint8Array(0);

/** What the messages of the bus are for. */
export interface BusParts {
  bus: BusLink;
  edgeId: string;
  dispatcher: ChatDispatcher;
  running: RunningRequests;
  log: Log;
}

/** Connects the dispatcher to the bus and the clock, and beats. Returns what ends the latter two. */
export async function joinBus(parts: BusParts): Promise<() => void> {
  const { bus, edgeId, dispatcher } = parts;
  bus.subscribe(
    edgeStreamWildcard(edgeId),
    (message) =>
      dispatcher.onStreamMessage(
        message.subject,
        message.data,
        isNoResponders(message),
      ),
  );
  bus.subscribe(
    workerBeatWildcard,
    (message) =>
      dispatcher.liveness.onBeatMessage(message.subject, message.data),
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
  const ticks = setInterval(() => dispatcher.tick(), DISPATCH_TICK_MS);
  return () => {
    clearInterval(beats);
    clearInterval(ticks);
  };
}
