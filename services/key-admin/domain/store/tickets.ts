import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { ticketKey } from "./names.ts";
import { asTextOrNull } from "./reply.ts";
import { digest, isSecret, mintSecret } from "./secret.ts";

/**
 * Something that waits for whoever holds its secret, for a while and for one use:
 * an invitation, a sign-in on its way through a provider, a second factor that is
 * being set up. Only the secret's digest is stored.
 */
export interface Tickets<T> {
  /** Gives the secret of a new ticket. */
  make(value: T): Promise<string>;
  /** What a ticket holds, or null when it is over, used or was never one. */
  peek(secret: string): Promise<T | null>;
  /** The same, and uses the ticket up. Of two at once one gets it. */
  use(secret: string): Promise<T | null>;
}

/** What makes one kind of tickets. */
export interface TicketOptions<T> {
  redis: RedisLink;
  randomBytes: RandomBytes;
  now: WallNow;
  /** Part of the key's name, so that a ticket of one kind is none of another. */
  kind: "link" | "oidc" | "totp";
  schema: z.ZodType<T>;
  secondsOf: (value: T) => number;
}

/** Tickets of one kind on Redis. */
export function createTickets<T>(
  { redis, randomBytes, now, kind, schema, secondsOf }: TicketOptions<T>,
): Tickets<T> {
  const stored = z.object({ endsAtMs: z.number(), value: schema });
  const get = async (command: "GET" | "GETDEL", secret: string) => {
    if (!isSecret(secret)) return null;
    const text = asTextOrNull(
      await redis.command([command, ticketKey(kind, digest(secret))]),
    );
    if (text === null) return null;
    const { endsAtMs, value } = stored.parse(JSON.parse(text));
    return now() < endsAtMs ? value : null;
  };
  return {
    make: async (value) => {
      const secret = mintSecret(randomBytes);
      const seconds = secondsOf(value);
      const ticket = { endsAtMs: now() + seconds * 1_000, value };
      await redis.command([
        ...["SET", ticketKey(kind, digest(secret)), JSON.stringify(ticket)],
        ...["EX", String(seconds)],
      ]);
      return secret;
    },
    peek: (secret) => get("GET", secret),
    use: (secret) => get("GETDEL", secret),
  };
}
