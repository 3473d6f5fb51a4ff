/**
 * What the operator gets when the cluster is ready: a first key, how to use it, and
 * which models answer.
 */
import { errorMessage } from "@gateway/shared/process/env";
import {
  idOf,
  kindIn,
  type ServerConfig,
} from "@gateway/shared/models/servers";
import { z } from "zod";
import { probeServer, type ServerAccess } from "../check/server_probe.ts";
import type { Program } from "./cluster.ts";
import { writePrivateFile } from "./files.ts";
import { ROOT } from "./options.ts";
import type { Settings } from "./plan.ts";
import type { UpState } from "./state.ts";

/** The key that the launcher creates, or why there is none. */
export interface FirstKey {
  /** The secret value. */
  key?: string;
  /** Why there is none. */
  note?: string;
}

/** A model, or the models that a server lists, and what the servers answer. */
export interface DescribedModel {
  /** The id; for the models that a server lists, that of the first chat model. */
  id: string;
  /** What the line calls them. Default: the id. */
  label?: string;
  /** `chat`, `image` and so on: `shared/models/kinds.ts`. */
  kind: string;
  /** Each server with its answer, for people. */
  servers: string;
  /** Whether one of them can be used. */
  isAnswering: boolean;
}

const ERROR_LINES = 5;
const HOW_TO_CREATE =
  `create one with: npx -y deno task keys create --description "My key"`;
const CREATED = z.object({ key: z.string() });
const CHECK_MS = 2_000;
const SETUP_MEANING = "makes you its first owner; works once, for 15 minutes";
/** The command line finds only the gateway of this directory. */
const NEW_LINK = " (for a new link: npx -y deno task owners set-up)";

/** Where the key is kept: one file per Redis, because a key is valid in one only. */
export function firstKeyFile(dataDir: string, givenRedisUrl?: string): string {
  if (givenRedisUrl === undefined) return `${dataDir}/first_key.json`;
  const { host, pathname } = new URL(givenRedisUrl);
  return `${dataDir}/first_key.${encodeURIComponent(host + pathname)}.json`;
}

/**
 * Creates a key on the first run, finds the same one later. Never rejects: the gateway
 * works without it.
 */
export async function provideFirstKey(
  path: string,
  { file, ...create }: Program,
  signal: AbortSignal,
): Promise<FirstKey> {
  try {
    const saved = await Deno.readTextFile(path).catch(() => undefined);
    if (saved !== undefined) return CREATED.parse(JSON.parse(saved));
    const options = { ...create, clearEnv: true, signal };
    const { success, ...output } = await new Deno.Command(file, options)
      .output();
    // The output contains the key, so it is not logged.
    const [text = "", errors = ""] = [output.stdout, output.stderr]
      .map((bytes) => new TextDecoder().decode(bytes).trim());
    const lastLines = errors.split("\n").slice(-ERROR_LINES).join("\n  ");
    if (!success) throw new Error(lastLines);
    const created = CREATED.parse(JSON.parse(text));
    await writePrivateFile(path, text);
    return created;
  } catch (error) {
    return { note: `No key: ${errorMessage(error)}\n  ${HOW_TO_CREATE}` };
  }
}

/** A key that the edge refuses is neither shown nor replaced. Never rejects. */
export async function checkFirstKey(
  edgeUrl: string,
  firstKey: FirstKey,
): Promise<FirstKey> {
  if (firstKey.key === undefined) return firstKey;
  const answer = await fetch(`${edgeUrl}/v1/models`, {
    headers: { authorization: `Bearer ${firstKey.key}` },
    signal: AbortSignal.timeout(CHECK_MS),
  }).catch(() => undefined);
  await answer?.body?.cancel();
  return answer?.status === 401 || answer?.status === 403
    ? { note: `The first key no longer works; ${HOW_TO_CREATE}` }
    : firstKey;
}

/** The text printed when the cluster is ready, with a curl command that streams. */
export function describeSummary(
  state: Pick<UpState, "edge_urls" | "console_url" | "setup_url">,
  { firstKey, models, runDir, seconds }: {
    firstKey: FirstKey;
    models: readonly DescribedModel[];
    runDir: string;
    /** How long the start took. */
    seconds: number;
  },
): string {
  const { edge_urls: edgeUrls, setup_url: setupUrl } = state;
  const chats = models.filter(({ kind }) => kind === "chat");
  const chat = chats.find(({ isAnswering }) => isAnswering) ?? chats[0];
  const body = JSON.stringify({
    model: chat?.id,
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  });
  const curl = `curl -N ${edgeUrls[0]}/v1/chat/completions ` +
    `-H "Authorization: Bearer ${firstKey.key ?? "$OPENAI_API_KEY"}" ` +
    `-H "Content-Type: application/json" ` +
    `-d '${body.replaceAll("'", `'\\''`)}'`;
  const example = chat === undefined ? "" : `Try it:\n\n  ${curl}\n\n`;
  const below = "\n            ";
  const meaning = SETUP_MEANING + (runDir === `${ROOT}/.run` ? NEW_LINK : "");
  return `Ready in ${seconds.toFixed(1)} s

  Base URL  ${edgeUrls.map((url) => `${url}/v1`).join(below)}
  API key   ${firstKey.key ?? firstKey.note ?? "none"}
  Models    ${
    models.map((each) => `${each.label ?? each.id} -> ${each.servers}`)
      .join(below)
  }
  Console   ${setupUrl ? setupUrl + below + meaning : state.console_url}
  Logs      ${runDir}/logs
  State     ${runDir}/up.json

${example}Ctrl-C stops everything.`;
}

/** Asks the servers of each model for their models. Never rejects. */
export async function describeModels(
  { catalog, hasSimulator, keyOf, proxies }: Pick<
    Settings,
    "catalog" | "hasSimulator" | "keyOf" | "proxies"
  >,
): Promise<DescribedModel[]> {
  const access = { keyOf, proxies };
  const models = [...catalog.values()].map(async ({ id, kind, backends }) => {
    if (hasSimulator) {
      const servers = "built-in simulator (not a real model)";
      return { id, kind, servers, isAnswering: true };
    }
    const found = await Promise.all(
      backends.map((backend) => probeServer(backend, access)),
    );
    const servers = found.map(({ servers }) => servers).join(", ");
    const isAnswering = found.some(({ isAnswering }) => isAnswering);
    return { id, kind, servers, isAnswering };
  });
  const lists = catalog.servers.map((server) => describeList(server, access));
  return await Promise.all([...models, ...lists]);
}

/** How many models of a list are named. */
const NAMED_MAX = 5;

/** Which models a server offers, if it says so within two seconds. */
async function describeList(
  server: ServerConfig,
  access: ServerAccess,
): Promise<DescribedModel> {
  const { name, template } = server;
  const { servers, isAnswering, names } = await probeServer(
    { ...template, model: name },
    access,
  );
  const ids = (names ?? []).map((each) => idOf(server, each))
    .filter((id) => id !== null && kindIn(server, id) !== null);
  const chat = ids.find((id) => id !== null && kindIn(server, id) === "chat");
  const more = ids.length > NAMED_MAX ? " …" : "";
  const found = ids.slice(0, NAMED_MAX).join(", ") + more;
  const count = names === null ? "the" : ids.length;
  return {
    id: chat ?? name,
    kind: chat === undefined ? "none" : "chat",
    label: `${count} model${ids.length === 1 ? "" : "s"} of ${name}`,
    servers: found === "" ? servers : `${servers} with ${found}`,
    isAnswering,
  };
}
