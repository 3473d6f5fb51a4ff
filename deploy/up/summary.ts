import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import * as z from "zod";
import type { FirstKey } from "./first_key.ts";
import type { UpState } from "./start.ts";

const SETUP_MEANING =
  "makes you its first owner: once, within 15 minutes (a new link: npx -y deno task owners set-up)";
const MODELS_TIMEOUT_MS = 2_000;
const MODELS = z.object({ data: z.array(z.object({ id: z.string() })) });

/** What the operator reads when the cluster is ready. */
export interface Summary {
  state: Pick<UpState, "edge_urls" | "console_url" | "setup_url">;
  firstKey: FirstKey;
  model: string;
  runDir: string;
  seconds: number;
}

/** The text with base URL, key, console link and a curl line that streams. */
export function describeSummary(
  { state, firstKey, model, runDir, seconds }: Summary,
): string {
  const { edge_urls: edgeUrls, setup_url: setupUrl } = state;
  const rows = [
    ...edgeUrls.map((url, i) => [i === 0 ? "Base URL" : "", `${url}/v1`]),
    ["API key", firstKey.key ?? firstKey.note ?? "none"],
    ["Console", setupUrl ?? state.console_url],
    ...setupUrl === null ? [] : [["", SETUP_MEANING]],
    ["Logs", `${runDir}/logs`],
    ["State", `${runDir}/up.json`],
  ];
  const body = JSON.stringify({
    model,
    stream: true,
    messages: [{ role: "user", content: "Say hello in five words." }],
  });
  return [
    `Ready in ${seconds.toFixed(1)} s`,
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
    const [first] = MODELS.parse(await response.json()).data;
    return first?.id ?? DEFAULT_MODEL_ID;
  } catch {
    // Only the example suffers.
    return DEFAULT_MODEL_ID;
  }
}
