/**
 * Stand-ins for the services: they keep the launcher's contract (environment,
 * `ready` line, SIGTERM, exit codes) and nothing else. `STAND_IN_FAULT` holds
 * `<service>:<fault>`.
 */

/** Writes one log line as the services do. */
export function logLine(fields: Record<string, unknown>): void {
  const line = JSON.stringify({ level: "info", ...fields });
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

/** Writes one line to standard error. */
export function writeError(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

/** True when the test wants this fault of this service. */
export function hasFault(service: string, fault: string): boolean {
  return Deno.env.get("STAND_IN_FAULT") === `${service}:${fault}`;
}

/** Serves until SIGTERM, then notes it and leaves. Port 0 takes any free one. */
export function runStandIn(
  service: string,
  port: number,
  handler: (request: Request) => Response | Promise<Response>,
): void {
  failAtStart(service);
  const hostname = "127.0.0.1";
  const onListen = () => {};
  const server = Deno.serve({ hostname, port, onListen }, handler);
  const ops = Deno.serve(
    { hostname, port: 0, onListen },
    () => Response.json(Deno.env.toObject()),
  );
  Deno.addSignalListener("SIGTERM", () => {
    if (hasFault(service, "deaf")) return;
    logLine({ event: "stopped", at_ms: Date.now() });
    Deno.exit(0);
  });
  logLine({ event: "starting", pid: Deno.pid });
  if (hasFault(service, "never-ready")) return;
  logLine({
    event: "ready",
    port: server.addr.port,
    opsPort: ops.addr.port,
  });
  if (hasFault(service, "warns")) {
    for (let i = 0; i < 3; i++) {
      logLine({ level: "warn", event: "redis_slow", took_ms: 250 });
    }
  }
}

function failAtStart(service: string): void {
  if (hasFault(service, "misconfigured")) {
    writeError('SLOTS must be a whole number from 1 to 10000, got "many"');
    Deno.exit(78);
  }
  if (hasFault(service, "dies")) {
    writeError("Cannot bind the flux capacitor");
    Deno.exit(1);
  }
}
