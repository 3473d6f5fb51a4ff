import assert from "node:assert/strict";
import { TOTP } from "otpauth";
import { randomBytes } from "@gateway/shared/process/ids";
import { createLog } from "@gateway/shared/process/log";
import { DEFAULT_MODEL_ID, parseCatalog } from "@gateway/shared/models/catalog";
import { MODEL_KINDS, type ModelKind } from "@gateway/shared/models/kinds";
import {
  dayLimitField,
  type FailedRequest,
  FAILURE_REASONS,
  type FailureReason,
  LIMITER_EPOCH_MS,
  LIMITER_FIELDS,
  USAGE_KINDS,
  usageDay,
  usageField,
  usageHour,
  type UsageKind,
} from "@gateway/shared/keys/limiter_state";
import {
  failedKey,
  type KeyRecord,
  leaseKey,
  limiterKey,
  ownerLeaseKey,
  ownerLimiterKey,
  ownerUsageKey,
  type Principal,
  UNLIMITED,
  usageKey,
} from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { silence } from "../../tests/e2e/recording_fixture.ts";
import { assertNoKeys } from "../../tests/support/recording_log.ts";
import { startSimulator } from "../../tests/support/gateway/simulator.ts";
import { createStores } from "./domain/stores.ts";
import {
  type DefaultLimits,
  type KeySettings,
  limitsOf,
} from "./domain/keys/settings.ts";
import { startRedis } from "./redis_fixture.ts";
import { linkPath } from "./domain/sign_in/links.ts";
import type { PasswordHasher } from "./domain/sign_in/password.ts";
import { asTexts } from "./domain/store/redis.ts";
import { createAskApi } from "./domain/try/edge.ts";
import { isTryKind, tryFields, type TryKind } from "./domain/try/request.ts";
import { createConsole } from "./app.tsx";
import { readAssets } from "./web/assets.ts";
import type { ConsoleDeps } from "./web/context.ts";

export const ORIGIN = "https://console.test";
export const PASSWORD = "correct horse battery staple";

/**
 * A console on a real Redis, with a clock that tests set and a hasher that does no
 * work.
 */
export type TestConsole = Awaited<ReturnType<typeof startConsole>>;
export type TestClient = ReturnType<typeof createClient>;

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
}

export type Form = Record<string, string | string[]>;

/** Differences from the default console. */
interface Options
  extends Partial<Pick<ConsoleDeps, "oidc" | "isSimulated" | "catalog">> {
  /** Of the Redis server; by default it keeps every change. */
  settings?: string[];
  /** Wraps the connection for changes. */
  writer?: (link: RedisLink) => RedisLink;
  defaultLimits?: DefaultLimits;
  /** The user in Redis, from `deploy/redis/users.acl`. */
  redisUser?: string;
}

const MODELS = [DEFAULT_MODEL_ID, "small-1", "large-1"];

export async function startConsole(
  {
    settings,
    writer = (link) => link,
    defaultLimits = { key: UNLIMITED, owner: UNLIMITED },
    redisUser,
    ...given
  }: Options = {},
) {
  const server = await startRedis(settings);
  const administrator = await server.connect();
  /** Wall time of the console in ms; tests add to it. */
  const clock = { nowMs: Date.now() };
  /** The stop notices to edges. */
  const stops: Principal[] = [];
  const hashing = { verified: 0 };
  const logLines: string[] = [];
  const now = () => clock.nowMs;
  const write = (line: () => string) => logLines.push(line());
  const log = createLog({ service: "key-admin", level: "debug", now, write });
  /** Stands in for the API, records what reached it, and takes any key. */
  const api = startSimulator();
  const deps: ConsoleDeps = {
    ...createStores({
      redis: await server.connect(redisUser),
      writer: writer(await server.connect(redisUser)),
      randomBytes,
      now,
      defaultLimits,
    }),
    sendStop: (notice) => Promise.resolve(void stops.push(notice)),
    hasher: quickHasher(hashing),
    assets: await readAssets(),
    oidc: null,
    log,
    publicUrl: new URL(ORIGIN),
    apiUrl: "https://api.test/v1",
    askApi: createAskApi(api.url, log),
    isSimulated: false,
    catalog: catalogOfIds([...MODELS, ...MEDIA_MODELS]),
    ...given,
  };
  const app = createConsole(deps);
  /** A browser without cookies, from an address. */
  const client = (ip = "192.0.2.1") =>
    createClient(async (request) => {
      const response = await app.fetch(request, { remoteIp: ip });
      const text = await response.text();
      // Only the response that creates a key contains it.
      if (response.status !== 201) {
        assertNoKeys(text, `an answer: ${request.url}`);
      }
      return { status: response.status, headers: response.headers, text };
    });
  /** An owner with {@link PASSWORD}. */
  const addOwner = async (email: string) => {
    const ownerId = await deps.owners.ensure(email);
    await deps.owners.setPassword(ownerId, await deps.hasher.hash(PASSWORD));
    return ownerId;
  };
  return {
    app,
    deps,
    server,
    clock,
    stops,
    hashing,
    logLines,
    asked: api.asked,
    /** Every route of the console: `POST /keys/:id/edit`. */
    routes: app.routes
      .filter(({ method }) => method === "GET" || method === "POST")
      .map(({ method, path }) => `${method} ${path}`),
    /** Names and digests of all Redis keys that match the pattern, except rates. */
    stored: async (pattern = "*") =>
      asTexts(
        await administrator.evalScript(STORED_SCRIPT, { args: [pattern] }),
      ),
    client,
    addOwner,
    /** A browser whose owner signed in with {@link PASSWORD}. */
    signedIn: async (email: string, ip?: string) => {
      await addOwner(email);
      const browser = client(ip);
      const answer = await signIn(browser, email);
      assert.equal(answer.status, 303, answer.text);
      return browser;
    },
    [Symbol.asyncDispose]: async () => {
      await api[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
      assertNoKeys(logLines.join("\n"), "the log of the console");
    },
  };
}

/** What the simulator calls its model of a kind, except chat. */
const simulated = (kind: ModelKind) => `simulated-${kind}-1`;
export const MEDIA_MODELS = MODEL_KINDS.filter(isTryKind)
  .filter((kind) => kind !== "chat").map(simulated);

const BACKEND = { type: "openai", base_url: "http://model.test/v1" };

/**
 * A catalog of these ids: those of the simulator keep their kind, the others are chat
 * models.
 */
export const catalogOfIds = (ids: readonly string[]) =>
  parseCatalog({
    models: ids.map((id) => ({
      id,
      kind: MODEL_KINDS.find((kind) => simulated(kind) === id) ?? "chat",
      backends: [{ ...BACKEND, model: id }],
    })),
  });

/** Rates are left out: they deliberately count refused requests too. */
const STORED_SCRIPT = defineScript(
  "test/stored",
  `
local names, all = redis.call('KEYS', ARGV[1]), {}
table.sort(names)
for _, name in ipairs(names) do
  if string.sub(name, 1, 4) ~= 'try:' then
    table.insert(all, name .. ' ' .. redis.sha1hex(redis.call('DUMP', name)))
  end
end
return all
`,
);

/** Sends the sign-in form. */
export const signIn = (
  client: TestClient,
  email: string,
  { password = PASSWORD, code = "" } = {},
): Promise<Answer> =>
  client.post("/sign-in", { email, password, code, next: "/keys" });

/** Whether the browser has a session. */
export const isSignedIn = async (client: TestClient): Promise<boolean> =>
  (await client.get("/keys")).status === 200;

/** The form of a new key, as the page sends it. */
export const keyForm = (description: string, more: Form = {}): Form => ({
  description,
  expires: "",
  scopes: ["chat", "models"],
  which_models: "all",
  models: [],
  ...limitsOf(() => ""),
  ...more,
});

/** The form of the page "Try it" with this message. */
export const tryForm = (
  message: string,
  more: Record<string, string> = {},
): Record<string, string> => tryFormOf("chat", { message, ...more });

/** The form of a kind of models, with the simulator's model. */
export const tryFormOf = (
  kind: TryKind,
  given: Record<string, string>,
): Record<string, string> => ({
  ...tryFields(kind, ""),
  model: kind === "chat" ? DEFAULT_MODEL_ID : simulated(kind),
  ...given,
});

/** Sends the form for a transcription, with files. */
export function upload(
  client: TestClient,
  given: Record<string, string> = {},
  files: File[] = [silence()],
  path = "/try?kind=transcription",
): Promise<Answer> {
  const { file: _, ...form } = tryFormOf("transcription", given);
  const body = new FormData();
  for (const [name, value] of Object.entries(form)) body.append(name, value);
  for (const file of files) body.append("file", file);
  const headers = { "sec-fetch-site": "same-origin" };
  return client.send(path, { method: "POST", headers, body });
}

/** Creates a key through the pages. */
export async function makeKey(
  client: TestClient,
  description: string,
  more: Form = {},
) {
  const nonce = hiddenField((await client.get("/keys/new")).text, "nonce");
  const form = keyForm(description, { nonce, ...more });
  const { status, text } = await client.post("/keys/new", form);
  assert.equal(status, 201, text);
  const value = /sk-Cg[0-9A-Za-z]{46}/.exec(text)?.[0] ?? "";
  const list = await client.get("/keys");
  const id = /\/keys\/(key_[0-9A-Za-z]{20})/.exec(list.text)?.[1] ?? "";
  return { id, value, text };
}

type Site = Pick<TestConsole, "deps">;

/** Creates a key without the pages. */
export async function storedKey(
  { deps }: Site,
  ownerId: string,
  settings: Partial<KeySettings> = {},
): Promise<KeyRecord> {
  const made = await deps.keys.create({
    ownerId,
    settings: {
      description: "A key",
      scopes: ["chat", "models"],
      models: [],
      limits: UNLIMITED,
      expiresAtMs: null,
      ...settings,
    },
    actor: { by: "test", ip: "192.0.2.7" },
  });
  return made.key;
}

const EPOCH_SECONDS = LIMITER_EPOCH_MS / 1_000;
const IMAGES = dayLimitField("images");
const USE_SCRIPT = defineScript(
  "test/use",
  `
local time = redis.call('TIME')
local now = (time[1] - ${EPOCH_SECONDS}) * 1000 + time[2] / 1000
local req, tok, used, running, images = unpack(ARGV)
local day = math.floor(now / 86400000)
redis.call('HSET', KEYS[1], 's', struct.pack('<ddddddd', now, now + req, now + tok, day, used, 0, 0))
redis.call('HSET', KEYS[1], '${IMAGES}', struct.pack('<dd', day, images))
for n = 1, running do redis.call('ZADD', KEYS[2], now + 3600000, 'lease' .. n) end
`,
);

/**
 * Writes the state that admissions leave: how far they reach ahead, tokens and images
 * of the day, leases.
 */
export async function useLimits(
  { deps: { redis } }: Site,
  { ownerId, keyId }: { ownerId: string; keyId: string | null },
  {
    requestsAheadMs = 0,
    tokensAheadMs = 0,
    dayTokens = 0,
    running = 0,
    images = 0,
  },
): Promise<void> {
  const ids = { ownerId, keyId: keyId ?? "" };
  const keys = keyId === null
    ? [ownerLimiterKey(ownerId), ownerLeaseKey(ownerId)]
    : [limiterKey(ids), leaseKey(ids)];
  const args = [requestsAheadMs, tokensAheadMs, dayTokens, running, images];
  await redis.evalScript(USE_SCRIPT, { keys, args: args.map(String) });
}

const COUNTERS = [
  ...Object.entries(USAGE_KINDS),
  ...FAILURE_REASONS.map((reason) => [reason, reason] as const),
];

/** Counts as an edge does, in the hour of `atMs`: for the key and for its owner. */
export async function useKey(
  { deps: { redis } }: Site,
  principal: Principal,
  atMs: number,
  counts: Readonly<
    Partial<Record<UsageKind | FailureReason, number>>
  >,
  model = "",
): Promise<void> {
  const day = usageDay(atMs);
  const given: Readonly<Record<string, number>> = counts;
  const ofOwner = ownerUsageKey(principal.ownerId, day);
  const keys = [usageKey(principal, day), ofOwner];
  const used = [LIMITER_FIELDS.lastUsedAtMs, String(atMs)];
  await redis.command(["HSET", limiterKey(principal), ...used]);
  for (const [kind, name] of COUNTERS) {
    if (!given[kind]) continue;
    const field = usageField(usageHour(atMs), name, model);
    for (const key of keys) {
      await redis.command(["HINCRBY", key, field, String(given[kind])]);
    }
  }
}

/** Lists a request that failed, as an edge does. */
export async function fail(
  { deps: { redis } }: Site,
  principal: Principal,
  given: Partial<FailedRequest>,
): Promise<void> {
  const entry: FailedRequest = {
    timeMs: 0,
    status: 429,
    reason: "tokens_per_minute",
    code: "rate_limit_exceeded",
    param: null,
    model: "small-1",
    requestId: "req_0636f2a1b3c4d5e60636f2a1b3c4d5e6",
    ...given,
  };
  const list = failedKey(principal);
  await redis.command(["LPUSH", list, JSON.stringify(entry)]);
}

/**
 * The current code of two-step sign-in by the console's clock, or one of a later step.
 */
export function codeOf({ deps }: Site, secret: string, later = 0): string {
  const timestamp = deps.now() + later * 30_000;
  return new TOTP({ secret }).generate({ timestamp });
}

/** A path that lets somebody else choose a password for their new account. */
export async function invitation(
  { deps: { owners, links } }: Site,
  email: string,
): Promise<string> {
  const ownerId = await owners.ensure(email);
  return linkPath(await links.make({ kind: "invite", ownerId }));
}

/** The value of a hidden field of a page. */
export const hiddenField = (page: string, name: string): string =>
  new RegExp(`name="${name}" value="([^"]*)"`).exec(page)?.[1] ??
    assert.fail(`no field ${name} in ${page}`);

/**
 * A browser without a script, at a console of this origin. Redirects are not followed.
 */
export function createClient(
  fetch: (request: Request) => Promise<Answer>,
  origin = ORIGIN,
) {
  const cookies = new Map<string, string>();
  /** Sends exactly this request, with the cookies. */
  const send = async (path: string, init: RequestInit) => {
    const headers = new Headers(init.headers);
    if (!headers.has("host")) headers.set("host", new URL(origin).host);
    if (cookies.size > 0) {
      const pairs = Array.from(cookies, ([name, value]) => `${name}=${value}`);
      headers.set("cookie", pairs.join("; "));
    }
    const answer = await fetch(
      new Request(new URL(path, origin), { ...init, headers }),
    );
    for (const line of answer.headers.getSetCookie()) {
      const [pair = ""] = line.split(";");
      const [name = "", value = ""] = pair.split("=");
      if (/max-age=0/i.test(line)) cookies.delete(name);
      else cookies.set(name, value);
    }
    return answer;
  };
  const get = (path: string, headers: Record<string, string> = {}) =>
    send(path, { headers });
  /** Sends a form as our own page does. */
  const post = (path: string, form: Form = {}, more: RequestInit = {}) => {
    const headers = { origin, "sec-fetch-site": "same-origin" };
    const body = fieldsOf(form);
    return send(path, { method: "POST", headers, body, ...more });
  };
  return { cookies, send, get, post };
}

/** The body of a form. */
export const fieldsOf = (form: Form): URLSearchParams =>
  new URLSearchParams(
    Object.entries(form).flatMap(([name, values]) =>
      [values].flat().map((value) => [name, value])
    ),
  );

/** Passwords in clear: only for tests that are not about hashing. */
const quickHasher = (counts: { verified: number }): PasswordHasher => ({
  hash: (password) => Promise.resolve(`quick ${password}`),
  verify: (stored, password) => {
    counts.verified++;
    return Promise.resolve(stored === `quick ${password}`);
  },
});
