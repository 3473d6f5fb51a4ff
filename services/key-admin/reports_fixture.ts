/** Reports of workers on backends, for tests of the console. */
import assert from "node:assert/strict";
import {
  type BackendRowInput,
  decodeReport,
  encodeReports,
} from "@gateway/shared/backends/report";
import { encodeEdgeBeat } from "@gateway/shared/bus/waiting";
import type { TestConsole } from "./console_fixture.ts";

/** A report of a backend that was not used yet. */
export const ROW = {
  backend: "openai-1",
  preference: 0,
  weight: 1,
  state: "closed",
} as const satisfies Partial<BackendRowInput>;

/** Delivers the beat of an edge at which requests wait for a model. */
export function tellWaiting(
  { deps }: Pick<TestConsole, "deps">,
  edgeId: string,
  { model, requests, oldestMs }: {
    model: string;
    requests: number;
    oldestMs: number;
  },
): void {
  const waits = { requests, tokens: requests, weight: 1, oldestMs };
  const beat = encodeEdgeBeat(new Map([[model, waits]]));
  deps.workers.waiting.onBeat(edgeId, beat);
}

/** Delivers a worker's report on its backends, as a message of the bus. */
export function tell(
  { deps }: Pick<TestConsole, "deps">,
  workerId: string,
  rows: readonly (Partial<BackendRowInput> & { model: string })[],
): void {
  const all = rows.map((row) => ({ ...ROW, ...row }));
  for (const message of encodeReports("chat", all)) {
    const report = decodeReport(message);
    assert.ok(report !== null);
    deps.workers.backends.take(workerId, report);
  }
}
