import { createAuditLog } from "./audit/audit_log.ts";
import { createKeyStore } from "./keys/key_store.ts";
import { createOwnerStore, type OwnerStoreDeps } from "./owners/owner_store.ts";
import { createLinkStore } from "./sign_in/links.ts";
import { createSessionStore } from "./sign_in/sessions.ts";

/**
 * The stores behind the console and the command line.
 *
 * Besides the Redis keys of `keys/record.ts` they have these, built from generated
 * ids and digests, never from a caller's text:
 *
 * | key | type | content |
 * | --- | --- | --- |
 * | `once:{owner}:<digest>` | string | a form was sent |
 * | `acct:{owner}` | hash | the owner's account, see `owners/owner_store.ts` |
 * | `mail:<digest>` | string | owner id of an e-mail address |
 * | `owners` | zset | owner ids by creation time in ms |
 * | `sess:<digest>` | hash | a signed-in session, see `sign_in/sessions.ts` |
 * | `sessions:{owner}` | zset | the owner's sessions by start |
 * | `ticket:link:<digest>` | string | the purpose of a one-time link, see `sign_in/links.ts` |
 * | `ticket:step:<digest>` | string | a code of an authenticator app was used |
 * | `try:<digest>` | hash | attempts on an account or from a device; a rate of a network, of all, or of creating keys, see `sign_in/attempts.ts` |
 * | `known:<digest>` | string | digest of the address that signed in from a device before |
 * | `oidc:<digest>` | string | owner of an OpenID Connect identity |
 * | `barrier` | string | nothing; written to test whether writing works |
 * | `owner:first` | string | owner of the keys created before the set-up |
 */
export type Stores = ReturnType<typeof createStores>;

/** Creates the stores. */
export const createStores = (deps: OwnerStoreDeps) => ({
  redis: deps.redis,
  keys: createKeyStore(deps),
  owners: createOwnerStore(deps),
  sessions: createSessionStore(deps),
  links: createLinkStore(deps),
  audit: createAuditLog(deps.redis),
});
