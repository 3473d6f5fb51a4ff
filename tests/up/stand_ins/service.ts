// A stand-in for every service: it implements the launcher's contract (environment,
// `ready` line, SIGTERM, exit codes) and nothing else. Its operations port returns
// its environment. As `keys create`, it makes one key, whose state is in Redis.
import { askRedis } from "./ask_redis.ts";

const env = Deno.env.toObject();
const service = env.OTEL_SERVICE_NAME ?? "";
const print = (to: typeof Deno.stdout, line: string) =>
  to.writeSync(new TextEncoder().encode(`${line}\n`));
/** Writes a log line as the services do. */
const log = (fields: object) =>
  print(Deno.stdout, JSON.stringify({ level: "info", ...fields }));
const faults = env.STAND_IN_FAULT?.split(" ") ?? [];
/** Whether the test set this fault for this service. */
const has = (fault: string) => faults.includes(`${service}:${fault}`);
const fail = (code: number, error: string) => {
  print(Deno.stderr, error);
  Deno.exit(code);
};

if (has("misconfigured")) {
  fail(78, 'SLOTS must be a whole number from 1 to 10000, got "many"');
}
if (has("dies")) fail(1, "Cannot bind the flux capacitor");
if (service === "keys") {
  await askRedis(env.REDIS_URL, "SET key_standin enabled");
  log({ key: `sk-Cg${crypto.randomUUID().replaceAll("-", "")}` });
  Deno.exit();
}
const options = { hostname: "127.0.0.1", onListen() {} };
const server = Deno.serve(
  { ...options, port: Number(env.PORT ?? 0) },
  async () => {
    // The edge accepts the one key, if there is one.
    const isKnown = service !== "edge-auth" ||
      /enabled/.test(await askRedis(env.REDIS_URL, "GET key_standin"));
    return Response.json({ service }, { status: isKnown ? 200 : 401 });
  },
);
const ops = Deno.serve({ ...options, port: 0 }, () => Response.json(env));
Deno.addSignalListener("SIGTERM", () => {
  if (has("deaf")) return;
  log({ event: "stopped", at_ms: Date.now() });
  Deno.exit(0);
});
log({ event: "starting", pid: Deno.pid });
if (!has("never-ready")) {
  log({ event: "ready", port: server.addr.port, opsPort: ops.addr.port });
}
const warning = { level: "warn", event: "redis_slow", took_ms: 250 };
for (let i = 0; has("warns") && i < 3; i++) log(warning);
if (service === "key-admin") {
  log({ event: "setup_link", url: `${env.PUBLIC_URL}/setup#one-time` });
}
