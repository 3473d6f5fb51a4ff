// Promise: `up` plans the processes that are needed, each with what it may know.
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { ROOT } from "./options.ts";
import {
  httpUrl,
  MALLOC,
  planServices,
  type ProgramContext,
  type ProgramName,
  serviceProgram,
  v8Flags,
} from "./plan.ts";

const contextOf = (env: Record<string, string> = {}): ProgramContext => ({
  cwd: "/home/ada",
  scriptOf: (name) => name,
  env,
  natsUrl: "nats://nats",
  redisUrl: "redis://redis",
});

Deno.test("a service may read only files that its variables name; only chat workers get the upstream key", () => {
  const context = contextOf({
    NATS_CA_FILE: "/etc/pki/ca.pem",
    REDIS_PASSWORD_FILE: "/run/secrets/redis",
    UPSTREAM_API_KEY_FILE: "/run/secrets/upstream",
    UPSTREAM_API_KEY: "secret",
    REDIS_CERT_FILE: "",
    OTHER_FILE: "/etc/shadow",
    HOSTED_API_KEY_FILE: "/run/secrets/hosted",
    MODEL_KEYS_DIR: "/run/keys",
    NATS_URL_FILE: "/run/secrets/nats_url",
  });
  const files = [`${ROOT}/services`, `${ROOT}/shared`];
  files.push("/etc/pki/ca.pem", "/run/secrets/redis");
  const keys = ["/run/secrets/hosted", "/run/keys"];
  const cases: { name: ProgramName; readable: string[]; redisUrl?: string }[] =
    [
      { name: "edge-auth", readable: files, redisUrl: "redis://redis" },
      { name: "media-worker", readable: [...files, ...keys] },
      {
        name: "chat-worker",
        readable: [...files, "/run/secrets/upstream", ...keys],
      },
    ];
  for (const { name, readable, redisUrl } of cases) {
    const { args, env } = serviceProgram(context, name);
    assert.ok(args.includes(`--allow-read=${readable.join()}`), args.join(" "));
    const key = name === "chat-worker" ? "secret" : undefined;
    assert.equal(env.UPSTREAM_API_KEY, key);
    assert.equal(env.REDIS_URL, redisUrl);
    // A URL from a file is passed on as a URL.
    const nats = [env.NATS_URL, env.NATS_URL_FILE];
    assert.deepEqual(nats, ["nats://nats", undefined]);
  }
  const odd = contextOf({ MODELS_FILE: "/Acme, Inc/models.json" });
  const { args } = serviceProgram(odd, "edge-auth");
  assert.ok(args.includes("--allow-read"), "Deno's list has no commas");
});

Deno.test("httpUrl() returns a URL that can be called", () => {
  for (const host of ["127.0.0.1", "0.0.0.0", "::"]) {
    assert.equal(httpUrl(host, 1), "http://127.0.0.1:1");
  }
  assert.equal(httpUrl("::1", 1), "http://[::1]:1");
});

Deno.test("planServices() starts the workers that the models need", () => {
  const options = {
    workers: 2,
    mediaWorkers: 3,
    edges: 1,
    host: "127.0.0.1",
    port: 0,
    consolePort: 0,
    dataDir: "/data",
    runDir: "/run",
  };
  const backends = [{ type: "openai", base_url: "http://a/v1", model: "m" }];
  const rows: [kinds: string[], workers: string[]][] = [
    [["chat"], ["chat-worker", "chat-worker-2"]],
    [["speech", "image"], ["media-worker", "media-worker-2", "media-worker-3"]],
  ];
  for (const [kinds, workers] of rows) {
    const models = kinds.map((kind) => ({ id: kind, kind, backends }));
    const { units } = planServices(options, contextOf({ OTEL_DENO: "true" }), {
      hasSimulator: false,
      catalog: parseCatalog({ models }),
    });
    const names = units.map(({ name }) => name);
    assert.deepEqual(names, ["key-admin", ...workers, "edge-auth"]);
    // The addresses of the console's pages contain secrets.
    assert.equal(units[0]?.program.env.OTEL_DENO, "false");
  }
});

Deno.test("`up` and the image set the same of V8 and malloc, and nothing that another version may not know", () => {
  const dockerfile = Deno.readTextFileSync(`${ROOT}/Dockerfile`);
  const [, flags] = /DENO_V8_FLAGS=(\S+)/.exec(dockerfile) ?? [];
  assert.equal(v8Flags("15.0.245.2-rusty"), flags);
  assert.equal(v8Flags("16.1.2"), "--max-semi-space-size=4");
  for (const [variable, value] of Object.entries(MALLOC)) {
    assert.match(dockerfile, new RegExp(`^ +${variable}=${value} `, "m"));
  }
});
