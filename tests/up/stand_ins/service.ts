/**
 * A stand-in for every service: it implements the launcher's contract (environment,
 * `ready` line, SIGTERM, exit codes) and nothing else. Its operations port returns
 * its environment.
 */
import { askRedis, hasFault, logLine, writeError } from "./words.ts";

const env = Deno.env.toObject();
const service = env.OTEL_SERVICE_NAME ?? "";
if (hasFault(service, "misconfigured")) {
  writeError('SLOTS must be a whole number from 1 to 10000, got "many"');
  Deno.exit(78);
}
if (hasFault(service, "dies")) {
  writeError("Cannot bind the flux capacitor");
  Deno.exit(1);
}
const options = { hostname: "127.0.0.1", onListen() {} };
const server = Deno.serve(
  { ...options, port: Number(env.PORT ?? 0) },
  async () => {
    // The edge accepts the one key, if there is one.
    const isUnknown = service === "edge-auth" &&
      await askRedis(env.REDIS_URL, "GET key_standin") !== "enabled";
    return Response.json({ service }, { status: isUnknown ? 401 : 200 });
  },
);
const ops = Deno.serve({ ...options, port: 0 }, () => Response.json(env));
Deno.addSignalListener("SIGTERM", () => {
  if (hasFault(service, "deaf")) return;
  logLine({ event: "stopped", at_ms: Date.now() });
  Deno.exit(0);
});
logLine({ event: "starting", pid: Deno.pid });
if (!hasFault(service, "never-ready")) {
  const { port } = server.addr;
  logLine({ event: "ready", port, opsPort: ops.addr.port });
}
if (hasFault(service, "warns")) {
  for (let i = 0; i < 3; i++) {
    logLine({ level: "warn", event: "redis_slow", took_ms: 250 });
  }
}
if (service === "key-admin") {
  logLine({ event: "setup_link", url: `${env.PUBLIC_URL}/setup#one-time` });
}
