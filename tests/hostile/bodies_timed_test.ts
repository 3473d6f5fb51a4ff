/**
 * Guarantee: hostile bodies are refused with a reason, do not count against limits, and
 * do not slow down other callers.
 */
import assert from "node:assert/strict";
import process from "node:process";
import { errorBodySchema } from "@gateway/shared/openai/completion";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { createKey, rawExchange } from "../conformance/context.ts";
import { startCluster } from "../support/cluster.ts";
import {
  startGatedCluster,
  statusOf,
  type TestKey,
} from "../support/gated_cluster.ts";
import { readState } from "../support/admission_fixture.ts";
import { limiterKey } from "@gateway/shared/keys/record";
import { BodyBudget } from "../../services/edge-auth/http/read_body.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const MODEL = `"model":"${DEFAULT_MODEL_ID}"`;
const MESSAGES = `"messages":[{"role":"user","content":"x"}]`;
const MESSAGE = `{"role":"user","content":"x"}`;
const members = (more: string) => `{${MODEL},${MESSAGES},${more}}`;
const withModel = (model: string) => `{"model":"${model}",${MESSAGES}}`;
const withMessages = (messages: string) =>
  `{${MODEL},"messages":[${messages}]}`;
const withContent = (content: string) =>
  withMessages(`{"role":"user","content":${content}}`);
const bytes = (...values: number[]) => new Uint8Array(values);
/** Content of these bytes. */
const around = (...values: number[]) => {
  const [before = "", after = ""] = withContent('"@"').split("@");
  const [head, tail] = [encoder.encode(before), encoder.encode(after)];
  return new Uint8Array([...head, ...values, ...tail]);
};
const encoder = new TextEncoder();
const keys = (count: number) =>
  Array.from({ length: count }, (_, at) => `"k${at}":1`).join();
const MANY_KEYS = `{${keys(100_000)}}`;

const HOSTILE = {
  depthBomb: "[".repeat(500_000),
  objectBomb: '{"a":'.repeat(200_000),
  manyKeys: MANY_KEYS,
  manyNestedKeys: members(`"metadata":${MANY_KEYS}`),
  hugeNumber: members(`"seed":${"9".repeat(1_000_000)}`),
  brackets: members(`"x":[${"[],".repeat(333_000)}[]]`),
  escapes: members(`"n":"${"\\u0041".repeat(170_000)}"`),
} as const;

/**
 * A body, the status, and the field that the error must name. The bounds of fields are
 * in tests/conformance/validation.ts and services/edge-auth/chat/request_test.ts.
 */
const ROWS: [string, BodyInit, number, string?][] = [
  ["36 empty", "", 400],
  ["36 null", "null", 400],
  ["36 array", "[]", 400],
  ["36 string", '"x"', 400],
  ["36 brace", "{", 400],
  ["36 garbage behind", `${members('"n":1')}x`, 400],
  ["36 two bodies", members('"n":1').repeat(2), 400],
  ["36 byte order mark", `\ufeff${members('"n":1')}`, 200],
  ["36 mark of UTF-16", bytes(0xff, 0xfe, 0x7b, 0, 0x7d, 0), 400],
  ["37 0xff", around(0xff), 400],
  ["37 overlong", around(0xc0, 0xaf), 400],
  ["37 surrogate in UTF-8", around(0xed, 0xa0, 0x80), 400],
  ["37 cut character", around(0xe4, 0xbd), 400],
  ["38 lone surrogate", withContent('"\\ud800"'), 400, "messages[0].content"],
  ["38 swapped", withContent('"\\udc00\\ud800"'), 400, "messages[0].content"],
  ["38 paired surrogates", withContent('"\\ud83d\\ude00"'), 200],
  ["39 NUL in content", withContent('"\\u0000"'), 200],
  ["39 NUL in model", withModel("neutral\\u0000"), 400, "model"],
  [
    "39 NUL in role",
    withMessages('{"role":"us\\u0000er","content":"x"}'),
    400,
    "messages[0].role",
  ],
  ["39 raw NUL", withContent('"\u0000"'), 400],
  ["40 depth bomb", HOSTILE.depthBomb, 400],
  ["40 object bomb", HOSTILE.objectBomb, 400],
  ["40 65 levels", members(`"x":${"[".repeat(64)}${"]".repeat(64)}`), 400],
  ["40 64 levels", members(`"x":${"[".repeat(63)}${"]".repeat(63)}`), 200],
  ["41 100,000 keys", HOSTILE.manyKeys, 400],
  ["41 65 keys", members(keys(63)), 400],
  ["41 64 keys", members(keys(62)), 200],
  ["41 65,537 keys in all", members(`"x":{${keys(65_532)}}`), 400],
  ["41 65,536 keys in all", members(`"x":{${keys(65_531)}}`), 200],
  ["42 __proto__", members('"__proto__":{"stream":true}'), 200],
  ["42 constructor", members('"constructor":{"prototype":{"n":9}}'), 200],
  ["43 duplicates", `{"model":"b",${MODEL},${MESSAGES}}`, 200],
  ["43 last unknown", members('"model":"b"'), 404],
  ["44 1e400", members('"max_tokens":1e400'), 400, "max_tokens"],
  ["44 1.0", members('"max_tokens":1.0'), 200],
  ["45 unsafe seed", members('"seed":9007199254740993'), 400, "seed"],
  ["45 safe seed", members('"seed":9007199254740991'), 200],
  ["46 a megabyte of digits", HOSTILE.hugeNumber, 400, "seed"],
  ["46 of decimals", members(`"top_p":0.${"9".repeat(1_000_000)}`), 200],
  ["47 top_p NaN", members('"top_p":NaN'), 400],
  ["47 top_p -0", members('"top_p":-0'), 200],
  ["48 10,000 stops", members(`"stop":[${Array(10_000).fill('"a"')}]`), 400],
  ["48 29,000 messages", withMessages(`${Array(29_000).fill(MESSAGE)}`), 400],
  ["48 a million wrong ones", withMessages(`${Array(1_000_000).fill(7)}`), 400],
  ["50 wildcard", withModel("x.>"), 404],
  ["50 star", withModel("*"), 404],
  ["50 blank", withModel("a b"), 404],
  ["50 system subject", withModel("$SYS.x"), 404],
  ["50 command", withModel("\\r\\nPUB a 1\\r\\nx"), 400, "model"],
  ["51 long model", withModel("m".repeat(5_000)), 400, "model"],
  ["52 braces", withModel("{x}"), 404],
  ["52 user", members(`"user":"{}\\n${"x".repeat(10_000)}"`), 200],
];

/** The head of a chat request, for a raw socket. */
const headOf = (key: string, framing: string) =>
  "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" +
  `Authorization: Bearer ${key}\r\n${framing}\r\n\r\n`;

function postBody(baseUrl: string, key: string, body: BodyInit) {
  const headers = {
    authorization: `Bearer ${key}`,
    "content-type": "application/json",
  };
  const url = `${baseUrl}/chat/completions`;
  return fetch(url, { method: "POST", headers, body });
}

Deno.test("API4, ASVS 1.5.3, 2.2.1, 2.2.2: hostile bodies over HTTP", async (t) => {
  await using cluster = await startGatedCluster();
  const { baseUrl } = cluster.edge;
  const post = ({ value }: TestKey, body: BodyInit) =>
    postBody(baseUrl, value, body);

  for (const [name, body, status, param] of ROWS) {
    await t.step(`${name} -> ${status}`, async () => {
      const key = await cluster.addKey({ limits: { requestsPerMinute: 9 } });
      const response = await post(key, body);
      const text = await response.text();
      assert.equal(response.status, status, text.slice(0, 300));
      assert.equal(Reflect.get({}, "stream"), undefined);
      if (status === 200) return;
      const { error } = errorBodySchema.parse(JSON.parse(text));
      if (param !== undefined) assert.equal(error.param, param);
      assert.ok(text.length < 1_000, "the body is not repeated");
      const state = await readState(cluster.world, limiterKey(key));
      assert.equal(state, null, "it costs no quota");
    });
  }

  const key = await cluster.addKey();
  await t.step("33 a body over the limit, chunked", async () => {
    const pieces = 30;
    let sent = 0;
    const piece = new Uint8Array(1 << 20).fill(0x20);
    const large = new ReadableStream<Uint8Array<ArrayBuffer>>({
      pull(controller) {
        sent += 1;
        if (sent > pieces) controller.close();
        else controller.enqueue(piece);
      },
    });
    assert.equal(await statusOf(post(key, large)), 413);
  });

  await t.step("33 a body in 5,000 pieces", async () => {
    const chunks = "1\r\n \r\n".repeat(5_000);
    const head = headOf(key.value, "Transfer-Encoding: chunked");
    const answer = await rawExchange(baseUrl, [head + chunks]);
    assert.match(answer, /^HTTP\/1.1 400 /);
    assert.match(answer, /too many pieces/);
  });

  await t.step("53 clients that leave in mid-body leave nothing", async () => {
    const { hostname, port } = new URL(baseUrl);
    const head = encoder.encode(headOf(key.value, "Content-Length: 1000"));
    for (let count = 0; count < 20; count += 1) {
      const connection = await Deno.connect({ hostname, port: Number(port) });
      await connection.write(head);
      await connection.write(encoder.encode("{"));
      if (count % 2 === 0) await sleep(5);
      connection.close();
    }
    assert.equal(await cluster.leases(key), 0);
    const other = await cluster.addKey();
    assert.equal(await statusOf(cluster.ask(other)), 200);
  });
});

/** The upper end of what docs/evidence/limits.md states, on a machine that has time. */
const P99_MS = 75;
/**
 * Other work on the machine shows in two ways: an edge that nobody attacks has a
 * higher p99 than this, and work takes longer than the processor time it needs.
 * The first is subtracted and the second divided by, which is only roughly right,
 * so a measurement beyond the promise is made again. An attack that does slow the
 * edge down fails every time.
 */
const CALM_P99_MS = 15;
const CALM_STRETCH = 1.3;
const SPIN_MS = 10;
const SPIN_EVERY = 10;
const MEASURED_MAX = 5;
const ASKED = 300;
const ATTACKERS = 4;
const CONNECTIONS_EACH = 4;
/** The edge without attack is asked less often: it only shows the noise. */
const CALM_EVERY = 3;

Deno.test("API4: hostile bodies of four keys at once do not slow down the requests of another", async () => {
  await using cluster = await startCluster({ edges: 2 });
  const post = (key: string, body: Uint8Array<ArrayBuffer>, edge = 0) =>
    statusOf(postBody(cluster.baseUrl(edge), key, body));
  const { key: victim } = await createKey(cluster);
  const good = encoder.encode(members('"max_tokens":1'));
  for (let count = 0; count < 100; count += 1) {
    assert.equal(await post(victim, good, count % 2), 200);
  }
  const bodies = Object.values(HOSTILE).map((body) => encoder.encode(body));
  let isOver = false;
  const refused = new Map<number, number>();
  const attack = async (key: string) => {
    for (let count = 0; !isOver; count += 1) {
      const status = await post(key, bodies[count % bodies.length] ?? good);
      add(refused, status);
    }
  };
  const attacks: Promise<void>[] = [];
  for (let count = 0; count < ATTACKERS; count += 1) {
    const { key } = await createKey(cluster);
    for (let each = 0; each < CONNECTIONS_EACH; each += 1) {
      attacks.push(attack(key));
    }
  }
  /** By turns at the edge under attack and at one that only shares the machine. */
  const measure = async () => {
    const served = new Map<number, number>();
    const [attacked, calm]: [number[], number[]] = [[], []];
    const stretches: number[] = [];
    for (let count = 0; count < ASKED; count += 1) {
      const asked = count % CALM_EVERY === 0 ? [attacked, calm] : [attacked];
      for (const [edge, tookMs] of asked.entries()) {
        const startedAtMs = performance.now();
        add(served, await post(victim, good, edge));
        tookMs.push(performance.now() - startedAtMs);
      }
      if (count % SPIN_EVERY === 0) stretches.push(stretch());
    }
    const [attackedMs, calmMs] = [p99(attacked), p99(calm)];
    const stretched = p99(stretches);
    const noiseMs = Math.max(0, calmMs - CALM_P99_MS);
    return {
      served,
      stretched,
      correctedMs: (attackedMs - noiseMs) / stretched,
      text: `p99 ${attackedMs} ms, at the same time without attack ${calmMs} ` +
        `ms, and work took ${stretched} times as long as it should`,
    };
  };
  const measured = [await measure()];
  const isKept = () => measured.some(({ correctedMs }) => correctedMs < P99_MS);
  while (!isKept() && measured.length < MEASURED_MAX) {
    measured.push(await measure());
  }
  isOver = true;
  await Promise.all(attacks);
  assert.ok((refused.get(400) ?? 0) > 10, "the attack went on");
  for (const { served, stretched } of measured) {
    // Where Redis does not get the processor in time, the answer is an honest 503.
    const allowed = stretched > CALM_STRETCH ? [200, 503] : [200];
    for (const status of served.keys()) assert.ok(allowed.includes(status));
  }
  assert.ok(isKept(), measured.map(({ text }) => text).join("\n"));
});

/** How much longer than its processor time a little work takes here and now. */
function stretch(): number {
  const startedAtMs = performance.now();
  const started = process.cpuUsage();
  for (;;) {
    const { user, system } = process.cpuUsage(started);
    const usedMs = (user + system) / 1_000;
    if (usedMs < SPIN_MS) continue;
    return Math.max(1, (performance.now() - startedAtMs) / usedMs);
  }
}

function add(counts: Map<number, number>, status: number): void {
  counts.set(status, (counts.get(status) ?? 0) + 1);
}

function p99(tookMs: readonly number[]): number {
  const sorted = tookMs.toSorted((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Infinity;
}

const HELD = 60;
const HELD_BYTES = 19_900_000;
/** A quarter of what an edge holds in all, as `BODIES_BYTES_MAX` says. */
const HELD_BY_KEY_BYTES = 64 * 1024 * 1024;
/** Sixty bodies have 1.2 GB. */
const GROWTH_BYTES_MAX = 500 * 1024 * 1024;

Deno.test("API4: sixty large bodies that stop before their last byte do not fill the memory, and others are served", async () => {
  const bodyBudget = new BodyBudget({
    bodiesBytesMax: 4 * HELD_BY_KEY_BYTES,
    bodyBytesMax: HELD_BYTES,
  });
  await using cluster = await startGatedCluster({ door: { bodyBudget } });
  const limits = { requestsPerMinute: 1, concurrency: 1 };
  const attacker = await cluster.addKey({ limits });
  const victim = await cluster.addKey();
  const { hostname, port } = new URL(cluster.edge.baseUrl);
  const head = encoder.encode(
    headOf(attacker.value, `Content-Length: ${HELD_BYTES}`),
  );
  const body = new Uint8Array(HELD_BYTES - 1).fill(0x20);
  const before = Deno.memoryUsage().rss;
  const statuses: string[] = [];
  const connections = new Set<Deno.TcpConn>();
  const holdOne = async () => {
    const connection = await Deno.connect({ hostname, port: Number(port) });
    connections.add(connection);
    const answer = new Uint8Array(64);
    const answered = connection.read(answer).catch(() => null);
    await connection.write(head);
    for (let at = 0; at < body.length;) {
      const piece = body.subarray(at, at + 1_000_000);
      const sent = await connection.write(piece).catch(() => body.length);
      at += sent;
    }
    void answered.then((length) => {
      if (length === null) return;
      statuses.push(new TextDecoder().decode(answer.subarray(9, 12)));
    });
  };
  for (let count = 0; count < HELD; count += 10) {
    await Promise.all(Array.from({ length: 10 }, holdOne));
    assert.ok(bodyBudget.bytes <= HELD_BY_KEY_BYTES, `${bodyBudget.bytes}`);
    // The clients are in this process too, and may keep it from Redis for a moment.
    const isServed = async () => await statusOf(cluster.ask(victim)) === 200;
    await waitFor(isServed, { what: "the other key to be served" });
  }
  const growth = Deno.memoryUsage().rss - before;
  assert.ok(growth < GROWTH_BYTES_MAX, `${growth} bytes more`);
  await waitFor(
    () => statuses.length >= HELD - 3,
    { what: () => `refusals, got ${statuses.length}` },
  );
  // 503 where Redis could not say in time whose key it is.
  const allowed = ["429", "503"];
  assert.ok(statuses.every((each) => allowed.includes(each)), `${statuses}`);
  for (const connection of connections) connection.close();
  await waitFor(
    () => bodyBudget.bytes === 0,
    { what: () => `room, ${bodyBudget.bytes} bytes are held` },
  );
});
