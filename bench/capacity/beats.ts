/**
 * What the beats cost: every edge hears every worker, four times a second, and every
 * worker every edge, twice. The clients are plain sockets, which read no more than they
 * must; the NATS is real.
 */
import { decodeWorkerBeat, encodeWorkerBeat } from "@gateway/shared/bus/job";
import { subjects } from "@gateway/shared/bus/subjects";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import { monotonicNow } from "@gateway/shared/process/clock";
import { WorkerTable } from "../../services/edge-auth/dispatch/workers.ts";
import { print } from "../../tests/support/process.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { sleep } from "../../tests/support/wait_for.ts";
import { cpuSeconds, residentMib } from "../processes.ts";

/** As many edges as workers. */
const SIZES = [10, 50, 100, 200];
const SECONDS = 10;
/** The time in which all connect and the server gets used to them. */
const SETTLE_MS = 2_000;
const BUFFER_BYTES = 64 * 1_024;
const DECODED = 200_000;
const MODELS = Array.from({ length: 10 }, (_, n) => `model-${n}`);

const encoder = new TextEncoder();
const BEAT = encodeWorkerBeat({
  family: "chat",
  slots: 64,
  inFlight: 40,
  draining: false,
  models: MODELS,
});

/** Prints the CPU time of NATS and of an edge, by the number of both. */
export async function measureBeats(): Promise<void> {
  print("\nBeats on a real NATS");
  for (const count of SIZES) await measure(count);
  print(`an edge takes ${decodeUs().toFixed(1)} us of CPU for each beat`);
}

async function measure(count: number): Promise<void> {
  await using server = await startNatsServer();
  const pid = [server.pid()];
  const clients: Client[] = [];
  for (let n = 0; n < count; n += 1) {
    const [edge, worker] = [
      await Client.connect(server.port, subjects.workerBeats),
      await Client.connect(server.port, subjects.edgeBeats),
    ];
    const { workerBeatMs, edgeBeatMs } = DISPATCH_LIMITS;
    worker.publish(subjects.workerBeat(`w${n}`), BEAT, workerBeatMs);
    edge.publish(subjects.edgeBeat(`e${n}`), new Uint8Array(0), edgeBeatMs);
    clients.push(edge, worker);
  }
  await sleep(SETTLE_MS);
  const messages = () => clients.reduce((sum, { heard }) => sum + heard, 0);
  const before = { at: performance.now(), cpu: cpuSeconds(pid), n: messages() };
  await sleep(1_000 * SECONDS);
  const seconds = (performance.now() - before.at) / 1_000;
  const share = 100 * (cpuSeconds(pid) - before.cpu) / seconds;
  const rate = (messages() - before.n) / seconds;
  const { workerBeatMs, edgeBeatMs } = DISPATCH_LIMITS;
  const due = count * count * (1_000 / workerBeatMs + 1_000 / edgeBeatMs);
  print(
    `${count} x ${count}: ${rate.toFixed(0)} of ${due} beats a second, ` +
      `${share.toFixed(1)} % of a core, ${residentMib(pid).toFixed(0)} MiB`,
  );
  for (const client of clients) await client.close();
}

/** What the table of workers of a real edge takes for a beat, in us. */
function decodeUs(): number {
  const table = new WorkerTable({ now: monotonicNow, random: Math.random });
  const before = cpuSeconds([Deno.pid]);
  for (let n = 0; n < DECODED; n += 1) {
    const beat = decodeWorkerBeat(BEAT);
    if (beat !== null) table.onBeat(`w${n % 200}`, beat);
  }
  return 1e6 * (cpuSeconds([Deno.pid]) - before) / DECODED;
}

/** A client of NATS that counts what it hears. */
class Client {
  /** Messages so far. */
  heard = 0;
  readonly #connection: Deno.TcpConn;
  readonly #reading: Promise<void>;
  #isClosed = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  static async connect(port: number, subject: string): Promise<Client> {
    const connection = await Deno.connect({ hostname: "127.0.0.1", port });
    connection.setNoDelay(true);
    const hello = `CONNECT {"verbose":false}\r\nSUB ${subject} 1\r\n`;
    await connection.write(encoder.encode(hello));
    return new Client(connection);
  }

  private constructor(connection: Deno.TcpConn) {
    this.#connection = connection;
    this.#reading = this.#read();
  }

  /** Publishes the same again and again, with a phase of its own. */
  publish(subject: string, payload: Uint8Array, everyMs: number): void {
    const head = encoder.encode(`PUB ${subject} ${payload.length}\r\n`);
    const message = new Uint8Array(head.length + payload.length + 2);
    message.set(head);
    message.set(payload, head.length);
    message.set(encoder.encode("\r\n"), head.length + payload.length);
    const send = () =>
      void this.#connection.write(message).catch((error: unknown) => {
        if (!this.#isClosed) throw error;
      });
    this.#timer = setTimeout(() => {
      this.#timer = setInterval(send, everyMs);
    }, everyMs * Math.random());
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#connection.close();
    await this.#reading;
  }

  async #read(): Promise<void> {
    const buffer = new Uint8Array(BUFFER_BYTES);
    const decoder = new TextDecoder("latin1");
    try {
      for (;;) {
        const length = await this.#connection.read(buffer);
        if (length === null) return;
        const text = decoder.decode(buffer.subarray(0, length));
        if (text.startsWith("PING")) {
          await this.#connection.write(encoder.encode("PONG\r\n"));
        }
        this.heard += text.split("MSG ").length - 1;
      }
    } catch (error) {
      if (!this.#isClosed) throw error;
    }
  }
}
