import type { AuditAction } from "../domain/audit/audit_log.ts";
import type { Account } from "../domain/owners/account.ts";
import {
  PASSWORD_CHARS_MAX,
  passwordChars,
  passwordProblem,
} from "../domain/sign_in/password.ts";
import { type Session, SESSION_LIMITS } from "../domain/sign_in/sessions.ts";
import { checkAgain } from "../domain/sign_in/sign_in.ts";
import {
  actorOf,
  type ConsoleContext,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "./context.ts";
import {
  Box,
  FormError,
  FormToken,
  Head,
  Icon,
  PasswordField,
  PostForm,
  Time,
} from "./parts.tsx";
import { box, passwordText, pathText, readForm, secretText } from "./forms.ts";
import { Card, showPage } from "./layout.tsx";
import { clearCookie, confirmFirst, localPath, readCookie } from "./session.ts";
import { NewPasswordField, waitText } from "./sign_in_page.tsx";

/** The owner's own account: password, second factor, sessions. */

const changePassword: Handler = async (c, deps) => {
  const { session, account } = c.get("signedIn");
  const form = readForm(c, {
    password: passwordText.optional(),
    new_password: passwordText,
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
};

const endSession: Handler = async (c, deps) => {
  const form = readForm(c, { session: secretText });
  const { ownerId } = c.get("signedIn").account;
  if (!(await deps.sessions.end(ownerId, form.session))) {
    throw new Refused(404, "This session does not exist", { back: "/account" });
  }
  await note(c, deps, "session.revoked");
  return c.redirect("/account?done=session_ended", 303);
};

const endAllSessions: Handler = async (c, deps) => {
  readForm(c, {});
  await note(c, deps, "session.revoked");
  await deps.sessions.endOthers(c.get("signedIn").account.ownerId, null);
  return leave(c, deps);
};

const signOut: Handler = async (c, deps) => {
  readForm(c, {});
  const { session, account } = c.get("signedIn");
  await note(c, deps, "session.signed_out");
  await deps.sessions.end(account.ownerId, session.id);
  return leave(c, deps);
};

function leave(c: ConsoleContext, deps: ConsoleDeps): Response {
  clearCookie(c, deps, "sid");
  c.header("clear-site-data", '"cache", "storage"');
  return c.redirect("/sign-in", 303);
}

/** Checks the password again before a sensitive action. */
const confirm: Handler = async (c, deps) => {
  const form = readForm(c, { password: passwordText, next: pathText });
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) return await showConfirm(c, deps, form.next, problem);
  await deps.sessions.markChecked(c.get("signedIn").session.id);
  return c.redirect(localPath(form.next), 303);
};

export const accountRoutes: Routes = {
  "/account": { GET: (c, deps) => showAccount(c, deps) },
  "/account/password": { POST: changePassword },
  "/account/sessions/end": { POST: endSession },
  "/account/sessions/end-all": { POST: endAllSessions },
  "/sign-out": { POST: signOut },
  "/confirm": {
    GET: (c, deps) => showConfirm(c, deps, c.req.query("next")),
    POST: confirm,
  },
};

const WRONG = "The password is not right.";

/** What is wrong with the current password, or null. An account without a password must have signed in recently. */
export async function checkPassword(
  c: ConsoleContext,
  deps: ConsoleDeps,
  given: string,
): Promise<string | null> {
  const { account } = c.get("signedIn");
  if (account.passwordHash === null) {
    const isOld = confirmFirst(c, deps, "/account") !== null;
    return isOld ? "Sign in again first." : null;
  }
  if (passwordChars(given) > PASSWORD_CHARS_MAX) return WRONG;
  const result = await checkAgain(deps, account, given, {
    ip: c.env.remoteIp,
    device: readCookie(c, deps, "device"),
  });
  if (result.ok) return null;
  return result.waitMs === 0 ? WRONG : waitText(result.waitMs);
}

/** Adds an account change to the owner's audit log. */
export const note = (
  c: ConsoleContext,
  { audit }: ConsoleDeps,
  action: AuditAction,
): Promise<void> =>
  audit.add(c.get("signedIn").account.ownerId, { action, ...actorOf(c) });

function showConfirm(
  c: ConsoleContext,
  deps: ConsoleDeps,
  next: string | undefined,
  error?: string,
): Response | Promise<Response> {
  const { account, session } = c.get("signedIn");
  if (account.passwordHash === null) {
    return c.redirect("/sign-in/oidc?again=1", 302);
  }
  return c.html(
    <Card
      title="Confirm your password"
      assets={deps.assets}
      lead="You last entered your password over an hour ago. Creating and deleting keys needs it again."
    >
      <FormError error={error} />
      <FormToken.Provider value={session.formToken}>
        <PostForm action="/confirm" hidden={{ next: localPath(next) }}>
          <input type="hidden" autocomplete="username" value={account.email} />
          <PasswordField label={`Password of ${account.email}`} isNext />
          <div class="row end">
            <a class="button" href="/keys">Cancel</a>
            <button class="primary" type="submit">Continue</button>
          </div>
        </PostForm>
      </FormToken.Provider>
    </Card>,
    error === undefined ? 200 : 400,
  );
}

/** What is wrong with a form of the account page. */
interface AccountErrors {
  password?: string;
  secondFactor?: string;
}

/** The account page, with what is wrong with one of its forms. */
export async function showAccount(
  c: ConsoleContext,
  deps: ConsoleDeps,
  errors: AccountErrors = {},
): Promise<Response> {
  const { session, account } = c.get("signedIn");
  const sessions = await deps.sessions.list(session.ownerId);
  return showPage(
    c,
    deps,
    {
      title: "Account",
      section: "account",
      status: Object.keys(errors).length === 0 ? 200 : 400,
    },
    <>
      <Head title="Account" lead={account.email} />
      <section class="card split" aria-labelledby="password-title">
        <div>
          <h2 id="password-title">Password</h2>
          <p class="help">Use a long one that you use nowhere else.</p>
        </div>
        <PostForm action="/account/password">
          <FormError error={errors.password} />
          {account.passwordHash !== null && (
            <PasswordField id="current_password" />
          )}
          <NewPasswordField label="New password" />
          <Box name="end_others" checked>Sign out everywhere else</Box>
          <div class="row">
            <button type="submit">Change password</button>
          </div>
        </PostForm>
      </section>
      <SecondFactorCard
        account={account}
        error={errors.secondFactor}
      />
      <SessionsCard
        sessions={sessions}
        currentId={session.id}
      />
    </>,
  );
}

function SecondFactorCard({ account, error }: {
  account: Account;
  error: string | undefined;
}) {
  const isOn = account.totpSecret !== null;
  return (
    <section class="card split" aria-labelledby="factor-title">
      <div>
        <h2 id="factor-title">
          Two-step sign-in{" "}
          <span class={isOn ? "badge good" : "badge"}>
            {isOn ? "On" : "Off"}
          </span>
        </h2>
        <p class="help">
          With an authenticator app, a stolen password alone does not open your
          account.
        </p>
      </div>
      {isOn
        ? (
          <PostForm action="/account/second-factor/off">
            <p>
              Signing in asks for a code from your authenticator app. Recovery
              codes left: {account.recoveryCodesLeft}.
            </p>
            <FormError error={error} />
            <PasswordField id="off_password" />
            <div class="row">
              <button class="danger-text" type="submit">Turn off</button>
            </div>
          </PostForm>
        )
        : (
          <div>
            <a class="button" href="/account/second-factor">
              <Icon name="shield" /> Set up
            </a>
          </div>
        )}
    </section>
  );
}

/** Where the owner is signed in, this browser first. */
function SessionsCard({ sessions, currentId }: {
  sessions: readonly Session[];
  currentId: string;
}) {
  const isCurrent = ({ id }: Session) => id === currentId;
  const ordered = sessions.toSorted((a, b) =>
    Number(isCurrent(b)) - Number(isCurrent(a))
  );
  return (
    <section class="card split" aria-labelledby="sessions-title">
      <div>
        <h2 id="sessions-title">Where you are signed in</h2>
        <p class="help">
          A session ends after {SESSION_LIMITS.idleMs / 60_000}{" "}
          minutes without use.
        </p>
      </div>
      <div>
        <ul class="sessions">
          {ordered.map((session) => (
            <li class="row between">
              <div>
                <strong>{deviceName(session.userAgent)}</strong>{" "}
                {isCurrent(session) && (
                  <span class="badge good">
                    This device
                  </span>
                )}
                <p class="faint">
                  {session.ip} · signed in{" "}
                  <Time ms={session.createdAtMs} as="minute" /> · last seen{" "}
                  <Time ms={session.seenAtMs} as="relative" />
                </p>
              </div>
              {!isCurrent(session) && (
                <PostForm
                  action="/account/sessions/end"
                  hidden={{ session: session.id }}
                >
                  <button class="small" type="submit">Sign out</button>
                </PostForm>
              )}
            </li>
          ))}
        </ul>
        <PostForm action="/account/sessions/end-all">
          <button class="danger-text" type="submit">Sign out everywhere</button>
        </PostForm>
      </div>
    </section>
  );
}

const BROWSERS = [
  ...[["Edg/", "Edge"], ["Firefox/", "Firefox"]],
  ...[["Chrome/", "Chrome"], ["Safari/", "Safari"]],
];
const SYSTEMS = [
  ...[["iPhone", "iOS"], ["iPad", "iOS"], ["Android", "Android"]],
  ...[["Windows", "Windows"], ["Mac OS X", "macOS"], ["Linux", "Linux"]],
];

/** `Firefox on Windows`, as far as the user agent tells. */
function deviceName(userAgent: string): string {
  const find = (names: string[][]) =>
    names.find(([part = ""]) => userAgent.includes(part))?.[1];
  const system = find(SYSTEMS);
  const browser = find(BROWSERS) ?? "A browser";
  return system === undefined ? browser : `${browser} on ${system}`;
}
