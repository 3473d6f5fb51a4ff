import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { isRecord } from "./json.ts";

/** What the operator reads when the cluster is ready. */
export interface Summary {
  edgeUrls: readonly string[];
  consoleUrl: string;
  setupUrl?: string;
  apiKey?: string;
  /** Why there is no key. */
  keyNote?: string;
  model: string;
  logsDir: string;
  stateFile: string;
  seconds: number;
}

/** The console begins with it; a second visit finds nothing there. */
const SETUP_MEANING =
  "makes you its first owner: once, within 15 minutes (a new link: npx -y deno task owners set-up)";

/** The text with base URL, key, console link and a curl line that streams. */
export function describeSummary(summary: Summary): string {
  const [first = "", ...others] = summary.edgeUrls;
  const rows: [string, string][] = [["Base URL", `${first}/v1`]];
  for (const url of others) rows.push(["", `${url}/v1`]);
  rows.push(["API key", summary.apiKey ?? summary.keyNote ?? "none"]);
  rows.push(["Console", summary.setupUrl ?? summary.consoleUrl]);
  if (summary.setupUrl !== undefined) rows.push(["", SETUP_MEANING]);
  rows.push(["Logs", summary.logsDir], ["State", summary.stateFile]);
  const table = rows
    .map(([name, value]) => `  ${name.padEnd(10)}${value}`)
    .join("\n");
  const key = summary.apiKey ?? "$API_KEY";
  return [
    `Ready in ${summary.seconds.toFixed(1)} s`,
    "",
    table,
    "",
    "Try it:",
    "",
    `  ${curlLine(first, key, summary.model)}`,
    "",
    "Ctrl-C stops everything.",
  ].join("\n");
}

/** A command for any POSIX shell whose answer arrives word by word. */
function curlLine(edgeUrl: string, key: string, model: string): string {
  const body = JSON.stringify({
    model,
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  });
  return `curl -N ${edgeUrl}/v1/chat/completions ` +
    `-H "Authorization: Bearer ${key}" ` +
    `-H "Content-Type: application/json" ` +
    `-d '${body.replaceAll("'", `'\\''`)}'`;
}

const MODELS_TIMEOUT_MS = 2_000;

/** The first model that the key may use, for the example; the built-in one when that cannot be learned. */
export async function firstModel(
  edgeUrl: string,
  apiKey: string | undefined,
): Promise<string> {
  if (apiKey === undefined) return DEFAULT_MODEL_ID;
  try {
    const response = await fetch(`${edgeUrl}/v1/models`, {
      headers: { authorization: `Bearer ${apiKey}` },
      signal: AbortSignal.timeout(MODELS_TIMEOUT_MS),
    });
    const body: unknown = await response.json();
    const list = isRecord(body) && Array.isArray(body.data) ? body.data : [];
    const first: unknown = list[0];
    if (isRecord(first) && typeof first.id === "string") return first.id;
  } catch {
    // Only the example suffers, so the cluster counts as started all the same.
  }
  return DEFAULT_MODEL_ID;
}
