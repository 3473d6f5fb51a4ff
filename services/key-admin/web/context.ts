import type { WallNow } from "@gateway/shared/process/clock";
import type { RandomBytes } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Context } from "hono";
import type { DefaultLimits } from "../domain/keys/default_limits.ts";
import type { KeyStore } from "../domain/keys/key_store.ts";
import type { AuditLog } from "../domain/audit/audit_log.ts";
import type { SendStop } from "../domain/keys/notice.ts";
import type { Account, AccountStore } from "../domain/owners/account.ts";
import type { OwnerDirectory } from "../domain/owners/directory.ts";
import type { AttemptGuard } from "../domain/sign_in/attempts.ts";
import type { LinkStore } from "../domain/sign_in/links.ts";
import type { OidcClient, OidcFlow } from "../domain/sign_in/oidc.ts";
import type { OneTimeTokens } from "../domain/store/one_time_tokens.ts";
import type { PasswordHasher } from "../domain/sign_in/password.ts";
import type { Session, SessionStore } from "../domain/sign_in/sessions.ts";
import type { Durability } from "../domain/store/durability.ts";
import type { Assets } from "./assets.ts";

/** A second factor that is being set up. */
export interface TotpSetup {
  ownerId: string;
  secret: string;
}

/** Everything the console needs, given once. */
export interface ConsoleDeps {
  redis: RedisLink;
  keys: KeyStore;
  owners: OwnerDirectory;
  accounts: AccountStore;
  sessions: SessionStore;
  links: LinkStore;
  guard: AttemptGuard;
  hasher: PasswordHasher;
  audit: AuditLog;
  sendStop: SendStop;
  /** What the server promises about written changes, for the banner. */
  durability: () => Promise<Durability>;
  oidc: OidcClient | null;
  oidcFlows: OneTimeTokens<OidcFlow>;
  totpSetups: OneTimeTokens<TotpSetup>;
  assets: Assets;
  randomBytes: RandomBytes;
  now: WallNow;
  log: Log;
  /** Origin of the console as browsers see it. */
  publicUrl: URL;
  /** Base URL of the API in examples. */
  apiUrl: string;
  defaultLimits: DefaultLimits;
}

/** Who is signed in; set by the session guard on every page behind it. */
export interface SignedIn {
  session: Session;
  account: Account;
}

/** What a request carries through the middleware. */
export interface ConsoleEnv {
  Bindings: { remoteIp: string };
  Variables: {
    requestId: string;
    /** The posted form, read once by the form guard. */
    form: URLSearchParams;
    signedIn: SignedIn;
  };
}

/** A request on its way through the console. */
export type ConsoleContext = Context<ConsoleEnv>;

/** The address a request came from, as the operator's proxies tell it. */
export const clientOf = (c: ConsoleContext) => ({
  ip: c.env.remoteIp,
  userAgent: c.req.header("user-agent") ?? "",
});
