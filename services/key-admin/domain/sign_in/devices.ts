import type { RandomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import { knownDeviceKey } from "../store/names.ts";
import { digest, mintSecret } from "../store/secret.ts";

/** A device is remembered this long after a sign-in from it. */
export const DEVICE_SECONDS = 90 * 86_400;

/** Remembers that the address signed in from a device, and gives the value of its cookie. */
export async function rememberDevice(
  redis: RedisLink,
  randomBytes: RandomBytes,
  email: string,
): Promise<string> {
  const device = mintSecret(randomBytes);
  await redis.command([
    ...["SET", knownDeviceKey(digest(device)), digest(email)],
    ...["EX", String(DEVICE_SECONDS)],
  ]);
  return device;
}
