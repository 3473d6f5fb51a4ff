/**
 * A gateway of processes that keeps answers: three NATS servers, two edges, two
 * workers, and a model server that counts how often it was asked what.
 */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import {
  type RedisWorld,
  startRedisWorld,
} from "../../support/limits/admission_fixture.ts";
import { startGateway } from "../../support/gateway/gateway.ts";
import type { TestKey } from "../../support/gateway/limited.ts";
import type {
  RunningService,
  ServicesGateway,
} from "../../support/gateway/services.ts";
import {
  chatReply,
  jsonResponse,
} from "../../support/model_servers/model_answers.ts";
import {
  startScriptedServer,
  type Step,
} from "../../support/model_servers/scripted_server.ts";
import { freePort } from "../../support/servers/local_server.ts";
import {
  type NatsServer,
  startNatsServer,
} from "../../support/servers/nats_server.ts";
import { waitFor } from "../../support/wait_for.ts";
import { askChaos } from "./chaos_client.ts";

const SERVERS = 3;
/** The words of each answer, which are its tokens. */
export const TOKENS = 40;
const TOKEN_MS = 40;
const START_MS = 60_000;
/** Also of a server of the bus that was killed. */
const FAULT = /_fault"|"level":"error"(?!.*"event":"bus_not_reached")/;
const REPEAT = /"event":"attempt_repeated"/;

/** The words that answer a prompt. */
export const wordsFor = (prompt: string): string[] =>
  Array.from({ length: TOKENS }, (_, index) => `${prompt}.${index} `);

/** What may be killed. */
export type Victim = "edge" | "worker" | "nats";

/** A gateway whose parts are killed and started again. */
export interface ChaosRig extends AsyncDisposable {
  readonly world: RedisWorld;
  /** Creates a key of an account of its own. */
  addKey(): Promise<TestKey>;
  /** How often the model server was asked each prompt. */
  readonly asked: ReadonlyMap<string, number>;
  /** What services have written about faults of theirs, also those killed since. */
  faults(): string[];
  /** How often edges gave a request to another worker, before its first token. */
  repeats(): number;
  /** The base URLs of the edges that run now. */
  edges(): string[];
  /** Kills one of these with SIGKILL, and starts another one in its place. */
  kill(victim: Victim, index: number): Promise<void>;
}

async function startCluster(stack: AsyncDisposableStack) {
  const ports = Array.from({ length: SERVERS }, () => freePort());
  const routes = ports.map((port) => `"nats://127.0.0.1:${port}"`).join(",");
  const servers: NatsServer[] = [];
  for (const port of ports) {
    const config = `cluster { name: c, listen: "127.0.0.1:${port}",
      routes: [${routes}] }`;
    servers.push(stack.use(await startNatsServer({ config, jetStream: true })));
  }
  return servers;
}

function startModelServer(promptCounts: Map<string, number>) {
  return startScriptedServer({
    reply: async function* (request): AsyncIterable<Step> {
      if (request.body === "") {
        return yield* jsonResponse({
          object: "list",
          data: [{ id: "theirs" }],
        });
      }
      const { messages } = Object(request.json());
      const prompt: string = messages[0].content;
      promptCounts.set(prompt, (promptCounts.get(prompt) ?? 0) + 1);
      const words = wordsFor(prompt);
      for (const step of chatReply({ words })(request)) {
        yield step;
        yield { pauseMs: TOKEN_MS };
      }
    },
  });
}

/** Starts it, and waits until answers can be kept. */
export async function startChaosRig(): Promise<ChaosRig> {
  await using stack = new AsyncDisposableStack();
  const servers = await startCluster(stack);
  const world = stack.use(await startRedisWorld());
  const promptCounts = new Map<string, number>();
  const model = stack.use(startModelServer(promptCounts));
  const env = {
    NATS_URL: servers.map(({ server }) => `nats://${server}`).join(","),
    REDIS_URL: world.redis.url,
    UPSTREAM_BASE_URL: model.baseUrl,
    UPSTREAM_MODEL: "theirs",
    LOG_LEVEL: "warn",
  };
  const gateway = stack.use(await startGateway("services", { env }));
  const parts: Record<"edge" | "worker", RunningService[]> = {
    worker: await startTwo(gateway, "chat-worker"),
    edge: await startTwo(gateway, "edge-auth"),
  };
  const addKey = async () => {
    const value = mintKey(randomBytes);
    const principal = await world.addKey();
    await world.nameKey(value, principal);
    return { ...principal, value };
  };
  const all = [...parts.worker, ...parts.edge];
  const linesLike = (pattern: RegExp) =>
    all.flatMap(({ process }) => process.output().split("\n"))
      .filter((line) => pattern.test(line));
  const edges = () => parts.edge.map(({ url }) => `${url}/v1`);
  const { value } = await addKey();
  await waitFor(async () => {
    const answer = await askChaos(edges()[0] ?? "", value, "first");
    await answer.body?.cancel();
    return answer.status === 200;
  }, { what: "answers to be kept", timeoutMs: START_MS, intervalMs: 500 });
  const running = stack.move();
  return {
    world,
    addKey,
    asked: promptCounts,
    edges,
    faults: () => linesLike(FAULT),
    repeats: () => linesLike(REPEAT).length,
    async kill(victim, index) {
      if (victim === "nats") {
        await servers[index % SERVERS]?.restart();
        return;
      }
      const at = index % parts[victim].length;
      await parts[victim][at]?.process.kill();
      const name = victim === "edge" ? "edge-auth" : "chat-worker";
      const started = await gateway.start(name);
      parts[victim][at] = started;
      all.push(started);
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

async function startTwo(
  gateway: ServicesGateway,
  name: "edge-auth" | "chat-worker",
): Promise<RunningService[]> {
  const both = [await gateway.start(name), await gateway.start(name)];
  assert.equal(both.length, 2);
  return both;
}
