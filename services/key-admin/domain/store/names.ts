/**
 * Redis keys that only this service uses, besides those of `keys/record.ts`.
 * Built from generated ids and digests, never from a caller's text.
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

export const onceKey = (ownerId: string, digest: string): string =>
  `once:{${ownerId}}:${digest}`;
export const accountKey = (ownerId: string): string => `acct:{${ownerId}}`;
export const mailKey = (digest: string): string => `mail:${digest}`;
export const ownersKey = "owners";
export const firstOwnerKey = "owner:first";
export const barrierKey = "barrier";
export const sessionKey = (digest: string): string => `sess:${digest}`;
export const sessionsKey = (ownerId: string): string => `sessions:{${ownerId}}`;
export const linkKey = (digest: string): string => `ticket:link:${digest}`;
export const usedStepKey = (digest: string): string => `ticket:step:${digest}`;
export const attemptsKey = (digest: string): string => `try:${digest}`;
export const knownDeviceKey = (digest: string): string => `known:${digest}`;
export const identityKey = (digest: string): string => `oidc:${digest}`;
