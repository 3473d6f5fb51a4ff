import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { AuditLog } from "./domain/audit/audit_log.ts";
import { KeyStore } from "./domain/keys/key_store.ts";
import { AccountStore } from "./domain/owners/account.ts";
import { OwnerDirectory } from "./domain/owners/directory.ts";
import { AttemptGuard } from "./domain/sign_in/attempts.ts";
import { createLinks } from "./domain/sign_in/links.ts";
import { SessionStore } from "./domain/sign_in/sessions.ts";
import {
  detectDurability,
  type Durability,
} from "./domain/store/durability.ts";
import { OneTimeTokens } from "./domain/store/one_time_tokens.ts";
import type { ConsoleDeps } from "./web/context.ts";

type Stores =
  | "keys"
  | "owners"
  | "accounts"
  | "sessions"
  | "links"
  | "guard"
  | "audit"
  | "durability"
  | "oidcFlows"
  | "totpSetups";

/** What differs between the service and its tests. */
export interface ConsoleParts extends Omit<ConsoleDeps, Stores> {
  /** A connection of its own for changes that wait for the disk. */
  writer: RedisLink;
}

const TOKEN_SECONDS = 600;
/** The server's settings are read for the banner at most this often. */
const DURABILITY_MS = 30_000;

/** Puts the console's stores together. */
export function createConsoleDeps(parts: ConsoleParts): ConsoleDeps {
  const { redis, randomBytes, now } = parts;
  const tokens = { redis, randomBytes, now, secondsOf: () => TOKEN_SECONDS };
  return {
    ...parts,
    keys: new KeyStore(parts),
    owners: new OwnerDirectory(parts),
    accounts: new AccountStore(parts),
    sessions: new SessionStore(parts),
    links: createLinks(parts),
    guard: new AttemptGuard(redis),
    audit: new AuditLog(redis),
    durability: rememberedDurability(parts),
    oidcFlows: new OneTimeTokens({
      ...tokens,
      kind: "oidc",
      schema: z.object({
        verifier: z.string(),
        state: z.string(),
        nonce: z.string(),
      }),
    }),
    totpSetups: new OneTimeTokens({
      ...tokens,
      kind: "totp",
      schema: z.object({ ownerId: z.string(), secret: z.string() }),
    }),
  };
}

function rememberedDurability(
  { redis, now }: ConsoleParts,
): ConsoleDeps["durability"] {
  let last: { value: Durability; atMs: number } | null = null;
  return async () => {
    const atMs = now();
    if (last === null || Math.abs(atMs - last.atMs) >= DURABILITY_MS) {
      last = { value: await detectDurability(redis), atMs };
    }
    return last.value;
  };
}
