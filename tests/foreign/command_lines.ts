// Promise: agents of other people complete a turn with a call of a tool through the
// gateway, whatever goes wrong once at the model server, and give up at once with a
// wrong key. Run by `deno task test:foreign`.
import assert from "node:assert/strict";
import { isJsonObject, type JsonObject } from "@gateway/shared/upstream/json";
import { KEY, setup } from "../forward/forward_rig.ts";
import {
  CACHE,
  installOnce,
  makeTempDir,
  print,
  startProcess,
} from "../support/process.ts";
import { agentReply, type Fault, FAULTS } from "./agent_server.ts";

const cwd = `${CACHE}/chat-gateway-foreign`;
const TURN_SECONDS_MAX = 120;
/** A wrong key: no retries, whose waits would add up to minutes. */
const REFUSED_MS_MAX = 30_000;
const WRONG_KEY = "sk-wrong";
const PROMPT =
  "Run `cat note.txt` with your shell tool once, then answer with " +
  "exactly what it printed.";

/** What an agent did in a turn. */
interface Turn {
  /** It ended without an error. */
  isDone: boolean;
  text: string;
  /** All that it has written. */
  output: string;
}

/** Where an agent runs: its home, and the address of the gateway without `/v1`. */
interface Place {
  home: string;
  address: string;
  key: string;
}

interface Agent {
  name: string;
  version: string;
  package: string;
  /** A shell pattern of its program below `node_modules`. */
  program: string;
  /** Writes its configuration. */
  configure(place: Place): Promise<void>;
  env(place: Place): Record<string, string>;
  args: readonly string[];
  read(output: string): { isDone: boolean; text: string };
}

const MODEL = "talk";

const AGENTS: readonly Agent[] = [
  {
    name: "Claude Code",
    version: "2.1.332",
    package: "@anthropic-ai/claude-code",
    program: "@anthropic-ai/claude-code-*/claude",
    configure: () => Promise.resolve(),
    env: ({ home, address, key }) => ({
      CLAUDE_CONFIG_DIR: `${home}/.claude`,
      ANTHROPIC_BASE_URL: address,
      ANTHROPIC_AUTH_TOKEN: key,
      ANTHROPIC_MODEL: MODEL,
      ANTHROPIC_SMALL_FAST_MODEL: MODEL,
      ANTHROPIC_DEFAULT_HAIKU_MODEL: MODEL,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
      DISABLE_AUTOUPDATER: "1",
    }),
    args: [
      "-p",
      PROMPT,
      "--model",
      MODEL,
      "--output-format",
      "json",
      "--max-turns",
      "4",
      "--allowedTools",
      "Bash(cat:*)",
    ],
    read(output) {
      const last = linesOf(output).at(-1) ?? {};
      const isDone = last.subtype === "success" && last.is_error !== true;
      return { isDone, text: String(last.result) };
    },
  },
  {
    name: "Codex",
    version: "0.171.0",
    package: "@openai/codex",
    program: "@openai/codex-*/vendor/*/bin/codex",
    async configure({ home, address }) {
      await Deno.mkdir(`${home}/.codex`);
      await Deno.writeTextFile(
        `${home}/.codex/config.toml`,
        codexToml(address),
      );
    },
    env: ({ home, key }) => ({
      CODEX_HOME: `${home}/.codex`,
      GATEWAY_KEY: key,
    }),
    args: ["exec", "--json", "--skip-git-repo-check", PROMPT],
    read(output) {
      const lines = linesOf(output);
      const items = lines.filter(({ type }) => type === "item.completed")
        .map(({ item }) => item).filter(isJsonObject);
      const text = items.findLast(({ type }) => type === "agent_message")?.text;
      const isDone = lines.some(({ type }) => type === "turn.completed");
      return { isDone, text: String(text) };
    },
  },
];

const codexToml = (address: string) =>
  `model = "${MODEL}"
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.gateway]
name = "gateway"
base_url = "${address}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
[analytics]
enabled = false
[features]
plugins = false
apps = false
`;

/** The lines of JSON among others. */
function linesOf(output: string): JsonObject[] {
  return output.split("\n").filter((line) => line.startsWith("{"))
    .map((line): unknown => JSON.parse(line)).filter(isJsonObject);
}

/** Runs one turn in a fresh folder, in an environment that has nothing of ours. */
async function runTurn(
  agent: Agent,
  { address, key, mark }: { address: string; key: string; mark: string },
): Promise<Turn> {
  await using folder = await makeTempDir();
  const home = folder.path;
  const place = { home, address, key };
  await Deno.writeTextFile(`${home}/note.txt`, `${mark}\n`);
  await agent.configure(place);
  const env = {
    PATH: Deno.env.get("PATH") ?? "",
    HOME: home,
    LANG: "C.UTF-8",
    TERM: "dumb",
    ...agent.env(place),
  };
  const variables = Object.entries(env).map(([name, value]) =>
    `${name}=${value}`
  );
  await using process = startProcess({
    command: "timeout",
    args: [
      `${TURN_SECONDS_MAX}`,
      "env",
      "-i",
      ...variables,
      programOf(agent),
      ...agent.args,
    ],
    cwd: home,
  });
  await process.exited;
  const output = process.output();
  return { ...agent.read(output), output };
}

const folderOf = ({ name, version }: Agent) =>
  `${name.replaceAll(" ", "-").toLowerCase()}-${version}`;
const programOf = (agent: Agent) => `${cwd}/${folderOf(agent)}/program`;

/** The programs are in packages of their own, so no script of a package is run. */
const installOf = (agent: Agent) =>
  `npm install --no-audit --no-fund --silent --ignore-scripts \\
    --prefix ${folderOf(agent)} ${agent.package}@${agent.version}
  found=$(ls -d "$PWD"/${
    folderOf(agent)
  }/node_modules/${agent.program} | head -1)
  ln -sf "$found" ${folderOf(agent)}/program
  ${folderOf(agent)}/program --version`;

let installed = 0;
for (const agent of AGENTS) {
  try {
    await installOnce(folderOf(agent), installOf(agent), { cwd });
    installed += 1;
  } catch (error) {
    const reason = String(error).trim().split("\n").at(-1);
    print(`Left out: ${agent.name} ${agent.version}: ${reason}`);
    continue;
  }
  const name = `${agent.name} ${agent.version}`;
  for (const fault of [null, ...FAULTS]) {
    const what = fault === null ? "" : `, though the first answer is ${fault}`;
    Deno.test(`${name} completes a turn with a tool${what}`, () =>
      checkTurn(agent, fault));
  }
  Deno.test(`${name} gives up at once with a wrong key`, async () => {
    await using rig = await setup(agentReply(null));
    const startedAtMs = performance.now();
    const turn = await runTurn(agent, {
      address: addressOf(rig.gateway),
      key: WRONG_KEY,
      mark: "none",
    });
    assert.ok(!turn.isDone, turn.output);
    assert.match(turn.output, /unauthorized/i);
    assert.ok(performance.now() - startedAtMs < REFUSED_MS_MAX, turn.output);
    assert.equal(rig.servers[0]?.requests.length, 0);
  });
}
if (installed === 0) throw new Error("No command line is installed");

const addressOf = (gateway: { baseUrl(): string }) =>
  gateway.baseUrl().replace(/\/v1$/, "");

async function checkTurn(agent: Agent, fault: Fault | null): Promise<void> {
  await using rig = await setup(agentReply(fault));
  const mark = `mark-${crypto.randomUUID()}`;
  const address = addressOf(rig.gateway);
  const turn = await runTurn(agent, { address, key: KEY, mark });
  assert.ok(turn.isDone, turn.output);
  assert.match(turn.text, new RegExp(mark));
  // The call, its result, and what the fault has cost.
  const requests = rig.servers[0]?.requests.length ?? 0;
  assert.ok(requests >= 2 && requests <= 6, `${requests} requests`);
}
