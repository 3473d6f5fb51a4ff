import assert from "node:assert/strict";
import { hashKeyValue } from "@gateway/shared/keys/key";
import {
  hashKey,
  KEY_SCOPES,
  type KeyRecord,
  recordKey,
} from "@gateway/shared/keys/record";
import { asNumber } from "../domain/store/redis.ts";
import { createAskApi } from "../domain/try/edge.ts";
import { createStores } from "../domain/stores.ts";
import { TRY_LIMITS, tryKeyValue } from "../domain/try/key.ts";
import { MODEL_KINDS } from "@gateway/shared/models/kinds";
import {
  exampleFor,
  isTryKind,
  TRY_KINDS,
  type TryKind,
  type TryRequest,
  tryRequest,
  type TryValues,
} from "../domain/try/request.ts";
import { silence } from "../../../tests/e2e/recording_fixture.ts";
import {
  type Answer,
  catalogOfIds,
  ORIGIN,
  signIn,
  startConsole,
  storedKey,
  type TestClient,
  tryForm,
  tryFormOf,
  upload,
} from "../console_fixture.ts";
import { freePort, until } from "../redis_fixture.ts";
import { entries } from "../routes_fixture.ts";

/**
 * Guarantee: what the page "Try it" sends has the session's own key, which no browser
 * gets and which ends with the session.
 */

const EMAIL = "ada@example.org";
const SLACK_MS = 20_000;

const plain = (html = "") =>
  html.replaceAll("&quot;", '"').replaceAll("&amp;", "&");

/** A console with an owner, and the keys that reached the API. */
async function setup() {
  const site = await startConsole({ redisUser: "key-admin" });
  const { askApi } = site.deps;
  const redis = await site.server.connect();
  const keys: string[] = [];
  site.deps.askApi = (request, options) => {
    keys.push(options.key);
    return askApi(request, options);
  };
  const client = await site.signedIn(EMAIL);
  const ownerId = await site.deps.owners.ensure(EMAIL);
  const send = async (browser: TestClient = client, message = "Hello") => {
    const answer = await browser.post("/try", tryForm(message));
    assert.equal(answer.status, 200, answer.text);
    return keys.at(-1) ?? assert.fail("nothing was sent");
  };
  const dispose = () => site[Symbol.asyncDispose]();
  return { site, redis, client, ownerId, send, [Symbol.asyncDispose]: dispose };
}
type Stage = Awaited<ReturnType<typeof setup>>;

/** The record behind a key value, as an edge finds it. */
async function recordOf(
  { site, redis }: Stage,
  value: string,
): Promise<KeyRecord | null> {
  const pair = await redis.command(["GET", hashKey(hashKeyValue(value))]);
  const [keyId = "", ownerId = ""] = String(pair).split(":");
  return await site.deps.keys.get(ownerId, keyId);
}

Deno.test("API2, API4, API6, ASVS 14.2.1: the key of Try it is one per session, for models of all kinds, limited, for minutes, in no list, and stored nowhere", async () => {
  await using stage = await setup();
  const { site, redis, client, ownerId, send } = stage;
  const value = await send();
  assert.equal(await send(), value, "the session keeps its key");
  const cookie = client.cookies.get("__Host-sid") ?? "";
  const session = await site.deps.sessions.find(cookie) ?? assert.fail();
  const from = { cookie, actor: { by: EMAIL, ip: "" } };
  const replica = await tryKeyValue(createStores(site.deps), session, from);
  assert.equal(replica, value, "another key-admin knows it");
  const key = await recordOf(stage, value) ?? assert.fail("no record");
  assert.partialDeepStrictEqual(key, { ownerId, limits: TRY_LIMITS.key });
  const scopes = ["chat", "image", "speech", "video", "embedding"];
  assert.deepEqual(key.scopes, scopes);
  assert.deepEqual(key.models, []);
  const lifeMs = (key.expiresAtMs ?? Infinity) - key.createdAtMs;
  assert.equal(lifeMs, TRY_LIMITS.keyMs);
  const names = [hashKey(key.hash), recordKey({ ownerId, keyId: key.id })];
  for (const name of names) {
    const leftMs = asNumber(await redis.command(["PTTL", name]));
    assert.ok(leftMs > 0 && leftMs <= lifeMs, `${name}: ${leftMs}`);
  }
  assert.match((await client.get("/keys")).text, /Create your first key/);
  const dump = await redis.command(["EVAL", DUMP, "0"]);
  assert.ok(!String(dump).includes(value));
  const other = await send(await site.signedIn("grace@example.org"));
  assert.notEqual(other, value);
  const second = site.client();
  await signIn(second, EMAIL);
  assert.notEqual(await send(second), value, "of another session");
});

/** Everything in Redis as text. */
const DUMP = `
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  table.insert(all, name .. redis.call('DUMP', name))
end
return table.concat(all)`;

Deno.test("a key of Try it that is about to end, was disabled or deleted is replaced", async () => {
  await using stage = await setup();
  const { site, ownerId, send } = stage;
  const first = await send();
  // Redis' clock, which decides, is somewhat ahead of this one.
  site.clock.nowMs += TRY_LIMITS.keyMs - TRY_LIMITS.renewMs - SLACK_MS;
  assert.equal(await send(), first);
  site.clock.nowMs += 2 * SLACK_MS;
  assert.notEqual(await send(), first);
  for (const what of ["disable", "delete"] as const) {
    const value = await send();
    const { id: keyId } = await recordOf(stage, value) ?? assert.fail(what);
    const actor = { by: "test", ip: "" };
    await site.deps.keys[what]({ ownerId, keyId, version: null, actor });
    assert.notEqual(await send(), value, what);
  }
});

Deno.test("ASVS 7.4.1: when a session ends, alone or with all others, its key of Try it is deleted, with an entry in the audit log", async () => {
  for (const end of ["/sign-out", "/account/sessions/end-all"]) {
    await using stage = await setup();
    const { site, client, ownerId, send } = stage;
    const value = await send();
    const { id } = await recordOf(stage, value) ?? assert.fail(end);
    await client.post(end);
    assert.equal(await recordOf(stage, value), null);
    const changes = (await entries(site, ownerId))
      .filter(({ keyId }) => keyId === id)
      .map(({ action, by, detail }) => [action, by, detail.slice(0, 6)]);
    assert.deepEqual(changes, [
      ["key.created", EMAIL, "until "],
      ["key.deleted", "end of the session", ""],
    ]);
  }
});

Deno.test("the page without a script shows the whole answer: thinking, text, tool calls, tokens; or the error of the API", async () => {
  await using stage = await setup();
  const { site, client } = stage;
  const tools = JSON.stringify([{
    type: "function",
    function: { name: "look_up", parameters: { type: "object" } },
  }]);
  const page = async (message: string, more = {}) =>
    plain((await client.post("/try", tryForm(message, more))).text);
  const answered = await page("Hi", { thinking: "on" });
  assert.match(answered, /data-part="thinking">The user says/);
  assert.match(answered, /data-part="content">I am the gateway/);
  assert.match(answered, /data-part="finish">stop</);
  assert.match(answered, /data-part="output">\d+</);
  assert.match(answered, /data-part="total">\d+\.\d\d s</);
  assert.match(await page("Use look_up", { tools }), /"name": "look_up"/);
  const refused = await page("[simulator: error 429]");
  assert.match(refused, /rate_limit_exceeded: /);
  for (const odd of ["usage missing", "cut after 3 tokens"]) {
    assert.match(await page(`[simulator: ${odd}]`), /200: The answer is incom/);
  }
  const nowhere = `http://127.0.0.1:${await freePort()}/v1`;
  site.deps.askApi = createAskApi(nowhere, site.deps.log);
  assert.match(await page("Hi"), /edge_unreachable: .* EDGE_URL/);
  assert.match(site.logLines.join(), /"edge_unreachable".*refused/i);
});

Deno.test("tryRequest() makes of a form the request that it describes, or tells its mistakes", () => {
  const messages = [{ role: "user", content: "Hello" }];
  const schema = { type: "object", additionalProperties: false };
  const json_schema = { name: "answer", schema, strict: true };
  const kite = { prompt: "A kite" };
  const speech = { input: "Hi", voice: "echo", response_format: "wav" };
  const good: [kind: TryKind, form: TryValues, sent: TryRequest][] = [
    ["chat", { system: "Be kind" }, {
      messages: [{ role: "system", content: "Be kind" }, ...messages],
    }],
    ["chat", { history: JSON.stringify(messages), message: " " }, { messages }],
    ["chat", { temperature: "0.5", top_p: "1", max_tokens: "7", seed: "-3" }, {
      messages,
      temperature: 0.5,
      top_p: 1,
      max_tokens: 7,
      seed: -3,
    }],
    ["chat", { thinking: "off", more: '{"stop":["x"],"top_k":3}' }, {
      messages,
      enable_thinking: false,
      stop: ["x"],
      top_k: 3,
    }],
    ["chat", { schema: JSON.stringify(schema) }, {
      messages,
      response_format: { type: "json_schema", json_schema },
    }],
    ["image", kite, kite],
    ["image", { ...kite, size: "64x64", n: "2" }, {
      ...kite,
      size: "64x64",
      n: 2,
    }],
    ["speech", { ...speech, speed: "1.5" }, { ...speech, speed: 1.5 }],
    ["transcription", { file: "a.wav", language: "en" }, {
      file: "a.wav",
      language: "en",
    }],
    ["video", { ...kite, seconds: "8" }, { ...kite, seconds: "8" }],
  ];
  const read = (kind: TryKind, form: TryValues) => {
    const message = kind === "chat" && { message: "Hello" };
    return tryRequest(kind, { model: "a", ...message, ...form });
  };
  for (const [kind, form, sent] of good) {
    const { request, errors } = read(kind, form);
    assert.deepEqual([request, errors.size], [{ model: "a", ...sent }, 0]);
  }
  const bad: [kind: TryKind, form: TryValues, field: string, said: RegExp][] = [
    ["chat", { message: " " }, "message", /Write a message/],
    ["chat", { tools: "[}" }, "tools", /not valid JSON. Unexpected .*"\[}"$/],
    ["chat", { tools: "{}" }, "tools", /must be a JSON array/],
    ["chat", { history: "1" }, "history", /must be a JSON array/],
    ["chat", { schema: "[]" }, "schema", /must be a JSON object/],
    ["chat", { history: "[".repeat(65) }, "history", /too complex/],
    ["chat", { more: '{"stream":false}' }, "more", /sets 'stream' itself/],
    ["chat", { more: '{"n":2}' }, "more", /sets 'n' itself/],
    ["chat", { temperature: "warm" }, "temperature", /not a number/],
    ["image", { prompt: " " }, "prompt", /Say what to draw/],
    ["speech", { voice: "echo" }, "input", /Write what to say/],
    ["speech", { input: "Hi" }, "voice", /Name a voice/],
    ["transcription", {}, "file", /Choose a recording/],
    ["video", {}, "prompt", /Say what to show/],
  ];
  for (const [kind, form, field, said] of bad) {
    const { errors } = read(kind, form);
    assert.deepEqual([...errors.keys()], [field]);
    assert.match(errors.get(field) ?? "", said);
  }
});

Deno.test("Try it sends its form to the API, unless the form has a mistake, which is told at its field, or is only shown as code", async () => {
  await using stage = await setup();
  const { site, client } = stage;
  const written = await upload(client, { language: "en" });
  assert.match(written.text, /data-part="status">200</);
  const [{ request, body } = assert.fail()] = site.asked;
  assert.match(request.url, /\/v1\/audio\/transcriptions$/);
  const model = "simulated-transcription-1";
  const sent = { model, file: "silence.wav", language: "en" };
  assert.deepEqual(JSON.parse(body), sent);
  for (const path of ["/try", "/try/stream"]) {
    const { status, text } = await client.post(path, tryForm(" "));
    assert.equal(status, 400);
    assert.match(text, /id="message" name="message" aria-invalid="true"/);
    assert.match(text, /id="message-error">Write a message</);
  }
  const unchosen = await upload(client, {}, [new File([], "")]);
  assert.match(unchosen.text, /Choose a recording/);
  const code = await client.post("/try", tryForm("As code", { show: "code" }));
  assert.match(code.text, /As code/);
  assert.equal(site.asked.length, 1, "nothing was sent");
});

Deno.test("Try it passes the API's stream and refusals on, and stops a request when the browser leaves", async () => {
  await using stage = await setup();
  const { site, client } = stage;
  const { headers, text } = await client.post("/try/stream", tryForm("Hi"));
  assert.equal(headers.get("content-type"), "text/event-stream; charset=utf-8");
  assert.match(text, /^data: \{.*"usage":\{.*data: \[DONE\]\n\n$/s);
  const broken = tryForm("[simulator: error 503]");
  const refused = await client.post("/try/stream", broken);
  assert.equal(refused.status, 503);
  assert.equal(typeof JSON.parse(refused.text).error.message, "string");
  const slow = "[simulator: 600 tokens, 10 tokens per second]";
  const left = [
    ["/try/stream", tryForm(slow)],
    ["/try/stream", tryForm("[simulator: first token 60000 ms]")],
    ["/try?kind=speech", tryFormOf("speech", { input: slow, voice: "alloy" })],
  ] as const;
  for (const [path, form] of left) {
    const leaving = new AbortController();
    const answer = client.post(path, form, { signal: leaving.signal });
    const count = site.asked.length;
    await until(() => site.asked.length > count);
    leaving.abort();
    await answer.catch(() => {}); // Nobody waits for it.
    assert.equal(await site.asked.at(-1)?.ended, "left", path);
  }
});

Deno.test("pages show images, audio and the text of a recording, within bounds, and allow their sources only there", async () => {
  await using stage = await setup();
  const { site, client } = stage;
  const ask = (kind: TryKind, form: Record<string, string>) =>
    client.post(`/try?kind=${kind}`, tryFormOf(kind, form));
  const speak = () => ask("speech", { input: "Hi", voice: "alloy" });
  const policyOf = ({ headers }: Answer) =>
    headers.get("content-security-policy") ?? "";
  const basic = policyOf(await client.get("/try"));
  assert.doesNotMatch(basic, /data:|blob:|media-src/);
  const drawn = await ask("image", { prompt: `<A "kite">`, size: "64x64" });
  assert.match(
    drawn.text,
    /<img src="data:image\/png;base64,iVBOR[^"]*" alt="&lt;A &quot;kite&quot;&gt;"\/><a [^>]*href="data:image\/png[^"]*" download="image-1.png".*data-part="output">\d+</s,
  );
  const images = "img-src 'self'";
  assert.equal(policyOf(drawn), basic.replace(images, `${images} data:`));
  const spoken = await speak();
  assert.match(
    spoken.text,
    /<audio src="data:audio\/mpeg;base64,[^"]+" controls=""><\/audio><a [^>]*download="speech.mp3"/,
  );
  assert.equal(policyOf(spoken), `${basic}; media-src data:`);
  const written = await upload(client);
  assert.match(written.text, /You sent silence\.wav, 1\.0 seconds long/);
  assert.equal(policyOf(written), basic);
  const { heldBytes } = TRY_LIMITS;
  const whole = (size: number) => {
    const body = new Uint8Array(size);
    const headers = { "content-type": "audio/wav" };
    site.deps.askApi = () => Promise.resolve(new Response(body, { headers }));
    return speak();
  };
  const most = await whole(heldBytes);
  assert.match(most.text, /<audio src="data:audio\/wav;base64,AAAA/);
  const { text } = await whole(heldBytes + 1);
  assert.match(text, /The answer has more than 8 MiB/);
  assert.ok(text.length < heldBytes / 10);
});

Deno.test("without a script, a page shows how a video stands, with a button to see it again, and then the video, of which players get parts", async () => {
  await using stage = await setup();
  const { client } = stage;
  const form = (prompt: string) =>
    tryFormOf("video", { prompt, seconds: "4", size: "64x64" });
  const again = ({ text }: Answer) =>
    plain(/<button [^>]*formaction="([^"#]+)#answer"/.exec(text)?.[1]);
  const ended = async (prompt: string) => {
    let page = await client.post("/try?kind=video", form(prompt));
    assert.match(page.text, /data-part="state">Queued, \d+%</);
    assert.match(page.text, /data-part="total">Not complete</);
    const path = again(page);
    assert.match(path, /^\/try\/videos\/video_[0-9a-f]{32}\?kind=video$/);
    await until(async () => {
      page = await client.post(path, form(prompt));
      assert.equal(page.status, 200);
      assert.ok(plain(page.text).includes(`${prompt}</textarea>`));
      return again(page) === "";
    });
    return { page, content: `${path.split("?")[0]}/content` };
  };
  const failed = await ended("[simulator: video fails]");
  assert.match(failed.page.text, /data-part="error">video_generation_failed: /);
  const { page, content } = await ended("A kite");
  assert.match(page.text, /data-part="total">\d+ s</);
  const video = `<figure><video src="${content}" controls=""></video>`;
  assert.ok(page.text.includes(video));
  const policy = page.headers.get("content-security-policy") ?? "";
  assert.match(policy, /; media-src 'self'$/);
  const part = await client.get(content, { range: "bytes=4-7" });
  assert.deepEqual([part.status, part.text], [206, "ftyp"]);
  const whole = await client.send(content, { method: "HEAD" });
  const length = whole.headers.get("content-length");
  assert.ok(Number(length) > 500, `${length}`);
  const { headers } = part;
  assert.equal(headers.get("content-range"), `bytes 4-7/${length}`);
  assert.equal(headers.get("content-type"), "video/mp4");
  assert.match(headers.get("content-disposition") ?? "", /^attachment;/);
  const beyond = { range: `bytes=${length}-` };
  assert.equal((await client.get(content, beyond)).status, 416);
  const unknown = [
    failed.content,
    content.replace(/\w\/content$/, "g/content"),
  ];
  for (const path of [...unknown, "/try/videos/..%2Fmodels/content"]) {
    const { status, text } = await client.get(path);
    assert.equal(status, 404, path);
    assert.match(text, /This video does not exist/);
  }
});

Deno.test("API4, ASVS 3.5.1, 5.2.1: an upload is taken only by Try it, from those who have signed in, with one file, within bounds", async () => {
  await using stage = await setup();
  const { site, client } = stage;
  const { heldBytes } = TRY_LIMITS;
  const sized = (size: number) => [new File([new Uint8Array(size)], "a.wav")];
  const count = site.asked.length;
  const stranger = await upload(site.client(), {}, sized(2 * heldBytes));
  const isRead = stranger.text.includes('type="hidden"');
  assert.deepEqual([stranger.status, isRead], [401, false]);
  const refused: [status: number, ...Parameters<typeof upload>][] = [
    [400, client, { owner: "x" }],
    [400, client, {}, [silence(), silence()]],
    [413, client, {}, sized(heldBytes + 64 * 1024)],
    [415, client, {}, [silence()], "/try?kind=chat"],
    [415, client, {}, [silence()], "/try/stream?kind=transcription"],
    [415, client, {}, [silence()], "/keys?kind=transcription"],
  ];
  for (const [status, ...args] of refused) {
    assert.equal((await upload(...args)).status, status, args[3]);
  }
  const raw = (origin: string) =>
    client.send("/try?kind=transcription", {
      method: "POST",
      headers: { origin, "content-type": "multipart/form-data" },
      body: "no boundary",
    });
  assert.equal((await raw(ORIGIN)).status, 400);
  assert.equal((await raw("https://evil.test")).status, 403);
  assert.equal(site.asked.length, count, "nothing was sent");
  const largest = await upload(client, {}, sized(heldBytes));
  assert.match(largest.text, /data-part="error">/, "read, but no recording");
  assert.equal(site.asked.length, count + 1);
});

Deno.test("the kinds on Try it are those of the models that there are, and a key's example and link fit what the key may do", async () => {
  await using stage = await setup();
  const { site, client, ownerId } = stage;
  const selected = async (path: string) =>
    /<option value="([^"]+)" selected/.exec((await client.get(path)).text)?.[1];
  const asked = [
    ["", "neutral-3.7-plus"],
    ["?model=none", "neutral-3.7-plus"],
    ["?kind=none", "neutral-3.7-plus"],
    ["?kind=speech", "simulated-speech-1"],
    ["?model=simulated-image-1", "simulated-image-1"],
    ["?kind=chat&model=large-1", "large-1"],
  ] as const;
  for (const [query, model] of asked) {
    assert.equal(await selected(`/try${query}`), model, query);
  }
  const kinds = async () =>
    [...(await client.get("/try")).text.matchAll(/href="\/try\?kind=(\w+)"/g)]
      .map(([, kind]) => kind);
  assert.deepEqual(await kinds(), MODEL_KINDS.filter(isTryKind));
  const scopes = KEY_SCOPES;
  const rights: [Pick<KeyRecord, "scopes" | "models">, model?: string][] = [
    [{ scopes, models: [] }, "neutral-3.7-plus"],
    [{ scopes, models: ["large-1"] }, "large-1"],
    [{ scopes: ["image"], models: [] }, "simulated-image-1"],
    [{ scopes: ["speech"], models: [] }, "simulated-speech-1"],
    [
      { scopes, models: ["simulated-transcription-1"] },
      "simulated-transcription-1",
    ],
    [{ scopes: ["video"], models: [] }, "simulated-video-1"],
    [{ scopes: ["models"], models: [] }],
    [{ scopes, models: ["gone-1"] }],
  ];
  for (const [settings, model] of rights) {
    const example = exampleFor(site.deps.catalog, settings);
    assert.equal(example?.request.model, model);
    const { id } = await storedKey(site, ownerId, settings);
    const { text } = await client.get(`/keys/${id}`);
    const curl = plain(/<pre id="curl"[^>]*>([^<]*)</.exec(text)?.[1]);
    const path = example ? TRY_KINDS[example.kind].path : "/models -H";
    assert.ok(curl.includes(`/v1${path}`) && curl.includes(model ?? ""), curl);
    const link = plain(/href="(\/try\?kind=[^"]+)"/.exec(text)?.[1]);
    assert.equal(link ? await selected(link) : undefined, model);
  }
  site.deps.catalog = catalogOfIds(["simulated-speech-1"]);
  assert.deepEqual(await kinds(), [], "one kind needs no choice");
  assert.equal(await selected("/try"), "simulated-speech-1");
});
