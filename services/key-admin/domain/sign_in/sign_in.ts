/** Signs owners in with a password, and lets them prove again who they are. */
import type { Log } from "@gateway/shared/process/log";
import type { AuditLog } from "../audit/audit_log.ts";
import { parseEmail } from "../owners/email.ts";
import type { Account, OwnerStore } from "../owners/owner_store.ts";
import {
  type Attempt,
  forgetFailures,
  rememberDevice,
  takeAttempt,
} from "./attempts.ts";
import type { StoreDeps } from "../store/redis.ts";
import { digest } from "../store/secret.ts";
import type { PasswordHasher } from "./password.ts";
import type { Client, SessionStore } from "./sessions.ts";
import { totpStep } from "./totp.ts";

/** The credentials that a browser sends to sign in. */
interface Credentials extends Attempt, Client {
  password: string;
  /**
   * Code of the authenticator app or a recovery code; empty without a second factor.
   */
  code: string;
}

/** A sign-in that succeeded: the cookies that the browser gets. */
export interface SignedIn {
  ok: true;
  /** The value of the cookie of the session. */
  cookie: string;
  /** The value of the cookie by which the browser is known the next time. */
  device: string;
  /** How many attempts had failed since the last success. */
  failedBefore: number;
}

/** Somebody may not sign in. */
export interface SignInRefused {
  ok: false;
  /** How long to wait before the next attempt, in ms; 0 for no wait. */
  waitMs: number;
  /** The account is theirs, but an operator disabled it. */
  isDisabled: boolean;
}

/** Dependencies of {@link signIn}. */
export interface SignInDeps extends StoreDeps {
  owners: Pick<
    OwnerStore,
    "read" | "find" | "noteSignIn" | "useTotpStep" | "useRecoveryCode"
  >;
  sessions: Pick<SessionStore, "start" | "end">;
  hasher: PasswordHasher;
  audit: Pick<AuditLog, "add">;
  log: Log;
}

/**
 * Tries to sign an owner in. An unknown address, a wrong password and a wrong code look
 * the same and take the same work; only somebody who proved that the account is theirs
 * learns that it is disabled.
 */
export async function signIn(
  deps: SignInDeps,
  credentials: Credentials,
): Promise<SignedIn | SignInRefused> {
  const { redis, owners, hasher, audit, log } = deps;
  const { ip, password } = credentials;
  const email = parseEmail(credentials.email) ?? "";
  const attempt = { ...credentials, email };
  const waitMs = await takeAttempt(redis, attempt);
  if (waitMs > 0) return { ok: false, waitMs, isDisabled: false };
  const account = await owners.read(await owners.find(email) ?? "");
  const isRight = await hasher.verify(account?.passwordHash ?? null, password);
  const isProved = account !== null && isRight &&
    await checkCode(deps, account, credentials);
  if (isProved) {
    const failedBefore = await forgetFailures(redis, attempt);
    if (!account.isDisabled) {
      const { ip, userAgent } = credentials;
      const provedAtMs = deps.now();
      return await admit(deps, account, {
        ip,
        userAgent,
        failedBefore,
        provedAtMs,
      });
    }
  }
  const { ownerId = null, email: by = "" } = account ?? {};
  log.warn("sign_in_refused", { clientAddress: ip, ownerId });
  if (ownerId) await audit.add(ownerId, { action: "session.refused", by, ip });
  return { ok: false, waitMs: 0, isDisabled: isProved };
}

/** Somebody who may come in, as sign-in knows them. */
export interface Entrance extends Client {
  /** Attempts that failed since the last success. */
  failedBefore: number;
  /** When they last proved who they are, in ms since 1970; 0 if unknown. */
  provedAtMs: number;
}

/**
 * Starts a session of an account and records it. The caller has checked who it is and
 * that the account is not disabled.
 */
export async function admit(
  { redis, owners, sessions, audit, randomBytes }: SignInDeps,
  { ownerId, email, passwordHash }: Account,
  { failedBefore, provedAtMs, ...client }: Entrance,
): Promise<SignedIn> {
  const cookie = await sessions.start(ownerId, client, { provedAtMs });
  // If the password was changed while it was checked, the other sessions have been
  // ended.
  const isOver = (await owners.read(ownerId))?.passwordHash !== passwordHash;
  if (isOver) await sessions.end(ownerId, digest(cookie));
  await owners.noteSignIn(ownerId);
  const attempts = failedBefore === 1 ? "attempt" : "attempts";
  await audit.add(ownerId, {
    action: "session.signed_in",
    by: email,
    ip: client.ip,
    detail: failedBefore > 0 ? `after ${failedBefore} failed ${attempts}` : "",
  });
  const device = await rememberDevice(redis, randomBytes, email);
  return { ok: true, cookie, device, failedBefore };
}

/** A password that somebody enters again, with their address and device. */
export interface Proof extends Omit<Attempt, "email"> {
  password: string;
}

/**
 * Checks the password again within a session. Counts as an attempt and is in the audit
 * log.
 */
export async function checkAgain(
  { redis, hasher, audit }: SignInDeps,
  { ownerId, email, passwordHash }: Account,
  { password, ip, device }: Proof,
): Promise<{ ok: boolean; waitMs: number }> {
  const attempt = { email, ip, device };
  const waitMs = await takeAttempt(redis, attempt);
  if (waitMs > 0) return { ok: false, waitMs };
  const isRight = await hasher.verify(passwordHash, password);
  await audit.add(ownerId, {
    action: isRight ? "session.confirmed" : "session.refused",
    by: email,
    ip,
    detail: isRight ? "" : "asked again within a session",
  });
  if (isRight) await forgetFailures(redis, attempt);
  return { ok: isRight, waitMs: 0 };
}

async function checkCode(
  { owners, audit, now }: SignInDeps,
  { ownerId, email, totpSecret }: Account,
  { code, ip }: Credentials,
): Promise<boolean> {
  if (totpSecret === null) return true;
  const digits = code.replace(/\s/g, "");
  if (/^\d{6}$/.test(digits)) {
    const step = totpStep(totpSecret, digits, now());
    return step !== null && await owners.useTotpStep(ownerId, step);
  }
  const isRight = await owners.useRecoveryCode(ownerId, code);
  const action = "account.recovery_code_used";
  if (isRight) await audit.add(ownerId, { action, by: email, ip });
  return isRight;
}
