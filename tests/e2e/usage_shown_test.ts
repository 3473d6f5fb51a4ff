/**
 * Guarantee: the usage that the console shows for a key and for all keys is exactly the
 * sum of what its clients received: requests, tokens in and out, what was made, failures
 * and why.
 * Nothing is counted twice or left out between the worker, the edge and Redis.
 */
import assert from "node:assert/strict";
import type { FailureReason } from "@gateway/shared/keys/failed_requests";
import {
  type Limits,
  ownerLimitsKey,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import { encodeKey } from "../../services/key-admin/domain/keys/key_record.ts";
import type { KeySettings } from "../../services/key-admin/domain/keys/settings.ts";
import { estimateTokens } from "../../services/edge-auth/limits/cost.ts";
import { createKey } from "../conformance/context.ts";
import { chatRequest } from "../support/chat_request.ts";
import { type Cluster, startCluster } from "../support/cluster.ts";
import {
  askCluster,
  createStoredKey,
  LONG,
  type OpenedStore,
  openStore,
} from "../support/cluster_keys.ts";
import type { TestClient } from "../../services/key-admin/console_fixture.ts";
import {
  inviteOwner,
  matchIn,
  openConsole,
} from "../support/console_client.ts";
import { waitFor } from "../support/wait_for.ts";
import { silence } from "./recording_fixture.ts";

const EDGES = 2;
const COMPLETE = 24;
const FAILING = 4;
const TOKENS_BEFORE_FAILURE = 5;

/** Totals by their names on a page. */
interface Usage {
  "Requests": number;
  "Failed": number;
  "Refused": number;
  "Input tokens": number;
  "Output tokens": number;
}

const NONE: Usage = {
  "Requests": 0,
  "Failed": 0,
  "Refused": 0,
  "Input tokens": 0,
  "Output tokens": 0,
};

/** Each total of a page, or of several usages. */
const totals = (total: (name: keyof Usage) => number): Usage => ({
  "Requests": total("Requests"),
  "Failed": total("Failed"),
  "Refused": total("Refused"),
  "Input tokens": total("Input tokens"),
  "Output tokens": total("Output tokens"),
});

const sum = (all: readonly Usage[]): Usage =>
  totals((name) => all.reduce((total, usage) => total + usage[name], 0));

async function shown(browser: TestClient, path: string): Promise<Usage> {
  const { text } = await browser.get(path);
  return totals((name) => {
    const form = new RegExp(`<dt>${name}</dt><dd>([\\d,]+)<`);
    return Number(matchIn(text, form).replaceAll(",", ""));
  });
}

const simulates = (controls: string) => [
  { role: "user" as const, content: `[simulator: ${controls}]` },
];

/** Requests that complete; what the model server counted is in the answers. */
function complete(cluster: Cluster, value: string): Promise<Usage[]> {
  return Promise.all(Array.from({ length: COMPLETE }, async (_, number) => {
    const stream = number % 2 === 0;
    const response = await askCluster(cluster, value, number % EDGES, {
      messages: simulates(`${number + 1} tokens`),
      max_tokens: 100,
      n: 1 + number % 3,
      stream,
      ...(stream ? { stream_options: { include_usage: true } } : {}),
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    const count = (of: string) =>
      Number(matchIn(text, new RegExp(`"${of}_tokens":(\\d+)`)));
    assert.ok(count("completion") > number);
    return {
      ...NONE,
      "Requests": 1,
      "Input tokens": count("prompt"),
      "Output tokens": count("completion"),
    };
  }));
}

/** Requests that fail: at once, which costs nothing, and in mid-stream. */
async function fail(cluster: Cluster, value: string): Promise<Usage[]> {
  const failed = { ...NONE, "Requests": 1, "Failed": 1 };
  const messages = simulates(`fail after ${TOKENS_BEFORE_FAILURE} tokens`);
  const { promptTokens } = estimateTokens(chatRequest({ messages }));
  const usages: Usage[] = [];
  for (let number = 0; number < FAILING; number += 1) {
    const ask = async (body: object) =>
      await (await askCluster(cluster, value, number % EDGES, body)).text();
    assert.match(await ask({ messages: simulates("error 400") }), /^\{"error"/);
    const body = { messages, max_tokens: 50, stream: true };
    assert.match(await ask(body), /data: \{"error"/);
    usages.push(failed, {
      ...failed,
      "Input tokens": promptTokens,
      "Output tokens": TOKENS_BEFORE_FAILURE,
    });
  }
  return usages;
}

/** Requests that are refused; one with an unknown key is nobody's. */
async function refuse(cluster: Cluster, value: string): Promise<Usage> {
  const rows: [key: string, body: object, status: number][] = [
    [value, { max_tokens: -1 }, 400],
    [value, { model: "no-such-model" }, 404],
    [`${value}x`, {}, 401],
  ];
  for (const [key, body, status] of rows) {
    const response = await askCluster(cluster, key, 0, body);
    await response.body?.cancel();
    assert.equal(response.status, status);
  }
  return { ...NONE, "Refused": 2 };
}

async function assertUse(cluster: Cluster, browser: TestClient) {
  const [one, two] = [await createKey(cluster), await createKey(cluster)];
  const ofOne = sum([
    ...await complete(cluster, one.key),
    ...await fail(cluster, one.key),
    await refuse(cluster, one.key),
  ]);
  const ofTwo = sum(await complete(cluster, two.key));
  const ofAll = sum([ofOne, ofTwo]);
  await waitFor(async () => {
    const { Requests, Refused } = await shown(browser, "/usage?range=24h");
    return Requests >= ofAll.Requests && Refused >= ofAll.Refused;
  }, { what: "all settlements" });
  for (const range of ["24h", "30d"]) {
    const at = (path: string) => shown(browser, `${path}?range=${range}`);
    assert.deepEqual(await at("/usage"), ofAll);
    assert.deepEqual(await at(`/keys/${one.id}`), ofOne);
    assert.deepEqual(await at(`/keys/${two.id}`), ofTwo);
  }
}

/** What models without tokens make: model, unit and count as metrics and as people read them. */
const MADE = [
  ["simulated-image-1", "images", 2, "2 images"],
  ["simulated-speech-1", "characters", 13, "13 characters"],
  ["simulated-transcription-1", "audio_seconds", 1, "1 audio second"],
  ["simulated-video-1", "video_seconds", 4, "4 video seconds"],
] as const;

async function assertUnits(cluster: Cluster, browser: TestClient) {
  const { id, key } = await createKey(cluster, "--scopes=image,speech,video");
  const ask = async (path: string, body?: BodyInit) => {
    const response = await fetch(`${cluster.baseUrl()}/${path}`, {
      ...body !== undefined && { method: "POST", body },
      headers: {
        authorization: `Bearer ${key}`,
        ...typeof body === "string" && { "content-type": "application/json" },
      },
    });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    return text;
  };
  const [[drawn], [spoken], [heard], [filmed]] = MADE;
  const prompt = "A red kite";
  await ask(
    "images/generations",
    JSON.stringify({ model: drawn, prompt, size: "256x256", n: 2 }),
  );
  const input = "Good morning.";
  const speech = { model: spoken, voice: "alloy", input };
  await ask("audio/speech", JSON.stringify(speech));
  const form = new FormData();
  form.append("model", heard);
  form.append("file", silence());
  await ask("audio/transcriptions", form);
  const video = JSON.stringify({ model: filmed, prompt, seconds: "4" });
  const { id: videoId } = JSON.parse(await ask("videos", video));
  const linesOf = async (service: "edge-auth" | "media-worker") => {
    const urls = cluster.state.ops_urls[service] ?? [];
    const pages = urls.map(async (url) =>
      await (await fetch(`${url}/metrics`)).text()
    );
    return (await Promise.all(pages)).flatMap((page) => page.split("\n"));
  };
  const labels = (model: string, unit: string) =>
    `_units_total{model="${model}",unit="${unit}"}`;
  await waitFor(async () => {
    await ask(`videos/${videoId}`);
    const lines = await linesOf("edge-auth");
    return MADE.every(([model, unit, count]) =>
      lines.includes(`gateway_media${labels(model, unit)} ${count}`)
    );
  }, { what: "the units in the metrics of the edges" });
  const text = await waitFor(async () => {
    const { text } = await browser.get(`/keys/${id}`);
    return MADE.every(([, , , words]) => text.includes(words)) && text;
  }, { what: "the units on the page" });
  const sums = await sumsOf(browser, `/keys/${id}/export.csv`);
  const worker = await linesOf("media-worker");
  for (const [model, unit, count, words] of MADE) {
    const row = new RegExp(`>${model}</th>.*?</tr>`).exec(text)?.[0] ?? "";
    assert.match(row, new RegExp(`>–<.*>–<.*>${words}<`));
    assert.equal(sums(unit), count);
    // Only edges know how long a video is.
    const ofWorker = unit === "video_seconds" ? 0 : count;
    assert.ok(worker.includes(`gateway_job${labels(model, unit)} ${ofWorker}`));
  }
  assert.ok(!worker.some((line) => /^gateway_job_tokens_total\{/.test(line)));
}

/** How requests fail with a new key: its limits and settings, those of its owner, and the request. */
interface Way {
  limits?: Partial<Limits>;
  ownerLimits?: Partial<Limits>;
  settings?: Partial<KeySettings>;
  isDisabled?: boolean;
  body?: object;
  /** A stream of the key runs meanwhile. */
  isBusy?: boolean;
}

const CUT = { messages: simulates("fail after 5 tokens"), stream: true };
const WAYS: [FailureReason, status: number, Way][] = [
  ["requests_per_minute", 429, { limits: { requestsPerMinute: 1 } }],
  ["tokens_per_minute", 429, { limits: { tokensPerMinute: 1 } }],
  ["tokens_per_day", 429, { limits: { tokensPerDay: 1 } }],
  ["concurrency", 429, { limits: { concurrency: 1 }, isBusy: true }],
  ["requests_per_minute.owner", 429, { ownerLimits: { requestsPerMinute: 1 } }],
  ["tokens_per_minute.owner", 429, { ownerLimits: { tokensPerMinute: 1 } }],
  ["tokens_per_day.owner", 429, { ownerLimits: { tokensPerDay: 1 } }],
  ["concurrency.owner", 429, { ownerLimits: { concurrency: 1 }, isBusy: true }],
  ["model_server_limit", 429, { body: { messages: simulates("error 429") } }],
  ["unknown_model", 404, { body: { model: "no-such-model" } }],
  ["model_forbidden", 403, { settings: { models: ["another-model"] } }],
  ["endpoint_forbidden", 403, { settings: { scopes: ["models"] } }],
  ["key_disabled", 403, { isDisabled: true }],
  ["key_expired", 401, { settings: { expiresAtMs: 1 } }],
  ["invalid_request", 400, { body: { max_tokens: -1 } }],
  ["server", 502, { body: { messages: simulates("error 500") } }],
  ["cut", 200, { body: { ...CUT, max_tokens: 50 } }],
];
/** A limit of 1 lets one request pass. */
const TRIES = 3;

interface Stage {
  cluster: Cluster;
  opened: OpenedStore;
  owner: {
    ownerId: string;
    setLimits: (limits: Partial<Limits>) => Promise<void>;
  };
}

/** Sends requests with a new key until one ends with the status. */
async function provoke(
  { cluster, opened: { store }, owner: { ownerId, setLimits } }: Stage,
  { limits, ownerLimits = {}, settings, ...way }: Way,
  status: number,
): Promise<{ keyId: string; requestId: string }> {
  const { value, target } = await createStoredKey(
    store,
    ownerId,
    limits,
    settings,
  );
  await setLimits(ownerLimits);
  if (way.isDisabled) await store.disable(target);
  const client = new AbortController();
  const { signal } = client;
  if (way.isBusy) await askCluster(cluster, value, 0, LONG, signal);
  for (let tries = 0; tries < TRIES; tries++) {
    const response = await askCluster(cluster, value, 0, way.body);
    await response.text();
    if (response.status !== status) continue;
    client.abort();
    await setLimits({});
    const requestId = response.headers.get("x-request-id") ?? "";
    return { keyId: target.keyId, requestId };
  }
  return assert.fail(`no ${status}`);
}

/** The sums of a usage file by column. */
async function sumsOf(browser: TestClient, path: string) {
  const { text } = await browser.get(path);
  const [head = "", ...lines] = text.trimEnd().split("\r\n");
  const names = head.split(",");
  return (name: string) =>
    lines.reduce(
      (sum, line) => sum + Number(line.split(",")[names.indexOf(name)]),
      0,
    );
}

async function assertReasons(
  cluster: Cluster,
  { browser, ownerId }: { browser: TestClient; ownerId: string },
  t: Deno.TestContext,
) {
  await using opened = await openStore(cluster);
  const { redis } = opened;
  const setLimits = async (limits: Partial<Limits>) => {
    const fields = encodeKey({ limits: { ...UNLIMITED, ...limits } });
    await redis.command(["HSET", ownerLimitsKey(ownerId), ...fields]);
  };
  const stage = { cluster, opened, owner: { ownerId, setLimits } };
  const provoked = [];
  for (const [reason, status, way] of WAYS) {
    provoked.push({ ...await provoke(stage, way, status), reason, status });
  }
  for (const { keyId, requestId, reason, status } of provoked) {
    await t.step(reason, async () => {
      const path = `/keys/${keyId}`;
      const shown = await waitFor(async () => {
        const sums = await sumsOf(browser, `${path}/export.csv`);
        return sums(reason) > 0 && sums;
      }, { what: "the reason in the file" });
      const hasRun = ["model_server_limit", "server", "cut"].includes(reason);
      assert.equal(shown(reason), 1);
      assert.equal(shown("failed"), hasRun ? 1 : 0);
      assert.equal(shown("refused"), hasRun ? 0 : 1);
      const list = await browser.get(`${path}/requests`);
      const row = new RegExp(`${requestId}.*?</tr>`).exec(list.text)?.[0];
      assert.match(row ?? "", new RegExp(`>${status}<`));
      assert.match((await browser.get(path)).text, /Refused or failed/);
    });
  }
  const all = await sumsOf(browser, "/usage/export.csv");
  for (const [reason] of WAYS) assert.equal(all(reason), 1, reason);
}

Deno.test("the console shows what was used, and why requests were refused or failed", async (t) => {
  await using cluster = await startCluster({ edges: EDGES });
  const browser = await openConsole(cluster);
  await t.step("what was used", () => assertUse(cluster, browser));
  await t.step("what was made", () => assertUnits(cluster, browser));
  // Another owner, for whom nothing is counted yet.
  const eve = await inviteOwner(cluster, browser, "eve@example.org");
  await t.step(
    "why requests were refused or failed",
    (t) => assertReasons(cluster, eve, t),
  );
});
