/** What a request has of the slots that it shares with others that wait. */

/** The weight of accounts and keys of which nothing else is known. */
export const WEIGHT_DEFAULT = 1;

/** How an account and a key share in a queue. */
export interface QueueSettings {
  /** How much the account gets beside other accounts. */
  readonly weight: number;
  /** How much the key gets beside the other keys of its account. */
  readonly keyWeight: number;
  /** Whether it waits behind all others of its account. */
  readonly isBatch: boolean;
}

/** What decides the turn of a request. */
export interface Share extends QueueSettings {
  /** The account that pays, and its key. */
  readonly account: string;
  readonly keyId: string;
  /** What it asks for: tokens, as estimated when it was admitted. */
  readonly tokens: number;
}

/** A request that waits for its turn. */
export interface Sharing {
  readonly share: Share;
  /** What it waits for: where one finds no place, no other of its lane does. */
  readonly lane: string;
  /** Since when it has waited: its place among those of its key. */
  readonly sinceMs: number;
}

/** How much of something waits. */
export interface Amount {
  readonly waiting: number;
  readonly tokens: number;
}
