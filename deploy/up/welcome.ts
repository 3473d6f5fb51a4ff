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
  path: string,
  { file, ...create }: Program,
  signal: AbortSignal,
): Promise<FirstKey> {
  try {
    const kept = await Deno.readTextFile(path).catch(() => undefined);
    if (kept !== undefined) return CREATED.parse(JSON.parse(kept));
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
  firstKey: FirstKey,
  models: readonly DescribedModel[],
  { runDir, seconds }: { runDir: string; seconds: number },
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
  return `Ready in ${seconds.toFixed(1)} s

  Base URL  ${edgeUrls.map((url) => `${url}/v1`).join(below)}
  API key   ${firstKey.key ?? firstKey.note ?? "none"}
  Models    ${models.map((each) => `${each.id} -> ${each.servers}`).join(below)}
  Console   ${setupUrl ? setupUrl + below + SETUP_MEANING : state.console_url}
  Logs      ${runDir}/logs
  State     ${runDir}/up.json

${example}Ctrl-C stops everything.`;
}
