import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { ticketKey } from "./names.ts";
import { asTextOrNull } from "./reply.ts";
import { digest, isSecret, mintSecret } from "./secret.ts";

/** What makes one kind of tokens. */
export interface OneTimeTokenOptions<T> {
  redis: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
  /** Part of the key's name, so that a token of one kind is none of another. */
  kind: "link" | "oidc" | "totp";
  schema: z.ZodType<T>;
  secondsOf: (value: T) => number;
}

/**
 * Values that the holder of a secret can use once, for a limited time: an
 * invitation, a sign-in through a provider, the set-up of a second factor. Only
 * the secret's digest is stored.
 */
export class OneTimeTokens<T> {
  readonly #options: OneTimeTokenOptions<T>;
  readonly #stored;

  constructor(options: OneTimeTokenOptions<T>) {
    this.#options = options;
    this.#stored = z.object({ endsAtMs: z.number(), value: options.schema });
  }

  /** Stores a value and gives its secret. */
  async make(value: T): Promise<string> {
    const { redis, randomBytes, now, secondsOf } = this.#options;
    const secret = mintSecret(randomBytes);
    const seconds = secondsOf(value);
    const token = JSON.stringify({ endsAtMs: now() + seconds * 1_000, value });
    await redis.command(
      ["SET", this.#key(secret), token, "EX", String(seconds)],
    );
    return secret;
  }

  /** The value of a secret, or null when it has expired, was used or never existed. */
  peek(secret: string): Promise<T | null> {
    return this.#get("GET", secret);
  }

  /** The same, once. Of two calls at the same time one gets the value. */
  use(secret: string): Promise<T | null> {
    return this.#get("GETDEL", secret);
  }

  async #get(command: "GET" | "GETDEL", secret: string): Promise<T | null> {
    if (!isSecret(secret)) return null;
    const { redis, now } = this.#options;
    const text = asTextOrNull(
      await redis.command([command, this.#key(secret)]),
    );
    if (text === null) return null;
    const { endsAtMs, value } = this.#stored.parse(JSON.parse(text));
    return now() < endsAtMs ? value : null;
  }

  #key(secret: string): string {
    return ticketKey(this.#options.kind, digest(secret));
  }
}
