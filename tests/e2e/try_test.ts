/**
 * Guarantee: the console's page "Try it" sends a real request through an edge, with
 * limits of its own; nothing of it is left running when the browser has left; and the
 * code that it shows does the same with a key of the reader's.
 */
import assert from "node:assert/strict";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import { TRY_LIMITS } from "../../services/key-admin/domain/try/key.ts";
import type { TryKind } from "../../services/key-admin/domain/try/request.ts";
import {
  type Answer,
  type TestClient,
  tryForm,
  tryFormOf,
  upload,
} from "../../services/key-admin/console_fixture.ts";
import { silence } from "./recording_fixture.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { inviteOwner, openConsole } from "../support/console_client.ts";
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

/** Runs a program in a folder, with a key of the cluster in its environment. */
async function run(
  { state }: Cluster,
  cwd: string,
  command: string,
  args: string[],
): Promise<string> {
  const { code, stdout, stderr } = await new Deno.Command(command, {
    ...{ args, cwd },
    env: { OPENAI_API_KEY: state.api_key, NO_COLOR: "1" },
    signal: AbortSignal.timeout(60_000),
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
  assert.equal(code, 0, text(stderr));
  return text(stdout);
}

const CONFIG = new URL("../../deno.json", import.meta.url).pathname;

/** Sends a form, and runs the code of its page in a folder. Returns the page and what the programs print. */
async function programs(
  cluster: Cluster,
  cwd: string,
  send: () => Promise<Answer>,
) {
  const { text: page } = await send();
  const [curl = "", TypeScript = ""] = LANGUAGES.map((language) =>
    shown(page, `id="code-${language}"`)
  );
  return {
    page,
    curl: () => run(cluster, cwd, "sh", ["-c", curl]),
    TypeScript: async () => {
      const node = 'import process from "node:process";\n';
      await Deno.writeTextFile(`${cwd}/try.ts`, node + TypeScript);
      // Types are checked for all programs at once, which takes long.
      const args = ["run", "-A", "--no-check", `--config=${CONFIG}`, "try.ts"];
      return await run(cluster, cwd, Deno.execPath(), args);
    },
  };
}

const KINDS: Record<
  TryKind,
  (cluster: Cluster, browser: TestClient, cwd: string) => Promise<void>
> = {
  chat: async (cluster, browser, cwd) => {
    const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
    const form = {
      seed: "7",
      thinking: "off",
      more: '{"repetition_penalty":1.1}',
    };
    const { page, TypeScript, curl } = await programs(
      cluster,
      cwd,
      () => browser.post("/try", tryForm(message, form)),
    );
    const said = shown(page, 'data-part="content"');
    assert.notEqual(said, "");
    assert.equal(await TypeScript(), said);
    const stream = await curl();
    assert.match(stream, /^data: \{.*data: \[DONE\]\s*$/s);
    const pieces = [...stream.matchAll(/^data: (\{.*)$/gm)]
      .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
    assert.equal(pieces.join(""), said);
  },
  image: async (cluster, browser, cwd) => {
    const form = tryFormOf("image", { prompt: "It's", size: "64x64" });
    const { page, TypeScript } = await programs(
      cluster,
      cwd,
      () => browser.post("/try?kind=image", form),
    );
    await TypeScript();
    const picture = await Deno.readFile(`${cwd}/image-1.png`);
    assert.ok(page.includes(`;base64,${picture.toBase64()}"`));
  },
  speech: async (cluster, browser, cwd) => {
    const form = { input: "It's me", voice: "echo", response_format: "wav" };
    const { page, TypeScript, curl } = await programs(
      cluster,
      cwd,
      () => browser.post("/try?kind=speech", tryFormOf("speech", form)),
    );
    for (const program of [TypeScript, curl]) {
      await program();
      const sound = await Deno.readFile(`${cwd}/speech.wav`);
      assert.ok(page.includes(`;base64,${sound.toBase64()}"`));
      await Deno.remove(`${cwd}/speech.wav`);
    }
  },
  transcription: async (cluster, browser, cwd) => {
    const file = silence();
    await Deno.writeFile(`${cwd}/${file.name}`, await file.bytes());
    const { page, TypeScript, curl } = await programs(
      cluster,
      cwd,
      () => upload(browser, { language: "en" }, [file]),
    );
    const said = shown(page, 'data-part="content"');
    assert.match(said, /You sent silence\.wav/);
    assert.equal(await TypeScript(), `${said}\n`);
    assert.equal(JSON.parse(await curl()).text, said);
  },
  video: async (cluster, browser, cwd) => {
    const form = tryFormOf("video", {
      ...{ prompt: "A kite", seconds: "4", size: "720x1280" },
    });
    const { page, TypeScript } = await programs(
      cluster,
      cwd,
      () => browser.post("/try?kind=video", form),
    );
    const again = plain(
      /formaction="([^"#]+)/.exec(page)?.[1] ?? assert.fail(page),
    );
    await TypeScript();
    const film = await Deno.readFile(`${cwd}/video.mp4`);
    assert.equal(new TextDecoder().decode(film.subarray(4, 8)), "ftyp");
    const shownAt = await waitFor(async () => {
      const { text } = await browser.post(again, form);
      return /<video src="([^"]+)"/.exec(text)?.[1];
    }, { what: "the video on the page" });
    const range = { range: "bytes=4-7" };
    const { status, text } = await browser.get(shownAt, range);
    assert.deepEqual([status, text], [206, "ftyp"]);
    const email = "grace@example.org";
    const { browser: other } = await inviteOwner(cluster, browser, email);
    for (const seen of [other.get(shownAt), other.post(again, form)]) {
      const { status, text } = await seen;
      assert.equal(status, 404);
      assert.match(text, /This video does not exist/);
    }
  },
};

/** Reads the beginning of a stream in the console and leaves. */
async function leaves(cluster: Cluster, browser: TestClient) {
  const leaving = new AbortController();
  const url = `${cluster.state.console_url}/try/stream`;
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
  const folder = await Deno.makeTempDir({ prefix: "gateway_try_" });
  try {
    for (const [kind, runs] of Object.entries(KINDS)) {
      await t.step(
        `the code for ${kind} gets the answer that was shown`,
        async () => {
          const cwd = `${folder}/${kind}`;
          await Deno.mkdir(cwd);
          await runs(cluster, browser, cwd);
        },
      );
    }
    await t.step("the code fits the types of OpenAI's package", async () => {
      const files = Object.keys(KINDS).map((kind) => `${kind}/try.ts`);
      const args = ["check", `--config=${CONFIG}`, ...files];
      await run(cluster, folder, Deno.execPath(), args);
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  await t.step(
    "a browser that leaves ends the request at the edge",
    () => leaves(cluster, browser),
  );
  await t.step(
    "API4: its own limit of requests per minute holds",
    () => floods(browser),
  );
});
