import { createAuditLog } from "./audit/audit_log.ts";
import { createKeyStore } from "./keys/key_store.ts";
import { createAccountStore } from "./owners/account.ts";
import {
  createOwnerDirectory,
  type OwnerDirectoryDeps,
} from "./owners/directory.ts";
import { createLinkStore } from "./sign_in/links.ts";
import { createSessionStore } from "./sign_in/sessions.ts";

/** The stores behind the console and the command line. */
export type Stores = ReturnType<typeof createStores>;

/** Creates the stores. */
export const createStores = (deps: OwnerDirectoryDeps) => ({
  redis: deps.redis,
  keys: createKeyStore(deps),
  owners: createOwnerDirectory(deps),
  accounts: createAccountStore(deps),
  sessions: createSessionStore(deps),
  links: createLinkStore(deps),
  audit: createAuditLog(deps.redis),
});
