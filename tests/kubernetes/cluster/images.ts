/** The images of this commit, built by a Docker engine without a registry. */
import {
  CACHE,
  canRun,
  makeTempDir,
  print,
  runProcess,
  startProcess,
} from "../../support/process.ts";
import { waitFor } from "../../support/wait_for.ts";
import { STORE_PROGRAMS } from "./install.ts";

/** What the chart runs, by the names that `build.sh` gives. */
const SERVICES = [
  "edge-auth",
  "chat-worker",
  "media-worker",
  "key-admin",
  "model-simulator",
].map((service) => `gateway/${service}:local`);
/** A name without a tag would be asked for in a registry, again and again. */
const STORES = ["nats", "redis"].map((store) => ({
  built: `gateway-local/${store}`,
  tagged: `gateway-local/${store}:local`,
}));
/** Holds the network of a pod and does nothing. */
export const PAUSE = "gateway-local/pause:local";
const PAUSE_FILE =
  'FROM gateway-local/debian\nENTRYPOINT ["sleep", "infinity"]\n';
/** What the charts of NATS and Valkey run, in the versions that they name. */
export const STORES_OF_CHARTS = {
  "nats": "gateway-local/chart-nats:local",
  "natsio/nats-server-config-reloader": "gateway-local/chart-reloader:local",
  "valkey/valkey": "gateway-local/chart-valkey:local",
} as const;
/** Programs of the same projects; of Valkey's only the server, so Redis asks it. */
const STORES_FILE = `FROM gateway-local/debian AS programs
COPY nats-server nats-server-config-reloader valkey-server /usr/local/bin/
RUN ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli
FROM programs AS nats
ENTRYPOINT ["nats-server"]
FROM programs AS nats-server-config-reloader
ENTRYPOINT ["nats-server-config-reloader"]
FROM programs AS valkey
`;
/** Its layers are kept, so that a second run builds only what has changed. */
const DATA = `${CACHE}/chat-gateway-kubernetes/docker`;
const ENGINE_MS = 30_000;
const POLL_MS = 200;

/**
 * Builds the images and writes them into one file, an archive of Docker; with those of
 * the stores' charts, if they are wanted.
 */
export async function buildImages(
  file: string,
  { hasCharts }: { hasCharts: boolean },
): Promise<void> {
  await using parts = new AsyncDisposableStack();
  const env = await canRun("docker", "info") ? {} : await startEngine(parts);
  print("Building the images of this commit");
  await runProcess("deploy/local_images/build.sh", [], { env });
  const docker = (...args: string[]) => runProcess("docker", args, { env });
  for (const { built, tagged } of STORES) await docker("tag", built, tagged);
  const { path } = parts.use(await makeTempDir());
  await Deno.writeTextFile(`${path}/Dockerfile`, PAUSE_FILE);
  await docker("build", "--quiet", "--tag", PAUSE, path);
  const names = [...SERVICES, ...STORES.map(({ tagged }) => tagged), PAUSE];
  if (hasCharts) {
    const dockerfile = `${path}/Dockerfile.stores`;
    await Deno.writeTextFile(dockerfile, STORES_FILE);
    for (const [official, tag] of Object.entries(STORES_OF_CHARTS)) {
      const target = official.split("/").at(-1) ?? "";
      const what = ["--target", target, "--tag", tag, "--file", dockerfile];
      await docker("build", "--quiet", ...what, STORE_PROGRAMS);
      names.push(tag);
    }
  }
  await docker("save", "--output", file, ...names);
}

/** Starts an engine that ends with `parts`; returns how it is reached. */
async function startEngine(parts: AsyncDisposableStack) {
  const { path } = parts.use(await makeTempDir());
  const env = {
    DOCKER_HOST: `unix://${path}/docker.sock`,
    DOCKER_BUILDKIT: "0",
  };
  const engine = startProcess({
    // Its mounts go with it: some would outlive it and hold the folder.
    command: "unshare",
    args: [
      "--mount",
      "dockerd",
      `--data-root=${DATA}`,
      `--exec-root=${path}/exec`,
      `--pidfile=${path}/pid`,
      `--host=${env.DOCKER_HOST}`,
    ],
  });
  parts.defer(async () => {
    // Ends its own containerd, too.
    engine.signal("SIGTERM");
    await engine.exited;
  });
  const hasStarted = () => {
    if (!engine.isRunning) throw new Error(engine.output());
    return runProcess("docker", ["info"], { env }).then(
      () => true,
      () => false,
    );
  };
  const what = () => `the Docker engine:\n${engine.output()}`;
  await waitFor(hasStarted, {
    what,
    timeoutMs: ENGINE_MS,
    intervalMs: POLL_MS,
  });
  return env;
}
