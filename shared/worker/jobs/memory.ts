/**
 * The memory of a worker process for the bodies of requests and for answers, counted in
 * one place from their first byte until nobody needs them any more.
 */
import { HELD_BYTES_MAX } from "../../limits.ts";
import { ApiError } from "../../openai/error.ts";
import { type MonotonicNow, monotonicNow } from "../../process/clock.ts";

/**
 * How long something waits for memory before it is refused: the others are mostly large
 * requests that a server takes within a second.
 */
const WAIT_MS_MAX = 1_000;
/** Another worker may have room, so an edge tries one before it answers 503. */
const RETRY_AFTER_MS = 1_000;
/** An answer is held as bytes, as text, parsed, and encoded for the client. */
const COPIES_OF_ANSWER = 4;
/**
 * Besides its pieces, a request in JSON is held as text, parsed, encoded, joined with
 * its head and as bytes for the server. V8 collects the copies of ended requests late,
 * when they are as much again: they count as two more.
 */
const COPIES_OF_REQUEST = 7;
/**
 * An account may hold this much of the memory while others wait that hold less, and
 * this much is always kept from it. A single job of it may hold more: otherwise it
 * could not run.
 */
const SHARE_OF_ACCOUNT = 1 / 3;

/** Something that needs more memory than it may take. */
interface Waiting {
  readonly owner: HeldBytes;
  readonly bytes: number;
  readonly untilMs: number;
  readonly onRoom: () => void;
  readonly onRefused: (error: ApiError) => void;
}

/** What a job asks of the memory of its process for what it holds of an answer. */
export interface AnswerMemory {
  /** The share of one answer. Its copies are counted, too. */
  openAnswer(): HeldBytes;
}

/** Bounds the bytes that this process holds: a few of the largest would exhaust it. */
export class WorkerMemory {
  readonly #bytesMax: number;
  readonly #now: MonotonicNow;
  #bytes = 0;
  /** The bytes that each account holds, if any. */
  readonly #bytesByAccount = new Map<string, number>();
  /** Those who wait for room, in the order of their arrival. */
  #waiting: readonly Waiting[] = [];

  /** `bytesMax` is the value of `HELD_BYTES_MAX`. */
  constructor(
    bytesMax: number = HELD_BYTES_MAX,
    now: MonotonicNow = monotonicNow,
  ) {
    this.#bytesMax = bytesMax;
    this.#now = now;
  }

  /** What is held at the moment, with all copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Whether something waits for room. */
  get isFull(): boolean {
    return this.#waiting.length > 0;
  }

  /** What a job will hold. Without an account it has no share with others. */
  openJob(account: string | null = null): JobMemory {
    return new JobMemory(this, account);
  }

  /** Holds more bytes for an owner if it may have them, and returns whether it may. */
  take(owner: HeldBytes, bytes: number): boolean {
    // A newcomer comes after those that wait for the same room.
    const isFirst = owner.bytes > 0 || !this.#isWaitedFor(owner);
    if (!isFirst || !this.#fits(owner, bytes)) return false;
    this.#count(owner, bytes);
    return true;
  }

  /** Takes the bytes as soon as there is room, or refuses them after a second. */
  wait(waiting: Omit<Waiting, "untilMs">): void {
    const untilMs = this.#now() + WAIT_MS_MAX;
    this.#waiting = [...this.#waiting, { ...waiting, untilMs }];
  }

  /** Holds fewer bytes for an owner, which those that wait may get. */
  give(owner: HeldBytes, bytes: number): void {
    this.#count(owner, -bytes);
    this.#serve();
  }

  /** The owner needs nothing more: ends its waits. */
  forget(owner: HeldBytes): void {
    if (!this.isFull) return;
    const own = this.#waiting.filter((each) => each.owner === owner);
    if (own.length === 0) return;
    this.#waiting = this.#waiting.filter((each) => each.owner !== owner);
    for (const { onRefused } of own) onRefused(noRoom());
  }

  /** Refuses those that have waited too long. Must be called a few times a second. */
  tick(): void {
    const nowMs = this.#now();
    for (const waiting of this.#waiting) {
      // One that was just refused may have freed enough for this one.
      if (waiting.untilMs > nowMs || !this.#waiting.includes(waiting)) continue;
      waiting.owner.release();
    }
    // Others may have stopped waiting, which makes the share of an account larger.
    this.#serve();
  }

  /**
   * Gives the room that there is to those that wait: first who holds most already and
   * is soonest complete. If all grew in turn, none would end.
   */
  #serve(): void {
    if (this.#waiting.length === 0) return;
    const order = this.#waiting.toSorted((a, b) =>
      b.owner.bytes - a.owner.bytes
    );
    const served = new Set<Waiting>();
    for (const waiting of order) {
      const { owner, bytes } = waiting;
      if (!this.#fits(owner, bytes)) continue;
      this.#count(owner, bytes);
      served.add(waiting);
    }
    this.#waiting = this.#waiting.filter((each) => !served.has(each));
    for (const { onRoom } of served) onRoom();
  }

  #fits(owner: HeldBytes, bytes: number): boolean {
    return this.#bytes + bytes <= this.#bytesMax &&
      this.#fitsAccount(owner, bytes);
  }

  #fitsAccount(owner: HeldBytes, bytes: number): boolean {
    const isWanted = this.#waiting.some((each) =>
      each.owner.job.account !== owner.job.account &&
      this.#isWithin(SHARE_OF_ACCOUNT, each.owner, each.bytes)
    );
    const share = isWanted ? SHARE_OF_ACCOUNT : 1 - SHARE_OF_ACCOUNT;
    return this.#isWithin(share, owner, bytes);
  }

  /** Whether an account would not have more than this part of the memory. */
  #isWithin(part: number, { job }: HeldBytes, bytes: number): boolean {
    const { account } = job;
    if (account === null) return true;
    const accountBytes = this.#bytesByAccount.get(account) ?? 0;
    return accountBytes === job.bytes ||
      accountBytes + bytes <= part * this.#bytesMax;
  }

  /** Whether somebody waits for room that this owner could take instead. */
  #isWaitedFor({ job: { account } }: HeldBytes): boolean {
    return this.#waiting.some(({ owner, bytes }) =>
      owner.job.account === account || this.#fitsAccount(owner, bytes)
    );
  }

  #count({ job }: HeldBytes, by: number): void {
    this.#bytes += by;
    job.bytes += by;
    const { account } = job;
    if (account === null) return;
    const bytes = (this.#bytesByAccount.get(account) ?? 0) + by;
    if (bytes > 0) this.#bytesByAccount.set(account, bytes);
    else this.#bytesByAccount.delete(account);
  }
}

/** What one job holds of the memory of its process: its request and its answer. */
export class JobMemory implements AnswerMemory {
  /** What it holds, with all copies; changed by the memory alone. */
  bytes = 0;
  /** Whose job it is; null: nobody knows. */
  readonly account: string | null;
  readonly #memory: WorkerMemory;

  constructor(memory: WorkerMemory, account: string | null) {
    this.#memory = memory;
    this.account = account;
  }

  openAnswer(): HeldBytes {
    return this.#open(COPIES_OF_ANSWER);
  }

  /** The share of the pieces of one request, or of its files, which are kept once. */
  openUpload(): HeldBytes {
    return this.#open(1);
  }

  /** The share of what is made of a request in JSON, besides its pieces. */
  openCopies(): HeldBytes {
    return this.#open(COPIES_OF_REQUEST);
  }

  #open(copies: number): HeldBytes {
    return new HeldBytes(this.#memory, { job: this, copies });
  }
}

/** What one request or answer holds. Must be released when it needs nothing more. */
export class HeldBytes {
  readonly job: JobMemory;
  readonly #memory: WorkerMemory;
  readonly #copies: number;
  #bytes = 0;

  /** A share of `memory` in which each byte is held `copies` times. */
  constructor(
    memory: WorkerMemory,
    { job, copies }: { job: JobMemory; copies: number },
  ) {
    this.job = job;
    this.#memory = memory;
    this.#copies = copies;
  }

  /** Its size, without copies. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * Holds this many bytes more. If there is no room for them, or its account holds its
   * share, the promise resolves when there is; after a second it releases all and
   * rejects with `overloaded`.
   */
  grow(bytes: number): Promise<void> | undefined {
    const bytesOfCopies = bytes * this.#copies;
    if (this.#memory.take(this, bytesOfCopies)) {
      this.#bytes += bytes;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#memory.wait({
      owner: this,
      bytes: bytesOfCopies,
      onRoom: () => {
        this.#bytes += bytes;
        resolve();
      },
      onRefused: reject,
    });
    return promise;
  }

  /** Holds this many bytes less. */
  shrink(bytes: number): void {
    this.#bytes -= bytes;
    this.#memory.give(this, bytes * this.#copies);
  }

  /** Grows or shrinks to this size. */
  resize(bytes: number): Promise<void> | undefined {
    const more = bytes - this.#bytes;
    if (more > 0) return this.grow(more);
    this.shrink(-more);
  }

  /** Needs nothing more: what waits is refused. May be called repeatedly. */
  release(): void {
    this.#memory.forget(this);
    this.shrink(this.#bytes);
  }
}

function noRoom(): ApiError {
  const message = "Too many large requests or answers are in progress. " +
    "Please try again shortly.";
  return new ApiError("overloaded", message, { retryAfterMs: RETRY_AFTER_MS });
}
