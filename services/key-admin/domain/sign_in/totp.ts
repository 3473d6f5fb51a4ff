/**
 * Time-based one-time codes as every authenticator app makes them: RFC 6238 with the
 * library's defaults.
 */
import type { RandomBytes } from "@gateway/shared/process/ids";
import { Secret, TOTP } from "otpauth";

/** A clock may be off by one step either way. */
const STEPS_OFF_MAX = 1;
/** 160 bits, as RFC 4226 asks for. */
const SECRET_BYTES = 20;

/** A new secret in base 32, as an authenticator app takes it. */
export const mintTotpSecret = (randomBytes: RandomBytes): string =>
  new Secret({ buffer: randomBytes(SECRET_BYTES).buffer }).base32;

/** The address that authenticator apps open, also as a QR code. */
export const totpUri = (secret: string, label: string, issuer: string) =>
  new TOTP({ secret, label, issuer }).toString();

/**
 * The step a code belongs to, or null when it is wrong. The owner store makes sure that
 * it works only once (RFC 6238, 5.2).
 */
export function totpStep(secret: string, code: string, nowMs: number) {
  const off = new TOTP({ secret })
    .validate({ token: code, timestamp: nowMs, window: STEPS_OFF_MAX });
  return off === null ? null : TOTP.counter({ timestamp: nowMs }) + off;
}
