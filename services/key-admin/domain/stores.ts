import { createAuditLog } from "./audit/audit_log.ts";
import { createKeyStore } from "./keys/key_store.ts";
import { createOwnerStore, type OwnerStoreDeps } from "./owners/owner_store.ts";
import { createLinkStore } from "./sign_in/links.ts";
import { createSessionStore } from "./sign_in/sessions.ts";

/** The stores behind the console and the command line, and what they work with. ARCHITECTURE.md has their Redis keys. */
export type Stores = ReturnType<typeof createStores>;

export const createStores = (deps: OwnerStoreDeps) => ({
  ...deps,
  keys: createKeyStore(deps),
  owners: createOwnerStore(deps),
  sessions: createSessionStore(deps),
  links: createLinkStore(deps),
  audit: createAuditLog(deps.redis),
});
