/** Promise: who reads an answer needs Redis only to learn why nothing comes. */
import assert from "node:assert/strict";
import { FrameType } from "@gateway/shared/bus/stream/frame";
import { sealEntry } from "@gateway/shared/kept/entry";
import type { LogEntry } from "@gateway/shared/kept/log";
import { ApiError } from "@gateway/shared/openai/error";
import { runningRecord } from "../../../tests/bus_simulation/kept_record.ts";
import { KeptWorld } from "../../../tests/bus_simulation/kept_world.ts";
import { seededRandom } from "../../../tests/support/seeded_random.ts";
import { KeptReading } from "./reading.ts";

const RECORD = runningRecord(600_000);

/** An entry with a text, or the end of the answer. */
function entryOf(sequence: number, text: string | null): LogEntry {
  const type = text === null ? FrameType.END : FrameType.DATA;
  const payload = new TextEncoder().encode(text ?? '{"worker":"w"}');
  const place = { offerNumber: 1, number: sequence };
  const frames = [{ type, tokens: 1, payload }];
  return { sequence, bytes: sealEntry(RECORD, place, frames) };
}

/** Reads to the end. */
async function textOf(reading: KeptReading): Promise<string> {
  let text = "";
  for (;;) {
    const part = await reading.next();
    if (part?.type !== "data") return text;
    text += new TextDecoder().decode(part.payload);
  }
}

/** A worker that says nothing for 20 seconds is lost. */
const LATER_MS = 18_000;

/** Reads an answer whose second part comes late, while Redis is away for some time. */
async function readWhile(redisIsAway: (nowMs: number) => boolean) {
  const world = new KeptWorld(seededRandom(1));
  const entries = [entryOf(1, "one ")];
  const later = () => entries.push(entryOf(2, "two "), entryOf(3, null));
  world.schedule(later, LATER_MS);
  const away = new ApiError("service_unavailable", "Redis is away.");
  const firstOf = (from: number) =>
    entries.find(({ sequence }) => sequence >= from) ?? null;
  const reading = new KeptReading({
    record: RECORD,
    log: {
      next: (_id, from) => Promise.resolve(firstOf(from)),
      nextOfLeader: (_id, from) => Promise.resolve(firstOf(from)),
      last: () => Promise.resolve(entries.at(-1) ?? null),
      watch: () => () => {},
    },
    records: {
      find: () =>
        redisIsAway(world.nowMs)
          ? Promise.reject(away)
          : Promise.resolve(RECORD),
    },
    now: () => world.nowMs,
    schedule: world.schedule,
  });
  const all = textOf(reading);
  all.catch(() => {}); // It is expected below.
  await world.play(2 * LATER_MS);
  reading.close();
  return await all;
}

Deno.test("an answer of which nothing comes is read on while Redis is away for a moment", async () => {
  const isAway = (nowMs: number) => nowMs > 6_000 && nowMs < 14_000;
  assert.equal(await readWhile(isAway), "one two ");
});

Deno.test("an answer of which nothing comes is an error once Redis has been away for long", async () => {
  const isAway = (nowMs: number) => nowMs > 5_000;
  await assert.rejects(readWhile(isAway), { code: "service_unavailable" });
});

Deno.test("where a server of the log lacks entries, as one that was just started, its leader is asked", async () => {
  const world = new KeptWorld(seededRandom(1));
  const entries = [entryOf(1, "one "), entryOf(2, "two "), entryOf(3, null)];
  const from = (first: number) => ({ sequence }: LogEntry) => sequence >= first;
  const reading = new KeptReading({
    record: RECORD,
    log: {
      next: (_id, first) =>
        Promise.resolve(entries.slice(1).find(from(first)) ?? null),
      nextOfLeader: (_id, first) =>
        Promise.resolve(entries.find(from(first)) ?? null),
      last: () => Promise.resolve(entries.at(-1) ?? null),
      watch: () => () => {},
    },
    records: { find: () => Promise.resolve(RECORD) },
    now: () => world.nowMs,
    schedule: world.schedule,
  });
  assert.equal(await textOf(reading), "one two ");
  reading.close();
});
