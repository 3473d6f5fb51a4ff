import type { Hono } from "hono";
import type { Account } from "../../domain/owners/account.ts";
import { parseEmail } from "../../domain/owners/directory.ts";
import { type Link, linkPath } from "../../domain/sign_in/links.ts";
import { passwordProblem } from "../../domain/sign_in/password.ts";
import { admit } from "../../domain/sign_in/sign_in.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { emailText, readForm } from "../forms.ts";
import { LinkPage } from "../pages/link_page.tsx";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { enter } from "./enter.ts";
import { password } from "./own_account.ts";

const LINK_OVER =
  "This link was used already, or is too old. Sign in if you have an account, or ask for a new link";

/** What set-up, invitation and reset links open. */
export function linkRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/link/:secret", {
    GET: (c) => openLink(c, deps),
    POST: (c) => useLink(c, deps),
  });
}

/** The link of the path, which must still hold. */
async function openedLink(
  c: ConsoleContext,
  { links }: ConsoleDeps,
): Promise<{ secret: string; link: Link }> {
  const secret = c.req.param("secret") ?? "";
  const link = await links.peek(secret);
  if (link === null) throw new Refused(404, LINK_OVER, { back: "/sign-in" });
  return { secret, link };
}

async function openLink(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { secret, link } = await openedLink(c, deps);
  return c.html(
    <LinkPage
      assets={deps.assets}
      link={link}
      path={linkPath(secret)}
      email={link.kind === "set_up" ? "" : link.email}
      errors={[]}
    />,
  );
}

async function useLink(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { secret, link } = await openedLink(c, deps);
  const form = readForm(c, {
    email: emailText,
    new_password: password,
  });
  const email = link.kind === "set_up" ? parseEmail(form.email) : link.email;
  const problem = await linkProblem(deps, link, email, form.new_password);
  if (problem !== null || email === null) {
    return c.html(
      <LinkPage
        assets={deps.assets}
        link={link}
        path={linkPath(secret)}
        email={form.email}
        errors={[problem ?? ""]}
      />,
      400,
    );
  }
  const hash = await deps.hasher.hash(form.new_password);
  const account = await acceptLink(deps, secret, email, hash);
  await deps.audit.add(account.ownerId, {
    action: link.kind === "reset"
      ? "account.password_changed"
      : "account.created",
    by: account.email,
    ip: clientOf(c).ip,
    detail: "",
  });
  await deps.sessions.endOthers(account.ownerId, null);
  // A reset does not get around the second factor.
  if (account.totpSecret !== null) return c.redirect("/sign-in", 303);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, deps, admitted, "/keys");
}

async function linkProblem(
  { owners }: ConsoleDeps,
  link: Link,
  email: string | null,
  password: string,
): Promise<string | null> {
  if (email === null) return "This is no e-mail address.";
  const holder = await owners.find(email);
  if (holder !== null && holder !== link.ownerId) {
    return "This address belongs to another owner.";
  }
  return passwordProblem(password, { email });
}

/** Uses the link up and makes the account ready to sign in. */
async function acceptLink(
  { links, owners, accounts }: ConsoleDeps,
  secret: string,
  email: string,
  passwordHash: string,
): Promise<Account> {
  const link = await links.use(secret);
  const before = link === null ? null : await accounts.read(link.ownerId);
  // Two set-up links may be about; who comes second must not take the account over.
  const isOver = link === null || before === null ||
    (link.kind !== "reset" && before.passwordHash !== null);
  if (isOver || !(await owners.claim(link.ownerId, email))) {
    throw new Refused(404, LINK_OVER, { back: "/sign-in" });
  }
  await accounts.setPassword(link.ownerId, passwordHash);
  return { ...before, email, passwordHash };
}
