// Promise: when what is spent reaches 50, 80 or 100 % of a budget, and before a key
// expires, that is noted once, over all edges and consoles: in the audit log, the log
// and a metric; and a signed notice is sent until it is taken. Nothing waits for
// whoever takes it.
import assert from "node:assert/strict";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import {
  DUE_NOTICES_KEY,
  KEY_FIELDS,
  type Limits,
  type Principal,
} from "@gateway/shared/keys/record";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import type { Limiter } from "../../services/edge-auth/limits/limiter.ts";
import { loneEdge } from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { AuditLog } from "../../services/key-admin/domain/audit/audit_log.ts";
import { decodeKey } from "../../services/key-admin/domain/keys/key_record.ts";
import { Notices } from "../../services/key-admin/domain/notices/notices.ts";
import { readHash } from "../../services/key-admin/domain/store/redis.ts";
import { aclRules } from "../support/deployed/deployed_stores.ts";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import { createRecordingLog } from "../support/recording_log.ts";

const SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
const DAY_MS = 86_400_000;
const PASSWORD = "correct-horse";

/** What a receiver got. */
interface Received {
  readonly headers: Headers;
  readonly body: string;
}

/** Somebody who takes notices, and answers as the test says. */
class Receiver implements AsyncDisposable {
  readonly received: Received[] = [];
  /** The status of the next answers; null: none comes. */
  status: number | null = 204;
  readonly #server: Deno.HttpServer<Deno.NetAddr>;
  readonly #end = Promise.withResolvers<Response>();

  constructor() {
    const options = { hostname: "127.0.0.1", port: 0, onListen() {} };
    this.#server = Deno.serve(options, async (request) => {
      const body = await request.text();
      this.received.push({ headers: request.headers, body });
      return this.status === null
        ? await this.#end.promise
        : new Response(null, { status: this.status });
    });
  }

  get url(): string {
    return `http://127.0.0.1:${this.#server.addr.port}/hook`;
  }

  /** The texts of the notices that came. */
  get texts(): string[] {
    return this.received.map(({ body }) => JSON.parse(body).text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end.resolve(new Response());
    await this.#server.shutdown();
  }
}

/** The function that docs/keys.md gives to verify a notice. */
async function verifier(): Promise<(notice: Received) => boolean> {
  const page = new URL("../../docs/keys.md", import.meta.url);
  const [, code = assert.fail()] = /```js\n(.*?)```/s
    .exec(await Deno.readTextFile(page)) ?? [];
  const { isGenuine } = await import(
    `data:text/javascript,import {Buffer} from "node:buffer";${
      encodeURIComponent(code)
    }`
  );
  return ({ headers, body }) =>
    isGenuine(headers, body, SECRET) === true &&
    isGenuine(headers, `${body} `, SECRET) === false &&
    headers.get("webhook-id") === JSON.parse(body).id;
}

/** A Redis, and consoles that note and send what happens there. */
class Stage implements AsyncDisposable {
  readonly receiver = new Receiver();
  readonly log = createRecordingLog();
  readonly registry = new MetricRegistry();
  nowMs = Date.now();
  readonly keys: Principal[] = [];

  constructor(readonly world: RedisWorld) {}

  static async start(): Promise<Stage> {
    return new Stage(await startRedisWorld());
  }

  /** A further console, with the user that consoles have. */
  async console(registry = this.registry): Promise<Notices> {
    const { world, log, receiver } = this;
    const rules = await aclRules("key-admin", PASSWORD);
    await world.command("ACL", "SETUSER", ...rules);
    const { port } = world.redis;
    const redis = await world.open(
      `redis://key-admin:${PASSWORD}@127.0.0.1:${port}`,
    );
    const names = new Map(
      this.keys.map(({ ownerId }) => [ownerId, "a@b.test"]),
    );
    return new Notices({
      redis,
      log,
      registry,
      keys: {
        async get(ownerId, keyId) {
          const name = `key:{${ownerId}}:${keyId}`;
          const fields = await readHash(redis, name);
          return fields && decodeKey({ ownerId, keyId }, fields);
        },
      },
      people: {
        name: (ownerId) => Promise.resolve(names.get(ownerId) ?? null),
        async *accounts() {
          for (const [ownerId, name] of names) yield { ownerId, name };
        },
      },
      currency: () => "USD",
      days: new BudgetDays("UTC"),
      now: () => this.nowMs,
      target: { url: receiver.url, secret: SECRET },
    });
  }

  /** A key with a whole record, in the list of its owner. */
  async addKey(
    limits: Partial<Limits>,
    ownerLimits: Partial<Limits> = {},
    more: Record<string, string> = {},
  ): Promise<Principal> {
    const key = await this.world.addKey({ limits, ownerLimits });
    await this.world.setKey(key, {
      [KEY_FIELDS.description]: "Agent <!channel>",
      [KEY_FIELDS.hint]: "sk-Cg…x4Zq",
      [KEY_FIELDS.hash]: "h",
      [KEY_FIELDS.createdAtMs]: String(this.nowMs - 30 * DAY_MS),
      [KEY_FIELDS.version]: "1",
      ...more,
    });
    const { ownerId, keyId } = key;
    await this.world.command("ZADD", `keys:{${ownerId}}`, "1", keyId);
    this.keys.push(key);
    return key;
  }

  /** What the audit log of an account says, the oldest first. */
  async audited({ ownerId }: Principal) {
    const query = { action: "", keyId: "", before: "", rows: 100 };
    const { rows } = await new AuditLog(this.world.link).read(ownerId, query);
    return rows.map(({ action, detail, keyId, by }) => [
      action,
      detail,
      keyId,
      by,
    ]).reverse();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.world[Symbol.asyncDispose]();
    await this.receiver[Symbol.asyncDispose]();
  }
}

/** A request that costs so much. */
async function spend(
  edge: Limiter,
  key: Principal,
  nanos: number,
): Promise<void> {
  const ask = { scope: "chat", model: "m", wantTokens: 0 } as const;
  const grant = await edge.admit(key, { ...ask, wantNanos: nanos });
  assert.ok(grant.isAdmitted, JSON.stringify(grant));
  const cost = { promptTokens: 0, completionTokens: 0, nanos };
  await edge.settle(grant, { ...cost, kind: "complete" });
}

const UNIT = 1_000_000_000;

Deno.test("each threshold of a budget is noted once over all edges and consoles, and told with a signature", async () => {
  await using stage = await Stage.start();
  await using stack = new AsyncDisposableStack();
  const { world, receiver } = stage;
  const edges: Limiter[] = [];
  for (let n = 0; n < 3; n += 1) edges.push(stack.use(await loneEdge(world)));
  const key = await stage.addKey({ budgetTotal: 10 * UNIT }, {
    budgetMonth: 1_000 * UNIT,
  });
  const consoles = [await stage.console(), await stage.console()];
  const noteAll = () =>
    Promise.all([...consoles, ...consoles].map((each) => each.noteDue()));
  const round = (requests: number, nanos: number) =>
    Promise.all(Array.from(
      { length: requests },
      (_, at) => spend(edges[at % 3] ?? assert.fail(), key, nanos),
    ));
  await round(4, UNIT);
  await noteAll();
  assert.deepEqual(await stage.audited(key), []);
  await round(5, UNIT);
  await noteAll();
  await round(1, UNIT);
  await noteAll();
  await noteAll();
  // Two of them may have been noted at the same time.
  const audited = (await stage.audited(key)).map(
    ([action, detail, ...rest]) => {
      const [what, amounts] = detail?.split(": ") ?? [];
      assert.match(amounts ?? "", /^(9|10) of 10 USD$/);
      return [action, what, ...rest].join();
    },
  );
  const expected = [50, 80, 100].map((percent) =>
    `budget.reached,${percent} % of the budget in total,${key.keyId},gateway`
  );
  assert.deepEqual(audited.toSorted(), expected.toSorted());
  const events = stage.log.lines.map(({ event }) => event);
  assert.deepEqual(events, Array(3).fill("budget_reached"));
  for (const percent of [50, 80, 100]) {
    const line = `gateway_notices_total{what="budget_${percent}"} 1`;
    assert.ok(stage.registry.text().includes(line), line);
  }
  await Promise.all(consoles.map((each) => each.deliver()));
  await Promise.all(consoles.map((each) => each.deliver()));
  assert.equal(receiver.received.length, 3);
  assert.ok(receiver.received.every(await verifier()));
  assert.equal(new Set(receiver.texts).size, 3);
  assertLast(receiver);
  assert.equal(await world.command("EXISTS", "notices:outbox"), 0);
});

/** The notice of a budget that is spent. */
function assertLast({ received }: Receiver): void {
  const last = received.map(({ body }) => JSON.parse(body))
    .find(({ budget }) => budget.percent === 100);
  assert.equal(
    last.text,
    '100 % of the budget of key "Agent &lt;!channel&gt;" (sk-Cg…x4Zq) of ' +
      "a@b.test in total is spent, by now 10 of 10 USD. Requests are refused until " +
      "it is raised.",
  );
  assert.deepEqual(last.budget, {
    name: "budget_total",
    window: "total",
    percent: 100,
    spent: "10",
    allowed: "10",
    currency: "USD",
    resets_at: null,
  });
}

Deno.test("the budget of an account is told with its month; one that jumps over thresholds, the highest", async () => {
  await using stage = await Stage.start();
  await using edge = await loneEdge(stage.world);
  const key = await stage.addKey({}, { budgetMonth: 10 * UNIT });
  const console = await stage.console();
  await spend(edge, key, 25 * UNIT);
  await console.noteDue();
  await console.deliver();
  const [{ body } = assert.fail()] = stage.receiver.received;
  const { text, budget, key: named } = JSON.parse(body);
  const month = new Date(stage.nowMs).toISOString().slice(0, 7);
  assert.equal(named, null);
  assert.match(
    text,
    new RegExp(
      `^100 % of the budget of a@b.test for ${month} is spent, by now 25 of 10 USD. ` +
        `Requests are refused until \\d{4}-\\d\\d-01T00:00:00Z, or`,
    ),
  );
  assert.match(budget.resets_at, /-01T00:00:00Z$/);
  assert.equal(stage.receiver.received.length, 1);
});

Deno.test("a receiver that fails or hangs is asked again for a day, and delays neither requests nor notes", async () => {
  await using stage = await Stage.start();
  await using edge = await loneEdge(stage.world);
  const { receiver, log, world } = stage;
  const key = await stage.addKey({ budgetTotal: 10 * UNIT });
  const console = await stage.console();
  await spend(edge, key, 5 * UNIT);
  await console.noteDue();
  receiver.status = 500;
  const startMs = stage.nowMs;
  const triedMs: number[] = [];
  for (let n = 0; n < 6; n += 1) {
    await console.deliver();
    triedMs.push(stage.nowMs - startMs);
    assert.equal(receiver.received.length, n + 1);
    const [, atMs] = await outbox(world);
    // It is not tried earlier.
    stage.nowMs = Number(atMs) - 1;
    await console.deliver();
    assert.equal(receiver.received.length, n + 1);
    stage.nowMs += 1;
  }
  assert.deepEqual(triedMs, [0, 5_000, 10_000, 20_000, 40_000, 80_000]);
  assert.equal(log.find("notice_not_delivered")?.notice !== undefined, true);
  const logged = Deno.inspect(log.lines, { depth: 9 });
  assert.ok(!logged.includes("/hook"), "the URL may be a secret");

  // It takes the connection, and says nothing.
  receiver.status = null;
  const hanging = console.deliver();
  await spend(edge, key, 5 * UNIT);
  await console.noteDue();
  assert.equal((await stage.audited(key)).length, 2);
  await console.stop();
  await hanging;

  receiver.status = 500;
  const other = await stage.console(new MetricRegistry());
  stage.nowMs = startMs + DAY_MS + 20 * 60_000;
  await other.deliver();
  assert.ok(log.find("notice_given_up"));
  assert.deepEqual(await outbox(world), []);
});

async function outbox(world: RedisWorld): Promise<unknown[]> {
  const range = ["ZRANGE", "notices:outbox", "0", "-1", "WITHSCORES"];
  const reply = await world.command(...range);
  assert.ok(Array.isArray(reply));
  return reply;
}

Deno.test("the owner of a key is told a week and a day before it expires, once", async () => {
  await using stage = await Stage.start();
  const { nowMs, receiver } = stage;
  const expiring = (days: number, more: Record<string, string> = {}) =>
    stage.addKey({}, {}, {
      [KEY_FIELDS.expiresAtMs]: String(nowMs + days * DAY_MS),
      ...more,
    });
  const key = await expiring(6.5);
  await expiring(8);
  await expiring(6, { [KEY_FIELDS.state]: "disabled" });
  await expiring(6, { [KEY_FIELDS.replacedBy]: "key_x,sk-…" });
  // It was made for five days.
  await expiring(4, { [KEY_FIELDS.createdAtMs]: String(nowMs - DAY_MS) });
  const [one, other] = [await stage.console(), await stage.console()];
  for (const daysLater of [0, 0.1, 5, 5.6, 5.7]) {
    stage.nowMs = nowMs + daysLater * DAY_MS;
    await Promise.all([one.noteExpiring(), other.noteExpiring()]);
    await one.deliver();
  }
  assert.deepEqual(
    (await stage.audited(key)).map(([action, , keyId]) => [action, keyId]),
    Array(2).fill(["key.expires_soon", key.keyId]),
  );
  const bodies = receiver.received.map(({ body }) => JSON.parse(body))
    .filter(({ key: named }) => named.id === key.keyId);
  const within = bodies.map(({ text }) => /expires (.*?):/.exec(text)?.[1]);
  assert.deepEqual(within, ["within 7 days", "within a day"]);
});

Deno.test("an edge that may not leave notices settles requests all the same", async () => {
  await using stage = await Stage.start();
  const { world } = stage;
  const key = await stage.addKey({ budgetTotal: 10 * UNIT });
  await using edge = await loneEdge(world);
  const [user = "", ...rules] = await aclRules("edge-auth", PASSWORD);
  const earlier = rules.join(" ").replace(`(+sadd %W~${DUE_NOTICES_KEY})`, "");
  await world.command(
    "ACL",
    "SETUSER",
    user,
    "clearselectors",
    ...wordsOf(earlier),
  );
  await spend(edge, key, 9 * UNIT);
  assert.equal((await usageCounted(world, key)).cost, 9 * UNIT);
  assert.equal(await world.command("EXISTS", DUE_NOTICES_KEY), 0);
});

/** The rules of a user: a selector, which has blanks, is one of them. */
const wordsOf = (text: string): string[] =>
  text.match(/\([^)]*\)|\S+/g) ?? assert.fail();
