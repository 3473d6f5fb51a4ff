/** The output of the stand-ins, and the faults that tests set. */

/** Writes one log line as the services do. */
export function logLine(fields: Record<string, unknown>): void {
  const line = JSON.stringify({ level: "info", ...fields });
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

/** Writes one line to standard error. */
export function writeError(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

/** Whether the test set this fault for this service. */
export function hasFault(service: string, fault: string): boolean {
  return Deno.env.get("STAND_IN_FAULT") === `${service}:${fault}`;
}

/** Sends one line, such as `GET kept`, to a Redis and returns its reply without type or length. */
export async function askRedis(url: unknown, line: string): Promise<string> {
  const { hostname, port } = new URL(String(url));
  using connection = await Deno.connect({ hostname, port: Number(port) });
  await connection.write(new TextEncoder().encode(`${line}\r\n`));
  const bytes = new Uint8Array(1_024);
  const size = await connection.read(bytes) ?? 0;
  const reply = new TextDecoder().decode(bytes.subarray(0, size)).trim();
  return reply.split("\r\n").at(-1)?.replace(/^[+:]/, "") ?? "";
}
