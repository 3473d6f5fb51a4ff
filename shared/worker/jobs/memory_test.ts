/** How the memory of a worker is shared among accounts. */
import assert from "node:assert/strict";
import { type HeldBytes, WorkerMemory } from "./memory.ts";

const BYTES_MAX = 900;

/** Jobs on a memory of {@link BYTES_MAX}, named by their account and a number. */
class Stage {
  #nowMs = 0;
  readonly #memory = new WorkerMemory(BYTES_MAX, () => this.#nowMs);
  readonly #jobs = new Map<string, HeldBytes>();
  readonly #events: string[] = [];

  /** `a1` is the first job of the account a; `-1` one of nobody. */
  grow(name: string, bytes: number): void {
    const account = name.startsWith("-") ? null : name.slice(0, 1);
    const job = this.#jobs.get(name) ??
      this.#memory.openJob(account).openUpload();
    this.#jobs.set(name, job);
    const room = job.grow(bytes);
    this.#events.push(room === undefined ? `${name} has` : `${name} waits`);
    room?.then(
      () => this.#events.push(`${name} got`),
      () => this.#events.push(`${name} refused`),
    );
  }

  release(name: string): void {
    this.#jobs.get(name)?.release();
  }

  pass(ms: number): void {
    this.#nowMs += ms;
    this.#memory.tick();
  }

  /** What happened since the last call. */
  async take(): Promise<string[]> {
    // The promises of a growth are settled two turns after its end.
    for (let turn = 0; turn < 4; turn += 1) await Promise.resolve();
    return this.#events.splice(0);
  }
}

/** What jobs ask for, in order, and whether they have it at once. */
const ROWS: {
  what: string;
  asks: readonly (readonly [name: string, bytes: number])[];
  expected: readonly string[];
}[] = [
  {
    what: "jobs of one account hold two thirds",
    asks: [["a1", 300], ["a2", 300], ["a3", 1]],
    expected: ["a1 has", "a2 has", "a3 waits"],
  },
  {
    what: "a single job of an account may hold everything",
    asks: [["a1", 500], ["a1", 400], ["a1", 1]],
    expected: ["a1 has", "a1 has", "a1 waits"],
  },
  {
    what: "a second job of an account that holds more than its share waits",
    asks: [["a1", 700], ["a2", 1], ["b1", 200]],
    expected: ["a1 has", "a2 waits", "b1 has"],
  },
  {
    what: "what is kept from an account is there for others",
    asks: [["a1", 300], ["a2", 300], ["a3", 100], ["b1", 200], ["b2", 100]],
    expected: ["a1 has", "a2 has", "a3 waits", "b1 has", "b2 has"],
  },
  {
    what: "while others wait, an account holds a third",
    asks: [["a1", 200], ["a2", 50], ["b1", 600], ["c1", 100], ["a2", 49]],
    expected: ["a1 has", "a2 has", "b1 has", "c1 waits", "a2 has"],
  },
  {
    what: "while others wait, an account gets no more than a third",
    asks: [["a1", 200], ["a2", 90], ["b1", 590], ["c1", 100], ["a2", 11]],
    expected: ["a1 has", "a2 has", "b1 has", "c1 waits", "a2 waits"],
  },
  {
    what: "who holds nothing comes after those that wait for the same room",
    asks: [["a1", 100], ["b1", 700], ["c1", 200], ["d1", 100]],
    expected: ["a1 has", "b1 has", "c1 waits", "d1 waits"],
  },
  {
    what: "jobs whose account nobody knows have no share",
    asks: [["-1", 300], ["-2", 300], ["-3", 300], ["-4", 1]],
    expected: ["-1 has", "-2 has", "-3 has", "-4 waits"],
  },
];

for (const { what, asks, expected } of ROWS) {
  Deno.test(`memory of a worker: ${what}`, async () => {
    const stage = new Stage();
    for (const [name, bytes] of asks) stage.grow(name, bytes);
    assert.deepEqual(await stage.take(), expected);
  });
}

Deno.test("memory of a worker: room goes to others before an account with its third", async () => {
  const stage = new Stage();
  for (const name of ["a1", "a2"]) stage.grow(name, 300);
  stage.grow("b1", 300);
  for (const name of ["a3", "b2", "c1"]) stage.grow(name, 100);
  await stage.take();
  stage.release("a1");
  assert.deepEqual(await stage.take(), ["c1 got"]);
  // Nobody waits any more that holds less than they do.
  stage.pass(1);
  assert.deepEqual(await stage.take(), ["a3 got", "b2 got"]);
});

Deno.test("memory of a worker: an account that waited for its share gets it when others give up", async () => {
  const stage = new Stage();
  stage.grow("a1", 290);
  stage.grow("a2", 10);
  stage.grow("b1", 500);
  stage.grow("c1", 200);
  stage.pass(500);
  stage.grow("a2", 50);
  assert.deepEqual((await stage.take()).slice(-2), ["c1 waits", "a2 waits"]);
  stage.pass(500);
  assert.deepEqual(await stage.take(), ["c1 refused", "a2 got"]);
});
