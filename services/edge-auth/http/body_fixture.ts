/** Shared by the tests of bodies and forms. */
import type { Deadlines, Timed } from "@gateway/shared/process/deadlines";

/** Deadlines by a clock that the test moves on. */
export function testDeadlines() {
  let nowMs = 0;
  const due = new Set<Timed>();
  const deadlines: Deadlines = {
    get size() {
      return due.size;
    },
    add: (item) => void due.add(item),
    remove: (item) => void due.delete(item),
    closeWhenIdle: () => {},
    close: () => {},
  };
  return {
    deadlines,
    now: () => nowMs,
    pass(ms: number): void {
      nowMs += ms;
      for (const item of due) if (item.expiresAtMs <= nowMs) item.expire();
    },
  };
}
