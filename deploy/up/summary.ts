import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { isRecord } from "./files.ts";
import type { FirstKey } from "./first_key.ts";

/** What the operator reads when the cluster is ready. */
export interface Summary {
  edgeUrls: readonly string[];
  consoleUrl: string;
  setupUrl: string | null;
  firstKey: FirstKey;
  model: string;
  logsDir: string;
  stateFile: string;
  seconds: number;
}

const SETUP_MEANING =
  "makes you its first owner: once, within 15 minutes (a new link: npx -y deno task owners set-up)";
const MODELS_TIMEOUT_MS = 2_000;

/** The text with base URL, key, console link and a curl line that streams. */
export function describeSummary(summary: Summary): string {
  const { edgeUrls, setupUrl, firstKey, model } = summary;
  const rows = [
    ...edgeUrls.map((url, i) => [i === 0 ? "Base URL" : "", `${url}/v1`]),
    ["API key", firstKey.key ?? firstKey.note ?? "none"],
    ["Console", setupUrl ?? summary.consoleUrl],
    ...setupUrl === null ? [] : [["", SETUP_MEANING]],
    ["Logs", summary.logsDir],
    ["State", summary.stateFile],
  ];
  const body = JSON.stringify({
    model,
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  });
  return [
    `Ready in ${summary.seconds.toFixed(1)} s`,
    "",
    ...rows.map(([name = "", value]) => `  ${name.padEnd(10)}${value}`),
    "",
    "Try it:",
    "",
    `  curl -N ${edgeUrls[0]}/v1/chat/completions ` +
    `-H "Authorization: Bearer ${firstKey.key ?? "$API_KEY"}" ` +
    `-H "Content-Type: application/json" ` +
    `-d '${body.replaceAll("'", `'\\''`)}'`,
    "",
    "Ctrl-C stops everything.",
  ].join("\n");
}

/** The first model that the key may use, for the example. */
export async function firstModel(
  edgeUrl: string,
  key: string | undefined,
): Promise<string> {
  if (key === undefined) return DEFAULT_MODEL_ID;
  try {
    const response = await fetch(`${edgeUrl}/v1/models`, {
      headers: { authorization: `Bearer ${key}` },
      signal: AbortSignal.timeout(MODELS_TIMEOUT_MS),
    });
    const body: unknown = await response.json();
    const list = isRecord(body) && Array.isArray(body.data) ? body.data : [];
    const first: unknown = list[0];
    if (isRecord(first) && typeof first.id === "string") return first.id;
  } catch {
    // Only the example suffers.
  }
  return DEFAULT_MODEL_ID;
}
