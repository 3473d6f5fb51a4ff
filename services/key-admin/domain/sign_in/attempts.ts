/** Attempts to sign in, counted and slowed down so that nobody can guess for long. */
import { siteOf } from "@gateway/shared/process/client_address";
import type { RandomBytes } from "@gateway/shared/process/ids";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { asNumber, asTextOrNull, readText } from "../store/redis.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";
import delayLua from "./lua/delay.lua" with { type: "text" };
import rateLua from "./lua/rate.lua" with { type: "text" };

const attemptsKey = (name: string) => `try:${digest(name)}`;
const knownDeviceKey = (device: string) => `known:${digest(device)}`;

/** One attempt to prove who somebody is, with a password. */
export interface Attempt {
  /** Whether or not an account has this address. */
  email: string;
  ip: string;
  /** Value of the device cookie, empty without one. */
  device: string;
}

/**
 * Attempts on an account without a wait, then the first wait, which doubles up to the
 * longest.
 */
export const ACCOUNT_RULE = { free: 5, waitMs: 1_000, waitMsMax: 900_000 };
/** Attempts from an IPv4 address or IPv6 /64. */
export const ADDRESS_RATE: Rate = { count: 20, perMs: 600_000 };
/** Attempts from an IPv6 /48, since the holder of one has very many /64s. */
export const SITE_RATE: Rate = { count: 40, perMs: 600_000 };
/** Attempts from an IPv6 /32, the block of a provider. */
export const PROVIDER_RATE: Rate = { count: 80, perMs: 600_000 };
/**
 * Attempts of an address that others cannot use up. Further ones count towards {@link
 * POOL_RATE}.
 */
export const OWN_RATE: Rate = { count: 3, perMs: 600_000 };
/** Further attempts, shared by all addresses. */
export const POOL_RATE: Rate = { count: 100, perMs: 60_000 };
/**
 * All attempts together, to bound the work of hashing. It takes 300 addresses or a
 * dozen IPv6 /32 networks to use it up.
 */
export const TOTAL_RATE: Rate = { count: 1_000, perMs: 60_000 };
/** A count without a further attempt is forgotten after this long. */
const FORGET_SECONDS = 24 * 3_600;
/** A device is remembered this long after a sign-in from it. */
export const DEVICE_SECONDS = 90 * 86_400;

const DELAY_SCRIPT = defineScript("key-admin/delay", delayLua, {
  FREE_ATTEMPTS: ACCOUNT_RULE.free,
  WAIT_MS: ACCOUNT_RULE.waitMs,
  WAIT_MS_MAX: ACCOUNT_RULE.waitMsMax,
  FORGET_S: FORGET_SECONDS,
});
const RATE_SCRIPT = defineScript("key-admin/rate", rateLua);

/**
 * Slows guessing down without ever locking an account (ASVS 6.1.1, 6.3.1). An attempt
 * counts before its password is checked, so that a thousand at once are not all free.
 * Returns the milliseconds to wait, 0 when the attempt may proceed.
 *
 * A browser that the account signed in with before has its own count and shares no rate
 * with strangers, so they cannot lock the owner out.
 */
export async function takeAttempt(redis: RedisLink, attempt: Attempt) {
  const { name, isKnownDevice } = await countOf(redis, attempt);
  const waitMs = isKnownDevice ? 0 : await takeRates(redis, attempt.ip);
  return waitMs ||
    asNumber(await redis.evalScript(DELAY_SCRIPT, { keys: [name] }));
}

/**
 * Resets the count after a success and returns the number of failures
 * before it.
 */
export async function forgetFailures(redis: RedisLink, attempt: Attempt) {
  const { name } = await countOf(redis, attempt);
  const failed = asTextOrNull(await redis.command(["HGET", name, "failed"]));
  await redis.command(["DEL", name]);
  return Math.max(0, Number(failed ?? "1") - 1);
}

/**
 * Returns the count of an attempt: that of the account, or of a device that it signed
 * in from.
 */
async function countOf(redis: RedisLink, { email, device }: Attempt) {
  const isKnownDevice = isSecret(device) &&
    await readText(redis, knownDeviceKey(device)) === digest(email);
  const scope = isKnownDevice ? `device ${device}` : `account ${email}`;
  return { name: attemptsKey(scope), isKnownDevice };
}

/**
 * Remembers that the account signed in from a device and returns the value of its
 * cookie.
 */
export async function rememberDevice(
  redis: RedisLink,
  randomBytes: RandomBytes,
  email: string,
): Promise<string> {
  const device = mintSecret(randomBytes);
  const entry = [knownDeviceKey(device), digest(email)];
  await redis.command(["SET", ...entry, "EX", String(DEVICE_SECONDS)]);
  return device;
}

/**
 * Takes one from the rate of an address and from those of all addresses. Returns the
 * milliseconds to wait, 0 when one was taken. No limit that a few other addresses can
 * use up applies to the first attempts of an address.
 */
export async function takeRates(redis: RedisLink, ip: string): Promise<number> {
  const address = siteOf(ip);
  const networks: [name: string, rate: Rate][] = [[address, ADDRESS_RATE]];
  if (address.endsWith("/64")) {
    networks.push([`${address.slice(0, 48 / 4)}/48`, SITE_RATE]);
    networks.push([`${address.slice(0, 32 / 4)}/32`, PROVIDER_RATE]);
  }
  for (const [name, rate] of networks) {
    const waitMs = await takeRate(redis, `ip ${name}`, rate);
    if (waitMs > 0) return waitMs;
  }
  const isBeyond = await takeRate(redis, `own ${address}`, OWN_RATE) > 0;
  const poolWaitMs = isBeyond ? await takeRate(redis, "pool", POOL_RATE) : 0;
  return poolWaitMs || await takeRate(redis, "total", TOTAL_RATE);
}

/** `count` at once, and then one every `perMs / count`. */
export interface Rate {
  count: number;
  perMs: number;
}

/**
 * Takes one from the rate of this name. Returns the milliseconds to wait, 0 when one
 * was taken.
 */
export async function takeRate(
  redis: RedisLink,
  name: string,
  { count, perMs }: Rate,
): Promise<number> {
  const keys = [attemptsKey(name)];
  const rule = [String(count), String(perMs)];
  return asNumber(await redis.evalScript(RATE_SCRIPT, { keys, args: rule }));
}
