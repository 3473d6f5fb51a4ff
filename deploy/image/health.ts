/**
 * Checks the readiness of this container's service: exit code 0 when it may get
 * traffic.
 */
const TIMEOUT_MS = 3_000;

const port = Deno.env.get("OPS_PORT") ?? "9090";
const answer = await fetch(`http://127.0.0.1:${port}/readyz`, {
  signal: AbortSignal.timeout(TIMEOUT_MS),
});
await Deno.stdout.write(new Uint8Array(await answer.arrayBuffer()));
if (!answer.ok) Deno.exitCode = 1;
