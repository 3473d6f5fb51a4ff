/** The commands of Redis' scripts, in order, according to MONITOR. */
import { close } from "../tcp_proxy.ts";
import { until } from "../wait_for.ts";

/** `+1790000000.123456 [0 lua] "ZADD" …` */
const SECONDS = /^\+?(\d+\.\d+) /;
const WORD = /"((?:[^"\\]|\\.)*)"/g;
const encoder = new TextEncoder();

/** Listens to the server on `port` by MONITOR, from now on. */
export async function startRedisMonitor(port: number) {
  const address = { hostname: "127.0.0.1", port };
  const connection = await Deno.connect(address);
  let text = "";
  const texts = connection.readable.pipeThrough(new TextDecoderStream());
  const reading = (async () => {
    for await (const piece of texts) text += piece;
  })().catch(() => {
    // However the connection ends, nothing more will come.
  });
  await connection.write(encoder.encode("MONITOR\r\n"));
  await until(() => text.startsWith("+OK"));
  let marks = 0;
  return {
    /**
     * What scripts have run so far, oldest first: when, in Unix ms of the server, the
     * command and its arguments.
     */
    async scriptCommands() {
      const mark = `monitor-mark-${marks++}`;
      using other = await Deno.connect(address);
      await other.write(encoder.encode(`ECHO ${mark}\r\n`));
      await until(() => text.includes(mark));
      const isOfScript = (line: string) => line.includes(" lua] ");
      return text.split("\r\n").filter(isOfScript).map((line) => ({
        atMs: Number(SECONDS.exec(line)?.[1]) * 1_000,
        words: [...line.matchAll(WORD)].map(([, word = ""]) => word),
      }));
    },
    async [Symbol.asyncDispose]() {
      close(connection);
      await reading;
    },
  };
}
