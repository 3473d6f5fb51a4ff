/** A sentinel as it is seen from elsewhere: by other ports, or by old news. */

/** A port that passes everything on to a sentinel, and its answers back. */
export interface SentinelView extends AsyncDisposable {
  /** `127.0.0.1:<port>` */
  readonly address: string;
}

/** The answer to GET-MASTER-ADDR-BY-NAME up to the digits of the port. */
const NAMED = /(\*2\r\n\$9\r\n127\.0\.0\.1\r\n\$)\d+\r\n(\d+)\r\n/;

/** Shows the sentinel on `port`; the master that it names gets the port that `rename` says. */
export function startSentinelView(
  port: number,
  rename: (named: number) => number,
): SentinelView {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const open = new Set<Deno.Conn>();
  const running = new Set<Promise<void>>();
  const pass = async (
    from: Deno.Conn,
    to: Deno.Conn,
    change: (text: string) => string,
  ) => {
    const buffer = new Uint8Array(4_096);
    for (;;) {
      // However one side ends, the other ends with it.
      const length = await from.read(buffer).catch(() => null);
      if (length === null) break;
      const text = new TextDecoder().decode(buffer.subarray(0, length));
      await to.write(new TextEncoder().encode(change(text))).catch(() => 0);
    }
    for (const side of [from, to]) if (open.delete(side)) side.close();
  };
  const serve = async (client: Deno.Conn) => {
    const sentinel = await Deno.connect({ hostname: "127.0.0.1", port })
      .catch(() => null);
    if (sentinel === null) return client.close();
    open.add(client).add(sentinel);
    await Promise.all([
      pass(client, sentinel, (text) => text),
      pass(sentinel, client, (text) => renamed(text, rename)),
    ]);
  };
  const accepting = (async () => {
    for await (const client of listener) {
      const served = serve(client).finally(() => running.delete(served));
      running.add(served);
    }
  })();
  return {
    address: `127.0.0.1:${listener.addr.port}`,
    async [Symbol.asyncDispose]() {
      listener.close();
      for (const side of open) side.close();
      open.clear();
      await accepting;
      await Promise.all(running);
    },
  };
}

function renamed(text: string, rename: (named: number) => number): string {
  return text.replace(NAMED, (_all, before: string, digits: string) => {
    const shown = String(rename(Number(digits)));
    return `${before}${shown.length}\r\n${shown}\r\n`;
  });
}
