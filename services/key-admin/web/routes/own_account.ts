import type { AuditAction } from "../../domain/audit/audit_log.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
} from "../../domain/sign_in/password.ts";
import { checkAgain } from "../../domain/sign_in/sign_in.ts";
import type { z } from "zod";
import { clientOf, type ConsoleContext, type ConsoleDeps } from "../context.ts";
import { readCookie } from "../cookies.ts";
import { text } from "../forms.ts";
import { confirmFirst } from "../paths.ts";

/** What changes of the owner's own account have in common. */

const WRONG = "The password is not right.";

/** A field for a password: its length is judged where it is hashed, in characters. */
export const password: z.ZodString = text(PASSWORD_CHARS_MAX * 4);

/** What is wrong with the current password, or null. An account without one must have signed in lately. */
export async function checkPassword(
  c: ConsoleContext,
  deps: ConsoleDeps,
  given: string,
): Promise<string | null> {
  const { account } = c.get("signedIn");
  if (account.passwordHash === null) {
    const isOld = confirmFirst(c, deps.now(), "/account") !== null;
    return isOld ? "Sign in again first." : null;
  }
  if (passwordChars(given) > PASSWORD_CHARS_MAX) return WRONG;
  const result = await checkAgain(deps, account, given, {
    ip: clientOf(c).ip,
    device: readCookie(c, deps.publicUrl, "device"),
  });
  if (result.ok) return null;
  return result.waitMs === 0 ? WRONG : waitText(result.waitMs);
}

/** When a next try is possible. */
export function waitText(waitMs: number): string {
  const seconds = Math.ceil(waitMs / 1_000);
  return seconds < 100
    ? `Too many tries. The next one is possible in ${seconds} seconds.`
    : `Too many tries. The next one is possible in ${
      Math.ceil(seconds / 60)
    } minutes.`;
}

/** Writes a change of the account into the owner's log. */
export async function note(
  c: ConsoleContext,
  { audit }: ConsoleDeps,
  action: AuditAction,
): Promise<void> {
  const { ownerId, email } = c.get("signedIn").account;
  const { ip } = clientOf(c);
  await audit.add(ownerId, { action, by: email, ip, detail: "" });
}
