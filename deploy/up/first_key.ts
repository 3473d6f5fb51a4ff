import { errorMessage } from "@gateway/shared/process/env";
import * as z from "zod";
import { writePrivateFile } from "./files.ts";
import type { Program } from "./supervise.ts";

export interface FirstKey {
  key?: string;
  /** The models that the key may use, if they are known. */
  models?: readonly string[];
  note?: string;
}

const ERROR_LINES = 5;
const HOW_TO_CREATE =
  `create one with: npx -y deno task keys create --description "My key"`;
const CREATED = z.object({ key: z.string() });
const CHECK_MS = 2_000;
const MODELS = z.object({ data: z.array(z.object({ id: z.string() })) });

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

/** The models that the key may use, for the example. A key that the edge refuses is neither shown nor replaced. */
export async function checkFirstKey(
  edgeUrl: string,
  firstKey: FirstKey,
): Promise<FirstKey> {
  const { key } = firstKey;
  if (key === undefined) return firstKey;
  try {
    const response = await fetch(`${edgeUrl}/v1/models`, {
      headers: { authorization: `Bearer ${key}` },
      signal: AbortSignal.timeout(CHECK_MS),
    });
    const body: unknown = await response.json();
    if (response.status === 401 || response.status === 403) {
      return { note: `The first key no longer works; ${HOW_TO_CREATE}` };
    }
    return { key, models: MODELS.parse(body).data.map(({ id }) => id) };
  } catch {
    // Only the example needs the model.
    return firstKey;
  }
}
