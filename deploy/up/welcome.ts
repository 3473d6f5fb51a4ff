/** What the operator gets when the cluster is ready: a first key, and how to use it. */
import { errorMessage } from "@gateway/shared/process/env";
import * as z from "zod";
import type { Program } from "./cluster.ts";
import { writePrivateFile } from "./files.ts";
import type { DescribedModel } from "./model_servers.ts";
import type { UpState } from "./up.ts";

export interface FirstKey {
  key?: string;
  /** Why there is none. */
  note?: string;
}

const ERROR_LINES = 5;
const HOW_TO_CREATE =
  `create one with: npx -y deno task keys create --description "My key"`;
const CREATED = z.object({ key: z.string() });
const CHECK_MS = 2_000;
const SETUP_MEANING =
  "makes you its first owner; works once, for 15 minutes (for a new link: npx -y deno task owners set-up)";

/** Where the key is kept: one file per Redis, because a key is valid in one only. */
export function firstKeyFile(dataDir: string, givenRedisUrl?: string): string {
  if (givenRedisUrl === undefined) return `${dataDir}/first_key.json`;
  const { host, pathname } = new URL(givenRedisUrl);
  return `${dataDir}/first_key.${encodeURIComponent(host + pathname)}.json`;
}

/** Creates a key on the first run, finds the same one later. Never rejects: the gateway works without it. */
export async function provideFirstKey(
  file: string,
  create: Program,
  stopping: AbortSignal,
): Promise<FirstKey> {
  try {
    const kept = await Deno.readTextFile(file).catch(() => undefined);
    const text = kept ?? await createKey(create, stopping);
    const { key } = CREATED.parse(JSON.parse(text));
    if (kept === undefined) await writePrivateFile(file, text);
    return { key };
  } catch (error) {
    return { note: `No key: ${errorMessage(error)}\n  ${HOW_TO_CREATE}` };
  }
}

/** The output of the program. It contains the key, so it is not logged. */
async function createKey(
  { file, ...program }: Program,
  signal: AbortSignal,
): Promise<string> {
  const options = { ...program, clearEnv: true, signal };
  const { code, stdout, stderr } = await new Deno.Command(file, options)
    .output();
  if (code === 0) return new TextDecoder().decode(stdout);
  const lines = new TextDecoder().decode(stderr).trim().split("\n");
  throw new Error(lines.slice(-ERROR_LINES).join("\n  "));
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
  firstKey: FirstKey,
  models: readonly DescribedModel[],
  { runDir, seconds }: { runDir: string; seconds: number },
): string {
  const { edge_urls: edgeUrls, setup_url: setupUrl } = state;
  const rows = [
    ...edgeUrls.map((url, i) => [i === 0 ? "Base URL" : "", `${url}/v1`]),
    ["API key", firstKey.key ?? firstKey.note ?? "none"],
    ...models.map(({ id, servers }, i) => [
      i === 0 ? "Models" : "",
      `${id} -> ${servers}`,
    ]),
    ["Console", setupUrl ?? state.console_url],
    ...setupUrl === null ? [] : [["", SETUP_MEANING]],
    ["Logs", `${runDir}/logs`],
    ["State", `${runDir}/up.json`],
  ];
  const chats = models.filter(({ kind }) => kind === "chat");
  const chat = chats.find(({ isAnswering }) => isAnswering) ?? chats[0];
  const body = JSON.stringify({
    model: chat?.id,
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  });
  const example = [
    "Try it:",
    "",
    `  curl -N ${edgeUrls[0]}/v1/chat/completions ` +
    `-H "Authorization: Bearer ${firstKey.key ?? "$OPENAI_API_KEY"}" ` +
    `-H "Content-Type: application/json" ` +
    `-d '${body.replaceAll("'", `'\\''`)}'`,
    "",
  ];
  return [
    `Ready in ${seconds.toFixed(1)} s`,
    "",
    ...rows.map(([name = "", value]) => `  ${name.padEnd(10)}${value}`),
    "",
    ...chat === undefined ? [] : example,
    "Ctrl-C stops everything.",
  ].join("\n");
}
