import type { Hono } from "hono";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { pathText, readForm } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import { ConfirmPage } from "../pages/confirm_page.tsx";
import { localPath } from "../paths.ts";
import { route } from "../route.ts";
import { checkPassword, password } from "./own_account.ts";

/** Entering the password again within a session. */
export function confirmRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/confirm", {
    GET: (c) => showConfirm(c, deps, c.req.query("next"), []),
    POST: (c) => confirm(c, deps),
  });
}

async function showConfirm(
  c: ConsoleContext,
  deps: ConsoleDeps,
  next: string | undefined,
  errors: readonly string[],
): Promise<Response> {
  const { account } = c.get("signedIn");
  if (account.passwordHash === null) {
    return c.redirect("/sign-in/oidc?again=1", 302);
  }
  return c.html(
    <ConfirmPage
      frame={await frameOf(c, deps)}
      next={localPath(next)}
      errors={errors}
    />,
    errors.length === 0 ? 200 : 400,
  );
}

async function confirm(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, { password, next: pathText });
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) return await showConfirm(c, deps, form.next, [problem]);
  await deps.sessions.markChecked(c.get("signedIn").session.id);
  return c.redirect(localPath(form.next), 303);
}
