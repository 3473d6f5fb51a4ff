/** What a request that waits costs: memory, and time to add it and to take it out. */
import { FairQueue } from "../../services/edge-auth/dispatch/queue/fair_queue.ts";
import type { Sharing } from "../../services/edge-auth/dispatch/queue/share.ts";
import { print } from "../../tests/support/process.ts";

const COUNTS = [1_000, 10_000];
/** How many accounts wait, and keys of each; 0: each request has its own account. */
const SHAPES = [[1, 1], [100, 1], [100, 100], [0, 1]] as const;
const TOKENS_MAX = 100;
const US_PER_MS = 1_000;

/** Prints figures for queues of several lengths. */
export function measureWaiting(): void {
  const collect = Reflect.get(globalThis, "gc");
  print("\nRequests that wait, at one edge");
  for (const count of COUNTS) {
    for (const [accounts, keys] of SHAPES) {
      const items = itemsOf(count, accounts || count, keys);
      collectGarbage(collect);
      const before = Deno.memoryUsage().heapUsed;
      const queue = new FairQueue<Sharing>();
      const pushUs = timeUs(() => items.forEach((item) => queue.push(item)));
      collectGarbage(collect);
      const bytes = (Deno.memoryUsage().heapUsed - before) / count;
      const besides = new Set<string>();
      const takeUs = timeUs(() => {
        for (;;) {
          const item = queue.next(besides);
          if (item === undefined) break;
          queue.take(item);
        }
      });
      print(
        `${count} of ${accounts || count} accounts, ${keys} keys each: ` +
          `${typeof collect === "function" ? bytes.toFixed(0) : "?"} bytes, ` +
          `${(pushUs / count).toFixed(1)} us to add, ` +
          `${(takeUs / count).toFixed(1)} us to take`,
      );
    }
  }
}

function itemsOf(count: number, accounts: number, keys: number): Sharing[] {
  return Array.from({ length: count }, (_, at) => ({
    lane: "m",
    sinceMs: at,
    share: {
      account: `a${at % accounts}`,
      keyId: `k${at % (accounts * keys)}`,
      weight: 1,
      keyWeight: 1,
      tokens: 1 + at % TOKENS_MAX,
      isBatch: false,
    },
  }));
}

function timeUs(run: () => void): number {
  const before = performance.now();
  run();
  return US_PER_MS * (performance.now() - before);
}

function collectGarbage(collect: unknown): void {
  if (typeof collect === "function") collect();
}
