import { z } from "zod";
import { AuditLog } from "./audit/audit_log.ts";
import { KeyStore } from "./keys/key_store.ts";
import { AccountStore } from "./owners/account.ts";
import { OwnerDirectory, type OwnerDirectoryDeps } from "./owners/directory.ts";
import { createLinks } from "./sign_in/links.ts";
import { SessionStore } from "./sign_in/sessions.ts";
import { createTokens } from "./store/one_time_tokens.ts";

/** The stores behind the console and the command line. */
export type Stores = ReturnType<typeof createStores>;

const SET_UP_SECONDS = 600;

/** Creates the stores. */
export function createStores(deps: OwnerDirectoryDeps) {
  const { redis, randomBytes } = deps;
  return {
    redis,
    keys: new KeyStore(deps),
    owners: new OwnerDirectory(deps),
    accounts: new AccountStore(deps),
    sessions: new SessionStore(deps),
    links: createLinks(deps),
    audit: new AuditLog(redis),
    /** Second factors that are being set up. */
    totpSetups: createTokens({
      ...{ redis, randomBytes, kind: "totp" },
      secondsOf: () => SET_UP_SECONDS,
      schema: z.object({ ownerId: z.string(), secret: z.string() }),
    }),
  };
}
