/** Sends one line, such as `GET kept`, to a Redis and answers with its reply without type or length. */
export async function askRedis(url: unknown, line: string): Promise<string> {
  const { hostname, port } = new URL(String(url));
  const connection = await Deno.connect({ hostname, port: Number(port) });
  try {
    await connection.write(new TextEncoder().encode(`${line}\r\n`));
    const bytes = new Uint8Array(1_024);
    const size = await connection.read(bytes) ?? 0;
    const reply = new TextDecoder().decode(bytes.subarray(0, size)).trim();
    return reply.split("\r\n").at(-1)?.replace(/^[+:]/, "") ?? "";
  } finally {
    connection.close();
  }
}
