import type { Hono } from "hono";
import { checkAgain } from "../../sign_in/sign_in.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
  passwordProblem,
} from "../../sign_in/password.ts";
import { mintTotpSecret, totpStep, totpUri } from "../../sign_in/totp.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { clearCookie, readCookie } from "../cookies.ts";
import { box, readForm, text } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import { type AccountErrors, AccountPage } from "../pages/account_page.tsx";
import { ConfirmPage } from "../pages/confirm_page.tsx";
import {
  RecoveryCodesPage,
  SecondFactorPage,
} from "../pages/second_factor_pages.tsx";
import { confirmFirst, localPath } from "../paths.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";

const WRONG = "The password is not right.";
const ISSUER = "Gateway";
const password = text(PASSWORD_CHARS_MAX * 4);

/** The owner's own account. */
export function accountRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, "/account", { GET: (c) => showAccount(c, deps, {}) });
  route(app, "/account/password", { POST: (c) => changePassword(c, deps) });
  route(app, "/account/second-factor", {
    GET: (c) => setUpFactor(c, deps),
    POST: (c) => switchFactorOn(c, deps),
  });
  route(app, "/account/second-factor/off", {
    POST: (c) => switchFactorOff(c, deps),
  });
  route(app, "/account/sessions/end", { POST: (c) => endSession(c, deps) });
  route(app, "/account/sessions/end-all", { POST: (c) => endAll(c, deps) });
  route(app, "/confirm", {
    GET: (c) => showConfirm(c, deps, c.req.query("next"), []),
    POST: (c) => confirm(c, deps),
  });
  route(app, "/sign-out", { POST: (c) => signOut(c, deps) });
}

async function showAccount(
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

async function setUpFactor(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { account } = c.get("signedIn");
  if (account.passwordHash === null || account.totpSecret !== null) {
    return c.redirect("/account", 302);
  }
  const secret = mintTotpSecret(deps.randomBytes);
  const { ownerId } = account;
  const ticket = await deps.totpSetups.make({ ownerId, secret });
  return await showFactor(c, deps, { secret, ticket }, []);
}

async function showFactor(
  c: ConsoleContext,
  deps: ConsoleDeps,
  { secret, ticket }: { secret: string; ticket: string },
  errors: readonly string[],
): Promise<Response> {
  const { account } = c.get("signedIn");
  return c.html(
    <SecondFactorPage
      frame={await frameOf(c, deps)}
      secret={secret}
      uri={totpUri(secret, account.email, ISSUER)}
      ticket={ticket}
      errors={errors}
    />,
    errors.length === 0 ? 200 : 400,
  );
}

async function switchFactorOn(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { account } = c.get("signedIn");
  const form = readForm(c, { ticket: text(60), code: text(10), password });
  const setup = await deps.totpSetups.peek(form.ticket);
  if (setup === null || setup.ownerId !== account.ownerId) {
    throw new Refused(409, "This page is too old: begin again", {
      back: "/account/second-factor",
    });
  }
  const { secret } = setup;
  const again = (errors: string[]) =>
    showFactor(c, deps, { secret, ticket: form.ticket }, errors);
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) return await again([problem]);
  const code = form.code.replace(/\s/g, "");
  const step = totpStep(secret, code, deps.now());
  if (step === null) {
    return await again([
      "The code is not right. Codes change every 30 seconds; is your device's clock right?",
    ]);
  }
  if (await deps.totpSetups.use(form.ticket) === null) return await again([]);
  const { ownerId } = account;
  const codes = await deps.accounts.enableTotp(ownerId, secret, step);
  await note(c, deps, "account.second_factor_on");
  return c.html(
    <RecoveryCodesPage frame={await frameOf(c, deps)} codes={codes} />,
  );
}

async function switchFactorOff(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, { password });
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) {
    return await showAccount(c, deps, { secondFactor: problem });
  }
  await deps.accounts.disableTotp(c.get("signedIn").account.ownerId);
  await note(c, deps, "account.second_factor_off");
  return c.redirect("/account?done=factor_off", 303);
}

async function endSession(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, { session: text(60) });
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
  const form = readForm(c, { password, next: text(300) });
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) return await showConfirm(c, deps, form.next, [problem]);
  await deps.sessions.markChecked(c.get("signedIn").session.id);
  return c.redirect(localPath(form.next), 303);
}

/** What is wrong with the current password, or null. An account without one must have signed in lately. */
async function checkPassword(
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

async function note(
  c: ConsoleContext,
  { audit }: ConsoleDeps,
  action:
    | "account.password_changed"
    | "account.second_factor_on"
    | "account.second_factor_off"
    | "session.revoked"
    | "session.signed_out",
): Promise<void> {
  const { ownerId, email } = c.get("signedIn").account;
  const { ip } = clientOf(c);
  await audit.add(ownerId, { action, by: email, ip, detail: "" });
}
