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
import {
  type Account,
  type AccountLane,
  firstOf,
  type KeyLane,
  type KeyTurns,
  type Lane,
  type Orders,
  ordersOf,
  portionOf,
  type Sharer,
  type Ticket,
} from "./fair_orders.ts";
import { NamedValues } from "./named_values.ts";
import { NO_PLACE, PlacedHeap, type Work } from "./placed_heap.ts";
import type { Amount, Sharing } from "./share.ts";

/** Fewer accounts that owe something are not looked through. */
const SWEPT_MIN = 1_000;
const NOTHING: Amount = { waiting: 0, tokens: 0 };

/** Requests that wait for slots which they share. */
export class FairQueue<Item extends Sharing> {
  /** What it has cost to keep them in order. */
  readonly work: Work = { comparisons: 0 };
  readonly #orders: Orders<Item> = ordersOf(this.work);
  readonly #accounts = new Map<string, Account<Item>>();
  readonly #lanes = new Map<string, Lane<Item>>();
  readonly #tickets = new Map<Item, Ticket<Item>>();
  /** Items that were served, and may come back. */
  readonly #served = new WeakSet<Item>();
  /** The tag of the account that was served last. */
  #servedTag = 0;
  #pushed = 0;
  /** When there are this many accounts, those that owe nothing are looked for. */
  #sweptAt = SWEPT_MIN;

  /** How many wait. */
  get size(): number {
    return this.#tickets.size;
  }

  /** The lanes in which something waits. */
  lanes(): MapIterator<string> {
    return this.#lanes.keys();
  }

  /** The request that has waited longest in a lane. */
  oldest(lane: string): Item | undefined {
    return this.#lanes.get(lane)?.oldest.first?.item;
  }

  /** Whether this one waits. */
  has(item: Item): boolean {
    return this.#tickets.has(item);
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
    const { lane, share: { account: id, keyId, weight } } = item;
    const account = this.#accountOf(id);
    const key = keyIn(account, keyId);
    if (account.waiting === 0) {
      account.tag = Math.max(account.tag, this.#servedTag);
    }
    if (key.waiting === 0) key.tag = Math.max(key.tag, account.servedTag);
    const inLane = this.#accountLane(account, lane);
    const turns = this.#turnsOf(inLane, item);
    const keyLane = this.#keyLane(turns, { keyId, key, inLane });
    this.#pushed += 1;
    const ticket: Ticket<Item> = {
      item,
      keyLane,
      number: this.#pushed,
      keyPlace: NO_PLACE,
      latestPlace: NO_PLACE,
      agePlace: NO_PLACE,
    };
    this.#tickets.set(item, ticket);
    keyLane.tickets.set(ticket);
    turns.latest.set(ticket);
    this.#laneOf(lane).oldest.set(ticket);
    this.#count(ticket, 1);
    this.#weigh(lane, inLane, weight);
    this.#rank(lane, inLane, keyId);
    if (this.#served.delete(item)) this.#charge(item, -1);
  }

  /** Removes a request. False if it does not wait. */
  remove(item: Item): boolean {
    const ticket = this.#tickets.get(item);
    if (ticket === undefined) return false;
    this.#tickets.delete(item);
    const { lane: name, share: { account: id, keyId } } = item;
    const { keyLane } = ticket;
    const { inLane } = keyLane;
    const { account } = inLane;
    const lane = this.#laneOf(name);
    const turns = this.#turnsOf(inLane, item);
    lane.oldest.delete(ticket);
    turns.latest.delete(ticket);
    keyLane.tickets.delete(ticket);
    if (keyLane.tickets.size === 0) {
      turns.byId.delete(keyId);
      turns.order.delete(keyLane);
    }
    this.#count(ticket, -1);
    if (inLane.waiting > 0) this.#rank(name, inLane, keyId);
    else {
      account.lanes.delete(name);
      lane.turns.delete(inLane);
      lane.largest.waiting.delete(inLane);
      lane.largest.tokens.delete(inLane);
      this.#weigh(name, inLane, 0);
    }
    if (lane.waiting === 0) this.#lanes.delete(name);
    this.#forgetPaid(account, { id, key: keyLane.key, keyId });
    return true;
  }

  /** Removes a request that is served, and counts what it asks for. */
  take(item: Item): void {
    if (!this.has(item)) return;
    this.#charge(item, 1);
    this.#served.add(item);
    this.remove(item);
  }

  /** The item whose turn it is, in a lane that is none of these. */
  next(besides: ReadonlySet<string>): Item | undefined {
    const { isBefore } = this.#orders.accounts;
    let first: AccountLane<Item> | undefined;
    for (const [name, { turns }] of this.#lanes) {
      const top = turns.first;
      if (besides.has(name) || top === undefined) continue;
      if (first === undefined || isBefore(top, first)) first = top;
    }
    return first && firstOf(first)?.item;
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
    if (largest === undefined || portionOf(largest, by) <= least) {
      return undefined;
    }
    const { batch, latest } = largest;
    return (batch?.latest.first ?? latest.first)?.item;
  }

  /** Adds what a request asks for to the tags of its account and key, or takes it off. */
  #charge(item: Item, sign: 1 | -1): void {
    const { account: id, keyId, tokens, weight, keyWeight } = item.share;
    const account = this.#accountOf(id);
    const key = keyIn(account, keyId);
    if (sign > 0) {
      this.#servedTag = Math.max(this.#servedTag, account.tag);
      account.servedTag = Math.max(account.servedTag, key.tag);
    }
    account.tag += sign * tokens / weight;
    key.tag += sign * tokens / keyWeight;
    account.lanes.forEach((inLane, lane) => this.#rank(lane, inLane, keyId));
  }

  #weigh(lane: string, inLane: AccountLane<Item>, weight: number): void {
    this.#laneOf(lane).weight += weight - inLane.weight;
    inLane.weight = weight;
  }

  /** Puts an account and one of its keys where they belong in a lane. */
  #rank(lane: string, inLane: AccountLane<Item>, keyId: string): void {
    for (const turns of [inLane, inLane.batch]) {
      const keyLane = turns?.byId.get(keyId);
      if (keyLane !== undefined) turns?.order.set(keyLane);
    }
    const { turns, largest } = this.#laneOf(lane);
    turns.set(inLane);
    largest.waiting.set(inLane);
    largest.tokens.set(inLane);
  }

  #count({ item, keyLane }: Ticket<Item>, sign: 1 | -1): void {
    const { key, inLane } = keyLane;
    const { lane, share: { tokens } } = item;
    inLane.account.waiting += sign;
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
        keys: new NamedValues(),
        lanes: new NamedValues(),
      };
      this.#accounts.set(id, account);
    }
    return account;
  }

  #laneOf(name: string): Lane<Item> {
    let lane = this.#lanes.get(name);
    if (lane === undefined) {
      const { accounts, byWaiting, byTokens, oldest } = this.#orders;
      lane = {
        turns: new PlacedHeap(accounts),
        largest: {
          waiting: new PlacedHeap(byWaiting),
          tokens: new PlacedHeap(byTokens),
        },
        oldest: new PlacedHeap(oldest),
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
      const { keys, latest } = this.#orders;
      lane = {
        byId: new NamedValues(),
        order: new PlacedHeap(keys),
        latest: new PlacedHeap(latest),
        account,
        batch: null,
        waiting: 0,
        tokens: 0,
        weight: 0,
        turnPlace: NO_PLACE,
        waitingPlace: NO_PLACE,
        tokensPlace: NO_PLACE,
      };
      account.lanes.add(name, lane);
    }
    return lane;
  }

  #turnsOf(
    inLane: AccountLane<Item>,
    { share: { isBatch } }: Item,
  ): KeyTurns<Item> {
    if (!isBatch) return inLane;
    inLane.batch ??= {
      byId: new NamedValues(),
      order: new PlacedHeap(this.#orders.keys),
      latest: new PlacedHeap(this.#orders.latest),
    };
    return inLane.batch;
  }

  #keyLane(
    { byId }: KeyTurns<Item>,
    { keyId, ...its }: Pick<KeyLane<Item>, "key" | "inLane"> & {
      keyId: string;
    },
  ): KeyLane<Item> {
    let keyLane = byId.get(keyId);
    if (keyLane === undefined) {
      const { key, inLane } = its;
      const tickets = new PlacedHeap(this.#orders.tickets);
      keyLane = { key, inLane, tickets, turnPlace: NO_PLACE };
      byId.add(keyId, keyLane);
    }
    return keyLane;
  }
}

function keyIn<Item>({ keys }: Account<Item>, id: string): Sharer {
  let key = keys.get(id);
  if (key === undefined) {
    key = { tag: 0, waiting: 0 };
    keys.add(id, key);
  }
  return key;
}
