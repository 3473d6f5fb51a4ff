/**
 * What real clients send and real servers answer about images, audio and videos,
 * through edge, bus and worker: a file below `media/` for each case. `media_case.ts`
 * describes the format.
 */
import assert from "node:assert/strict";
import { VideoJobs } from "../../services/edge-auth/videos/jobs.ts";
import { VideoKeeper } from "../../services/edge-auth/videos/keeper.ts";
import { runMedia } from "../../services/media-worker/media.ts";
import { type Catalog, parseCatalog } from "@gateway/shared/models/catalog";
import { monotonicNow, wallNow } from "@gateway/shared/process/clock";
import { silentLog } from "@gateway/shared/process/log";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import {
  backendAt,
  type ScriptedServer,
  startScriptedServer,
} from "../support/model_servers/scripted_server.ts";
import { CLOSE } from "../support/model_servers/model_answers.ts";
import { type OpenGateway, TEST_KEY } from "../support/gateway/open.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { startFamily } from "../support/gateway/in_process_worker.ts";
import { poolOf } from "../support/model_servers/recorded_context.ts";
import { readSources } from "../support/repository/source_files.ts";
import {
  encodeParts,
  type MediaCase,
  parseMediaCase,
  readAnswer,
  readParts,
} from "./media_case.ts";

const MODEL = "ours";
/** The kind of the model that each path is for. */
const KINDS: { readonly [path: string]: string } = {
  "/audio/speech": "speech",
  "/audio/transcriptions": "transcription",
  "/audio/translations": "transcription",
  "/images/generations": "image",
  "/images/edits": "image",
  "/videos": "video",
};
const backends = [
  { type: "openai", base_url: "http://127.0.0.1:9/v1", model: "theirs" },
];
/** On a busy machine, no edge may take its worker for lost and offer a job twice. */
const SLOWER = 20;

function catalogOf({ path, model }: MediaCase): Catalog {
  const kind = KINDS[path];
  return parseCatalog({ models: [{ id: MODEL, kind, ...model, backends }] });
}

/** Registers videos nowhere: a case is over when its video has begun. */
function videosOf(catalog: Catalog): VideoKeeper {
  const redis = {
    command: () => Promise.resolve(null),
    evalScript: () => Promise.resolve(1),
  };
  const free = () => Promise.resolve();
  return new VideoKeeper({
    jobs: new VideoJobs({ redis }),
    limiter: { endVideo: () => Promise.resolve(null), releaseVideo: free },
    dispatcher: { start: () => assert.fail("A case asks about no video") },
    catalog,
    wallNow,
    log: silentLog,
    onMade: () => {},
  });
}

Deno.test("every case about media is read through the gateway", async (t) => {
  await using server = startScriptedServer({ reply: () => [CLOSE] });
  await using gateway = await startGateway("open", { slower: SLOWER });
  const config = backendAt(server.baseUrl);
  const backend = new ModelServer({
    config,
    publicModel: MODEL,
    apiKey: null,
    now: monotonicNow,
  });
  const memory = new WorkerMemory();
  const pool = poolOf(backend);
  await using _worker = await startFamily(
    { servers: [gateway.nats.server] },
    {
      family: "media",
      memory,
      runners: new Map([[
        MODEL,
        (request, call, memory) => runMedia(request, call, { pool, memory }),
      ]]),
      close: () => backend.close(),
    },
  );
  const files = readSources(["tests/corpus/media"], /\.txt$/);
  assert.ok(files.length > 0);
  for (const { path, text } of files) {
    const name = path.replace(/^.*\/|\.txt$/g, "");
    await t.step(name, () => check(parseMediaCase(text), { gateway, server }));
  }
});

async function check(
  mediaCase: MediaCase,
  { gateway, server }: { gateway: OpenGateway; server: ScriptedServer },
): Promise<void> {
  const { response, status, answer, forwarded } = mediaCase;
  const before = server.requests.length;
  server.reply = () => [{ send: response ?? "" }, CLOSE];
  const catalog = catalogOf(mediaCase);
  const door = { catalog, videos: videosOf(catalog) };
  await using edge = await gateway.addEdge({ door, slower: SLOWER });
  const reply = await send(mediaCase, edge.baseUrl);
  const received = await readAnswer(reply);
  const shown = JSON.stringify(received).slice(0, 500);
  assert.equal(reply.status, status, shown);
  assert.partialDeepStrictEqual(received, answer, shown);
  const requests = server.requests.slice(before);
  // More than one would cost the work of the model twice.
  assert.equal(requests.length, response === null ? 0 : 1);
  const [request] = requests;
  if (request === undefined) return;
  assert.equal(request.path, `/v1${mediaCase.path}`);
  if (!Array.isArray(forwarded)) {
    return assert.partialDeepStrictEqual(request.json(), forwarded);
  }
  const type = request.headers.get("content-type") ?? "";
  assert.deepEqual(await readParts(request.body, type), forwarded);
}

function send(
  { path, request }: MediaCase,
  baseUrl: string,
): Promise<Response> {
  const { body, type } = Array.isArray(request)
    ? encodeParts(request)
    : { body: JSON.stringify(request), type: "application/json" };
  return fetch(`${baseUrl}${path}`, {
    method: "POST",
    body,
    headers: { authorization: `Bearer ${TEST_KEY}`, "content-type": type },
  });
}
