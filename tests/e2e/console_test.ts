// Promise: the usage that the console shows for a key and for all keys is exactly the
// sum of what its clients received: requests, tokens in and out, failures and why. Its
// page "Try it" sends a real request through an edge, and the code that it shows does
// the same with a key of the reader's; more of it: services/key-admin/web/try_test.ts.
import assert from "node:assert/strict";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import {
  type TestClient,
  tryForm,
  tryFormOf,
  upload,
} from "../../services/key-admin/console_fixture.ts";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import { chatRequest } from "../support/chat_request.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { simulates } from "../support/gateway/simulator.ts";
import { matchIn, openConsole } from "../support/console_client.ts";
import { makeTempDir, runProcess } from "../support/process.ts";
import { until } from "../support/wait_for.ts";
import { silence } from "./recording_fixture.ts";

const EDGES = 2;
const COMPLETE = 24;
const FAILING = 4;
const TOKENS_BEFORE_FAILURE = 5;

/** What a page counts, by the names there. */
const TOTALS = "Requests,Failed,Refused,Input tokens,Output tokens".split(",");
/** As many numbers. */
type Usage = number[];

const sum = (all: readonly Usage[]): Usage =>
  TOTALS.map((_, at) => all.reduce((sum, usage) => sum + (usage[at] ?? 0), 0));

async function usageOn(browser: TestClient, path: string): Promise<Usage> {
  const { text } = await browser.get(path);
  return TOTALS.map((name) => {
    const form = new RegExp(`<dt>${name}</dt><dd>([\\d,]+)<`);
    return Number(matchIn(text, form).replaceAll(",", ""));
  });
}

/** The sum of a column of a usage file. */
async function sumsOf(browser: TestClient, path: string) {
  const { text } = await browser.get(`${path}/export.csv`);
  const [names = [], ...lines] = text.trimEnd().split("\r\n")
    .map((line) => line.split(","));
  return (name: string) =>
    lines.reduce((sum, line) => sum + Number(line[names.indexOf(name)]), 0);
}

/** Requests that complete; what the model server counted is in the answers. */
function complete(gateway: LaunchedGateway, value: string): Promise<Usage[]> {
  return Promise.all(Array.from({ length: COMPLETE }, async (_, number) => {
    const stream = number % 2 === 0;
    const response = await gateway.ask(value, {
      edge: number % EDGES,
      body: {
        messages: simulates(`${number + 1} tokens`),
        max_tokens: 100,
        n: 1 + number % 3,
        stream,
        ...(stream ? { stream_options: { include_usage: true } } : {}),
      },
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const count = (of: string) =>
      Number(matchIn(text, new RegExp(`"${of}_tokens":(\\d+)`)));
    assert.ok(count("completion") > number);
    return [1, 0, 0, count("prompt"), count("completion")];
  }));
}

/** Requests that fail: at once, which costs nothing, and in mid-stream. */
async function fail(gateway: LaunchedGateway, value: string): Promise<Usage[]> {
  const messages = simulates(`fail after ${TOKENS_BEFORE_FAILURE} tokens`);
  const { promptTokens } = estimateTokens(chatRequest({ messages }));
  const usages: Usage[] = [];
  for (let number = 0; number < FAILING; number += 1) {
    const ask = async (body: object) =>
      await (await gateway.ask(value, { edge: number % EDGES, body })).text();
    assert.match(await ask({ messages: simulates("error 400") }), /^\{"error"/);
    const body = { messages, max_tokens: 50, stream: true };
    assert.match(await ask(body), /data: \{"error"/);
    usages.push([1, 1], [1, 1, 0, promptTokens, TOKENS_BEFORE_FAILURE]);
  }
  return usages;
}

const CONFIG = new URL("../../deno.json", import.meta.url).pathname;
const LETTERS = new Map(
  [["quot", '"'], ["#39", "'"], ["lt", "<"], ["gt", ">"], ["amp", "&"]],
);
const plain = (html: string) =>
  html.replace(/&(quot|#39|lt|gt|amp);/g, (_, name) => LETTERS.get(name) ?? "");

/** The text of an element that has no others inside. */
const shown = (page: string, mark: string) =>
  plain(matchIn(page, new RegExp(`${mark}[^>]*>([^<]*)<`)));
const contentOf = (page: string) => shown(page, 'data-part="content"');

Deno.test("the console of a gateway", async (t) => {
  await using gateway = await startGateway("launched", { edges: EDGES });
  const browser = await openConsole(gateway);

  await t.step("usage, and why requests were refused or failed", async () => {
    const [one, two] = [await gateway.createKey(), await gateway.createKey()];
    const refusals = [
      [one.key, { max_tokens: -1 }, 400],
      [one.key, { model: "no-such-model" }, 404],
      // One with an unknown key is nobody's.
      [`${one.key}x`, {}, 401],
    ] as const;
    for (const [key, body, status] of refusals) {
      assert.equal(await readStatus(gateway.ask(key, { body })), status);
    }
    const ofOne = sum([
      ...await complete(gateway, one.key),
      ...await fail(gateway, one.key),
      [0, 0, 2],
    ]);
    const completed = await complete(gateway, two.key);
    await gateway.keys("disable", two.id);
    const refused = await gateway.ask(two.key);
    await refused.body?.cancel();
    const ofTwo = sum([...completed, [0, 0, 1]]);
    const ofAll = sum([ofOne, ofTwo]);
    await until(async () => {
      const usage = await usageOn(browser, "/usage?range=24h");
      return usage.every((count, at) => count >= (ofAll[at] ?? 0));
    });
    for (const range of ["24h", "30d"]) {
      const at = (path: string) => usageOn(browser, `${path}?range=${range}`);
      assert.deepEqual(await at("/usage"), ofAll);
      assert.deepEqual(await at(`/keys/${one.id}`), ofOne);
      assert.deepEqual(await at(`/keys/${two.id}`), ofTwo);
    }
    const ofRequests = { invalid_request: FAILING + 1, unknown_model: 1 };
    const reasons: [path: string, Record<string, number>][] = [
      [`/keys/${one.id}`, { ...ofRequests, cut: FAILING, key_disabled: 0 }],
      [`/keys/${two.id}`, { key_disabled: 1, refused: 1, failed: 0 }],
      ["/usage", { ...ofRequests, cut: FAILING, key_disabled: 1 }],
    ];
    for (const [path, counts] of reasons) {
      // Edges write these once a second.
      const wanted = Object.values(counts);
      const read = await until(async () => {
        const sums = Object.keys(counts).map(await sumsOf(browser, path));
        return sums.every((sum, at) => sum >= (wanted[at] ?? 0)) && sums;
      });
      assert.deepEqual(read, wanted, path);
    }
    const { text } = await browser.get(`/keys/${two.id}/requests`);
    const id = refused.headers.get("x-request-id");
    assert.match(text, new RegExp(`${id}.*>403<`));
  });

  await using directory = await makeTempDir();
  const { path: cwd } = directory;
  const env = { OPENAI_API_KEY: gateway.state.api_key, NO_COLOR: "1" };
  const run = (command: string, args: string[]) =>
    runProcess(command, args, {
      cwd,
      env,
      signal: AbortSignal.timeout(60_000),
    });
  const read = (name: string) => Deno.readFile(`${cwd}/${name}`);
  const file = silence();
  await Deno.writeFile(`${cwd}/${file.name}`, await file.bytes());

  const film = { prompt: "A kite", seconds: "4", size: "720x1280" };
  const fields = {
    image: { prompt: "It's", size: "64x64" },
    speech: { input: "It's me", voice: "echo", response_format: "wav" },
    video: film,
  };
  const post = (kind: keyof typeof fields) =>
    browser.post(`/try?kind=${kind}`, tryFormOf(kind, fields[kind]));
  const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
  const more = { thinking: "off", more: '{"repetition_penalty":1.1}' };
  const pages = {
    chat: await browser.post("/try", tryForm(message, { seed: "7", ...more })),
    image: await post("image"),
    speech: await post("speech"),
    transcription: await upload(browser, { language: "en" }, [file]),
    video: await post("video"),
  };
  /** The TypeScript of all pages as one program, whose types are checked. */
  let main = "";
  const curls: Record<string, string> = {};
  for (const [kind, { text }] of Object.entries(pages)) {
    const [curl = "", code] = LANGUAGES.map((language) =>
      shown(text, `id="code-${language}"`)
    );
    curls[kind] = curl;
    const node = 'import process from "node:process";\n';
    await Deno.writeTextFile(`${cwd}/${kind}.ts`, node + code);
    main += `console.log("\\n= ${kind}");\nawait import("./${kind}.ts");\n`;
  }
  await Deno.writeTextFile(`${cwd}/main.ts`, main);
  const args = ["run", "-A", "--check", `--config=${CONFIG}`, "main.ts"];
  const printed = (await run(Deno.execPath(), args)).split(/\n= (\w+)\n/);
  const printedBy = (kind: string) => printed[printed.indexOf(kind) + 1];
  const curl = (kind: string) => run("sh", ["-c", curls[kind] ?? ""]);

  await t.step("Try it: a chat", async () => {
    const said = contentOf(pages.chat.text);
    assert.notEqual(said, "");
    assert.equal(printedBy("chat"), said);
    const stream = await curl("chat");
    assert.match(stream, /^data: \{.*data: \[DONE\]\s*$/s);
    const pieces = [...stream.matchAll(/^data: (\{.*)$/gm)]
      .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
    assert.equal(pieces.join(""), said);
  });
  await t.step("Try it: a picture", async () => {
    const picture = await read("image-1.png");
    assert.ok(pages.image.text.includes(`;base64,${picture.toBase64()}"`));
  });
  await t.step("Try it: speech", async () => {
    const sound = await read("speech.wav");
    assert.ok(pages.speech.text.includes(`;base64,${sound.toBase64()}"`));
    await curl("speech");
    assert.deepEqual(await read("speech.wav"), sound);
  });
  await t.step("Try it: a transcription", async () => {
    const said = contentOf(pages.transcription.text);
    assert.match(said, /You sent silence\.wav/);
    assert.equal(printedBy("transcription"), `${said}\n`);
    assert.equal(JSON.parse(await curl("transcription")).text, said);
  });
  await t.step("Try it: a video", async () => {
    const bytes = await read("video.mp4");
    assert.equal(new TextDecoder().decode(bytes.subarray(4, 8)), "ftyp");
    const again = plain(matchIn(pages.video.text, /formaction="([^"#]+)/));
    await until(async () => {
      const { text } = await browser.post(again, tryFormOf("video", film));
      return /<video src="[^"]+"/.test(text);
    });
  });
});
