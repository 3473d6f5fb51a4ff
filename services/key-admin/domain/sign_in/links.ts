/** The one-time links that set up an account, or let somebody into one again. */
import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { asTextOrNull, type StoreDeps } from "../store/redis.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";

/**
 * The kinds of links, each of which works once, and their life in seconds. Whoever
 * opens a set-up link becomes the first owner.
 */
export const LINK_SECONDS = {
  set_up: 15 * 60,
  invite: 72 * 3_600,
  reset: 3_600,
};
/** The same lives in words. */
export const LINK_TIMES = {
  set_up: "15 minutes",
  invite: "3 days",
  reset: "1 hour",
};

const linkSchema = z.object({
  kind: z.enum(["set_up", "invite", "reset"]),
  ownerId: z.string(),
});
/** A link: its kind, and the owner whom it lets in. */
export type Link = z.infer<typeof linkSchema>;
/** Links of an earlier version have no time: they count as newer than anything. */
const storedLink = linkSchema.extend({
  madeAtMs: z.number().default(Infinity),
});

/** A link, and when it was made in ms since 1970. */
export type StoredLink = z.output<typeof storedLink>;

const linkKey = (secret: string) => `ticket:link:${digest(secret)}`;

/** The links that work now. Only the digest of a link's secret is stored. */
export class LinkStore {
  readonly #redis: RedisLink;
  readonly #randomBytes: RandomBytes;
  readonly #now: WallNow;

  constructor({ redis, randomBytes, now }: Omit<StoreDeps, "writer">) {
    this.#redis = redis;
    this.#randomBytes = randomBytes;
    this.#now = now;
  }

  /** Makes a link and returns its secret, see {@link linkPath}. */
  async make(link: Link): Promise<string> {
    const secret = mintSecret(this.#randomBytes);
    const seconds = String(LINK_SECONDS[link.kind]);
    const text = JSON.stringify({ ...link, madeAtMs: this.#now() });
    await this.#redis.command(["SET", linkKey(secret), text, "EX", seconds]);
    return secret;
  }

  /**
   * The link of a secret; null when it has expired, was used or never existed. Does not
   * use it up, since mail scanners follow links.
   */
  peek(secret: string): Promise<StoredLink | null> {
    return this.#get("GET", secret);
  }

  /**
   * Uses up the link of a secret and returns it: of several calls at the same time,
   * only one gets it.
   */
  use(secret: string): Promise<StoredLink | null> {
    return this.#get("GETDEL", secret);
  }

  async #get(
    command: "GET" | "GETDEL",
    secret: string,
  ): Promise<StoredLink | null> {
    if (!isSecret(secret)) return null;
    const reply = await this.#redis.command([command, linkKey(secret)]);
    const text = asTextOrNull(reply);
    return text === null ? null : storedLink.parse(JSON.parse(text));
  }
}

/** The path of a link in the console. */
export const linkPath = (secret: string): string => `/link/${secret}`;
