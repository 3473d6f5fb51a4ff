/**
 * Promise: a request that no server of its model can take because of limits waits at
 * its edge, where the fairest comes first, and holds no slot here.
 */
import assert from "node:assert/strict";
import { FrameType } from "../bus/stream/frame.ts";
import { parseReject } from "../bus/stream/payloads.ts";
import { SaturatedError } from "../upstream/http/errors.ts";
import type { JobContext, RunRequest } from "./jobs/job_ports.ts";
import { REQUEST, turns, WorkerRig } from "./worker_fixture.ts";

/** When its edge was told to come again, for each rejection. */
const waitsOf = (t: WorkerRig) =>
  t.frames.filter(({ type }) => type === FrameType.REJECT)
    .map(({ payload }) => parseReject(payload)?.retryAfterMs);

Deno.test("a job for a model whose servers are at limits is rejected with the wait, before it has a slot", async () => {
  let waitMs = 1_500;
  const t = await WorkerRig.start({ saturatedMs: () => waitMs });
  t.job(1);
  assert.deepEqual(t.rejections, ["saturated"]);
  assert.deepEqual(waitsOf(t), [1_500]);
  assert.equal(t.worker.inFlight, 0);
  waitMs = 0;
  t.job(1, { offerNumber: 2 });
  assert.equal(t.worker.inFlight, 1);
});

Deno.test("a job that finds its servers at limits after all goes back to its edge, and leaves nothing here", async () => {
  const calls: JobContext[] = [];
  const run: RunRequest = (_request, call) => {
    calls.push(call);
    return Promise.reject(new SaturatedError(70));
  };
  const t = await WorkerRig.start({ run });
  t.job(1);
  await turns();
  assert.equal(calls[0]?.mayWait, false);
  assert.deepEqual(t.rejections, ["saturated"]);
  assert.deepEqual(waitsOf(t), [70]);
  assert.deepEqual(t.errorCodes, []);
  assert.deepEqual([t.worker.inFlight, t.worker.jobCount], [0, 0]);
});

Deno.test("a job whose request came in pieces waits here, and its refusal is an error", async () => {
  const calls: JobContext[] = [];
  const run: RunRequest = (_request, call) => {
    calls.push(call);
    return Promise.reject(new SaturatedError(30_000));
  };
  const t = await WorkerRig.start({ run, saturatedMs: () => 30_000 });
  t.announce(1);
  t.piece(1, new TextEncoder().encode(JSON.stringify(REQUEST)), 0);
  t.endPieces(1);
  await turns();
  assert.equal(calls[0]?.mayWait, true);
  assert.deepEqual(t.rejections, []);
  assert.deepEqual(t.errorCodes, ["upstream_rate_limited"]);
});

Deno.test("a job that was cancelled while its servers were asked is not handed back", async () => {
  const answered = Promise.withResolvers<void>();
  const run: RunRequest = async () => {
    await answered.promise;
    throw new SaturatedError(70);
  };
  const t = await WorkerRig.start({ run });
  t.job(1);
  t.cancel(1);
  answered.resolve();
  await turns();
  assert.deepEqual(t.rejections, []);
  assert.equal(t.worker.inFlight, 0);
});
