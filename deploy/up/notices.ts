import type { MonotonicNow } from "@gateway/shared/process/clock";
import { describeEvent, type ServiceEvent } from "./service_event.ts";

/** The same event of the same process is shown at most this often. */
const REPEAT_MS = 10_000;
/** Beyond this many kinds the oldest is forgotten, so that memory stays bounded. */
const KINDS_MAX = 1_000;

interface Shown {
  atMs: number;
  hidden: number;
}

/**
 * Turns warnings and errors of services into lines for the operator, and holds
 * back repeats: a service that cannot reach Redis says so for every request.
 * Answers `undefined` for one that is held back.
 */
export function createEventNotices(
  now: MonotonicNow,
): (unit: string, event: ServiceEvent) => string | undefined {
  const shown = new Map<string, Shown>();
  return (unit, event) => {
    const kind = `${unit} ${event.event}`;
    const last = shown.get(kind);
    if (last && now() - last.atMs < REPEAT_MS) {
      last.hidden++;
      return undefined;
    }
    shown.delete(kind);
    shown.set(kind, { atMs: now(), hidden: 0 });
    const oldest = shown.keys().next();
    if (shown.size > KINDS_MAX && !oldest.done) shown.delete(oldest.value);
    const more = last && last.hidden > 0 ? ` (and ${last.hidden} more)` : "";
    return `${unit} ${event.level}: ${describeEvent(event)}${more}`;
  };
}
