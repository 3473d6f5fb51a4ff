/** Days and hours as counters are kept: in UTC. */

const DAY_MS = 86_400_000;

/** `20261120` */
export function dayOf(timeMs: number): string {
  return new Date(timeMs).toISOString().slice(0, 10).replaceAll("-", "");
}

/** The last `count` days, oldest first, today included. */
export function lastDays(nowMs: number, count: number): string[] {
  return Array.from(
    { length: count },
    (_, at) => dayOf(nowMs - (count - 1 - at) * DAY_MS),
  );
}
