/** A second client: a container beside the proxy, with an address of its own. */
import type { Stack } from "./stack.ts";

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

// The proxy knows itself by its public name only, which leads elsewhere in here.
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
