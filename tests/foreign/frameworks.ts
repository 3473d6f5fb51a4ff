// Promise: frameworks that people build agents with do through the gateway, with the
// simulator behind it, what their documentation shows or their own tests demand. Run by
// `deno task test:foreign`.
import assert from "node:assert/strict";
import { startGateway } from "../support/gateway/gateway.ts";
import { CACHE, installOnce, print, startProcess } from "../support/process.ts";

const cwd = `${CACHE}/chat-gateway-foreign`;
const CLIENTS = new URL("clients/", import.meta.url).pathname;
const SECONDS_MAX = "300";

interface Framework {
  name: string;
  version: string;
  /** Where it is installed. */
  folder: string;
  /** The packages, with their versions. */
  packages: readonly string[];
  /** Below `clients/`, by whose name its language is known. */
  program: string;
  /** What runs the program, in place of its language alone. */
  runner?: string;
}

/** Their clients live as long as the run, so all tests share one event loop. */
const ONE_LOOP = "-o asyncio_mode=auto " +
  "-o asyncio_default_test_loop_scope=session " +
  "-o asyncio_default_fixture_loop_scope=session";
/** These fetch a picture from the Internet, or need a plugin to measure time. */
const NOT_HERE =
  "-k 'not stream_time and not test_image_inputs and not image_tool_message'";

const FRAMEWORKS: readonly Framework[] = [
  {
    name: "LangChain with its standard tests",
    version: "1.1.9",
    folder: "langchain",
    packages: [
      "langchain-openai==1.7.4",
      "langchain-anthropic==1.7.10",
      "langchain-tests==1.1.9",
      "pytest-asyncio==1.5.0",
    ],
    program: "langchain_standard.py",
    runner: `-m pytest -q -p no:cacheprovider ${ONE_LOOP} ${NOT_HERE}`,
  },
  {
    name: "Instructor",
    version: "1.17.0",
    folder: "instructor",
    packages: ["instructor==1.17.0"],
    program: "instructor_modes.py",
  },
  {
    name: "DSPy",
    version: "3.4.1",
    folder: "dspy",
    packages: ["dspy==3.4.1"],
    program: "dspy_signature.py",
  },
  {
    name: "Continue's adapters",
    version: "1.37.0",
    folder: "continue",
    packages: ["@continuedev/openai-adapters@1.37.0"],
    program: "continue_adapters.mjs",
  },
  {
    name: "Open WebUI, its requests,",
    version: "0.6.36",
    folder: "open-webui",
    packages: ["aiohttp==3.12.15", "requests==2.32.5"],
    program: "open_webui_requests.py",
  },
  {
    name: "AI SDK",
    version: "6.0.326",
    folder: "ai-sdk",
    packages: [
      "ai@6.0.326",
      "@ai-sdk/anthropic@3.0.140",
      "@ai-sdk/openai@3.0.141",
      "@ai-sdk/openai-compatible@2.0.87",
      "zod@4",
    ],
    program: "ai_sdk.mjs",
  },
  {
    name: "Genkit",
    version: "1.42.0",
    folder: "genkit",
    packages: ["genkit@1.42.0", "@genkit-ai/compat-oai@1.42.0"],
    program: "genkit_plugin.mjs",
  },
];

const isPython = ({ program }: Framework): boolean => program.endsWith(".py");

/** A shell script that is run once in the cache folder. */
function installOf(framework: Framework): string {
  const { folder, packages } = framework;
  const names = packages.join(" ");
  return isPython(framework)
    ? `python3 -m venv ${folder}
      ${folder}/bin/python -m pip --quiet --no-input install ${names}`
    : `npm install --no-audit --no-fund --silent --ignore-scripts \\
      --prefix ${folder} ${names}`;
}

/**
 * Node finds packages beside a program, so that is copied to them. Here it is named as
 * a text, because its packages are no dependencies of the project.
 */
function commandOf(framework: Framework): string {
  const { folder, program, runner = "" } = framework;
  return isPython(framework)
    ? `exec ${folder}/bin/python ${runner} ${CLIENTS}${program}`
    : `cp ${CLIENTS}${program}.txt ${folder}/${program} && exec node ${folder}/${program}`;
}

let installed = 0;
for (const framework of FRAMEWORKS) {
  const { name, version, folder } = framework;
  try {
    await installOnce(folder, installOf(framework), { cwd });
    installed += 1;
  } catch (error) {
    const reason = String(error).trim().split("\n").at(-1);
    print(`Left out: ${name} ${version}: ${reason}`);
    continue;
  }
  Deno.test(`${name} ${version} works through the gateway`, async () => {
    await using gateway = await startGateway("launched");
    const { key } = await gateway.createKey("--scopes=chat,models,embedding");
    const baseUrl = gateway.baseUrl();
    await using process = startProcess({
      command: "timeout",
      args: [SECONDS_MAX, "sh", "-c", commandOf(framework)],
      cwd,
      env: {
        ADDRESS: baseUrl.replace(/\/v1$/, ""),
        KEY: key,
        MODEL: "neutral-3.7-plus",
        EMBEDDING_MODEL: "simulated-embedding-1",
        RERANK_MODEL: "simulated-rerank-1",
        GENKIT_ENV: "prod",
      },
    });
    const { code } = await process.exited;
    assert.equal(code, 0, process.output());
  });
}
if (installed === 0) throw new Error("No framework is installed");
