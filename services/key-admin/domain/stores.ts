import { AuditLog } from "./audit/audit_log.ts";
import { KeyStore } from "./keys/key_store.ts";
import { AccountStore } from "./owners/account.ts";
import { OwnerDirectory, type OwnerDirectoryDeps } from "./owners/directory.ts";
import { LinkStore } from "./sign_in/links.ts";
import { SessionStore } from "./sign_in/sessions.ts";

/** The stores behind the console and the command line. */
export type Stores = ReturnType<typeof createStores>;

/** Creates the stores. */
export function createStores(deps: OwnerDirectoryDeps) {
  const { redis } = deps;
  return {
    redis,
    keys: new KeyStore(deps),
    owners: new OwnerDirectory(deps),
    accounts: new AccountStore(deps),
    sessions: new SessionStore(deps),
    links: new LinkStore(deps),
    audit: new AuditLog(redis),
  };
}
