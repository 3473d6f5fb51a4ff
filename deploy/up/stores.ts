import { hideUserinfo } from "@gateway/shared/process/env";
import type { Cluster } from "./cluster.ts";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import { ensureServers, programDirs } from "./install.ts";
import { ROOT, type UpOptions } from "./options.ts";
import { findFreePorts, LOOPBACK, whyNotFree } from "./ports.ts";
import type { Settings } from "./settings.ts";
import { UpError } from "./terminal.ts";
import type { UpDeps } from "./up.ts";

interface Store {
  /** Also the scheme of its URL. */
  service: string;
  port: number;
  args: string[];
  cwd: string;
  readyText: string;
}

/** Starts private NATS and Redis servers, unless their URLs are given. Returns the URLs when they are ready. */
export async function startStores(
  cluster: Cluster,
  options: UpOptions,
  given: Settings,
  { env, out, stopping }: UpDeps,
): Promise<{ natsUrl: string; redisUrl: string }> {
  const stores = [
    { program: "nats-server", url: given.NATS_URL, prepare: natsStore },
    { program: "redis-server", url: given.REDIS_URL, prepare: redisStore },
  ] as const;
  const paths = await ensureServers(
    stores.flatMap(({ program, url }) => url === undefined ? program : []),
    { dirs: programDirs(env.PATH), isRoot: Deno.uid() === 0, out, stopping },
  );
  const [natsUrl = "", redisUrl = ""] = await Promise.all(
    stores.map(async ({ program, url, prepare }) => {
      if (url !== undefined) {
        out.say(`Using ${hideUserinfo(url)}`);
        return url;
      }
      out.say(`Starting ${program}`);
      const { service, port, args, cwd, readyText } = await prepare(options);
      const file = paths.get(program) ?? "";
      const unit = { service, name: service, readyText };
      await cluster.start({ ...unit, program: { file, args, env, cwd } });
      return `${service}://${LOOPBACK}:${port}`;
    }),
  );
  return { natsUrl, redisUrl };
}

function natsStore({ runDir }: UpOptions): Store {
  const [port = 0] = findFreePorts(1);
  const config = `${ROOT}/deploy/up/nats.conf`;
  return {
    service: "nats",
    port,
    args: ["-c", config, "-a", LOOPBACK, "-p", `${port}`],
    cwd: runDir,
    readyText: "Server is ready",
  };
}

async function redisStore({ dataDir }: UpOptions): Promise<Store> {
  const cwd = `${dataDir}/redis`;
  await makePrivateDir(cwd);
  const port = await portOf(cwd);
  const config = `${ROOT}/deploy/up/redis.conf`;
  return {
    service: "redis",
    port,
    args: [config, "--bind", LOOPBACK, "--port", `${port}`],
    cwd,
    readyText: "Ready to accept connections",
  };
}

/** A port kept in a file: while a server of an earlier run still has it, no other can destroy the data. */
async function portOf(dir: string): Promise<number> {
  const file = `${dir}/port`;
  const kept = Number(await Deno.readTextFile(file).catch(() => 0));
  const [port = 0] = kept > 0 ? [kept] : findFreePorts(1);
  if (whyNotFree(port) === undefined) {
    await writePrivateFile(file, `${port}`);
    return port;
  }
  throw new UpError(
    `A Redis server of an earlier run may still use ${dir}: port ${port} is busy\n` +
      `If so, stop it. If another program has the port, delete ${file}`,
  );
}
