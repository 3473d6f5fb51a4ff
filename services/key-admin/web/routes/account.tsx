import type { Hono } from "hono";
import { passwordProblem } from "../../domain/sign_in/password.ts";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { clearCookie } from "../cookies.ts";
import { box, readForm, secretText } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import { type AccountErrors, AccountPage } from "../pages/account_page.tsx";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { checkPassword, note, password } from "./own_account.ts";

/** The owner's own account: password and sessions. */
export function accountRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/account", { GET: (c) => showAccount(c, deps, {}) });
  route(app, deps, "/account/password", {
    POST: (c) => changePassword(c, deps),
  });
  route(app, deps, "/account/sessions/end", {
    POST: (c) => endSession(c, deps),
  });
  route(app, deps, "/account/sessions/end-all", {
    POST: (c) => endAll(c, deps),
  });
  route(app, deps, "/sign-out", { POST: (c) => signOut(c, deps) });
}

/** The account page, with what was wrong with one of its forms. */
export async function showAccount(
  c: ConsoleContext,
  deps: ConsoleDeps,
  errors: AccountErrors,
): Promise<Response> {
  const { session, account } = c.get("signedIn");
  return c.html(
    <AccountPage
      frame={await frameOf(c, deps)}
      account={account}
      sessions={await deps.sessions.list(session.ownerId)}
      currentId={session.id}
      errors={errors}
    />,
    Object.keys(errors).length === 0 ? 200 : 400,
  );
}

async function changePassword(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { session, account } = c.get("signedIn");
  const form = readForm(c, {
    password: password.optional(),
    new_password: password,
    end_others: box,
  });
  const problem = await checkPassword(c, deps, form.password ?? "") ??
    passwordProblem(form.new_password, account);
  if (problem !== null) {
    return await showAccount(c, deps, { password: problem });
  }
  const { ownerId } = account;
  const hash = await deps.hasher.hash(form.new_password);
  await deps.accounts.setPassword(ownerId, hash);
  if (form.end_others === "on") {
    await deps.sessions.endOthers(ownerId, session.id);
  }
  await note(c, deps, "account.password_changed");
  return c.redirect("/account?done=password", 303);
}

async function endSession(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, { session: secretText });
  const { ownerId } = c.get("signedIn").account;
  if (!(await deps.sessions.end(ownerId, form.session))) {
    throw new Refused(404, "There is no such session", { back: "/account" });
  }
  await note(c, deps, "session.revoked");
  return c.redirect("/account?done=session_ended", 303);
}

async function endAll(c: ConsoleContext, deps: ConsoleDeps): Promise<Response> {
  readForm(c, {});
  await note(c, deps, "session.revoked");
  await deps.sessions.endOthers(c.get("signedIn").account.ownerId, null);
  return leave(c, deps);
}

async function signOut(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  readForm(c, {});
  const { session, account } = c.get("signedIn");
  await note(c, deps, "session.signed_out");
  await deps.sessions.end(account.ownerId, session.id);
  return leave(c, deps);
}

function leave(c: ConsoleContext, { publicUrl }: ConsoleDeps): Response {
  clearCookie(c, publicUrl, "sid");
  c.header("clear-site-data", '"cache", "storage"');
  return c.redirect("/sign-in", 303);
}
