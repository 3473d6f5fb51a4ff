/** The private NATS and Redis servers. */
import { hideUserinfo } from "@gateway/shared/process/env";
import type { Cluster } from "./cluster.ts";
import { makePrivateDir, writePrivateFile } from "./files.ts";
import { ensureServers, programDirs } from "./install.ts";
import { ROOT, type UpOptions } from "./options.ts";
import type { Settings } from "./plan.ts";
import { findFreePorts, LOOPBACK, whyNotFree } from "./ports.ts";
import { UpError } from "./terminal.ts";
import type { UpDeps } from "./main.ts";

/** Starts them, unless their URLs are given. Returns the URLs when they are ready. */
export async function startStores(
  cluster: Cluster,
  { dataDir, runDir }: UpOptions,
  given: Settings,
  { env, out, stopping }: UpDeps,
): Promise<{ natsUrl: string; redisUrl: string }> {
  const here = `${ROOT}/deploy/up`;
  const redisDir = `${dataDir}/redis`;
  const stores = [
    {
      ...{ service: "nats", file: "nats-server", url: given.NATS_URL },
      ...{ cwd: runDir, readyText: "Server is ready" },
      portOf: () => Promise.resolve(findFreePorts(1)[0]),
      args: ["-c", `${here}/nats.conf`, "-a", LOOPBACK, "-p"],
    },
    {
      ...{ service: "redis", file: "redis-server", url: given.REDIS_URL },
      ...{ cwd: redisDir, readyText: "Ready to accept connections" },
      portOf: () => redisPort(redisDir),
      args: [`${here}/redis.conf`, "--bind", LOOPBACK, "--port"],
    },
  ] as const;
  const paths = await ensureServers(
    stores.flatMap(({ file, url }) => url === undefined ? file : []),
    { dirs: programDirs(env.PATH), isRoot: Deno.uid() === 0, out, stopping },
  );
  const [natsUrl = "", redisUrl = ""] = await Promise.all(
    stores.map(async ({ service, file, url, cwd, ...store }) => {
      if (url !== undefined) {
        out.say(`Using ${hideUserinfo(url)}`);
        return url;
      }
      out.say(`Starting ${file}`);
      const { portOf, args, readyText } = store;
      const port = `${await portOf()}`;
      const path = paths.get(file) ?? "";
      const program = { file: path, args: [...args, port], env, cwd };
      await cluster.start({ service, name: service, readyText, program });
      return `${service}://${LOOPBACK}:${port}`;
    }),
  );
  return { natsUrl, redisUrl };
}

/** A port kept in a file: while a server of an earlier run still has it, no other can destroy the data. */
async function redisPort(dir: string): Promise<number> {
  await makePrivateDir(dir);
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
