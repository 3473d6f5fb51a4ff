/** Reports of workers on backends, for tests of the console. */
import assert from "node:assert/strict";
import {
  type BackendRowInput,
  decodeReport,
  encodeReports,
} from "@gateway/shared/backends/report";
import type { TestConsole } from "./console_fixture.ts";

/** A report of a backend that was not used yet. */
export const ROW = {
  backend: "openai-1",
  preference: 0,
  weight: 1,
  state: "closed",
} as const satisfies Partial<BackendRowInput>;

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
