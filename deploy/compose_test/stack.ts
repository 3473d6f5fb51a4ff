/** The compose stack under test, in its own compose project. */
import { fileURLToPath } from "node:url";
import { findFreePorts } from "../up/ports.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const AUTHORITY_FILE = "/data/caddy/pki/authorities/local/root.crt";
const COMMAND_MS = 180_000;

export type Stack = Awaited<ReturnType<typeof startStack>>;

export interface StackOptions {
  /** Compose files of the repository's root, merged in this order. */
  files?: string[];
  /** Settings of `compose.yaml` for this test. */
  env: Record<string, string>;
}

/** Starts everything. The images must exist, see `deploy/local_images/build.sh`. */
export async function startStack(options: StackOptions) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_compose_" });
  const [port = 0] = findFreePorts(1);
  const env = {
    COMPOSE_FILE: (options.files ?? ["compose.yaml"]).join(":"),
    COMPOSE_PROJECT_NAME: Deno.env.get("COMPOSE_TEST_PROJECT") ??
      `gateway-test-${port}`,
    COMPOSE_PROGRESS: "quiet",
    COMPOSE_ENV_FILES: Deno.env.get("COMPOSE_ENV_FILES") ??
      "deploy/local_images/env",
    SECRETS_DIR: `${directory}/secrets`,
    HTTPS_PORT: String(port),
    PUBLIC_URL: `https://console.localhost:${port}`,
    FRONT_SUBNET: "10.213.78.0/24",
    FRONT_RANGE: "10.213.78.128/25",
    PROXY_ADDRESS: "10.213.78.2",
    STORE_NET: "10.213.80",
    ...options.env,
  };
  /** Runs a command and returns what it printed. */
  const run = (command: string, args: string[]) => runIn(env, command, args);
  const compose = (...args: string[]) => run("docker", ["compose", ...args]);
  const stop = async () => {
    await compose("down", "--volumes", "--timeout", "5");
    await Deno.remove(directory, { recursive: true });
  };
  try {
    await run("deploy/secrets.sh", []);
    await compose("up", "-d", "--no-build", "--wait");
    /** The proxy's own authority, PEM. */
    const authority = () =>
      compose("exec", "-T", "proxy", "cat", AUTHORITY_FILE);
    const client = Deno.createHttpClient({ caCerts: [await authority()] });
    return {
      /** Name of the compose project, with which the names of its networks begin. */
      project: env.COMPOSE_PROJECT_NAME,
      url: `https://localhost:${port}`,
      consoleUrl: `https://console.localhost:${port}`,
      ...{ authority, client, compose },
      docker: (...args: string[]) => run("docker", args),
      /** The content of a secret file, see `deploy/secrets.sh`. */
      secret: (name: string) => Deno.readTextFile(`${env.SECRETS_DIR}/${name}`),
      /** Runs a script of `deploy/`. */
      script: (name: string, ...args: string[]) => run(`deploy/${name}`, args),
      /** Scales the services and waits until all containers are healthy. */
      scale: async (
        { edges, workers }: { edges: number; workers: number },
      ) => {
        await compose(
          ...["up", "-d", "--no-build", "--no-recreate", "--wait"],
          ...["--scale", `edge-auth=${edges}`],
          ...["--scale", `chat-worker=${workers}`],
        );
      },
      /** Ids of the running containers of a service. */
      containers: async (service: string) =>
        (await compose("ps", "-q", service)).split("\n").filter((id) => id),
      [Symbol.asyncDispose]: async () => {
        client.close();
        await stop();
      },
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function runIn(
  env: Record<string, string>,
  command: string,
  args: string[],
): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(command, {
    args,
    cwd: ROOT,
    env,
    stdin: "null",
    signal: AbortSignal.timeout(COMMAND_MS),
  }).output();
  const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes).trim();
  if (success) return text(stdout);
  throw new Error(`${command} ${args.join(" ")}: ${text(stderr)}`);
}
