/** The compose stack under test, in its own compose project. */
import { fileURLToPath } from "node:url";
import { waitFor } from "../../tests/support/wait_for.ts";
import { findFreePorts } from "../up/ports.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const AUTHORITY_FILE = "/data/caddy/pki/authorities/local/root.crt";
const COMMAND_MS = 180_000;
const DEADLINE_MS = 60_000;
const POLL_MS = 100;

/** Waits until the condition holds. Throws with its name when that takes too long. */
export const until = (
  what: string,
  condition: () => boolean | Promise<boolean>,
) => waitFor(condition, { what, timeoutMs: DEADLINE_MS, intervalMs: POLL_MS });

/** Prints a line in the test's output. */
export function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`    ${line}\n`));
}

export type Stack = Awaited<ReturnType<typeof startStack>>;

/**
 * Starts everything. The images must exist, see `deploy/local_images/build.sh`.
 * `settings` are those of `compose.yaml`; `files` are merged in their order.
 */
export async function startStack(
  settings: Record<string, string>,
  files = ["compose.yaml"],
) {
  const directory = await Deno.makeTempDir({ prefix: "gateway_compose_" });
  const [port = 0] = findFreePorts(1);
  const env = {
    COMPOSE_FILE: files.join(":"),
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
    ...settings,
  };
  /** Runs a command and returns what it printed. */
  const run = async (command: string, args: string[]) => {
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
  };
  const docker = (...args: string[]) => run("docker", args);
  const compose = (...args: string[]) => docker("compose", ...args);
  const stop = async () => {
    await compose("down", "--volumes", "--timeout", "5");
    await Deno.remove(directory, { recursive: true });
  };
  /** The proxy's own authority, PEM. */
  const authority = () => compose("exec", "-T", "proxy", "cat", AUTHORITY_FILE);
  /** Ids of the running containers of a service. */
  const containers = async (service: string) =>
    (await compose("ps", "-q", service)).split("\n").filter((id) => id);
  try {
    await run("deploy/secrets.sh", []);
    await compose("up", "-d", "--no-build", "--wait");
    const client = Deno.createHttpClient({ caCerts: [await authority()] });
    const url = `https://localhost:${port}`;
    return {
      url,
      consoleUrl: env.PUBLIC_URL,
      client,
      authority,
      docker,
      compose,
      containers,
      /** The content of a secret file, see `deploy/secrets.sh`. */
      secret: (name: string) => Deno.readTextFile(`${env.SECRETS_DIR}/${name}`),
      /** Runs a script of `deploy/`. */
      script: (name: string, ...args: string[]) => run(`deploy/${name}`, args),
      /** Scales the services and waits until all containers are healthy. */
      scale: (edges: number, workers: number) =>
        compose(
          "up",
          "-d",
          "--no-build",
          "--no-recreate",
          "--wait",
          "--scale",
          `edge-auth=${edges}`,
          "--scale",
          `chat-worker=${workers}`,
        ),
      /**
       * Runs `gateway … --json` in the console's container and returns what it printed.
       */
      gateway: async (...args: string[]) => {
        const command = ["gateway", ...args, "--json"];
        const text = await compose("exec", "-T", "key-admin", ...command);
        return JSON.parse(text);
      },
      createKey(description = "test") {
        return this.gateway("keys", "create", "--description", description);
      },
      /** The status of a request with this key. */
      async statusWith(key: string): Promise<number> {
        const headers = { authorization: `Bearer ${key}` };
        const response = await fetch(`${url}/v1/models`, { client, headers });
        await response.body?.cancel();
        return response.status;
      },
      /** The same, asked from a container on the proxy's public network. */
      async statusInside(key: string): Promise<number> {
        const [edge = ""] = await containers("edge-auth");
        const image = await docker("inspect", "--format", "{{.Image}}", edge);
        const network = `${env.COMPOSE_PROJECT_NAME}_public`;
        const status = await docker(
          "run",
          "--rm",
          "--network",
          network,
          "--entrypoint",
          "deno",
          image,
          "eval",
          PROGRAM,
          await authority(),
          key,
        );
        return Number(status);
      },
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

// The proxy serves its public name only, which resolves differently in this container.
const PROGRAM = `
const [authority, key] = Deno.args;
const tcp = await Deno.connect({ hostname: "proxy", port: 8443 });
const tls = await Deno.startTls(tcp, {
  hostname: "localhost",
  caCerts: [authority],
});
const head = [
  "GET /v1/models HTTP/1.1",
  "Host: localhost",
  "Authorization: Bearer " + key,
  "Connection: close",
];
await tls.write(new TextEncoder().encode(head.join("\\r\\n") + "\\r\\n\\r\\n"));
const answer = await new Response(tls.readable).text();
console.log(answer.split(" ")[1]);
`;
