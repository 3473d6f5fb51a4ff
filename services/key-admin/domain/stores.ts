import { createAuditLog } from "./audit/audit_log.ts";
import { createKeyStore } from "./keys/key_store.ts";
import { createOperators } from "./operators/operators.ts";
import { createPeople } from "./operators/people.ts";
import { createOwnerStore, type OwnerStoreDeps } from "./owners/owner_store.ts";
import { createLinkStore } from "./sign_in/links.ts";
import { createSessionStore } from "./sign_in/sessions.ts";

/**
 * The stores behind the console and the command line, and what they work with.
 * ARCHITECTURE.md has their Redis keys.
 */
export type Stores = ReturnType<typeof createStores>;

export function createStores(deps: OwnerStoreDeps) {
  const keys = createKeyStore(deps);
  const stores = {
    ...deps,
    keys,
    owners: createOwnerStore(deps),
    sessions: createSessionStore({ ...deps, keys }),
    links: createLinkStore(deps),
    audit: createAuditLog(deps.redis),
  };
  return {
    ...stores,
    operators: createOperators(stores),
    people: createPeople(stores),
  };
}
