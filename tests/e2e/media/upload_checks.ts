// Promise: whatever becomes of an upload, its worker gets the slot back, and an edge
// never holds a whole file.
import assert from "node:assert/strict";
import { callApi } from "../../support/chat_request.ts";
import { readStatus } from "../../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../../support/gateway/launched.ts";
import { sleep, until } from "../../support/wait_for.ts";
import { formOf, recording, silence } from "./recording_fixture.ts";

const RECORDING = "simulated-transcription-1";
const MIB = 1024 * 1024;
/** What the sockets of a connection may hold, in MiB. */
const MIB_OF_KERNEL = 8;

/** A gateway, and a key that may transcribe. */
interface Uploads {
  gateway: LaunchedGateway;
  baseURL: string;
  apiKey: string;
}

/**
 * Sends the first MiB of a recording, or more, and the rest when the test says so.
 */
async function beginUpload(
  { gateway, baseURL, apiKey }: Uploads,
  { mib = 4, stopMib = 1 } = {},
) {
  const file = new File([recording(mib * MIB)], "a.wav");
  const form = new Response(formOf(["file", file], ["model", RECORDING]));
  const bytes = await form.bytes();
  const upload = {
    sentMib: 0,
    rest: Promise.withResolvers<void>(),
    leaving: new AbortController(),
  };
  const pieces = async function* () {
    for (; upload.sentMib <= mib; upload.sentMib += 1) {
      if (upload.sentMib === stopMib) await upload.rest.promise;
      const at = upload.sentMib * MIB;
      yield bytes.subarray(at, at + MIB);
    }
  };
  const answered = fetch(`${baseURL}/audio/transcriptions`, {
    method: "POST",
    body: ReadableStream.from(pieces()),
    headers: {
      authorization: `Bearer ${apiKey}`,
      "content-type": form.headers.get("content-type") ?? "",
    },
    signal: upload.leaving.signal,
  });
  answered.catch(() => {}); // It may leave before the answer.
  await gateway.runs("media-worker", 1);
  return Object.assign(upload, { answered });
}

async function holdsLittle(uploads: Uploads) {
  const { gateway } = uploads;
  const mib = 24;
  const upload = await beginUpload(uploads, { mib });
  const worker = gateway.pid("media-worker");
  let before = 0;
  Deno.kill(worker, "SIGSTOP");
  upload.rest.resolve();
  await until(async () => {
    before = upload.sentMib;
    await sleep(200);
    return before > 1 && upload.sentMib === before;
  });
  Deno.kill(worker, "SIGCONT");
  // The buffers of the kernel take some of it.
  assert.ok(before < mib - MIB_OF_KERNEL, `${before} MiB of ${mib}`);
  const response = await upload.answered;
  assert.equal(response.status, 200);
  assert.match((await response.json()).text, /a\.wav/);
  await gateway.runs("media-worker", 0);
}

async function losesClient(uploads: Uploads) {
  const { gateway } = uploads;
  const upload = await beginUpload(uploads);
  upload.leaving.abort();
  await gateway.runs("media-worker", 0);
}

async function losesWorker(uploads: Uploads) {
  const { gateway, baseURL, apiKey } = uploads;
  const stopMib = MIB_OF_KERNEL + 1;
  const upload = await beginUpload(uploads, { mib: 2 * stopMib, stopMib });
  // This much has left the client only once the worker has accepted the job.
  await until(() => upload.sentMib === stopMib);
  const pid = gateway.pid("media-worker");
  Deno.kill(pid, "SIGKILL");
  const response = await upload.answered;
  assert.equal(response.status, 502);
  assert.equal((await response.json()).error.code, "worker_lost");
  await gateway.isReplaced("media-worker", pid);
  const form = formOf(["model", RECORDING], ["file", silence()]);
  const again = () =>
    readStatus(
      callApi(`${baseURL}/audio/transcriptions`, apiKey, { body: form }),
    );
  await until(async () => await again() === 200);
}

/** Uploads recordings through this gateway, whose media worker is killed at the end. */
export async function checkUploads(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const { key: apiKey } = await gateway.createKey("--scopes=speech");
  const uploads = { gateway, baseURL: gateway.baseUrl(), apiKey };

  await t.step(
    "an edge holds no more than the worker takes",
    () => holdsLittle(uploads),
  );

  await t.step(
    "a client that leaves gives the slot back",
    () => losesClient(uploads),
  );

  await t.step(
    "its worker killed: an error, the next one works",
    () => losesWorker(uploads),
  );
}
