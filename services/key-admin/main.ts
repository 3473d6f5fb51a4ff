import { wallNow } from "@gateway/shared/clock";
import { randomBytes } from "@gateway/shared/ids";
import { createLog, type Log } from "@gateway/shared/log";
import { type GracefulServer, serve } from "@gateway/shared/serve";
import { createLineWriter } from "@gateway/shared/stdout";
import { BadConfig, type Config, readProcessConfig } from "./config.ts";
import { createConsoleDeps } from "./console_deps.ts";
import { createStopSender } from "./notice.ts";
import { linkPath } from "./sign_in/links.ts";
import { createOidcClient } from "./sign_in/oidc.ts";
import { createPasswordHasher } from "./sign_in/password.ts";
import { detectDurability } from "./store/durability.ts";
import { connectRedis } from "./store/redis.ts";
import { createConsole } from "./web/app.tsx";
import { readAssets } from "./web/assets.ts";
import { clientIp } from "./web/client_ip.ts";
import type { ConsoleDeps } from "./web/context.ts";
import { createOps } from "./web/ops.ts";

/** The service: configuration, connections, console, ops port, drain. */

const EXIT = { config: 78, unavailable: 69 } as const;
const FIRST_CONNECT_MS = 30_000;
const DRAIN = { graceMs: 10_000, lastWordMs: 500 };

const lines = createLineWriter(Deno.stdout);

function createServiceLog(level: Config["logLevel"]): Log {
  return createLog({
    service: "key-admin",
    level,
    now: wallNow,
    write: lines.write,
  });
}

async function run(config: Config, log: Log): Promise<void> {
  const options = { url: config.redisUrl, log, waitMs: FIRST_CONNECT_MS };
  const redis = await connectRedis(options);
  const writer = await connectRedis(options);
  // The port is known only once it is taken, and the public address may need it.
  const handler = Promise.withResolvers<Handler>();
  const server = serve({
    hostname: config.hostname,
    port: config.port,
    handler: async (request, info) => (await handler.promise)(request, info),
    onError: (error) => faultResponse(log, error),
  });
  const publicUrl = config.publicUrl ??
    new URL(`http://127.0.0.1:${server.port}`);
  const deps = createConsoleDeps({
    redis,
    writer,
    sendStop: createStopSender(config.natsUrl),
    hasher: await createPasswordHasher(),
    assets: await readAssets(),
    oidc: config.oidc === null ? null : createOidcClient(config.oidc),
    randomBytes,
    now: wallNow,
    log,
    publicUrl,
    apiUrl: config.apiUrl,
  });
  handler.resolve(createHandler(deps, config));
  const ops = serve({
    hostname: config.hostname,
    port: config.opsPort,
    handler: createOps({ redis, writer }),
    onError: (error) => faultResponse(log, error),
  });
  await announce(deps, server, ops);
  await untilSignal();
  log.info("stopping");
  await Promise.all([server.stop(DRAIN), ops.stop(DRAIN)]);
  await Promise.all([redis.close(), writer.close()]);
}

type Handler = (
  request: Request,
  info: Deno.ServeHandlerInfo<Deno.NetAddr>,
) => Response | Promise<Response>;

function createHandler(deps: ConsoleDeps, config: Config): Handler {
  const app = createConsole(deps);
  return async (request, info) => {
    const startMs = performance.now();
    const remoteIp = clientIp(
      info.remoteAddr.hostname,
      request.headers.get("x-forwarded-for"),
      config.trustedProxies,
    );
    const response = await app.fetch(request, { remoteIp });
    deps.log.info("request", {
      requestId: response.headers.get("x-request-id"),
      method: request.method,
      path: new URL(request.url).pathname.replace(/^\/link\/.*/, "/link/…"),
      status: response.status,
      durationMs: Math.round(performance.now() - startMs),
      ip: remoteIp,
    });
    return response;
  };
}

async function announce(
  deps: ConsoleDeps,
  server: GracefulServer,
  ops: GracefulServer,
): Promise<void> {
  const { log, redis, publicUrl } = deps;
  const durability = await detectDurability(redis);
  if (durability === "none") {
    log.error("not_durable", {
      meaning: "key changes may be lost when the power fails",
      remedy:
        "set appendonly yes and appendfsync always, or use redis 7.2 or later with appendonly yes",
    });
  }
  log.info("ready", {
    port: server.port,
    opsPort: ops.port,
    publicUrl: publicUrl.origin,
    durability,
  });
  await announceSetUp(deps);
}

/** While nobody can sign in, every start prints a new link for the first owner. */
async function announceSetUp(deps: ConsoleDeps): Promise<void> {
  const { owners, accounts, links, log, publicUrl } = deps;
  const ownerId = await owners.first();
  const account = await accounts.read(ownerId);
  if (account?.passwordHash) return;
  const secret = await links.make({ kind: "set_up", ownerId });
  log.info("set_up_link", {
    url: new URL(linkPath(secret), publicUrl).href,
    meaning: "opens the console's set-up, once, within 15 minutes",
  });
}

function faultResponse(log: Log, error: unknown): Response {
  log.error("request_failed", { error });
  return new Response("Something went wrong on our side\n", {
    status: 500,
    headers: { "content-type": "text/plain; charset=utf-8" },
  });
}

async function untilSignal(): Promise<void> {
  const signal = Promise.withResolvers<void>();
  const signals = ["SIGTERM", "SIGINT"] as const;
  for (const name of signals) Deno.addSignalListener(name, signal.resolve);
  await signal.promise;
  for (const name of signals) Deno.removeSignalListener(name, signal.resolve);
}

try {
  const config = readProcessConfig();
  await run(config, createServiceLog(config.logLevel));
} catch (error) {
  const log = createServiceLog("info");
  const isConfig = error instanceof BadConfig;
  log.error(isConfig ? "bad_config" : "start_failed", {
    ...(isConfig ? { problems: error.problems } : { error }),
  });
  Deno.exitCode = isConfig ? EXIT.config : EXIT.unavailable;
}
await lines.flush();
