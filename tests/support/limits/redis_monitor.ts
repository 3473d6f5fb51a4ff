/** The commands of Redis' scripts, in order, according to MONITOR. */
import { waitFor } from "../wait_for.ts";

/** One command that a script ran: when, in Unix ms of the server, its name and arguments. */
export type ScriptCommand = ReturnType<typeof commandIn>;

export type RedisMonitor = Awaited<ReturnType<typeof startRedisMonitor>>;

/** `+1790000000.123456 [0 lua] "ZADD" …` */
const SECONDS = /^\+?(\d+\.\d+) /;
const WORD = /"((?:[^"\\]|\\.)*)"/g;
const BY_SCRIPT = " lua] ";
const MARK = "monitor-mark-";

/** Listens to the server on `port` by MONITOR, from now on. */
export async function startRedisMonitor(port: number) {
  const address = { hostname: "127.0.0.1", port };
  const connection = await Deno.connect(address);
  let text = "";
  const reading = readAll(connection, (piece) => text += piece);
  await connection.write(new TextEncoder().encode("MONITOR\r\n"));
  await waitFor(() => text.startsWith("+OK"), { what: "MONITOR" });
  let marks = 0;
  return {
    /** What scripts have run so far, oldest first. */
    async scriptCommands() {
      const mark = `${MARK}${marks++}`;
      using other = await Deno.connect(address);
      await other.write(new TextEncoder().encode(`ECHO ${mark}\r\n`));
      await waitFor(() => text.includes(mark), { what: "the monitor's mark" });
      return text.split("\r\n").filter((line) => line.includes(BY_SCRIPT))
        .map(commandIn);
    },
    async [Symbol.asyncDispose]() {
      connection.close();
      await reading;
    },
  };
}

async function readAll(connection: Deno.Conn, append: (text: string) => void) {
  const decoder = new TextDecoder();
  const buffer = new Uint8Array(64 * 1024);
  for (;;) {
    // However the connection ends, nothing more will come.
    const length = await connection.read(buffer).catch(() => null);
    if (length === null) return;
    append(decoder.decode(buffer.subarray(0, length), { stream: true }));
  }
}

function commandIn(line: string) {
  const seconds = Number(SECONDS.exec(line)?.[1]);
  const words = [...line.matchAll(WORD)].map(([, word = ""]) => word);
  return { atMs: seconds * 1_000, words };
}
