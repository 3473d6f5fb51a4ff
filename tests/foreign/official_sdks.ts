// Promise: the official SDKs of Anthropic and OpenAI, for JavaScript and Python, do
// through the gateway what they do when they ask a server: answers whole and streamed,
// calls of tools, counts, vectors and errors. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { isJsonObject } from "@gateway/shared/upstream/json";
import { KEY, setup } from "../forward/forward_rig.ts";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import type { Reply } from "../support/model_servers/scripted_server.ts";
import { CACHE, installOnce, print, startProcess } from "../support/process.ts";
import { agentReply } from "./agent_server.ts";

const cwd = `${CACHE}/chat-gateway-foreign`;
const CLIENTS = new URL("clients/", import.meta.url).pathname;
const SECONDS_MAX = "60";
/** The numbers 1 and 2, as 32-bit floats. */
const VECTOR = { float: [1, 2], base64: "AACAPwAAAEA=" };

interface Sdk {
  name: string;
  version: string;
  /** A shell script that is run once in the cache folder. */
  install: string;
  /** A shell command in the same folder. */
  run: string;
}

/** Node finds packages beside the program, so this is copied to them. */
const inNode = (file: string, folder: string) =>
  `cp ${CLIENTS}${file} ${folder}/ && exec node ${folder}/${file}`;
const npm = (folder: string, name: string) =>
  `npm install --no-audit --no-fund --silent --ignore-scripts \\
    --prefix ${folder} ${name}`;
const pip = (folder: string, name: string) =>
  `python3 -m venv ${folder}
  ${folder}/bin/python -m pip --quiet --no-input install ${name}`;

const SDKS: readonly Sdk[] = [
  {
    name: "Anthropic's SDK for JavaScript",
    version: "1.14.0",
    install: npm("anthropic-js", "@anthropic-ai/sdk@1.14.0"),
    run: inNode("anthropic_sdk.mjs", "anthropic-js"),
  },
  {
    name: "OpenAI's SDK for JavaScript",
    version: "7.55.0",
    install: npm("openai-js", "openai@7.55.0"),
    run: inNode("openai_sdk.mjs", "openai-js"),
  },
  {
    name: "Anthropic's SDK for Python",
    version: "2.14.0",
    install: pip("anthropic-py", "anthropic==2.14.0"),
    run: `exec anthropic-py/bin/python ${CLIENTS}anthropic_sdk.py`,
  },
  {
    name: "OpenAI's SDK for Python",
    version: "3.57.0",
    install: pip("openai-py", "openai==3.57.0"),
    run: `exec openai-py/bin/python ${CLIENTS}openai_sdk.py`,
  },
];

/** The agents' server, which has vectors, too: as floats or as it is asked. */
const replyWithVectors: Reply = (request) => {
  if (!request.path.endsWith("/embeddings")) return agentReply(null)(request);
  const body = request.json();
  const isBase64 = isJsonObject(body) && body.encoding_format === "base64";
  const embedding = isBase64 ? VECTOR.base64 : VECTOR.float;
  const data = [0, 1].map((index) => (
    { object: "embedding", index, embedding }
  ));
  const usage = { prompt_tokens: 2, total_tokens: 2 };
  return jsonResponse({ object: "list", data, model: "theirs", usage });
};

let installed = 0;
for (const { name, version, install, run } of SDKS) {
  try {
    await installOnce(name.replaceAll(/\W+/g, "-"), install, { cwd });
    installed += 1;
  } catch (error) {
    const reason = String(error).trim().split("\n").at(-1);
    print(`Left out: ${name} ${version}: ${reason}`);
    continue;
  }
  Deno.test(`${name} ${version} works through the gateway`, async () => {
    await using rig = await setup(replyWithVectors);
    await using process = startProcess({
      command: "timeout",
      args: [SECONDS_MAX, "sh", "-c", run],
      cwd,
      env: {
        ADDRESS: rig.gateway.baseUrl().replace(/\/v1$/, ""),
        KEY,
        WRONG_KEY: "sk-wrong",
        MODEL: "talk",
        EMBEDDING_MODEL: "embed",
      },
    });
    const { code } = await process.exited;
    assert.equal(code, 0, process.output());
  });
}
if (installed === 0) throw new Error("No SDK is installed");
