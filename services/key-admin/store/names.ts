/**
 * Redis keys that only this service uses, beside those of `keys/record.ts`.
 * Built from ids and digests the system made, never from text somebody sent.
 *
 * | key | type | content |
 * | --- | --- | --- |
 * | `find:{owner}` | zset, lexical | index of the console's list, see `keys/search_terms.ts` |
 * | `once:{owner}:<digest>` | string | key id that a form already made |
 * | `acct:{owner}` | hash | the owner's account, see `owners/account.ts` |
 * | `mail:<digest>` | string | owner id of an e-mail address |
 * | `owners` | zset | owner ids by creation time in ms |
 * | `barrier` | string | nothing; written to wait for the disk |
 * | `owner:first` | string | owner of what was made before anyone signed up |
 */

export const findKey = (ownerId: string): string => `find:{${ownerId}}`;
export const onceKey = (ownerId: string, digest: string): string =>
  `once:{${ownerId}}:${digest}`;
export const accountKey = (ownerId: string): string => `acct:{${ownerId}}`;
export const mailKey = (digest: string): string => `mail:${digest}`;
export const ownersKey = "owners";
export const firstOwnerKey = "owner:first";
export const barrierKey = "barrier";
