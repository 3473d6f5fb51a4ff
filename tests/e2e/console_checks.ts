// Promise: the usage that the console shows for a key and for all keys is exactly the
// sum of what its clients received: requests, tokens in and out, failures and why. Its
// page "Try it" sends a real request through an edge, and the code that it shows does
// the same with a key of the reader's. The console's own tests of that page are in
// services/key-admin/web/pages/try.
import assert from "node:assert/strict";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import type { TestClient } from "../../services/key-admin/client_fixture.ts";
import {
  tryForm,
  tryFormOf,
  upload,
} from "../../services/key-admin/forms_fixture.ts";
import { LANGUAGES } from "../../services/key-admin/domain/try/code.ts";
import { amountOf } from "../support/amount.ts";
import { chatRequest } from "../support/chat_request.ts";
import { outcomeOf } from "../support/gateway/chat_outcome.ts";
import { readStatus } from "../support/gateway/chat_status.ts";
import type { LaunchedGateway } from "../support/gateway/launched.ts";
import { LONG, simulates } from "../support/gateway/simulator.ts";
import { matchIn, openConsole } from "../support/gateway/console_client.ts";
import { makeTempDir, runProcess } from "../support/process.ts";
import { until } from "../support/wait_for.ts";
import { silence } from "./media/recording_fixture.ts";

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
        ...stream && { stream_options: { include_usage: true } },
      },
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const count = (name: string) =>
      Number(matchIn(text, new RegExp(`"${name}_tokens":(\\d+)`)));
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
/** The types of OpenAI's package take seconds. */
const CHECK = amountOf({ usual: 0, full: 1 }) === 1 ? "--check" : "--no-check";
const LETTERS = new Map(
  [["quot", '"'], ["#39", "'"], ["lt", "<"], ["gt", ">"], ["amp", "&"]],
);
const plain = (html: string) =>
  html.replace(/&(quot|#39|lt|gt|amp);/g, (_, name) => LETTERS.get(name) ?? "");

/** The text of an element that has no others inside. */
const shown = (page: string, mark: string) =>
  plain(matchIn(page, new RegExp(`${mark}[^>]*>([^<]*)<`)));
const contentOf = (page: string) => shown(page, 'data-part="content"');

/** Requests of two keys: complete, failed and refused. */
async function useKeys(gateway: LaunchedGateway) {
  const [one, two] = [await gateway.createKey(), await gateway.createKey()];
  const refusals = [
    { key: one.key, body: { max_tokens: -1 }, status: 400 },
    { key: one.key, body: { model: "no-such-model" }, status: 404 },
    // One with an unknown key is nobody's.
    { key: `${one.key}x`, body: {}, status: 401 },
  ];
  for (const { key, body, status } of refusals) {
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
  const refusedId = refused.headers.get("x-request-id");
  return { one, two, ofOne, ofTwo, ofAll, refusedId };
}

async function showsUsage(
  gateway: LaunchedGateway,
  browser: TestClient,
): Promise<void> {
  const used = await useKeys(gateway);
  const { one, two } = used;
  await until(async () => {
    const usage = await usageOn(browser, "/usage?range=24h");
    return usage.every((count, at) => count >= (used.ofAll[at] ?? 0));
  });
  for (const range of ["24h", "30d"]) {
    const at = (path: string) => usageOn(browser, `${path}?range=${range}`);
    assert.deepEqual(await at("/usage"), used.ofAll);
    assert.deepEqual(await at(`/keys/${one.id}`), used.ofOne);
    assert.deepEqual(await at(`/keys/${two.id}`), used.ofTwo);
  }
  const ofRequests = { invalid_request: FAILING + 1, unknown_model: 1 };
  await showsReasons(browser, `/keys/${one.id}`, {
    ...ofRequests,
    cut: FAILING,
    key_disabled: 0,
  });
  await showsReasons(browser, `/keys/${two.id}`, {
    key_disabled: 1,
    refused: 1,
    failed: 0,
  });
  await showsReasons(browser, "/usage", {
    ...ofRequests,
    cut: FAILING,
    key_disabled: 1,
  });
  const row = new RegExp(`${used.refusedId}.*>403<`);
  await until(async () => {
    const { text } = await browser.get(`/requests?key=${two.id}`);
    return row.test(text);
  });
}

/** The usage file of a page has these sums, soon: edges write them once a second. */
async function showsReasons(
  browser: TestClient,
  path: string,
  counts: Record<string, number>,
): Promise<void> {
  const expected = Object.values(counts);
  const read = await until(async () => {
    const sums = Object.keys(counts).map(await sumsOf(browser, path));
    return sums.every((sum, at) => sum >= (expected[at] ?? 0)) && sums;
  });
  assert.deepEqual(read, expected, path);
}

/** Operators see what runs, where and since when, and stop it. */
async function stopsRequest(
  gateway: LaunchedGateway,
  browser: TestClient,
): Promise<void> {
  const { key, id } = await gateway.createKey();
  const body = { ...LONG, stream: true };
  const ended = outcomeOf(gateway.ask(key, { edge: 1, body }));
  const row = await until(async () => {
    const { text } = await browser.get("/people/running");
    const [, rest = ""] = text.split(`/keys/${id}"`);
    return rest.includes(">Streaming<") && rest;
  });
  assert.match(row, /"Server">simulator<.*"Tokens so far">[1-9]/);
  const request = matchIn(row, /<code>(req_\w+)</);
  const stopped = await gateway.command("running", "stop", request);
  assert.equal(JSON.parse(stopped).stopped, true);
  assert.partialDeepStrictEqual(await ended, {
    kind: "sse_error",
    errorCode: "request_stopped",
  });
  await until(async () => {
    const { text } = await browser.get(`/requests?key=${id}`);
    return text.includes(request) && text.includes("request_stopped");
  });
  const { requests } = JSON.parse(await gateway.command("running"));
  assert.deepEqual(requests, []);
}

const FILM = { prompt: "A kite", seconds: "4", size: "720x1280" };
/** What is asked for on the page of a kind. */
const FORMS = {
  image: { prompt: "It's", size: "64x64" },
  speech: { input: "It's me", voice: "echo", response_format: "wav" },
  video: FILM,
};

/** What the page shows for each kind of request that one can try. */
async function tryAll(browser: TestClient): Promise<Record<Kind, string>> {
  const post = (kind: keyof typeof FORMS) =>
    browser.post(`/try?kind=${kind}`, tryFormOf(kind, FORMS[kind]));
  const message = `Say "it's" <fine> \\ [simulator: 20 tokens]`;
  const chat = tryForm(message, {
    seed: "7",
    thinking: "off",
    more: '{"repetition_penalty":1.1}',
  });
  const recording = await upload(browser, { fields: { language: "en" } });
  return {
    chat: (await browser.post("/try", chat)).text,
    image: (await post("image")).text,
    speech: (await post("speech")).text,
    transcription: recording.text,
    video: (await post("video")).text,
  };
}

type Kind = keyof typeof FORMS | "chat" | "transcription";

/** The code that pages show, run in a directory of its own with the reader's key. */
class ShownCode {
  readonly #cwd: string;
  readonly #apiKey: string;
  readonly #curls = new Map<string, string>();
  /** What the programs printed, after the name of each. */
  #printed: string[] = [];

  constructor(cwd: string, apiKey: string) {
    this.#cwd = cwd;
    this.#apiKey = apiKey;
  }

  /** Runs the TypeScript of all pages as one program, whose types the full run checks. */
  async run(pages: Record<Kind, string>): Promise<void> {
    const file = silence();
    await Deno.writeFile(`${this.#cwd}/${file.name}`, await file.bytes());
    let main = "";
    for (const [kind, page] of Object.entries(pages)) {
      const [curl = "", code] = LANGUAGES.map((language) =>
        shown(page, `id="code-${language}"`)
      );
      this.#curls.set(kind, curl);
      const node = 'import process from "node:process";\n';
      await Deno.writeTextFile(`${this.#cwd}/${kind}.ts`, node + code);
      main += `console.log("\\n= ${kind}");\nawait import("./${kind}.ts");\n`;
    }
    await Deno.writeTextFile(`${this.#cwd}/main.ts`, main);
    const args = ["run", "-A", CHECK, `--config=${CONFIG}`, "main.ts"];
    const printed = await this.#run(Deno.execPath(), args);
    this.#printed = printed.split(/\n= (\w+)\n/);
  }

  /** What the TypeScript of a kind printed. */
  printedBy(kind: Kind): string | undefined {
    return this.#printed[this.#printed.indexOf(kind) + 1];
  }

  /** Runs the command of a kind for a shell, and returns what it prints. */
  curl(kind: Kind): Promise<string> {
    return this.#run("sh", ["-c", this.#curls.get(kind) ?? ""]);
  }

  /** Reads a file that the code has written. */
  read(name: string): Promise<Uint8Array> {
    return Deno.readFile(`${this.#cwd}/${name}`);
  }

  #run(command: string, args: string[]): Promise<string> {
    return runProcess(command, args, {
      cwd: this.#cwd,
      env: { OPENAI_API_KEY: this.#apiKey, NO_COLOR: "1" },
      signal: AbortSignal.timeout(60_000),
    });
  }
}

async function triesChat(page: string, code: ShownCode): Promise<void> {
  const content = contentOf(page);
  assert.notEqual(content, "");
  assert.equal(code.printedBy("chat"), content);
  const stream = await code.curl("chat");
  assert.match(stream, /^data: \{.*data: \[DONE\]\s*$/s);
  const pieces = [...stream.matchAll(/^data: (\{.*)$/gm)]
    .map(([, data = ""]) => JSON.parse(data).choices[0]?.delta.content ?? "");
  assert.equal(pieces.join(""), content);
}

async function triesImage(page: string, code: ShownCode): Promise<void> {
  const picture = await code.read("image-1.png");
  assert.ok(page.includes(`;base64,${picture.toBase64()}"`));
}

async function triesSpeech(page: string, code: ShownCode): Promise<void> {
  const sound = await code.read("speech.wav");
  assert.ok(page.includes(`;base64,${sound.toBase64()}"`));
  await code.curl("speech");
  assert.deepEqual(await code.read("speech.wav"), sound);
}

async function triesTranscription(
  page: string,
  code: ShownCode,
): Promise<void> {
  const content = contentOf(page);
  assert.match(content, /You sent silence\.wav/);
  assert.equal(code.printedBy("transcription"), `${content}\n`);
  const { text } = JSON.parse(await code.curl("transcription"));
  assert.equal(text, content);
}

async function triesVideo(
  page: string,
  code: ShownCode,
  browser: TestClient,
): Promise<void> {
  const bytes = await code.read("video.mp4");
  assert.equal(new TextDecoder().decode(bytes.subarray(4, 8)), "ftyp");
  const again = plain(matchIn(page, /formaction="([^"#]+)/));
  await until(async () => {
    const { text } = await browser.post(again, tryFormOf("video", FILM));
    return /<video src="[^"]+"/.test(text);
  });
}

/**
 * Uses the console of this gateway with two edges, which nobody has used before: what
 * the console counts is what these checks have sent.
 */
export async function checkConsole(
  t: Deno.TestContext,
  gateway: LaunchedGateway,
): Promise<void> {
  const browser = await openConsole(gateway);

  await t.step(
    "usage, and why requests were refused or failed",
    () => showsUsage(gateway, browser),
  );

  await t.step(
    "running requests are listed and stopped",
    () => stopsRequest(gateway, browser),
  );

  await using directory = await makeTempDir();
  const { api_key } = gateway.state;
  const code = new ShownCode(directory.path, api_key ?? assert.fail());
  const pages = await tryAll(browser);
  await code.run(pages);

  await t.step("Try it: a chat", () => triesChat(pages.chat, code));
  await t.step("Try it: a picture", () => triesImage(pages.image, code));
  await t.step("Try it: speech", () => triesSpeech(pages.speech, code));
  await t.step(
    "Try it: a transcription",
    () => triesTranscription(pages.transcription, code),
  );
  await t.step("Try it: a video", () => triesVideo(pages.video, code, browser));
}
