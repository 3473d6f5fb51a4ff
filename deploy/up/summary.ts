import type { FirstKey } from "./first_key.ts";
import type { DescribedModel } from "./model_servers.ts";
import type { UpState } from "./up.ts";

const SETUP_MEANING =
  "makes you its first owner; works once, for 15 minutes (for a new link: npx -y deno task owners set-up)";

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
  const others = models.filter(({ kind }) => kind !== "chat");
  const usable = (firstKey.models ?? models.map(({ id }) => id))
    .filter((id) => !others.some((other) => other.id === id));
  const answering = usable.find((usableId) =>
    models.some(({ id, isAnswering }) => id === usableId && isAnswering)
  );
  const body = JSON.stringify({
    model: answering ?? usable[0],
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
    ...others.length === models.length ? [] : example,
    "Ctrl-C stops everything.",
  ].join("\n");
}
