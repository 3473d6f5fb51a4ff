/**
 * The order in which requests that wait are served: by accounts, then by keys, in
 * proportion to what they ask for.
 *
 * This is start-time fair queuing (Goyal, Vin and Cheng, SIGCOMM 1996), in two levels.
 * Each account has a tag: how far it has come, in tokens. The account with the smallest
 * tag is next, and what its request asks for, divided by the weight of the account, is
 * added to its tag; the same with its keys. An account that
 * begins to wait starts where those who wait are by then, so it owes nothing and is
 * owed nothing. Thus the first request of an account waits for at most one request per
 * slot, however many others wait and however large it is; deficit round robin would
 * make a large one wait for many turns.
 */
import type { Amount, Sharing } from "./share.ts";
import { TagHeap, type Work } from "./tag_heap.ts";

/** An account or a key, of which requests wait. */
interface Sharer {
  /** How far it has come, in tokens. */
  tag: number;
  waiting: number;
}

/** An account, and its keys. */
interface Account<Item> extends Sharer {
  /** The tag with which its last key was served. */
  servedTag: number;
  readonly keys: Map<string, Sharer>;
  /** Its requests, by lanes. */
  readonly lanes: Map<string, AccountLane<Item>>;
}

/** The requests of one key in a lane. */
interface KeyLane<Item> {
  readonly key: Sharer;
  readonly items: TagHeap<Item>;
}

/** The keys whose requests wait, and the order in which they are served. */
interface KeyTurns<Item> {
  readonly byId: Map<string, KeyLane<Item>>;
  readonly order: TagHeap<KeyLane<Item>>;
  /** All their requests, the latest first. */
  readonly latest: TagHeap<Item>;
}

/** The requests of an account in a lane: ordinary ones, and those that stand back. */
interface AccountLane<Item> {
  readonly account: Account<Item>;
  readonly ordinary: KeyTurns<Item>;
  /** Made when the first one comes: most accounts have none. */
  batch: KeyTurns<Item> | null;
  waiting: number;
  tokens: number;
  /** The weight of the account, as its latest request has it. */
  weight: number;
}

/** A lane: the accounts that wait in it. */
interface Lane<Item> {
  readonly turns: TagHeap<AccountLane<Item>>;
  /** Those of which most waits for their weight first, by number and by tokens. */
  readonly largest: Record<keyof Amount, TagHeap<AccountLane<Item>>>;
  /** All its requests, the oldest first. */
  readonly oldest: TagHeap<Item>;
  waiting: number;
  tokens: number;
  /** The weights of its accounts, added up. */
  weight: number;
}

/** Fewer accounts that owe something are not looked through. */
const SWEPT_MIN = 1_000;
const NOTHING: Amount = { waiting: 0, tokens: 0 };

/** Requests that wait for slots which they share. */
export class FairQueue<Item extends Sharing> {
  /** What it has cost to keep them in order. */
  readonly work: Work = { comparisons: 0 };
  readonly #accounts = new Map<string, Account<Item>>();
  readonly #lanes = new Map<string, Lane<Item>>();
  /** Those that were served, and may come back. */
  readonly #served = new WeakSet<Item>();
  /** The tag of the account that was served last. */
  #servedTag = 0;
  #size = 0;
  #pushed = 0;
  /** When there are this many accounts, those that owe nothing are looked for. */
  #sweptAt = SWEPT_MIN;

  /** How many wait. */
  get size(): number {
    return this.#size;
  }

  /** The lanes in which something waits. */
  lanes(): MapIterator<string> {
    return this.#lanes.keys();
  }

  /** The request that has waited longest in a lane. */
  oldest(lane: string): Item | undefined {
    return this.#lanes.get(lane)?.oldest.first;
  }

  /** Whether this one waits. */
  has(item: Item): boolean {
    return this.#lanes.get(item.lane)?.oldest.has(item) ?? false;
  }

  /** What waits in a lane, or what of it is an account's. */
  amount(lane: string, account?: string): Amount {
    if (account === undefined) return this.#lanes.get(lane) ?? NOTHING;
    return this.#accounts.get(account)?.lanes.get(lane) ?? NOTHING;
  }

  /** The weights of the accounts that wait in a lane, added up. */
  weightOf(lane: string): number {
    return this.#lanes.get(lane)?.weight ?? 0;
  }

  /** Adds a request. One that was served and comes back is given back its turn. */
  push(item: Item): void {
    const { lane, sinceMs, share: { account: id, keyId } } = item;
    const account = this.#accountOf(id);
    const key = sharerIn(account.keys, keyId);
    if (account.waiting === 0) {
      account.tag = Math.max(account.tag, this.#servedTag);
    }
    if (key.waiting === 0) key.tag = Math.max(key.tag, account.servedTag);
    const inLane = this.#accountLane(account, lane);
    const turns = this.#turnsOf(inLane, item);
    const keyLane = this.#keyLane(turns, { keyId, key });
    keyLane.items.set(item, sinceMs);
    this.#size += 1;
    this.#pushed += 1;
    // Of the same age, the one that was added last is the latest.
    turns.latest.set(item, -sinceMs, -this.#pushed);
    this.#laneOf(lane).oldest.set(item, sinceMs);
    this.#count(item, { account, key, inLane }, 1);
    this.#weigh(lane, inLane, item.share.weight);
    this.#rank(lane, inLane, keyId);
    if (this.#served.delete(item)) this.#charge(item, -1);
  }

  /** Removes a request. False if it does not wait. */
  remove(item: Item): boolean {
    if (!this.#lanes.get(item.lane)?.oldest.delete(item)) return false;
    this.#size -= 1;
    const { lane, share: { account: id, keyId } } = item;
    const account = this.#accountOf(id);
    const key = sharerIn(account.keys, keyId);
    const inLane = this.#accountLane(account, lane);
    const turns = this.#turnsOf(inLane, item);
    const keyLane = this.#keyLane(turns, { keyId, key });
    keyLane.items.delete(item);
    turns.latest.delete(item);
    if (keyLane.items.size === 0) {
      turns.byId.delete(keyId);
      turns.order.delete(keyLane);
    }
    this.#count(item, { account, key, inLane }, -1);
    if (inLane.waiting > 0) this.#rank(lane, inLane, keyId);
    else {
      account.lanes.delete(lane);
      this.#weigh(lane, inLane, 0);
      const { turns, largest } = this.#laneOf(lane);
      const { waiting, tokens } = largest;
      for (const heap of [turns, waiting, tokens]) heap.delete(inLane);
    }
    if (this.#laneOf(lane).waiting === 0) this.#lanes.delete(lane);
    this.#forgetPaid(account, { id, key, keyId });
    return true;
  }

  /** Removes a request that is served, and counts what it asks for. */
  take(item: Item): void {
    if (!this.has(item)) return;
    this.#charge(item, 1);
    this.#served.add(item);
    this.remove(item);
  }

  /** Whose turn it is, in a lane that is none of these. */
  next(besides: ReadonlySet<string>): Item | undefined {
    let first: AccountLane<Item> | undefined;
    for (const [name, { turns }] of this.#lanes) {
      const top = turns.first;
      if (besides.has(name) || top === undefined) continue;
      if (first === undefined || isBefore(top, first)) first = top;
    }
    return first && firstOf(first);
  }

  /**
   * The request that would give way in a lane: the latest of the account of which most
   * waits there for its weight, by number or by tokens, and one that stands back before
   * all others. Undefined if of no account more waits for its weight than `least`.
   */
  latestOfLargest(
    lane: string,
    by: keyof Amount,
    least: number,
  ): Item | undefined {
    const largest = this.#lanes.get(lane)?.largest[by].first;
    if (largest === undefined || largest[by] / largest.weight <= least) {
      return undefined;
    }
    const { batch, ordinary } = largest;
    return batch?.latest.first ?? ordinary.latest.first;
  }

  /** Adds what a request asks for to the tags of its account and key, or takes it off. */
  #charge(item: Item, sign: 1 | -1): void {
    const { account: id, keyId, tokens, weight, keyWeight } = item.share;
    const account = this.#accountOf(id);
    const key = sharerIn(account.keys, keyId);
    if (sign > 0) {
      this.#servedTag = Math.max(this.#servedTag, account.tag);
      account.servedTag = Math.max(account.servedTag, key.tag);
    }
    account.tag += sign * tokens / weight;
    key.tag += sign * tokens / keyWeight;
    for (const [lane, inLane] of account.lanes) {
      this.#rank(lane, inLane, keyId);
    }
  }

  #weigh(lane: string, inLane: AccountLane<Item>, weight: number): void {
    this.#laneOf(lane).weight += weight - inLane.weight;
    inLane.weight = weight;
  }

  /** Puts an account and one of its keys where they belong in a lane. */
  #rank(lane: string, inLane: AccountLane<Item>, keyId: string): void {
    for (const turns of [inLane.ordinary, inLane.batch]) {
      const keyLane = turns?.byId.get(keyId);
      if (keyLane === undefined) continue;
      const sinceMs = keyLane.items.first?.sinceMs;
      turns?.order.set(keyLane, keyLane.key.tag, sinceMs);
    }
    const { account } = inLane;
    const sinceMs = firstOf(inLane)?.sinceMs;
    const { turns, largest } = this.#laneOf(lane);
    turns.set(inLane, account.tag, sinceMs);
    for (const by of ["waiting", "tokens"] as const) {
      largest[by].set(inLane, -inLane[by] / inLane.weight);
    }
  }

  #count(
    { lane, share: { tokens } }: Item,
    { account, key, inLane }: {
      account: Sharer;
      key: Sharer;
      inLane: AccountLane<Item>;
    },
    sign: 1 | -1,
  ): void {
    account.waiting += sign;
    key.waiting += sign;
    for (const each of [inLane, this.#laneOf(lane)]) {
      each.waiting += sign;
      each.tokens += sign * tokens;
    }
  }

  /**
   * Forgets whoever owes nothing any more: those whose tag the others have reached, and
   * all of them as soon as nobody waits.
   */
  #forgetPaid(
    account: Account<Item>,
    { id, key, keyId }: { id: string; key: Sharer; keyId: string },
  ): void {
    if (this.size === 0) {
      this.#accounts.clear();
      return;
    }
    if (key.waiting === 0 && key.tag <= account.servedTag) {
      account.keys.delete(keyId);
    }
    if (account.waiting > 0) return;
    if (account.tag <= this.#servedTag) this.#accounts.delete(id);
    else if (this.#accounts.size >= this.#sweptAt) this.#sweep();
  }

  #sweep(): void {
    for (const [id, { waiting, tag }] of this.#accounts) {
      if (waiting === 0 && tag <= this.#servedTag) this.#accounts.delete(id);
    }
    this.#sweptAt = Math.max(SWEPT_MIN, 2 * this.#accounts.size);
  }

  #accountOf(id: string): Account<Item> {
    let account = this.#accounts.get(id);
    if (account === undefined) {
      account = {
        tag: this.#servedTag,
        waiting: 0,
        servedTag: 0,
        keys: new Map(),
        lanes: new Map(),
      };
      this.#accounts.set(id, account);
    }
    return account;
  }

  #laneOf(name: string): Lane<Item> {
    let lane = this.#lanes.get(name);
    if (lane === undefined) {
      lane = {
        turns: new TagHeap(this.work),
        largest: {
          waiting: new TagHeap(this.work),
          tokens: new TagHeap(this.work),
        },
        oldest: new TagHeap(this.work),
        waiting: 0,
        tokens: 0,
        weight: 0,
      };
      this.#lanes.set(name, lane);
    }
    return lane;
  }

  #accountLane(account: Account<Item>, name: string): AccountLane<Item> {
    let lane = account.lanes.get(name);
    if (lane === undefined) {
      lane = {
        account,
        ordinary: this.#noTurns(),
        batch: null,
        waiting: 0,
        tokens: 0,
        weight: 0,
      };
      account.lanes.set(name, lane);
    }
    return lane;
  }

  #turnsOf(
    inLane: AccountLane<Item>,
    { share: { isBatch } }: Item,
  ): KeyTurns<Item> {
    if (!isBatch) return inLane.ordinary;
    inLane.batch ??= this.#noTurns();
    return inLane.batch;
  }

  #noTurns(): KeyTurns<Item> {
    return {
      byId: new Map(),
      order: new TagHeap(this.work),
      latest: new TagHeap(this.work),
    };
  }

  #keyLane(
    { byId }: KeyTurns<Item>,
    { keyId, key }: { keyId: string; key: Sharer },
  ): KeyLane<Item> {
    let keyLane = byId.get(keyId);
    if (keyLane === undefined) {
      keyLane = { key, items: new TagHeap(this.work) };
      byId.set(keyId, keyLane);
    }
    return keyLane;
  }
}

function sharerIn(sharers: Map<string, Sharer>, id: string): Sharer {
  let sharer = sharers.get(id);
  if (sharer === undefined) {
    sharer = { tag: 0, waiting: 0 };
    sharers.set(id, sharer);
  }
  return sharer;
}

/** Which of two accounts in different lanes is first. */
function isBefore<Item extends Sharing>(
  a: AccountLane<Item>,
  b: AccountLane<Item>,
): boolean {
  if (a.account.tag !== b.account.tag) return a.account.tag < b.account.tag;
  return (firstOf(a)?.sinceMs ?? 0) < (firstOf(b)?.sinceMs ?? 0);
}

/** The request of an account whose turn it is in a lane. */
function firstOf<Item>(
  { ordinary, batch }: AccountLane<Item>,
): Item | undefined {
  const keyLane = ordinary.order.first ?? batch?.order.first;
  return keyLane?.items.first;
}
