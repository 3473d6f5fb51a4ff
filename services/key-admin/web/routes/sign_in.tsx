import type { RedisLink } from "@gateway/shared/redis/link";
import type { Hono } from "hono";
import { parseEmail } from "../../owners/email.ts";
import type { Account } from "../../owners/account.ts";
import { type Link, linkPath } from "../../sign_in/links.ts";
import { NotAllowed, type OidcIdentity } from "../../sign_in/oidc.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
  passwordProblem,
} from "../../sign_in/password.ts";
import { digest } from "../../sign_in/secret.ts";
import { admit, type Admitted, signIn } from "../../sign_in/sign_in.ts";
import { identityKey } from "../../store/names.ts";
import { asTextOrNull } from "../../store/reply.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { clearCookie, readCookie, writeCookie } from "../cookies.ts";
import { readForm, text } from "../forms.ts";
import { LinkPage } from "../pages/link_page.tsx";
import { SignInPage } from "../pages/sign_in_page.tsx";
import { localPath } from "../paths.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { findSignedIn } from "../session_guard.ts";
import { waitText } from "./account.tsx";

const WRONG = "E-mail, password or code is not right.";
/** Fewer are typing mistakes. */
const FAILURES_TOLD = 5;
const CALLBACK = "/sign-in/oidc/callback";
const LINK_OVER =
  "This link was used already, or is too old. Sign in if you have an account, or ask for a new link";

/** Ways in: password, links, the organisation's provider. */
export function signInRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, "/sign-in", {
    GET: (c) => showSignIn(c, deps),
    POST: (c) => trySignIn(c, deps),
  });
  route(app, "/link/:secret", {
    GET: (c) => openLink(c, deps),
    POST: (c) => useLink(c, deps),
  });
  route(app, "/sign-in/oidc", { GET: (c) => beginOidc(c, deps) });
  route(app, CALLBACK, { GET: (c) => finishOidc(c, deps) });
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
    email: text(300),
    password: text(30_000),
    code: text(60),
    next: text(300),
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

/** Hands over the new session. One that the browser had before ends (ASVS 7.2.4). */
async function enter(
  c: ConsoleContext,
  deps: ConsoleDeps,
  { cookie, device, failedBefore }: Admitted,
  next: string,
): Promise<Response> {
  const before = await findSignedIn(c, deps);
  if (before !== null) {
    await deps.sessions.end(before.account.ownerId, before.session.id);
  }
  writeCookie(c, deps.publicUrl, "sid", cookie);
  writeCookie(c, deps.publicUrl, "device", device);
  // The owner must learn that somebody else may be trying (ASVS 6.3.5).
  const told = failedBefore < FAILURES_TOLD ? next : "/keys?done=failed_tries";
  return c.redirect(told, 303);
}

async function openLink(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const secret = c.req.param("secret") ?? "";
  const link = await deps.links.peek(secret);
  if (link === null) throw new Refused(404, LINK_OVER, { back: "/sign-in" });
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
  const secret = c.req.param("secret") ?? "";
  const link = await deps.links.peek(secret);
  if (link === null) throw new Refused(404, LINK_OVER, { back: "/sign-in" });
  const form = readForm(c, {
    email: text(300),
    new_password: text(PASSWORD_CHARS_MAX * 4),
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

async function beginOidc(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  if (deps.oidc === null) throw new Refused(404, "There is no such page");
  const callback = new URL(CALLBACK, deps.publicUrl);
  const askAgain = c.req.query("again") !== undefined;
  const { url, flow } = await deps.oidc.begin(callback, askAgain);
  const ticket = await deps.oidcFlows.make(flow);
  writeCookie(c, deps.publicUrl, "oidc", ticket);
  return c.redirect(url.href, 302);
}

async function finishOidc(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  if (deps.oidc === null) throw new Refused(404, "There is no such page");
  const flow = await deps.oidcFlows.use(readCookie(c, deps.publicUrl, "oidc"));
  clearCookie(c, deps.publicUrl, "oidc");
  if (flow === null) {
    throw new Refused(400, "This sign-in took too long. Begin again", {
      back: "/sign-in",
    });
  }
  const returned = new URL(
    CALLBACK + new URL(c.req.url).search,
    deps.publicUrl,
  );
  const identity = await identityOf(deps, returned, flow);
  const account = await accountOf(deps, identity);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, deps, admitted, "/keys");
}

async function identityOf(
  { oidc, log }: ConsoleDeps,
  returned: URL,
  flow: { verifier: string; state: string; nonce: string },
): Promise<OidcIdentity> {
  if (oidc === null) throw new Refused(404, "There is no such page");
  try {
    return await oidc.finish(returned, flow);
  } catch (cause) {
    log.warn("oidc_refused", { error: cause });
    if (cause instanceof NotAllowed) {
      throw new Refused(403, cause.message, { cause, back: "/sign-in" });
    }
    throw new Refused(400, `Signing in with ${oidc.name} did not work`, {
      cause,
      back: "/sign-in",
    });
  }
}

/** The account of an identity: issuer and subject name it; the address only at the first time (ASVS 6.8.1). */
async function accountOf(
  { redis, owners, accounts }: ConsoleDeps,
  { issuer, subject, email }: OidcIdentity,
): Promise<Account> {
  const pointer = identityKey(digest(JSON.stringify([issuer, subject])));
  const ownerId = asTextOrNull(await redis.command(["GET", pointer])) ??
    await linkIdentity(redis, pointer, await owners.ensure(email));
  const account = await accounts.read(ownerId);
  if (account === null) throw new Error(`No account of owner ${ownerId}`);
  return account;
}

async function linkIdentity(
  redis: RedisLink,
  pointer: string,
  ownerId: string,
): Promise<string> {
  await redis.command(["SET", pointer, ownerId, "NX"]);
  return ownerId;
}
