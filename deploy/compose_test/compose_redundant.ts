// Promise: any one container of compose.cluster.yaml but the proxy may be killed while
// requests run: only requests on that container end, refused requests can be retried,
// and everything works again within seconds.
import assert from "node:assert/strict";
import { Load } from "./load.ts";
import { say, type Stack, startStack, until } from "./stack.ts";

const STREAMS = 8;
/** Requests that must succeed after a loss, and again after the return. */
const ANSWERS = 3 * STREAMS;
const MS_PER_SECOND = 1_000;
const SHOWN_MAX = 3;
const SERVERS = ["redis", "redis-2", "redis-3"];
/** Requests that run there, and those sent there while it dies. */
const RUNNING_MAX = 2 * STREAMS;
/** Requests that may miss a deadline while containers start on a busy machine. */
const LATE_MAX = 2 * STREAMS;
/** Without a master, every request is refused at once and retried. */
const LATE_IN_FAILOVER_MAX = 2_000;

interface Victim {
  name: string;
  service: (stack: Stack) => string | Promise<string>;
  /**
   * Requests that may end early, or be refused for another reason than a missed
   * deadline.
   */
  failuresMax: number;
  lateMax: number;
}

/** The Redis server that is master now, or the first one that is not. */
const redisServer =
  ({ isMaster }: { isMaster: boolean }) => async (stack: Stack) => {
    for (const service of SERVERS) {
      const role = await stack.compose(
        "exec",
        "-T",
        service,
        "redis-cli",
        "--no-auth-warning",
        "--user",
        "health",
        "--pass",
        "none",
        "role",
      );
      if (role.startsWith("master") === isMaster) return service;
    }
    throw new Error("No Redis server has this role");
  };

const one = (name: string, more: Partial<Victim> = {}): Victim => ({
  name,
  service: () => name,
  failuresMax: 0,
  lateMax: LATE_MAX,
  ...more,
});

const VICTIMS: Victim[] = [
  one("nats"),
  one("nats-2"),
  one("nats-3"),
  one("the Redis master", {
    service: redisServer({ isMaster: true }),
    lateMax: LATE_IN_FAILOVER_MAX,
  }),
  one("a Redis replica", { service: redisServer({ isMaster: false }) }),
  one("redis-sentinel-1"),
  one("redis-sentinel-2"),
  one("redis-sentinel-3"),
  one("edge-auth", { failuresMax: RUNNING_MAX }),
  one("chat-worker", { failuresMax: RUNNING_MAX }),
  one("key-admin"),
];

async function isWell(stack: Stack, container: string): Promise<boolean> {
  const health = await stack.docker(
    "inspect",
    "--format",
    "{{.State.Health.Status}}",
    container,
  );
  return health === "healthy";
}

/** Kills a container under load and starts it again. */
async function lose(stack: Stack, key: string, victim: Victim): Promise<Load> {
  const load = new Load(stack, key, STREAMS);
  try {
    await load.answers(ANSWERS);
    const service = await victim.service(stack);
    const [container = ""] = await stack.containers(service);
    await stack.docker("kill", container);
    await load.answers(ANSWERS, `answers without ${victim.name}`);
    await stack.docker("start", container);
    await until(`${victim.name} to be back`, () => isWell(stack, container));
    await load.answers(ANSWERS, `answers with ${victim.name}`);
  } finally {
    await load.stop();
  }
  return load;
}

Deno.test("the redundant cluster", async (t) => {
  await using stack = await startStack(
    { SIMULATOR_TOKENS_PER_SECOND: "40" },
    ["compose.yaml", "compose.cluster.yaml"],
  );
  const newKey = await stack.createKey();
  const stopped = await stack.createKey("stopped");
  await stack.gateway("keys", "disable", stopped.id);

  for (const victim of VICTIMS) {
    await t.step(`survives the loss of ${victim.name}`, async () => {
      const load = await lose(stack, newKey.key, victim);
      const pauseSeconds = (load.longestPauseMs / MS_PER_SECOND).toFixed(1);
      say(
        `${load.complete} complete, ${load.failures.length} refused or cut, ` +
          `${load.late} to be tried again, nothing answered for ${pauseSeconds} s at most`,
      );
      for (const line of load.failures.slice(0, SHOWN_MAX)) say(line);
      assert.ok(
        load.failures.length <= victim.failuresMax &&
          load.late <= victim.lateMax && load.notRetryable.length === 0,
        await load.report(),
      );
      assert.equal(await stack.statusWith(stopped.key), 403);
      const other = await stack.createKey("after a loss");
      assert.equal(await stack.statusWith(other.key), 200);
    });
  }

  await t.step("is restored from a backup, whoever was master", async () => {
    const file = await Deno.makeTempFile({ suffix: ".rdb" });
    await stack.script("backup.sh", file);
    await stack.gateway("keys", "delete", newKey.id);
    assert.equal(await stack.statusWith(newKey.key), 401);
    await stack.script("restore.sh", file);
    await Deno.remove(file);
    await until(
      "the key to be back",
      async () => await stack.statusWith(newKey.key) === 200,
    );
    await until(
      "changes to be acknowledged",
      () => stack.createKey("again").then(() => true, () => false),
    );
  });
});
