import type { Hono } from "hono";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
} from "../../domain/sign_in/password.ts";
import { signIn } from "../../domain/sign_in/sign_in.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { readCookie } from "../cookies.ts";
import { emailText, pathText, readForm, text } from "../forms.ts";
import { SignInPage } from "../pages/sign_in_page.tsx";
import { localPath } from "../paths.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { findSignedIn } from "../session_guard.ts";
import { enter } from "./enter.ts";
import { waitText } from "./own_account.ts";

/** Beyond `PASSWORD_CHARS_MAX`, so that one that is too long is told from a form of somebody else. */
const PASSWORD_BYTES_MAX = 30_000;
/** A recovery code, and blanks around it. */
const CODE_CHARS_MAX = 60;
const WRONG = "E-mail, password or code is not right.";

/** Signing in with a password. */
export function signInRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/sign-in", {
    GET: (c) => showSignIn(c, deps),
    POST: (c) => trySignIn(c, deps),
  });
}

async function showSignIn(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  if (await findSignedIn(c, deps) !== null) return c.redirect("/keys", 302);
  return c.html(
    <SignInPage
      assets={deps.assets}
      email=""
      next={localPath(c.req.query("next"))}
      errors={[]}
      oidcName={deps.oidc?.name ?? null}
      isSetUp={await isSetUp(deps)}
    />,
  );
}

/** Whether the first owner has an account: before that nobody can sign in. */
async function isSetUp({ owners, accounts }: ConsoleDeps): Promise<boolean> {
  const account = await accounts.read(await owners.first());
  return account !== null && account.passwordHash !== null;
}

async function trySignIn(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, {
    email: emailText,
    password: text(PASSWORD_BYTES_MAX),
    code: text(CODE_CHARS_MAX),
    next: pathText,
  });
  if (passwordChars(form.password) > PASSWORD_CHARS_MAX) {
    throw new Refused(400, "No password is that long", { back: "/sign-in" });
  }
  const result = await signIn(deps, {
    ...form,
    client: clientOf(c),
    device: readCookie(c, deps.publicUrl, "device"),
  });
  if (result.ok) return await enter(c, deps, result, localPath(form.next));
  if (result.waitMs > 0) {
    c.header("retry-after", String(Math.ceil(result.waitMs / 1_000)));
  }
  return c.html(
    <SignInPage
      assets={deps.assets}
      email={form.email}
      next={localPath(form.next)}
      errors={[result.waitMs > 0 ? waitText(result.waitMs) : WRONG]}
      oidcName={deps.oidc?.name ?? null}
      isSetUp
    />,
    result.waitMs > 0 ? 429 : 401,
  );
}
