/** A console on a real Redis, for tests. */
import assert from "node:assert/strict";
import type { Hono } from "hono";
import { TOTP } from "otpauth";
import { BackendReports } from "@gateway/shared/backends/reports";
import {
  type KeyRecord,
  type Principal,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { randomBytes } from "@gateway/shared/process/ids";
import { createLog } from "@gateway/shared/process/log";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import {
  startSimulator,
  type WatchedSimulator,
} from "../../tests/support/gateway/simulator.ts";
import { assertNoKeys } from "../../tests/support/recording_log.ts";
import { createConsole } from "./app.tsx";
import { catalogOfIds, MEDIA_MODELS } from "./catalog_fixture.ts";
import { type Answer, ORIGIN, TestClient } from "./client_fixture.ts";
import type { DefaultLimits, KeySettings } from "./domain/keys/settings.ts";
import { linkPath } from "./domain/sign_in/links.ts";
import type { PasswordHasher } from "./domain/sign_in/password.ts";
import { asTexts } from "./domain/store/redis.ts";
import type {
  RunningRequests,
  RunningView,
} from "./domain/running/running_requests.ts";
import { createStores } from "./domain/stores.ts";
import { createAskApi } from "./domain/try/edge.ts";
import { WaitingRequests } from "./domain/models/waiting_requests.ts";
import { PASSWORD, signIn } from "./forms_fixture.ts";
import { startRedis, type TestRedis } from "./redis_fixture.ts";
import { readAssets } from "./web/assets.ts";
import type { ConsoleDeps, ConsoleEnv } from "./web/context.ts";

/** Differences from the default console. */
export interface ConsoleOptions extends
  Partial<
    Pick<
      ConsoleDeps,
      | "oidc"
      | "isSimulated"
      | "catalog"
      | "listMistakes"
      | "projectsCreatedBy"
      | "budgetZone"
    >
  > {
  /** Arguments of the Redis server; by default it keeps every change. */
  settings?: string[];
  /** Wraps the connection for changes. */
  writer?: (link: RedisLink) => RedisLink;
  defaultLimits?: DefaultLimits;
  /** The user in Redis, from `deploy/redis/users.acl`. */
  redisUser?: string;
}

const MODELS = [DEFAULT_MODEL_ID, "small-1", "large-1"];

/** Effects of a console that its answers do not show. */
class Recorded {
  /** The stop notices to edges. */
  readonly stops: Principal[] = [];
  /** How many passwords were compared. */
  readonly hashing = { verified: 0 };
  readonly logLines: string[] = [];
  /** How often edges and workers were told the overrides. */
  tells = 0;
  /** The running requests, as edges would report them. */
  readonly running: RunningView[] = [];
}

/** The parts of a {@link TestConsole}. */
interface Parts {
  deps: ConsoleDeps;
  server: TestRedis;
  administrator: RedisLink;
  api: WatchedSimulator;
  clock: { nowMs: number };
  recorded: Recorded;
}

/**
 * A console on a real Redis, with a clock that tests set and a hasher that does no
 * work. Disposing of it fails if its log contains a key.
 */
export class TestConsole implements AsyncDisposable {
  readonly app: Hono<ConsoleEnv>;
  /** The dependencies of the console, which tests may replace. */
  readonly deps: ConsoleDeps;
  readonly server: TestRedis;
  /** Wall time of the console in ms; tests add to it. */
  readonly clock: { nowMs: number };
  readonly stops: readonly Principal[];
  readonly hashing: { readonly verified: number };
  readonly logLines: string[];
  /** The running requests, to which tests add. */
  readonly running: RunningView[];
  readonly #administrator: RedisLink;
  readonly #api: WatchedSimulator;

  constructor({ deps, server, administrator, api, clock, recorded }: Parts) {
    this.app = createConsole(deps);
    this.deps = deps;
    this.server = server;
    this.clock = clock;
    this.stops = recorded.stops;
    this.hashing = recorded.hashing;
    this.logLines = recorded.logLines;
    this.running = recorded.running;
    this.#administrator = administrator;
    this.#api = api;
  }

  /** The requests that reached the simulator, which stands in for the API. */
  get requests(): Readonly<WatchedSimulator["requests"]> {
    return this.#api.requests;
  }

  /** Every route of the console: `POST /keys/:id/edit`. */
  get routes(): string[] {
    return this.app.routes
      .filter(({ method }) => method === "GET" || method === "POST")
      .map(({ method, path }) => `${method} ${path}`);
  }

  /** Names and digests of all Redis keys that match the pattern, except rates. */
  async stored(pattern = "*"): Promise<string[]> {
    const options = { args: [pattern, KEPT] };
    return asTexts(
      await this.#administrator.evalScript(STORED_SCRIPT, options),
    );
  }

  /** Keeps what is stored now for {@link restore}. */
  async keep(): Promise<void> {
    await this.#administrator.evalScript(KEEP_SCRIPT, { args: [KEPT] });
  }

  /** Brings back what was stored at {@link keep}, and drops everything else. */
  async restore(): Promise<void> {
    await this.#administrator.evalScript(RESTORE_SCRIPT, { args: [KEPT] });
  }

  /** A browser without cookies, from an address. */
  client(ip = "192.0.2.1"): TestClient {
    return new TestClient((request) => this.#answer(request, ip));
  }

  async #answer(request: Request, ip: string): Promise<Answer> {
    const response = await this.app.fetch(request, { remoteIp: ip });
    const text = await response.text();
    // Only the response that creates a key contains it.
    if (response.status !== 201) {
      assertNoKeys(text, `an answer: ${request.url}`);
    }
    return { status: response.status, headers: response.headers, text };
  }

  /** Adds an owner with {@link PASSWORD}. Returns the owner's id. */
  async addOwner(email: string): Promise<string> {
    const { owners, hasher } = this.deps;
    const ownerId = await owners.ensure(email);
    await owners.setPassword(ownerId, await hasher.hash(PASSWORD));
    return ownerId;
  }

  /** A browser whose owner signed in with {@link PASSWORD}. */
  async signedIn(email: string, ip?: string): Promise<TestClient> {
    await this.addOwner(email);
    const browser = this.client(ip);
    const answer = await signIn(browser, email);
    assert.equal(answer.status, 303, answer.text);
    return browser;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#api[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    assertNoKeys(this.logLines.join("\n"), "the log of the console");
  }
}

/** Two workers that have told nothing of their servers yet. */
const workersAt = (now: () => number) => ({
  backends: new BackendReports(now),
  follower: { workers: 2 },
  waiting: new WaitingRequests(now),
});

/** Starts a Redis server, a simulator in place of the API, and a console on both. */
export async function startConsole(
  options: ConsoleOptions = {},
): Promise<TestConsole> {
  const {
    settings,
    writer = (link) => link,
    defaultLimits = { key: UNLIMITED, owner: UNLIMITED },
    redisUser,
    ...replaced
  } = options;
  const server = await startRedis(settings);
  const administrator = await server.connect();
  const clock = { nowMs: Date.now() };
  const now = () => clock.nowMs;
  const recorded = new Recorded();
  const log = createLog({
    service: "key-admin",
    level: "debug",
    now,
    write: (line) => recorded.logLines.push(line()),
  });
  const api = startSimulator();
  const stores = createStores({
    redis: await server.connect(redisUser),
    writer: writer(await server.connect(redisUser)),
    randomBytes,
    now,
    defaultLimits,
  });
  const deps: ConsoleDeps = {
    ...stores,
    sendStop: (principals) => {
      recorded.stops.push(...principals);
      return Promise.resolve();
    },
    hasher: quickHasher(recorded.hashing),
    assets: await readAssets(),
    oidc: null,
    log,
    publicUrl: new URL(ORIGIN),
    apiUrl: "https://api.test/v1",
    askApi: createAskApi(api.url, log),
    isSimulated: false,
    projectsCreatedBy: "operators",
    budgetZone: "UTC",
    listMistakes: () => [],
    catalog: catalogOfIds([...MODELS, ...MEDIA_MODELS]),
    tellOverrides: () => {
      recorded.tells += 1;
      return Promise.resolve(true);
    },
    running: runningIn(recorded.running),
    workers: workersAt(now),
    ...replaced,
  };
  return new TestConsole({ deps, server, administrator, api, clock, recorded });
}

/** Stands in for edges that run these requests, until they are stopped. */
const runningIn = (
  running: RunningView[],
): Pick<RunningRequests, "list" | "stop"> => ({
  list: (account) => {
    const requests = running.filter((each) =>
      account === null || each.account === account
    );
    return Promise.resolve({ requests, edges: 1, silentEdges: 0, more: 0 });
  },
  stop: ({ requestId }) => {
    const at = running.findIndex((each) => each.requestId === requestId);
    if (at === -1) return Promise.resolve("ended");
    running.splice(at, 1);
    return Promise.resolve("stopped");
  },
});

/** Passwords in clear: only for tests that are not about hashing. */
const quickHasher = (counts: { verified: number }): PasswordHasher => ({
  hash: (password) => Promise.resolve(`quick ${password}`),
  verify: (stored, password) => {
    counts.verified++;
    return Promise.resolve(stored === `quick ${password}`);
  },
});

/** It leaves out rates, which count refused requests, too. */
const STORED_SCRIPT = defineScript(
  "test/stored",
  `
local names, all = redis.call('KEYS', ARGV[1]), {}
table.sort(names)
for _, name in ipairs(names) do
  if string.sub(name, 1, 4) ~= 'try:' and name ~= ARGV[2] then
    table.insert(all, name .. ' ' .. redis.sha1hex(redis.call('DUMP', name)))
  end
end
return all
`,
);

/** The key of Redis that has what {@link TestConsole.keep} kept. */
const KEPT = "test:kept";

const KEEP_SCRIPT = defineScript(
  "test/keep",
  `
redis.call('DEL', ARGV[1])
for _, name in ipairs(redis.call('KEYS', '*')) do
  redis.call('HSET', ARGV[1], name, redis.call('DUMP', name))
end
`,
);

const RESTORE_SCRIPT = defineScript(
  "test/restore",
  `
for _, name in ipairs(redis.call('KEYS', '*')) do
  local kept = redis.call('HGET', ARGV[1], name)
  if not kept and name ~= ARGV[1] then
    redis.call('DEL', name)
  elseif kept and kept ~= redis.call('DUMP', name) then
    local left_ms = math.max(0, redis.call('PTTL', name))
    redis.call('RESTORE', name, left_ms, kept, 'REPLACE')
  end
end
`,
);

type Site = Pick<TestConsole, "deps">;

/** Creates a key without the pages. */
export async function storedKey(
  { deps }: Site,
  ownerId: string,
  { createdBy, ...settings }: Partial<KeySettings> & { createdBy?: string } =
    {},
): Promise<KeyRecord> {
  const newKey = await deps.keys.create({
    ownerId,
    settings: {
      description: "A key",
      scopes: ["chat", "models"],
      models: [],
      networks: [],
      endUsers: null,
      priority: "normal",
      keepSeconds: 0,
      limits: UNLIMITED,
      expiresAtMs: null,
      ...settings,
    },
    actor: { by: "test", ip: "192.0.2.7" },
    ...createdBy !== undefined && { createdBy },
  });
  return newKey.key;
}

const TOTP_STEP_MS = 30_000;

/**
 * The code of two-step sign-in by the console's clock, some steps of 30 seconds later
 * or, with a negative number, earlier.
 */
export function codeOf({ deps }: Site, secret: string, stepsLater = 0): string {
  const timestamp = deps.now() + stepsLater * TOTP_STEP_MS;
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
