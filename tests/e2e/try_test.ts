/**
 * Guarantee: the console's page "Try it" sends a real request through an edge, with
 * limits of its own; nothing of it is left running when the browser has left; and the
 * code that it shows does the same with a key of the reader's.
 */
import assert from "node:assert/strict";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import { TRY_LIMITS } from "../../services/key-admin/domain/try/key.ts";
import {
  type TestClient,
  tryForm,
} from "../../services/key-admin/console_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { openConsole } from "../support/console_client.ts";
import { waitFor } from "../support/wait_for.ts";

const LEFT_MS_MAX = 5_000;

const plain = (html: string) =>
  html.replace(
    /&(quot|#39|lt|gt|amp);/g,
    (_, name) =>
      ({ quot: '"', "#39": "'", lt: "<", gt: ">", amp: "&" })[String(name)] ??
        "",
  );

/** The text of an element that has no others inside. */
function shown(page: string, mark: string): string {
  const form = new RegExp(`${mark}[^>]*>([^<]*)<`);
  return plain(form.exec(page)?.[1] ?? assert.fail(`no ${mark} in ${page}`));
}

/** Runs a program with a key of the cluster in its environment. */
async function run(
  { state }: Cluster,
  command: string,
  args: string[],
): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(command, {
    args,
    cwd: new URL("../..", import.meta.url).pathname,
    env: { OPENAI_API_KEY: state.api_key, NO_COLOR: "1" },
    signal: AbortSignal.timeout(60_000),
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  assert.equal(code, 0, text(stderr));
  return text(stdout);
}

async function programs(cluster: Cluster, browser: TestClient) {
  const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
  const form = {
    seed: "7",
    thinking: "off",
    more: '{"repetition_penalty":1.1}',
  };
  const page = await browser.post("/try", tryForm(message, form));
  const said = shown(page.text, 'data-part="content"');
  assert.notEqual(said, "");
  const code = Object.fromEntries(
    LANGUAGES.map((
      language,
    ) => [language, shown(page.text, `id="code-${language}"`)]),
  );
  const folder = await Deno.makeTempDir({ prefix: "gateway_try_" });
  try {
    const file = `${folder}/try.ts`;
    const config = new URL("../../deno.json", import.meta.url).pathname;
    const node = 'import process from "node:process";\n';
    await Deno.writeTextFile(file, node + code.TypeScript);
    const deno = ["run", "-A", "--check", `--config=${config}`, file];
    assert.equal(await run(cluster, Deno.execPath(), deno), said);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  const curl = await run(cluster, "sh", ["-c", code.curl ?? ""]);
  assert.match(curl, /^data: \{.*data: \[DONE\]\s*$/s);
  const pieces = [...curl.matchAll(/^data: (\{.*)$/gm)]
    .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
  assert.equal(pieces.join(""), said);
}

/** Reads the beginning of a stream in the console and leaves. */
async function leaves(cluster: Cluster, browser: TestClient) {
  const leaving = new AbortController();
  const url = `${cluster.state.console_url}/try/chat`;
  const { status, body } = await fetch(url, {
    method: "POST",
    headers: {
      "sec-fetch-site": "same-origin",
      cookie: `sid=${browser.cookies.get("sid")}`,
    },
    body: new URLSearchParams({
      form_token: await browser.formToken(),
      ...tryForm("[simulator: 9000 tokens, 20 tokens per second]"),
    }),
    signal: leaving.signal,
  });
  assert.equal(status, 200);
  const reader = body?.getReader() ?? assert.fail("no body");
  await reader.read();
  leaving.abort();
  await assert.rejects(reader.closed);
  const ended = /"event":"chat".*"outcome":"cancelled"/;
  await waitFor(async () => ended.test(await cluster.logs()), {
    what: "the end of the request at the edge",
    timeoutMs: LEFT_MS_MAX,
  });
}

/** Sends requests until one is refused. */
async function floods(browser: TestClient) {
  let error = "";
  // Some are granted anew while the test runs.
  for (
    let n = 0;
    error === "" && n < 2 * TRY_LIMITS.key.requestsPerMinute;
    n++
  ) {
    const page = await browser.post("/try", tryForm("[simulator: 1 token]"));
    error = shown(page.text, 'data-part="error"').trim();
    assert.match(shown(page.text, 'data-part="request"'), /^req_[0-9a-f]{32}$/);
  }
  assert.match(error, /^rate_limit_exceeded: .*requests per minute/);
}

Deno.test("Try it, from the console through an edge", async (t) => {
  await using cluster = await startCluster();
  const browser = await openConsole(cluster);
  await t.step(
    "the code for curl and TypeScript gets the answer that was shown",
    () => programs(cluster, browser),
  );
  await t.step(
    "a browser that leaves ends the request at the edge",
    () => leaves(cluster, browser),
  );
  await t.step(
    "API4: its own limit of requests per minute holds",
    () => floods(browser),
  );
});
