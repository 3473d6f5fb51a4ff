/** The owner's own account: password, second factor, sessions. */

import { raw } from "hono/html";
import type { Child } from "hono/jsx";
import { renderSVG } from "uqr";
import type { AuditAction } from "../../../domain/audit/audit_log.ts";
import { passwordProblem } from "../../../domain/sign_in/password.ts";
import {
  type Session,
  SESSION_LIMITS,
} from "../../../domain/sign_in/sessions.ts";
import {
  mintTotpSecret,
  totpStep,
  totpUri,
} from "../../../domain/sign_in/totp.ts";
import {
  actorOf,
  type ConsoleContext,
  type Handler,
  Refused,
  type Routes,
} from "../../context.ts";
import { FORM, parseForm } from "../../request/forms.ts";
import { Page } from "../../view/layout.tsx";
import {
  Box,
  Field,
  PasswordField,
  PostForm,
  ShownOnce,
} from "../../view/parts.tsx";
import { Time } from "../../view/texts.tsx";
import { writeCookie } from "../../request/session.ts";
import { checkPassword, NewPasswordField } from "./sign_in_page.tsx";

const changePassword: Handler = async (c) => {
  const { deps, signedIn: { session, account } } = c.var;
  const form = parseForm(
    c,
    FORM.pick({ password: true, new_password: true, end_others: true }),
  );
  const problem = await checkPassword(c, form.password) ??
    await passwordProblem(form.new_password, account);
  if (problem !== null) return await showAccount(c, problem);
  const { ownerId } = account;
  const hash = await deps.hasher.hash(form.new_password);
  await deps.owners.setPassword(ownerId, hash);
  if (form.end_others) await deps.sessions.endOthers(ownerId, session.id);
  await note(c, "account.password_changed");
  return c.redirect("/account?done=password", 303);
};

const setUpSecondFactor: Handler = async (c) => {
  const { deps, signedIn: { account, session } } = c.var;
  if (account.passwordHash === null || account.totpSecret !== null) {
    return c.redirect("/account", 302);
  }
  const secret = mintTotpSecret(deps.randomBytes);
  await deps.sessions.update(session.id, { totpSecret: secret });
  return await showSetUp(c, secret);
};

const turnOnSecondFactor: Handler = async (c) => {
  const { deps, signedIn: { account, session } } = c.var;
  const form = parseForm(c, FORM.pick({ code: true, password: true }));
  const { ownerId, totpSecret: secret } = session;
  if (secret === "" || account.totpSecret !== null) {
    return c.redirect("/account", 303);
  }
  const step = totpStep(secret, form.code.replace(/\s/g, ""), deps.now());
  const error = await checkPassword(c, form.password);
  if (error !== null || step === null) {
    return await showSetUp(c, secret, error ?? WRONG_CODE);
  }
  // A form that is sent twice gets one set of recovery codes.
  if (!await deps.owners.useTotpStep(ownerId, step)) {
    return c.redirect("/account", 303);
  }
  const codes = (await deps.owners.enableTotp(ownerId, secret)).join("\n");
  await note(c, "account.second_factor_on");
  return (
    <Page
      c={c}
      title="Store your recovery codes"
      lead="Two-step sign-in is on. If you lose the app, each of these codes lets you sign in once. They are shown only now."
      isCard
    >
      <ShownOnce label="Recovery codes" value={codes} next="/account" />
    </Page>
  );
};

const WRONG_CODE =
  "The code is wrong. Codes change every 30 seconds. Check that the clock of your device is right.";

const turnOffSecondFactor: Handler = async (c) => {
  const { deps, signedIn: { account } } = c.var;
  const form = parseForm(c, FORM.pick({ password: true }));
  const problem = await checkPassword(c, form.password);
  if (problem !== null) return await showAccount(c, problem);
  await deps.owners.disableTotp(account.ownerId);
  await note(c, "account.second_factor_off");
  return c.redirect("/account?done=factor_off", 303);
};

const dismissNotice: Handler = async (c) => {
  parseForm(c, FORM.pick({}));
  await c.var.deps.owners.dismissNotice(c.var.signedIn.account.ownerId);
  return c.redirect("/account", 303);
};

const endSession: Handler = async (c) => {
  const { deps, signedIn: { account } } = c.var;
  const form = parseForm(c, FORM.pick({ session: true }));
  const isEnded = await deps.sessions.end(account.ownerId, form.session);
  if (!isEnded) throw new Refused(404, "This session has already ended");
  await note(c, "session.revoked");
  return c.redirect("/account?done=session_ended", 303);
};

const signOut = (where: "here" | "everywhere"): Handler => async (c) => {
  const { deps: { sessions }, signedIn: { account, session } } = c.var;
  parseForm(c, FORM.pick({}));
  const isHere = where === "here";
  await note(c, isHere ? "session.signed_out" : "session.revoked");
  if (!isHere) await sessions.endOthers(account.ownerId, null);
  else await sessions.end(account.ownerId, session.id);
  writeCookie(c, "sid", null);
  c.header("clear-site-data", '"cache", "storage"');
  return c.redirect("/sign-in", 303);
};

/** The routes of the own account, and signing out. */
export const accountRoutes: Routes = {
  "/account": { GET: (c: ConsoleContext) => showAccount(c) },
  "/account/password": { POST: changePassword },
  "/account/second-factor": {
    GET: setUpSecondFactor,
    POST: turnOnSecondFactor,
  },
  "/account/second-factor/off": { POST: turnOffSecondFactor },
  "/account/notice": { POST: dismissNotice },
  "/account/sessions/end": { POST: endSession },
  "/account/sessions/end-all": { POST: signOut("everywhere") },
  "/sign-out": { POST: signOut("here") },
};

function note(c: ConsoleContext, action: AuditAction): Promise<void> {
  const { deps: { audit }, signedIn: { account } } = c.var;
  return audit.add(account.ownerId, { action, ...actorOf(c) });
}

/** Shows the account page, with the reason if one of its forms was refused. */
async function showAccount(c: ConsoleContext, error?: string) {
  const { deps, signedIn: { session: { id, ownerId }, account } } = c.var;
  const isHere = (session: Session) => session.id === id;
  const listed = (await deps.sessions.list(ownerId))
    .toSorted((a, b) => Number(isHere(b)) - Number(isHere(a)));
  return (
    <Page c={c} title="Account" lead={account.email} error={error}>
      <Topic
        title="Password"
        help="Use a long password that you use nowhere else."
      >
        <PostForm action="/account/password" submit="Change password" look="">
          {account.passwordHash && <PasswordField id="current_password" />}
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
        {listed.map((session) => (
          <Device {...session}>
            {isHere(session)
              ? <span class="badge good">This device</span>
              : (
                <PostForm
                  action="/account/sessions/end"
                  hidden={{ session: session.id }}
                  submit="Sign out"
                  look="small"
                />
              )}
          </Device>
        ))}
        <PostForm
          action="/account/sessions/end-all"
          submit="Sign out everywhere"
          look="bad"
        />
      </Topic>
    </Page>
  );
}

/** Shows the secret for the app and asks for a code as proof. */
function showSetUp(c: ConsoleContext, secret: string, error?: string) {
  const uri = totpUri(secret, c.var.signedIn.account.email, ISSUER);
  return (
    <Page c={c} title="Two-step sign-in" error={error} isCard>
      <p>
        Scan this with an authenticator app, or{" "}
        <a href={uri}>open it on this device</a>.
      </p>
      <div class="qr" role="img" aria-label="QR code for your app">
        {raw(renderSVG(uri, { ecc: "M", border: QUIET_MODULES }))}
      </div>
      <p class="faint">
        Or type the secret: <code id="secret">{secret}</code>
      </p>
      <PostForm
        action="/account/second-factor"
        submit="Turn on"
        cancel="/account"
      >
        <Field
          id="code"
          label="Type the code that the app shows"
          required
          inputmode="numeric"
          pattern="[0-9 ]*"
          title="Six digits"
          autocomplete="one-time-code"
          autofocus
        />
        <PasswordField label="Your password" />
      </PostForm>
    </Page>
  );
}
const ISSUER = "Gateway";
const QUIET_MODULES = 4;

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

const Device = (
  { userAgent, ip, createdAtMs, seenAtMs, children }: Session & {
    children: Child;
  },
) => (
  <div class="row between">
    <div>
      <strong>{deviceName(userAgent)}</strong>
      <p class="help">
        {ip} · signed in <Time ms={createdAtMs} as="day" /> · last seen{" "}
        <Time ms={seenAtMs} as="relative" />
      </p>
    </div>
    {children}
  </div>
);

const BROWSERS = ["Edg", "Firefox", "Chrome", "Safari"];
const SYSTEMS = ["iPhone", "iPad", "Android", "Windows", "Mac OS X", "Linux"];

/** `Firefox on Windows`, as far as the user agent shows. */
const deviceName = (userAgent: string): string =>
  [BROWSERS, SYSTEMS].flatMap((names) =>
    names.find((name) => userAgent.includes(name)) ?? []
  ).join(" on ").replace(/^Edg\b/, "Edge") || "A browser";
