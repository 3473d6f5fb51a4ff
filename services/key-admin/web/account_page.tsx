import type { Child } from "hono/jsx";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import { passwordProblem } from "../domain/sign_in/password.ts";
import { SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import { checkAgain } from "../domain/sign_in/sign_in.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
} from "./context.ts";
import { FORM, readForm } from "./forms.ts";
import { showCard, showPage } from "./layout.tsx";
import { Box, PasswordField, PostForm, Time } from "./parts.tsx";
import { isFresh, localPath, readCookie, writeCookie } from "./session.ts";
import { NewPasswordField, waitText } from "./sign_in_page.tsx";

/** The owner's own account: password, second factor, sessions. */

const changePassword: Handler = async (c) => {
  const { deps, signedIn: { session, account } } = c.var;
  const form = readForm(
    c,
    FORM.pick({ password: true, new_password: true, end_others: true }),
  );
  const problem = await checkPassword(c, form.password) ??
    passwordProblem(form.new_password, account);
  if (problem !== null) return await showAccount(c, problem);
  const { ownerId } = account;
  const hash = await deps.hasher.hash(form.new_password);
  await deps.owners.setPassword(ownerId, hash);
  if (form.end_others) await deps.sessions.endOthers(ownerId, session.id);
  await note(c, "account.password_changed");
  return c.redirect("/account?done=password", 303);
};

const endSession: Handler = async (c) => {
  const { deps, signedIn: { account } } = c.var;
  const form = readForm(c, FORM.pick({ session: true }));
  if (!(await deps.sessions.end(account.ownerId, form.session))) {
    throw new Refused(404, "This session does not exist", { back: "/account" });
  }
  await note(c, "session.revoked");
  return c.redirect("/account?done=session_ended", 303);
};

/** Ends this session, or all of them. */
const signOut = (isEverywhere: boolean): Handler => async (c) => {
  const { deps: { sessions }, signedIn: { account, session } } = c.var;
  readForm(c, FORM.pick({}));
  await note(c, isEverywhere ? "session.revoked" : "session.signed_out");
  if (isEverywhere) await sessions.endOthers(account.ownerId, null);
  else await sessions.end(account.ownerId, session.id);
  writeCookie(c, "sid", null);
  c.header("clear-site-data", '"cache", "storage"');
  return c.redirect("/sign-in", 303);
};

/** Checks the password again before a sensitive action. */
const confirm: Handler = async (c) => {
  const { deps, signedIn: { session } } = c.var;
  const form = readForm(c, FORM.pick({ password: true, next: true }));
  const problem = await checkPassword(c, form.password);
  if (problem !== null) return await showConfirm(c, form.next, problem);
  await deps.sessions.update(session.id, { checkedAtMs: deps.now() });
  return c.redirect(localPath(form.next), 303);
};

export const accountRoutes = {
  "/account": { GET: (c: ConsoleContext) => showAccount(c) },
  "/account/password": { POST: changePassword },
  "/account/sessions/end": { POST: endSession },
  "/account/sessions/end-all": { POST: signOut(true) },
  "/sign-out": { POST: signOut(false) },
  "/confirm": {
    GET: (c: ConsoleContext) => showConfirm(c, c.req.query("next")),
    POST: confirm,
  },
};

/** The problem with the current password, or null. An account without a password must have signed in recently. */
export async function checkPassword(
  c: ConsoleContext,
  given: string,
): Promise<string | null> {
  const { deps, signedIn: { account } } = c.var;
  if (account.passwordHash === null) {
    return isFresh(c) ? null : "Sign in again first.";
  }
  const from = { ip: c.env.remoteIp, device: readCookie(c, "device") };
  const result = await checkAgain(deps, account, given, from);
  if (result.ok) return null;
  return result.waitMs === 0
    ? "The password is wrong."
    : waitText(result.waitMs);
}

/** Adds an account change to the owner's audit log. */
export const note = (c: ConsoleContext, action: AuditAction): Promise<void> =>
  c.var.deps.audit.add(c.var.signedIn.account.ownerId, {
    action,
    ...actorOf(c),
  });

function showConfirm(
  c: ConsoleContext,
  next: string | undefined,
  error?: string,
): Response | Promise<Response> {
  const { account: { email, passwordHash } } = c.var.signedIn;
  if (passwordHash === null) return c.redirect("/sign-in/oidc?again=1", 302);
  return showCard(
    c,
    {
      title: "Confirm your password",
      lead:
        "You last entered your password over an hour ago. Enter it again to create, rotate or delete keys.",
      error,
    },
    <PostForm
      action="/confirm"
      hidden={{ next: localPath(next) }}
      submit="Continue"
      cancel="/keys"
    >
      <input type="hidden" autocomplete="username" value={email} />
      <PasswordField label={`Password of ${email}`} autofocus />
    </PostForm>,
  );
}

/** The account page, or why one of its forms was refused. */
export async function showAccount(
  c: ConsoleContext,
  error?: string,
): Promise<Response> {
  const { deps, signedIn: { session: { id, ownerId }, account } } = c.var;
  const listed = await deps.sessions.list(ownerId);
  // This device first.
  const sessions = listed.toSorted((a, b) =>
    Number(b.id === id) - Number(a.id === id)
  );
  return showPage(
    c,
    { title: "Account", section: "account", lead: account.email, error },
    <>
      <Topic
        title="Password"
        help="Use a long password that you use nowhere else."
      >
        <PostForm
          action="/account/password"
          submit="Change password"
          look=""
        >
          {account.passwordHash !== null && (
            <PasswordField id="current_password" />
          )}
          <NewPasswordField label="New password" />
          <Box name="end_others" checked>Sign out everywhere else</Box>
        </PostForm>
      </Topic>
      <Topic
        title="Two-step sign-in"
        help="With an authenticator app, a stolen password alone is not enough to sign in."
      >
        {account.totpSecret === null
          ? (
            <p class="row between">
              Two-step sign-in is off.
              <a class="button" href="/account/second-factor">Set up</a>
            </p>
          )
          : (
            <PostForm
              action="/account/second-factor/off"
              submit="Turn off"
              look="bad"
            >
              <p>
                Signing in asks for a code from your authenticator app. Recovery
                codes left: {account.recoveryCodesLeft}.
              </p>
              <PasswordField id="off_password" />
            </PostForm>
          )}
      </Topic>
      <Topic
        title="Where you are signed in"
        help={`A session ends after ${
          SESSION_LIMITS.idleMs / 60_000
        } minutes without use.`}
      >
        {sessions.map((session) => (
          <div class="row between session">
            <div>
              <strong>{deviceName(session.userAgent)}</strong>{" "}
              {session.id === id && <span class="badge good">This device</span>}
              <p class="help">
                {session.ip} · signed in{" "}
                <Time ms={session.createdAtMs} as="day" /> · last seen{" "}
                <Time ms={session.seenAtMs} as="relative" />
              </p>
            </div>
            {session.id !== id && (
              <PostForm
                action="/account/sessions/end"
                hidden={{ session: session.id }}
                submit="Sign out"
                look="small"
              />
            )}
          </div>
        ))}
        <PostForm
          action="/account/sessions/end-all"
          submit="Sign out everywhere"
          look="bad"
        />
      </Topic>
    </>,
  );
}

/** A section with its explanation on the left and its controls on the right. */
const Topic = (
  { title, help, children }: { title: string; help: string; children: Child },
) => (
  <section class="card split">
    <header>
      <h2>{title}</h2>
      <p class="help">{help}</p>
    </header>
    <div>{children}</div>
  </section>
);

const BROWSERS = ["Edg", "Firefox", "Chrome", "Safari"];
const SYSTEMS = ["iPhone", "iPad", "Android", "Windows", "Mac OS X", "Linux"];

/** `Firefox on Windows`, as far as the user agent shows. */
function deviceName(userAgent: string): string {
  const find = (names: readonly string[]) =>
    names.find((name) => userAgent.includes(name));
  const browser = find(BROWSERS)?.replace("Edg", "Edge") ?? "A browser";
  const system = find(SYSTEMS);
  return system === undefined ? browser : `${browser} on ${system}`;
}
