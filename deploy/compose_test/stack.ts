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

/**
 * Starts everything and waits until it is healthy. The images must exist, see
 * `deploy/local_images/build.sh`. `settings` are those of `compose.yaml`; `files` are
 * merged in their order.
 */
export async function startStack(
  settings: Record<string, string>,
  files = ["compose.yaml"],
): Promise<Stack> {
  await using starting = new AsyncDisposableStack();
  const directory = await Deno.makeTempDir({ prefix: "gateway_compose_" });
  starting.defer(() => Deno.remove(directory, { recursive: true }));
  const [port = 0] = findFreePorts(1);
  const commands = new Commands({
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
  });
  starting.defer(async () => {
    await commands.compose("down", "--volumes", "--timeout", "5");
  });
  await commands.run("deploy/secrets.sh", []);
  await commands.compose("up", "-d", "--no-build", "--wait");
  const authority = await readAuthority(commands);
  const client = starting.use(Deno.createHttpClient({ caCerts: [authority] }));
  return new Stack(starting.move(), { commands, client, port });
}

/** Runs commands with the variables of a stack. */
class Commands {
  readonly env: Readonly<Record<string, string>>;

  constructor(env: Record<string, string>) {
    this.env = env;
  }

  /** Runs a command in the root and returns what it printed; throws if it fails. */
  async run(command: string, args: string[]): Promise<string> {
    const { success, stdout, stderr } = await new Deno.Command(command, {
      args,
      cwd: ROOT,
      env: this.env,
      stdin: "null",
      signal: AbortSignal.timeout(COMMAND_MS),
    }).output();
    const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes).trim();
    if (success) return text(stdout);
    throw new Error(`${command} ${args.join(" ")}: ${text(stderr)}`);
  }

  docker(...args: string[]): Promise<string> {
    return this.run("docker", args);
  }

  compose(...args: string[]): Promise<string> {
    return this.docker("compose", ...args);
  }
}

function readAuthority(commands: Commands): Promise<string> {
  return commands.compose("exec", "-T", "proxy", "cat", AUTHORITY_FILE);
}

/** A running stack. It ends with its volumes and secrets. */
export class Stack implements AsyncDisposable {
  /** The URL of the API, without a path. */
  readonly url: string;
  readonly consoleUrl: string;
  /** Trusts the proxy's own authority. */
  readonly client: Deno.HttpClient;
  readonly #owned: AsyncDisposableStack;
  readonly #commands: Commands;

  constructor(
    owned: AsyncDisposableStack,
    { commands, client, port }: {
      commands: Commands;
      client: Deno.HttpClient;
      port: number;
    },
  ) {
    this.#owned = owned;
    this.#commands = commands;
    this.client = client;
    this.url = `https://localhost:${port}`;
    this.consoleUrl = commands.env.PUBLIC_URL ?? "";
  }

  /** Runs `docker` and returns what it printed. */
  docker(...args: string[]): Promise<string> {
    return this.#commands.docker(...args);
  }

  /** Runs `docker compose` for this stack. */
  compose(...args: string[]): Promise<string> {
    return this.#commands.compose(...args);
  }

  /** The proxy's own authority, PEM. */
  authority(): Promise<string> {
    return readAuthority(this.#commands);
  }

  /** Ids of the running containers of a service. */
  async containers(service: string): Promise<string[]> {
    const ids = await this.compose("ps", "-q", service);
    return ids.split("\n").filter((id) => id);
  }

  /** The content of a secret file, see `deploy/secrets.sh`. */
  secret(name: string): Promise<string> {
    return Deno.readTextFile(`${this.#commands.env.SECRETS_DIR}/${name}`);
  }

  /** Runs a script of `deploy/`. */
  script(name: string, ...args: string[]): Promise<string> {
    return this.#commands.run(`deploy/${name}`, args);
  }

  /** Scales the services and waits until all containers are healthy. */
  scale(edges: number, workers: number): Promise<string> {
    return this.compose(
      "up",
      "-d",
      "--no-build",
      "--no-recreate",
      "--wait",
      "--scale",
      `edge-auth=${edges}`,
      "--scale",
      `chat-worker=${workers}`,
    );
  }

  /** Runs `gateway … --json` in the console's container and returns what it printed. */
  async gateway(...args: string[]) {
    const command = ["gateway", ...args, "--json"];
    const text = await this.compose("exec", "-T", "key-admin", ...command);
    return JSON.parse(text);
  }

  /** Creates a key; returns its `id` and its secret value, `key`. */
  createKey(description = "test"): Promise<{ id: string; key: string }> {
    return this.gateway("keys", "create", "--description", description);
  }

  /** The status of a request with this key. */
  async statusWith(key: string): Promise<number> {
    const headers = { authorization: `Bearer ${key}` };
    const init = { client: this.client, headers };
    const response = await fetch(`${this.url}/v1/models`, init);
    await response.body?.cancel();
    return response.status;
  }

  /** The same, asked from a container on the proxy's public network. */
  async statusInside(key: string): Promise<number> {
    const [edge = ""] = await this.containers("edge-auth");
    const image = await this.docker("inspect", "--format", "{{.Image}}", edge);
    const network = `${this.#commands.env.COMPOSE_PROJECT_NAME}_public`;
    const status = await this.docker(
      "run",
      "--rm",
      "--network",
      network,
      "--entrypoint",
      "deno",
      image,
      "eval",
      PROGRAM,
      await this.authority(),
      key,
    );
    return Number(status);
  }

  /** Stops and removes all of it. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#owned.disposeAsync();
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
