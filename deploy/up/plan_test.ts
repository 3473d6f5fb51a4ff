import assert from "node:assert/strict";
import { ROOT } from "./options.ts";
import { parseCatalog } from "@gateway/shared/models/catalog";
import {
  httpUrl,
  planServices,
  type ProgramContext,
  serviceProgram,
} from "./plan.ts";

const ENV = {
  NATS_CA_FILE: "/etc/pki/ca.pem",
  REDIS_PASSWORD_FILE: "/run/secrets/redis",
  UPSTREAM_API_KEY_FILE: "/run/secrets/upstream",
  REDIS_CERT_FILE: "",
  OTHER_FILE: "/etc/shadow",
  NATS_URL_FILE: "/run/secrets/nats_url",
};
const OWN = [`${ROOT}/services`, `${ROOT}/shared`];

function contextOf(env: Record<string, string>): ProgramContext {
  return {
    cwd: "/home/ada",
    scriptOf: (name) => name,
    env,
    natsUrl: "nats://nats",
    redisUrl: "redis://redis",
  };
}

const readable = ({ args }: { args: readonly string[] }) =>
  args.filter((arg) => arg.startsWith("--allow-read"));

Deno.test("a service may read only the files that its variables name", () => {
  const context = contextOf(ENV);
  const stores = ["/etc/pki/ca.pem", "/run/secrets/redis"];
  assert.deepEqual(readable(serviceProgram(context, "edge-auth")), [
    `--allow-read=${[...OWN, ...stores].join()}`,
  ]);
  assert.deepEqual(readable(serviceProgram(context, "chat-worker")), [
    `--allow-read=${[...OWN, ...stores, "/run/secrets/upstream"].join()}`,
  ]);
});

Deno.test("only chat workers get the key of the model server, and URLs are passed on as URLs", () => {
  const context = contextOf({ ...ENV, UPSTREAM_API_KEY: "secret" });
  const { env: worker } = serviceProgram(context, "chat-worker");
  for (const name of ["edge-auth", "media-worker"] as const) {
    const { env } = serviceProgram(context, name);
    assert.deepEqual(
      [env.UPSTREAM_API_KEY, env.UPSTREAM_API_KEY_FILE],
      [undefined, undefined],
    );
    assert.equal(env.REDIS_URL === undefined, name === "media-worker");
  }
  assert.equal(worker.UPSTREAM_API_KEY, "secret");
  assert.deepEqual(
    [worker.NATS_URL, worker.NATS_URL_FILE],
    ["nats://nats", undefined],
  );
});

Deno.test("httpUrl() returns a URL that can be called", () => {
  for (const host of ["127.0.0.1", "0.0.0.0", "::"]) {
    assert.equal(httpUrl(host, 1), "http://127.0.0.1:1");
  }
  assert.equal(httpUrl("::1", 1), "http://[::1]:1");
});

Deno.test("planServices() starts the workers that the models need", () => {
  const options = {
    ...{ workers: 2, mediaWorkers: 3, edges: 1, host: "127.0.0.1", port: 0 },
    ...{ consolePort: 0, dataDir: "/data", runDir: "/run" },
  };
  const backends = [{ type: "openai", base_url: "http://a/v1", model: "m" }];
  const rows: [kinds: string[], chat: number, media: number][] = [
    [["chat"], 2, 0],
    [["speech", "image"], 0, 3],
    [["chat", "video"], 2, 3],
  ];
  for (const [kinds, chat, media] of rows) {
    const models = kinds.map((kind) => ({ id: kind, kind, backends }));
    const { units } = planServices(options, contextOf({}), {
      hasSimulator: false,
      catalog: parseCatalog({ models }),
    });
    const count = (name: string) =>
      units.filter(({ service }) => service === name).length;
    assert.deepEqual(
      [count("chat-worker"), count("media-worker")],
      [chat, media],
    );
  }
});
