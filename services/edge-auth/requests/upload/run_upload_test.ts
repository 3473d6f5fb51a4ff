/**
 * Guarantee: whoever uploads has a place among the requests of his key from the first
 * byte of a file, and takes nothing that others need before enough has arrived.
 */
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { once } from "node:events";
import { mintKey } from "@gateway/shared/keys/key";
import { BUS_LIMITS } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { randomBytes } from "@gateway/shared/process/ids";
import { until } from "../../../../tests/support/wait_for.ts";
import { startApp } from "../../app_fixture.ts";
import {
  type AnswerSink,
  type RunJob,
  RunOutcome,
} from "../../dispatch/outcome.ts";
import { type Upload, WholeBody } from "../../dispatch/request_body.ts";
import type { AdmissionAsk, RunLease } from "../../limits/admission.ts";
import { leaseOf } from "../lease_fixture.ts";

const MODEL = "simulated-transcription-1";
const BOUNDARY = "b0und4ry";
const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const KEY = mintKey(randomBytes);

type Settlement = "undone" | "nothing ran" | RunOutcome["kind"];

interface Started {
  readonly job: RunJob;
  readonly upload: Upload;
  readonly sink: AnswerSink;
  readonly cancels: string[];
  end(outcome: Partial<RunOutcome>): void;
}

/** An edge whose admission and dispatcher write down what they are asked. */
async function setup(
  decide: (ask: AdmissionAsk) => void | Promise<void> = () => {},
) {
  const asks: AdmissionAsk[] = [];
  const settlements: Settlement[] = [];
  const runs: Started[] = [];
  const failures: string[] = [];
  const admit = async (_: unknown, ask: AdmissionAsk): Promise<RunLease> => {
    asks.push(ask);
    await decide(ask);
    return leaseOf(PRINCIPAL, {
      settle(outcome) {
        settlements.push(outcome?.kind ?? "nothing ran");
        return null;
      },
      undo: () => void settlements.push("undone"),
    });
  };
  const app = await startApp({
    keys: { find: () => Promise.resolve(PRINCIPAL) },
    failedRequests: { add: (_, { how }) => void failures.push(how) },
    admission: {
      admit,
      modelsOf: () => Promise.resolve([]),
      checkRefused: () => Promise.resolve(),
    },
    dispatcher: {
      isStoppedSince: () => false,
      start(job, sink, onEnded) {
        const { body } = job;
        assert.ok(!(body instanceof WholeBody));
        const cancels: string[] = [];
        const end = (outcome: Partial<RunOutcome>) =>
          onEnded(Object.assign(new RunOutcome(), outcome));
        runs.push({ job, upload: body, sink, cancels, end });
        return {
          delivered: () => {},
          cancel: (reason) => void cancels.push(reason),
        };
      },
    },
  });
  const [, , port] = app.origin.split(":");
  return { ...app, port: Number(port), asks, settlements, runs, failures };
}

const part = (name: string, value: string, file = "") =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; name="${name}"${file}` +
  `\r\n\r\n${value}`;
const FILE = '; filename="a.wav"\r\ncontent-type: audio/wav';
const END = `\r\n--${BOUNDARY}--\r\n`;
const MODEL_PART = part("model", MODEL) + "\r\n";

/** A client that sends as much of a form as the test says. */
async function openUpload(port: number, body: string): Promise<{
  socket: Socket;
  answer: Promise<string>;
}> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.write(
    "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: x\r\n" +
      `authorization: Bearer ${KEY}\r\ntransfer-encoding: chunked\r\n` +
      `content-type: multipart/form-data; boundary=${BOUNDARY}\r\n\r\n`,
  );
  send(socket, body);
  let text = "";
  const answer = new Promise<string>((resolve) => {
    socket.on("data", (bytes) => {
      text += bytes;
      if (text.includes("}")) resolve(text);
    });
    socket.on("close", () => resolve(text));
  });
  socket.on("error", () => {});
  return { socket, answer };
}

function send(socket: Socket, text: string): void {
  socket.write(`${text.length.toString(16)}\r\n${text}\r\n`);
}

async function drain(upload: Upload): Promise<void> {
  while (await upload.next() !== null);
}

Deno.test("an upload is admitted at its first byte, with the model if that came first", async () => {
  for (const isModelFirst of [true, false]) {
    await using edge = await setup();
    const before = isModelFirst ? MODEL_PART : "";
    const body = before + part("file", "x", FILE);
    const { socket } = await openUpload(edge.port, body);
    await until(() => edge.asks.length === 1);
    assert.partialDeepStrictEqual(edge.asks[0], {
      scope: "speech",
      model: isModelFirst ? MODEL : null,
    });
    socket.destroy();
    await until(() => edge.settlements.length === 1);
    assert.deepEqual(edge.settlements, ["nothing ran"], "the request counts");
  }
});

Deno.test("an upload that the key has no place for is refused at its first byte", async () => {
  const full = new ApiError("concurrency_limit_exceeded", "Too many.");
  await using edge = await setup(() => Promise.reject(full));
  const body = MODEL_PART + part("file", "x", FILE);
  const { socket, answer } = await openUpload(edge.port, body);
  assert.match(await answer, /^HTTP\/1.1 429.*rate_limit_exceeded/s);
  assert.equal(edge.runs.length, 0);
  socket.destroy();
});

Deno.test("an upload takes no slot before a whole piece has arrived, or all of it", async () => {
  await using edge = await setup();
  const { pieceBytes } = BUS_LIMITS;
  const body = MODEL_PART + part("file", "x".repeat(pieceBytes - 1_000), FILE);
  const slow = await openUpload(edge.port, body);
  await until(() => edge.asks.length === 1);
  const whole = await openUpload(
    edge.port,
    MODEL_PART + part("file", "sound", FILE) + END,
  );
  send(whole.socket, "");
  await until(() => edge.runs.length === 1);
  assert.equal(edge.runs[0]?.job.model, MODEL);
  send(slow.socket, "x".repeat(1_000));
  await until(() => edge.runs.length === 2);
  for (const { socket } of [slow, whole]) socket.destroy();
  await until(() => edge.runs.every(({ cancels }) => cancels.length > 0));
  for (const run of edge.runs) run.end({ cancelReason: "client_gone" });
  assert.equal(edge.settlements.length, 2);
});

Deno.test("the end of the form corrects what was admitted, and only if it asks for something else", async () => {
  for (const isModelFirst of [true, false]) {
    await using edge = await setup();
    const file = part("file", "sound", FILE);
    const [first, last] = isModelFirst
      ? [MODEL_PART + file, END]
      : [file, `\r\n${part("model", MODEL)}${END}`];
    const { socket } = await openUpload(edge.port, first);
    await until(() => edge.asks.length === 1);
    send(socket, last);
    send(socket, "");
    await until(() => edge.runs.length === 1);
    const models = edge.asks.map(({ model }) => model);
    assert.deepEqual(models, isModelFirst ? [MODEL] : [null, MODEL]);
    assert.deepEqual(edge.settlements, isModelFirst ? [] : ["undone"]);
    const [run = assert.fail()] = edge.runs;
    await drain(run.upload);
    const end = await run.upload.end();
    assert.partialDeepStrictEqual(end, {
      request: { model: MODEL },
      files: [{ bytes: 5 }],
    });
    run.sink.onError(new ApiError("worker_lost", "It was lost."));
    run.end({ kind: "failed", dispatchMs: 1 });
    assert.equal(edge.settlements.at(-1), "failed");
    socket.destroy();
  }
});

Deno.test("a form that is refused at its end gives back all, the request included", async () => {
  await using edge = await setup();
  const body = MODEL_PART + part("language", "any language") + "\r\n" +
    part("file", "sound", FILE);
  const { socket, answer } = await openUpload(
    edge.port,
    body + "\r\n" + part("stream", "perhaps") + END,
  );
  send(socket, "");
  assert.match(await answer, /^HTTP\/1.1 400/);
  assert.deepEqual(edge.settlements, ["undone"]);
  assert.equal(edge.runs.length, 0);
  socket.destroy();
});

Deno.test("an upload whose run fails before its request is known runs nothing and costs nothing", async () => {
  await using edge = await setup();
  const piece = "x".repeat(BUS_LIMITS.pieceBytes);
  const body = MODEL_PART + part("file", piece, FILE);
  const { socket, answer } = await openUpload(edge.port, body);
  await until(() => edge.runs.length === 1);
  const [run = assert.fail()] = edge.runs;
  const error = new ApiError("worker_lost", "It was lost.");
  run.sink.onError(error);
  run.end({ kind: "failed", error, dispatchMs: 1 });
  assert.match(await answer, /worker_lost/);
  assert.deepEqual(edge.settlements, ["undone"]);
  assert.deepEqual(edge.failures, ["refused"]);
  assert.equal(await run.upload.end().catch(String), null);
  socket.destroy();
});

Deno.test("an upload whose client leaves while it is admitted again does not run", async () => {
  const again = Promise.withResolvers<void>();
  await using edge = await setup(({ model }) =>
    model === null ? undefined : again.promise
  );
  const { socket } = await openUpload(
    edge.port,
    part("file", "x".repeat(BUS_LIMITS.pieceBytes), FILE),
  );
  await until(() => edge.runs.length === 1);
  const [run = assert.fail()] = edge.runs;
  send(socket, `\r\n${part("model", MODEL)}${END}`);
  send(socket, "");
  await drain(run.upload);
  const ended = run.upload.end();
  await until(() => edge.asks.length === 2);
  socket.destroy();
  await until(() => run.cancels.length === 1);
  run.sink.onAbandoned();
  run.end({ kind: "cancelled", cancelReason: "client_gone" });
  again.resolve();
  assert.equal(await ended, null);
  await until(() => edge.settlements.length === 2);
  assert.deepEqual(edge.settlements, ["undone", "nothing ran"]);
});
