/** Addresses that several pages link to. */
import { address } from "../../view/parts.tsx";

/** The request log of one's own account, and behind its root that of a project. */
export const OWN_REQUESTS = "/requests";
/** The request logs of all accounts, for operators. */
export const ALL_REQUESTS = "/people/requests";

/**
 * The running requests of one's own account, and behind its root those of a project.
 */
export const OWN_RUNNING = "/requests/running";
/** The running requests of all accounts, for operators. */
export const ALL_RUNNING = "/people/running";

/** The usage of all accounts, for operators. */
export const ALL_USAGE = "/people/usage";
/** The keys of the admin API, for operators. */
export const ADMIN_KEYS = "/people/admin-keys";

/** The lists for operators, by address. */
export const PEOPLE_VIEWS = [
  ["/people", "Owners"],
  ["/people/projects", "Projects"],
  ["/people/keys", "All keys"],
  [ALL_USAGE, "Usage"],
  [ALL_REQUESTS, "All requests"],
  [ALL_RUNNING, "Running"],
  [ADMIN_KEYS, "Admin keys"],
] as const;

/** The requests of an account, or of one of its keys, in the log. */
export const requestsOf = (
  { ownerId, root, keyId, isOthers }: {
    ownerId: string;
    /** The prefix of the paths of the account, as in `KeyScope`. */
    root: string;
    keyId: string | null;
    /** Whether an operator looks at somebody else's. */
    isOthers: boolean;
  },
): string =>
  isOthers
    ? address(ALL_REQUESTS, { account: ownerId, key: keyId ?? "" })
    : address(root + OWN_REQUESTS, { key: keyId ?? "" });
