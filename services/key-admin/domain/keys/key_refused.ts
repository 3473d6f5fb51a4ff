/** Why a change of a key is refused. */
import { keysOf } from "@gateway/shared/process/env";
import { z } from "zod";

/** Why nothing was changed, as users read it. */
const REFUSALS = {
  not_found:
    "This key does not exist. If it was deleted, the audit log says when and by whom",
  changed:
    "The key was changed in the meantime. Look at its new settings and try again",
  too_many:
    "The owner has the maximum number of keys. Delete one that is no longer used",
  already_made:
    "This key was already created: the form was sent twice. The first answer had the full value. If you did not store it, delete the key and create another one",
  not_rotatable:
    "Only an enabled key that has not expired can be rotated. Enable it or move its expiry first, or create a new key",
};
type Refusal = keyof typeof REFUSALS;
/** Reads the reason that the script of a change returns. */
export const refusal = z.enum(keysOf(REFUSALS));

/** A change was refused, and nothing was changed. The message is for users. */
export class KeyRefused extends Error {
  override name = "KeyRefused";

  constructor(readonly reason: Refusal) {
    super(REFUSALS[reason]);
  }
}
