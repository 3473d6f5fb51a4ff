import { createHmac } from "node:crypto";
import type { RandomBytes } from "@gateway/shared/process/ids";

/** Time-based one-time codes as every authenticator app makes them: RFC 6238 with SHA-1, 30 s, 6 digits. */

const STEP_MS = 30_000;
const DIGITS = 6;
/** RFC 4226 asks for 160 bits. */
const SECRET_BYTES = 20;
/** A clock may be off by one step either way. */
const STEPS_OFF_MAX = 1;

const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** A new secret in base32: 32 characters. */
export function mintTotpSecret(randomBytes: RandomBytes): string {
  return encodeBase32(randomBytes(SECRET_BYTES));
}

/** What an authenticator app reads, by a tap or as a QR code. */
export function totpUri(secret: string, email: string, issuer: string): string {
  const label = `${encodeURIComponent(issuer)}:${encodeURIComponent(email)}`;
  return `otpauth://totp/${label}?secret=${secret}&issuer=${
    encodeURIComponent(issuer)
  }`;
}

/**
 * The step a code belongs to, or null when it is wrong. That a code works once
 * (RFC 6238, 5.2) is the account store's to see to: it alone knows, of two who
 * come at the same time, who was first.
 */
export function totpStep(
  secret: string,
  code: string,
  nowMs: number,
): number | null {
  const current = Math.floor(nowMs / STEP_MS);
  for (let off = -STEPS_OFF_MAX; off <= STEPS_OFF_MAX; off++) {
    const step = current + off;
    if (totpCode(secret, step) === code) return step;
  }
  return null;
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

function encodeBase32(bytes: Uint8Array): string {
  let text = "";
  let bits = 0;
  let value = 0;
  for (const byte of bytes) {
    value = (value << 8 | byte) & 0xffff;
    bits += 8;
    for (; bits >= 5; bits -= 5) {
      text += BASE32.charAt((value >> (bits - 5)) & 31);
    }
  }
  return bits === 0 ? text : text + BASE32.charAt((value << (5 - bits)) & 31);
}

function decodeBase32(text: string): Uint8Array {
  const bytes: number[] = [];
  let bits = 0;
  let value = 0;
  for (const char of text) {
    value = (value << 5 | BASE32.indexOf(char)) & 0xffff;
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push((value >> bits) & 0xff);
  }
  return Uint8Array.from(bytes);
}
