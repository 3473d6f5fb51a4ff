import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { z } from "zod";
import { ticketKey } from "./names.ts";
import { asText } from "./reply.ts";
import { digest, isSecret, mintSecret } from "./secret.ts";

/**
 * Values that the holder of a secret can use once, for a limited time: an
 * invitation, the set-up of a second factor. Only the secret's digest is stored.
 */
export interface OneTimeTokens<T> {
  /** Stores a value and returns its secret. */
  make(value: T): Promise<string>;
  /** The value of a secret, or null when it has expired, was used or never existed. */
  peek(secret: string): Promise<T | null>;
  /** The same, once: only one of several calls at the same time gets the value. */
  use(secret: string): Promise<T | null>;
}

/** How tokens of one kind are stored. */
export interface OneTimeTokenOptions<T> {
  redis: RedisLink;
  randomBytes: RandomBytes;
  /** Part of the key's name, so that a token is valid for its own kind only. */
  kind: "link" | "totp";
  schema: z.ZodType<T>;
  secondsOf: (value: T) => number;
}

/** Tokens of one kind, on Redis. */
export function createTokens<T>(
  { redis, randomBytes, kind, schema, secondsOf }: OneTimeTokenOptions<T>,
): OneTimeTokens<T> {
  const keyOf = (secret: string) => ticketKey(kind, digest(secret));
  const get = async (command: "GET" | "GETDEL", secret: string) => {
    if (!isSecret(secret)) return null;
    const reply = await redis.command([command, keyOf(secret)]);
    if (reply === null) return null;
    return schema.safeParse(JSON.parse(asText(reply))).data ?? null;
  };
  return {
    make: async (value) => {
      const secret = mintSecret(randomBytes);
      const seconds = String(secondsOf(value));
      await redis.command(
        ["SET", keyOf(secret), JSON.stringify(value), "EX", seconds],
      );
      return secret;
    },
    peek: (secret) => get("GET", secret),
    use: (secret) => get("GETDEL", secret),
  };
}
