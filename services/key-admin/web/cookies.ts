import { deleteCookie, getCookie, setCookie } from "hono/cookie";
import { DEVICE_SECONDS } from "../domain/sign_in/attempts.ts";
import { SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import type { ConsoleContext } from "./context.ts";

/**
 * The console's cookies: `__Host-` keeps other hosts of the same domain from
 * planting one, and browsers take it over TLS only (ASVS 3.3.1). A console on
 * this machine without TLS, which `config.ts` allows for localhost only, has to
 * do without the prefix.
 */
export type CookieName = "sid" | "device" | "oidc";

/** Nobody is longer at the provider; what was remembered of the sign-in ends with it. */
const OIDC_SECONDS = 600;
const SECONDS: Record<CookieName, number> = {
  sid: SESSION_LIMITS.absoluteMs / 1_000,
  device: DEVICE_SECONDS,
  oidc: OIDC_SECONDS,
};

/** The value of one of our cookies, empty without one. */
export function readCookie(
  c: ConsoleContext,
  publicUrl: URL,
  name: CookieName,
): string {
  return getCookie(c, fullName(publicUrl, name)) ?? "";
}

/** Gives the browser a cookie. */
export function writeCookie(
  c: ConsoleContext,
  publicUrl: URL,
  name: CookieName,
  value: string,
): void {
  setCookie(c, fullName(publicUrl, name), value, {
    ...attributes(publicUrl),
    maxAge: SECONDS[name],
  });
}

/** Takes a cookie back. */
export function clearCookie(
  c: ConsoleContext,
  publicUrl: URL,
  name: CookieName,
): void {
  deleteCookie(c, fullName(publicUrl, name), attributes(publicUrl));
}

const isSecure = (publicUrl: URL): boolean => publicUrl.protocol === "https:";

const fullName = (publicUrl: URL, name: CookieName): string =>
  isSecure(publicUrl) ? `__Host-${name}` : name;

function attributes(publicUrl: URL) {
  return {
    path: "/",
    httpOnly: true,
    secure: isSecure(publicUrl),
    sameSite: "Lax",
  } as const;
}
