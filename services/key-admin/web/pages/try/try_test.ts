/**
 * The page "Try it": what it sends, what it shows of the answer, and what it refuses.
 * The key that it sends is tested in `try_key_test.ts`.
 */
import assert from "node:assert/strict";
import { KEY_SCOPES, type KeyRecord } from "@gateway/shared/keys/record";
import { createAskApi } from "../../../domain/try/edge.ts";
import { TRY_LIMITS } from "../../../domain/try/key.ts";
import { MODEL_KINDS } from "@gateway/shared/models/kinds";
import { TRY_KINDS, type TryKind } from "../../../domain/try/kinds.ts";
import { exampleFor, isTryKind } from "../../../domain/try/request.ts";
import { silence } from "../../../../../tests/e2e/media/recording_fixture.ts";
import { catalogOfIds } from "../../../catalog_fixture.ts";
import { type Answer, ORIGIN } from "../../../client_fixture.ts";
import { startConsole, storedKey } from "../../../console_fixture.ts";
import {
  tryForm,
  tryFormOf,
  type Upload,
  upload,
} from "../../../forms_fixture.ts";
import { freePort, until } from "../../../redis_fixture.ts";

const EMAIL = "ada@example.org";

const plain = (html = "") =>
  html.replaceAll("&quot;", '"').replaceAll("&amp;", "&");

/** The console as it is deployed. */
const startDeployed = () => startConsole({ redisUser: "key-admin" });

Deno.test("the page without a script shows the whole answer, or the error of the API", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
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

Deno.test("a chat is sent as responses and messages, too; texts show their vectors and how alike they are", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  for (const endpoint of ["responses", "messages"]) {
    const tools = JSON.stringify([{
      type: "function",
      function: { name: "look_up", parameters: { type: "object" } },
    }]);
    const form = tryForm("Hi", { endpoint, thinking: "on" });
    const { text: shown } = await client.post("/try", form);
    assert.ok(site.requests.at(-1)?.request.url.endsWith(`/v1/${endpoint}`));
    assert.match(shown, /data-part="thinking">The user says/);
    assert.match(shown, /data-part="content">I am the gateway/);
    assert.match(shown, /data-part="finish">(completed|end_turn)</);
    assert.match(shown, /data-part="input">\d+</);
    assert.match(shown, new RegExp(`client\\.${endpoint}\\.create`));
    const called = await client.post(
      "/try",
      tryForm("Use look_up", { endpoint, tools }),
    );
    assert.match(plain(called.text), /data-part="calls"[^>]*>\[.*"look_up"/s);
    const refused = tryForm("[simulator: error 429]", { endpoint });
    const { text } = await client.post("/try", refused);
    assert.match(text, /data-part="error">\w+: Failed on request/);
    const seeded = await client.post(
      "/try",
      tryForm("Hi", { endpoint, seed: "1" }),
    );
    assert.match(seeded.text, /Only chat completions have this/);
  }
  const ask = (form: Record<string, string>) =>
    client.post("/try?kind=embedding", tryFormOf("embedding", form));
  const alike = await ask({
    input: "Red fox",
    other: "fox, red",
    dimensions: "8",
  });
  assert.match(alike.text, /data-part="content">\[(-?[\d.]+, ){7}-?[\d.]+\]/);
  assert.match(alike.text, /data-part="numbers">8</);
  assert.match(alike.text, /data-part="cosine">1\.0000</);
  assert.match(alike.text, /data-part="input">\d+</);
  const alone = await ask({ input: "Red fox" });
  assert.match(alone.text, /data-part="numbers">256</);
  assert.match(alone.text, /data-part="cosine"><\/span>/);
  assert.match((await ask({ input: " " })).text, /Write a text/);
});

Deno.test("Try it sends its form to the API, shows mistakes at their fields, and the request as code", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const written = await upload(client, { fields: { language: "en" } });
  assert.match(written.text, /data-part="status">200</);
  const [{ request, body } = assert.fail()] = site.requests;
  assert.match(request.url, /\/v1\/audio\/transcriptions$/);
  const model = "simulated-transcription-1";
  const fields = { model, file: "silence.wav", language: "en" };
  assert.deepEqual(JSON.parse(body), fields);
  for (const path of ["/try", "/try/stream"]) {
    const { status, text } = await client.post(path, tryForm(" "));
    assert.equal(status, 400);
    assert.match(text, /id="message" name="message" aria-invalid="true"/);
    assert.match(text, /id="message-error">Write a message</);
  }
  const unchosen = await upload(client, { files: [new File([], "")] });
  assert.match(unchosen.text, /Choose a recording/);
  const code = await client.post("/try", tryForm("As code", { show: "code" }));
  assert.match(code.text, /As code/);
  assert.equal(site.requests.length, 1, "nothing was sent");
});

Deno.test("Try it passes the API's stream and refusals on, and stops a request when the browser leaves", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const { headers, text } = await client.post("/try/stream", tryForm("Hi"));
  assert.equal(headers.get("content-type"), "text/event-stream; charset=utf-8");
  assert.match(text, /^data: \{.*"usage":\{.*data: \[DONE\]\n\n$/s);
  const lasts = {
    responses: /^event: response\.completed\n.*"usage":\{/m,
    messages: /^event: message_stop\n/m,
  };
  for (const [endpoint, last] of Object.entries(lasts)) {
    const form = tryForm("Hi", { endpoint, thinking: "on" });
    const stream = await client.post("/try/stream", form);
    assert.match(stream.headers.get("content-type") ?? "", /event-stream/);
    assert.match(stream.text, last);
  }
  const broken = tryForm("[simulator: error 503]");
  const refused = await client.post("/try/stream", broken);
  assert.equal(refused.status, 503);
  assert.equal(typeof JSON.parse(refused.text).error.message, "string");
  const slow = "[simulator: 600 tokens, 10 tokens per second]";
  const left = [
    { path: "/try/stream", form: tryForm(slow) },
    {
      path: "/try/stream",
      form: tryForm("[simulator: first token 60000 ms]"),
    },
    {
      path: "/try?kind=speech",
      form: tryFormOf("speech", { input: slow, voice: "alloy" }),
    },
  ];
  for (const { path, form } of left) {
    const leaving = new AbortController();
    const answer = client.post(path, form, { signal: leaving.signal });
    const count = site.requests.length;
    await until(() => site.requests.length > count);
    leaving.abort();
    await answer.catch(() => {}); // Nobody waits for it.
    assert.equal(await site.requests.at(-1)?.outcome, "left", path);
  }
});

Deno.test("a chat of Try it is kept under the name that its page gives; where it cannot be, it is sent without", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const once = "0123456789abcdef".repeat(2);
  const { askApi } = site.deps;
  for (const code of ["keep_unavailable", "keep_full"]) {
    const names: (string | undefined)[] = [];
    site.deps.askApi = async (request, options) => {
      names.push(request.once);
      return request.once === undefined
        ? await askApi(request, options)
        : Response.json({ error: { code, message: "No." } }, { status: 400 });
    };
    const answer = await client.post("/try/stream", tryForm("Hi", { once }));
    assert.match(answer.text, /data: \[DONE\]/);
    assert.deepEqual(names, [once, undefined]);
  }
  site.deps.askApi = askApi;
  const form = tryForm("[simulator: error 429]", { once });
  const refused = await client.post("/try/stream", form);
  assert.equal(refused.status, 429);
  assert.match(refused.text, /"error"/);
  const { request } = site.requests.at(-1) ?? assert.fail("nothing was sent");
  assert.equal(request.headers.get("idempotency-key"), once);
  for (const odd of ["", "short", `${once}0`, once.toUpperCase()]) {
    const { status } = await client.post(
      "/try/stream",
      tryForm("Hi", { once: odd }),
    );
    assert.equal(status, 400, odd);
  }
});

Deno.test("pages show images, audio and transcripts, within bounds, and allow their sources only there", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const ask = (kind: TryKind, form: Record<string, string>) =>
    client.post(`/try?kind=${kind}`, tryFormOf(kind, form));
  const speak = () => ask("speech", { input: "Hi", voice: "alloy" });
  const policyOf = ({ headers }: Answer) =>
    headers.get("content-security-policy") ?? "";
  const basic = policyOf(await client.get("/try"));
  assert.doesNotMatch(basic, /data:|blob:|media-src/);
  const picture = await ask("image", { prompt: `<A "kite">`, size: "64x64" });
  assert.match(
    picture.text,
    /<img src="data:image\/png;base64,iVBOR[^"]*" alt="&lt;A &quot;kite&quot;&gt;"\/><a [^>]*href="data:image\/png[^"]*" download="image-1.png".*data-part="output">\d+</s,
  );
  const images = "img-src 'self'";
  assert.equal(policyOf(picture), basic.replace(images, `${images} data:`));
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

Deno.test("without a script, a page shows how a video stands, and then the video, in parts for players", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
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

Deno.test("API4, ASVS 3.5.1, 5.2.1: only Try it takes an upload, of one file, within bounds, after sign-in", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const { heldBytes } = TRY_LIMITS;
  const sized = (size: number) => [new File([new Uint8Array(size)], "a.wav")];
  const count = site.requests.length;
  const stranger = await upload(site.client(), {
    files: sized(2 * heldBytes),
  });
  const isRead = stranger.text.includes('type="hidden"');
  assert.deepEqual([stranger.status, isRead], [401, false]);
  const refused: readonly { status: number; upload: Upload }[] = [
    { status: 400, upload: { fields: { owner: "x" } } },
    { status: 400, upload: { files: [silence(), silence()] } },
    { status: 413, upload: { files: sized(heldBytes + 64 * 1024) } },
    { status: 415, upload: { path: "/try?kind=chat" } },
    { status: 415, upload: { path: "/try/stream?kind=transcription" } },
    { status: 415, upload: { path: "/keys?kind=transcription" } },
  ];
  for (const { status, upload: file } of refused) {
    assert.equal((await upload(client, file)).status, status, file.path);
  }
  const raw = (origin: string) =>
    client.send("/try?kind=transcription", {
      method: "POST",
      headers: { origin, "content-type": "multipart/form-data" },
      body: "no boundary",
    });
  assert.equal((await raw(ORIGIN)).status, 400);
  assert.equal((await raw("https://evil.test")).status, 403);
  assert.equal(site.requests.length, count, "nothing was sent");
  const largest = await upload(client, { files: sized(heldBytes) });
  assert.match(largest.text, /data-part="error">/, "read, but no recording");
  assert.equal(site.requests.length, count + 1);
});

Deno.test("Try it offers the kinds of the models that there are; a key's example fits what the key may do", async () => {
  await using site = await startDeployed();
  const client = await site.signedIn(EMAIL);
  const ownerId = await site.addOwner(EMAIL);
  const selected = async (path: string) =>
    /<option value="([^"]+)" selected/.exec((await client.get(path)).text)?.[1];
  const offered = [
    { query: "", model: "neutral-3.7-plus" },
    { query: "?model=none", model: "neutral-3.7-plus" },
    { query: "?kind=none", model: "neutral-3.7-plus" },
    { query: "?kind=speech", model: "simulated-speech-1" },
    { query: "?model=simulated-image-1", model: "simulated-image-1" },
    { query: "?kind=chat&model=large-1", model: "large-1" },
  ];
  for (const { query, model } of offered) {
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
