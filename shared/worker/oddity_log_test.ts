/** Oddities of backends in the log. */
import assert from "node:assert/strict";
import { createRecordingLog } from "../../tests/support/recording_log.ts";
import { OddityLog } from "./oddity_log.ts";

Deno.test("OddityLog writes one line per backend and minute, with the counts since the last one", () => {
  let nowMs = 0;
  const log = createRecordingLog();
  const oddities = new OddityLog(log, () => nowMs);
  const note = (backend: string, count: number) =>
    oddities.note("m", { backend, oddity: "event_skipped", count });
  note("a", 2);
  note("b", 1);
  nowMs = 59_999;
  note("a", 3);
  oddities.note("m", { backend: "a", oddity: "label_ignored", count: 1 });
  nowMs = 60_000;
  note("a", 4);
  const lines = log.lines.map(({ event, fields }) => {
    const { message: _, ...counts } = fields;
    return { event, ...counts };
  });
  const event = "backend_oddities";
  assert.deepEqual(lines, [
    { event, model: "m", backend: "a", event_skipped: 2 },
    { event, model: "m", backend: "b", event_skipped: 1 },
    { event, model: "m", backend: "a", event_skipped: 7, label_ignored: 1 },
  ]);
});
