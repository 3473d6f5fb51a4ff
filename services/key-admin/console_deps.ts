import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import type { DefaultLimits } from "./domain/keys/default_limits.ts";
import { KeyStore } from "./domain/keys/key_store.ts";
import { AuditLog } from "./domain/audit/audit_log.ts";
import type { SendStop } from "./domain/keys/notice.ts";
import { createAccountStore } from "./domain/owners/account.ts";
import { createOwnerDirectory } from "./domain/owners/directory.ts";
import { createAttemptGuard } from "./domain/sign_in/attempts.ts";
import {
  linkSchema,
  linkSeconds,
  type LinkStore,
} from "./domain/sign_in/links.ts";
import type { OidcClient } from "./domain/sign_in/oidc.ts";
import type { PasswordHasher } from "./domain/sign_in/password.ts";
import { createSessionStore } from "./domain/sign_in/sessions.ts";
import { createTickets } from "./domain/store/tickets.ts";
import { detectDurability } from "./domain/store/durability.ts";
import type { Assets } from "./web/assets.ts";
import type { ConsoleDeps } from "./web/context.ts";

/** What differs between the service and a test of it. */
export interface ConsoleParts {
  redis: RedisLink;
  /** A connection of its own for changes that wait for the disk. */
  writer: RedisLink;
  sendStop: SendStop;
  hasher: PasswordHasher;
  assets: Assets;
  oidc: OidcClient | null;
  randomBytes: RandomBytes;
  now: WallNow;
  log: Log;
  publicUrl: URL;
  apiUrl: string;
  defaultLimits: DefaultLimits;
}

const TICKET_SECONDS = 600;
/** The server's settings are looked at for the banner at most this often. */
const DURABILITY_MS = 30_000;

/** Puts the console's stores together. */
export function createConsoleDeps(parts: ConsoleParts): ConsoleDeps {
  const { redis, randomBytes, now } = parts;
  return {
    ...parts,
    keys: new KeyStore(parts),
    owners: createOwnerDirectory(parts),
    accounts: createAccountStore(parts),
    sessions: createSessionStore(parts),
    links: createLinks(parts),
    guard: createAttemptGuard(redis),
    audit: new AuditLog(redis),
    durability: remembered(() => detectDurability(redis), DURABILITY_MS, now),
    oidcFlows: createTickets({
      redis,
      randomBytes,
      now,
      kind: "oidc",
      schema: z.object({
        verifier: z.string(),
        state: z.string(),
        nonce: z.string(),
      }),
      secondsOf: () => TICKET_SECONDS,
    }),
    totpSetups: createTickets({
      redis,
      randomBytes,
      now,
      kind: "totp",
      schema: z.object({ ownerId: z.string(), secret: z.string() }),
      secondsOf: () => TICKET_SECONDS,
    }),
  };
}

/** Set-up, invitation and reset links; the command line makes them too. */
export function createLinks(
  { redis, randomBytes, now }: Pick<
    ConsoleParts,
    "redis" | "randomBytes" | "now"
  >,
): LinkStore {
  return createTickets({
    redis,
    randomBytes,
    now,
    kind: "link",
    schema: linkSchema,
    secondsOf: linkSeconds,
  });
}

function remembered<T>(
  ask: () => Promise<T>,
  forMs: number,
  now: WallNow,
): () => Promise<T> {
  let last: { value: T; atMs: number } | null = null;
  return async () => {
    const nowMs = now();
    if (last === null || Math.abs(nowMs - last.atMs) >= forMs) {
      last = { value: await ask(), atMs: nowMs };
    }
    return last.value;
  };
}
