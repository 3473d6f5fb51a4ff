/** Steps that the tests of a stack share. */
import type { Load } from "./load.ts";
import type { Stack } from "./stack.ts";

const DEADLINE_MS = 60_000;
const POLL_MS = 100;
const REPORTED_MAX = 5;

/** Waits until the condition holds. Throws with its name when that takes too long. */
export async function until(
  what: string,
  condition: () => boolean | Promise<boolean>,
): Promise<void> {
  const endMs = performance.now() + DEADLINE_MS;
  while (!(await condition())) {
    if (performance.now() > endMs) throw new Error(`Timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Runs `gateway … --json` in the console's container and returns what it printed. */
export async function gateway(stack: Stack, ...args: string[]) {
  const text = await stack.compose(
    ...["exec", "-T", "key-admin", "gateway", ...args, "--json"],
  );
  return JSON.parse(text);
}

/** The status of a request with this key. */
export async function statusWith(stack: Stack, key: string): Promise<number> {
  const response = await fetch(`${stack.url}/v1/models`, {
    client: stack.client,
    headers: { authorization: `Bearer ${key}` },
  });
  await response.body?.cancel();
  return response.status;
}

/** The failures, with the log of the proxy. */
export async function reportOf(stack: Stack, load: Load): Promise<string> {
  const { failures } = load;
  return [
    `${failures.length} failed, ${load.late} late, ${load.complete} complete`,
    ...load.notRetryable.map((line) => `not retryable: ${line}`),
    ...failures.slice(0, REPORTED_MAX),
    await stack.compose("logs", "--tail", "5", "proxy"),
  ].join("\n");
}

/** Prints a line in the test's output. */
export function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`    ${line}\n`));
}

/**
 * Lists the models with this key from a container on the proxy's public network and
 * returns the status.
 */
export async function fromInside(stack: Stack, key: string): Promise<number> {
  const [edge = ""] = await stack.containers("edge-auth");
  const image = await stack.docker("inspect", "--format", "{{.Image}}", edge);
  const status = await stack.docker(
    ...["run", "--rm", "--network", `${stack.project}_public`],
    ...["--entrypoint", "deno", image],
    ...["eval", PROGRAM, await stack.authority(), key],
  );
  return Number(status);
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
