import { createHmac } from "node:crypto";
import type { RandomBytes } from "@gateway/shared/process/ids";

/** Time-based one-time codes as every authenticator app makes them: RFC 6238 with SHA-1, 30 s, 6 digits. */

const STEP_MS = 30_000;
const DIGITS = 6;
/** A clock may be off by one step either way. */
const STEPS_OFF = [-1, 0, 1];
const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** 160 bits, as RFC 4226 asks for. */
const SECRET_CHARS = 32;

/** A new secret in base32. */
export function mintTotpSecret(randomBytes: RandomBytes): string {
  return Array.from(
    randomBytes(SECRET_CHARS),
    (byte) => BASE32.charAt(byte % BASE32.length),
  ).join("");
}

/** The address that authenticator apps open, also as a QR code. */
export function totpUri(secret: string, email: string, issuer: string): string {
  const label = `${encodeURIComponent(issuer)}:${encodeURIComponent(email)}`;
  return `otpauth://totp/${label}?${new URLSearchParams({ secret, issuer })}`;
}

/**
 * The step a code belongs to, or null when it is wrong. The account store makes
 * sure that a code works only once (RFC 6238, 5.2).
 */
export function totpStep(
  secret: string,
  code: string,
  nowMs: number,
): number | null {
  const current = Math.floor(nowMs / STEP_MS);
  return STEPS_OFF.map((off) => current + off)
    .find((step) => totpCode(secret, step) === code) ?? null;
}

/** The code of a step. */
export function totpCode(secret: string, step: number): string {
  const counter = new DataView(new ArrayBuffer(8));
  counter.setBigUint64(0, BigInt(step));
  const mac = createHmac("sha1", decodeBase32(secret))
    .update(new Uint8Array(counter.buffer)).digest();
  const offset = mac.readUInt8(mac.length - 1) & 0x0f;
  const number = mac.readUInt32BE(offset) & 0x7fffffff;
  return String(number % 10 ** DIGITS).padStart(DIGITS, "0");
}

/** Decodes whole bytes: 8 characters for 5 bytes. */
function decodeBase32(text: string): Uint8Array {
  const value = [...text]
    .reduce((sum, char) => sum * 32n + BigInt(BASE32.indexOf(char)), 0n);
  return Uint8Array.fromHex(
    value.toString(16).padStart(text.length * 5 / 4, "0"),
  );
}
