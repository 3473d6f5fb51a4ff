/**
 * What a fair queue knows of those who wait, and the orders in which it holds them.
 * Thousands may wait, each of an account of its own, so what one has costs little.
 */
import type { NamedValues } from "./named_values.ts";
import type { HeapOrder, PlacedHeap, Work } from "./placed_heap.ts";
import type { Amount, Sharing } from "./share.ts";

/** An account or a key, of which requests wait. */
export interface Sharer {
  /** How far it has come, in tokens. */
  tag: number;
  waiting: number;
}

/** An account, and its keys. */
export interface Account<Item> extends Sharer {
  /** The tag with which its last key was served. */
  servedTag: number;
  readonly keys: NamedValues<Sharer>;
  /** Its requests, by lanes. */
  readonly lanes: NamedValues<AccountLane<Item>>;
}

/** A request that waits, and its place in each order. */
export interface Ticket<Item> {
  readonly item: Item;
  readonly keyLane: KeyLane<Item>;
  /** The request that was added last has the largest. */
  readonly number: number;
  /** Among those of its key, */
  keyPlace: number;
  /** of its account, the latest first, */
  latestPlace: number;
  /** and of its lane, the oldest first. */
  agePlace: number;
}

/** The requests of one key in a lane, and its place among the keys of its account. */
export interface KeyLane<Item> {
  readonly key: Sharer;
  readonly inLane: AccountLane<Item>;
  readonly tickets: PlacedHeap<"keyPlace", Ticket<Item>>;
  turnPlace: number;
}

/** The keys whose requests wait, and the order in which they are served. */
export interface KeyTurns<Item> {
  readonly byId: NamedValues<KeyLane<Item>>;
  readonly order: PlacedHeap<"turnPlace", KeyLane<Item>>;
  /** All their requests, the latest first. */
  readonly latest: PlacedHeap<"latestPlace", Ticket<Item>>;
}

/**
 * The requests of an account in a lane: ordinary ones, whose turns these are, and those
 * that stand back.
 */
export interface AccountLane<Item> extends KeyTurns<Item> {
  readonly account: Account<Item>;
  /** Made when the first one comes: most accounts have none. */
  batch: KeyTurns<Item> | null;
  waiting: number;
  tokens: number;
  /** The weight of the account, as its latest request has it. */
  weight: number;
  turnPlace: number;
  /** Places in the orders by the number of requests that wait, and by their tokens. */
  waitingPlace: number;
  tokensPlace: number;
}

/** A lane: the accounts that wait in it. */
export interface Lane<Item> {
  readonly turns: PlacedHeap<"turnPlace", AccountLane<Item>>;
  /** Accounts with the most to wait for their weight first, by number and by tokens. */
  readonly largest: {
    readonly waiting: PlacedHeap<"waitingPlace", AccountLane<Item>>;
    readonly tokens: PlacedHeap<"tokensPlace", AccountLane<Item>>;
  };
  /** All its requests, the oldest first. */
  readonly oldest: PlacedHeap<"agePlace", Ticket<Item>>;
  waiting: number;
  tokens: number;
  /** The weights of its accounts, added up. */
  weight: number;
}

/** The orders of all heaps of a queue. */
export interface Orders<Item> {
  readonly tickets: HeapOrder<"keyPlace", Ticket<Item>>;
  readonly latest: HeapOrder<"latestPlace", Ticket<Item>>;
  readonly oldest: HeapOrder<"agePlace", Ticket<Item>>;
  readonly keys: HeapOrder<"turnPlace", KeyLane<Item>>;
  readonly accounts: HeapOrder<"turnPlace", AccountLane<Item>>;
  readonly byWaiting: HeapOrder<"waitingPlace", AccountLane<Item>>;
  readonly byTokens: HeapOrder<"tokensPlace", AccountLane<Item>>;
}

/** The orders of the heaps of a queue, whose comparisons are counted in `work`. */
export function ordersOf<Item extends Sharing>(work: Work): Orders<Item> {
  const isOlder = (a?: Ticket<Item>, b?: Ticket<Item>) => {
    if (a === undefined || b === undefined) return false;
    const earlierMs = b.item.sinceMs - a.item.sinceMs;
    return earlierMs === 0 ? a.number < b.number : earlierMs > 0;
  };
  const hasMore = (by: keyof Amount) =>
  (
    a: AccountLane<Item>,
    b: AccountLane<Item>,
  ) => portionOf(a, by) > portionOf(b, by);
  return {
    tickets: { place: "keyPlace", isBefore: isOlder, work },
    latest: {
      place: "latestPlace",
      isBefore: (a, b) => isOlder(b, a),
      work,
    },
    oldest: { place: "agePlace", isBefore: isOlder, work },
    keys: {
      place: "turnPlace",
      isBefore: (a, b) =>
        a.key.tag === b.key.tag
          ? isOlder(a.tickets.first, b.tickets.first)
          : a.key.tag < b.key.tag,
      work,
    },
    accounts: {
      place: "turnPlace",
      isBefore: (a, b) =>
        a.account.tag === b.account.tag
          ? isOlder(firstOf(a), firstOf(b))
          : a.account.tag < b.account.tag,
      work,
    },
    byWaiting: {
      place: "waitingPlace",
      isBefore: hasMore("waiting"),
      work,
    },
    byTokens: { place: "tokensPlace", isBefore: hasMore("tokens"), work },
  };
}

/** How much of an account waits in a lane, for its weight. */
export const portionOf = <Item>(
  inLane: AccountLane<Item>,
  by: keyof Amount,
): number => inLane[by] / inLane.weight;

/** The request of an account whose turn it is in a lane. */
export function firstOf<Item>(
  { order, batch }: AccountLane<Item>,
): Ticket<Item> | undefined {
  const keyLane = order.first ?? batch?.order.first;
  return keyLane?.tickets.first;
}
