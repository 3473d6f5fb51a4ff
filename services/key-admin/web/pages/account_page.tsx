import type { JSX } from "hono/jsx/jsx-runtime";
import type { Account } from "../../owners/account.ts";
import { type Session, SESSION_LIMITS } from "../../sign_in/sessions.ts";
import { CopyButton } from "./copy_button.tsx";
import { FormErrors, FormToken, type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { QrCode } from "./qr_code.tsx";
import { NewPasswordField } from "./sign_in_pages.tsx";
import { Time } from "./values.tsx";

const IDLE_MINUTES = SESSION_LIMITS.idleMs / 60_000;

/** What the account page shows. */
export interface AccountPageProps {
  frame: Frame;
  account: Account;
  sessions: readonly Session[];
  currentId: string;
  errors: AccountErrors;
}

/** What was wrong with a form of the account page. */
export interface AccountErrors {
  password?: string;
  secondFactor?: string;
}

const listOf = (error: string | undefined): readonly string[] =>
  error === undefined ? [] : [error];

/** Password, second factor and sessions. */
export function AccountPage(props: AccountPageProps): JSX.Element {
  return (
    <Page title="Account" frame={props.frame} section="account">
      <div class="head">
        <div>
          <h1>Account</h1>
          <p class="lead">{props.account.email}</p>
        </div>
      </div>
      <PasswordCard {...props} />
      <SecondFactorCard {...props} />
      <SessionsCard {...props} />
    </Page>
  );
}

function PasswordCard(
  { frame, account, errors }: AccountPageProps,
): JSX.Element {
  return (
    <section class="card split" aria-labelledby="password-title">
      <div>
        <h2 id="password-title">Password</h2>
        <p class="help">A long one that you use nowhere else.</p>
      </div>
      <form method="post" action="/account/password" data-once="">
        <FormErrors errors={listOf(errors.password)} />
        <FormToken frame={frame} />
        {account.passwordHash !== null && (
          <CurrentPasswordField id="current_password" />
        )}
        <NewPasswordField label="New password" />
        <label class="box">
          <input type="checkbox" name="end_others" value="on" checked />
          Sign out everywhere else
        </label>
        <div class="actions start">
          <button type="submit">Change password</button>
        </div>
      </form>
    </section>
  );
}

function CurrentPasswordField({ id }: { id: string }): JSX.Element {
  return (
    <div class="field">
      <label for={id}>Current password</label>
      <input
        id={id}
        name="password"
        type="password"
        required
        autocomplete="current-password"
      />
    </div>
  );
}

function SecondFactorCard(
  { frame, account, errors }: AccountPageProps,
): JSX.Element {
  const isOn = account.totpSecret !== null;
  return (
    <section class="card split" aria-labelledby="factor-title">
      <div>
        <h2 id="factor-title">
          Two-step sign-in{" "}
          <span class={isOn ? "badge on" : "badge off"}>
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
          <div>
            <p>
              Signing in asks for a code of your authenticator app. Recovery
              codes left: {account.recoveryCodesLeft}.
            </p>
            <form
              method="post"
              action="/account/second-factor/off"
              data-once=""
            >
              <FormErrors errors={listOf(errors.secondFactor)} />
              <FormToken frame={frame} />
              <CurrentPasswordField id="off_password" />
              <div class="actions start">
                <button class="danger-text" type="submit">Switch off</button>
              </div>
            </form>
          </div>
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

function SessionsCard(
  { frame, sessions, currentId }: AccountPageProps,
): JSX.Element {
  const rank = ({ id }: Session) => id === currentId ? 0 : 1;
  const currentFirst = (a: Session, b: Session) => rank(a) - rank(b);
  return (
    <section class="card split" aria-labelledby="sessions-title">
      <div>
        <h2 id="sessions-title">Where you are signed in</h2>
        <p class="help">
          A session ends by itself after {IDLE_MINUTES} minutes without use.
        </p>
      </div>
      <div>
        <ul class="sessions">
          {sessions.toSorted(currentFirst).map((session) => (
            <li key={session.id}>
              <div>
                <strong>{deviceName(session.userAgent)}</strong>{" "}
                {session.id === currentId && (
                  <span class="badge on">This device</span>
                )}
                <p class="faint">
                  {session.ip} · signed in{" "}
                  <Time ms={session.createdAtMs} as="minute" /> · last seen{" "}
                  <Time ms={session.seenAtMs} as="relative" />
                </p>
              </div>
              {session.id !== currentId && (
                <form method="post" action="/account/sessions/end">
                  <FormToken frame={frame} />
                  <input type="hidden" name="session" value={session.id} />
                  <button class="small" type="submit">Sign out</button>
                </form>
              )}
            </li>
          ))}
        </ul>
        <form method="post" action="/account/sessions/end-all">
          <FormToken frame={frame} />
          <button class="danger-text" type="submit">Sign out everywhere</button>
        </form>
      </div>
    </section>
  );
}

/** `Firefox on Windows`, as far as a user agent tells. */
function deviceName(userAgent: string): string {
  const browser = [
    [/Edg\//, "Edge"],
    [/Firefox\//, "Firefox"],
    [/Chrome\//, "Chrome"],
    [/Safari\//, "Safari"],
  ] as const;
  const system = [
    [/iPhone|iPad/, "iOS"],
    [/Android/, "Android"],
    [/Windows/, "Windows"],
    [/Mac OS X/, "macOS"],
    [/Linux/, "Linux"],
  ] as const;
  const name = browser.find(([form]) => form.test(userAgent))?.[1] ??
    "A browser";
  const on = system.find(([form]) => form.test(userAgent))?.[1];
  return on === undefined ? name : `${name} on ${on}`;
}

/** Sets the second factor up: the app reads the secret, a code proves that it did. */
export function SecondFactorPage({ frame, secret, uri, ticket, errors }: {
  frame: Frame;
  secret: string;
  uri: string;
  ticket: string;
  errors: readonly string[];
}): JSX.Element {
  return (
    <Page title="Two-step sign-in" frame={frame} section="account">
      <section class="card form-card">
        <h1>Two-step sign-in</h1>
        <FormErrors errors={errors} />
        <ol class="steps">
          <li>
            <p>
              Scan this with an authenticator app, or{" "}
              <a href={uri}>open it on this device</a>.
            </p>
            <QrCode text={uri} label="QR code for your authenticator app" />
            <p class="faint">
              Or type the secret:{" "}
              <code class="wrap">{secret.match(/.{1,4}/g)?.join(" ")}</code>
            </p>
          </li>
          <li>
            <form method="post" action="/account/second-factor" data-once="">
              <FormToken frame={frame} />
              <input type="hidden" name="ticket" value={ticket} />
              <div class="field">
                <label for="code">Type the code that the app shows</label>
                <input
                  id="code"
                  name="code"
                  required
                  inputmode="numeric"
                  pattern="[0-9 ]*"
                  maxlength={10}
                  autocomplete="one-time-code"
                  autofocus
                />
              </div>
              <div class="field">
                <label for="password">Your password</label>
                <input
                  id="password"
                  name="password"
                  type="password"
                  required
                  autocomplete="current-password"
                />
              </div>
              <div class="actions">
                <a class="button" href="/account">Cancel</a>
                <button class="primary" type="submit">Switch on</button>
              </div>
            </form>
          </li>
        </ol>
      </section>
    </Page>
  );
}

/** The recovery codes, shown once. */
export function RecoveryCodesPage(
  { frame, codes }: { frame: Frame; codes: readonly string[] },
): JSX.Element {
  return (
    <Page title="Recovery codes" frame={frame} section="account">
      <section class="card form-card" data-secret="">
        <h1>Store your recovery codes</h1>
        <p class="lead">
          Two-step sign-in is on. Each of these codes opens your account once if
          you lose the app. They are shown only now.
        </p>
        <pre
          class="codes"
          id="codes"
          tabindex={0}
          aria-label="Recovery codes"
          data-secret-value=""
        >{codes.join("\n")}</pre>
        <form class="actions spread" method="get" action="/account">
          <label class="box">
            <input type="checkbox" required data-stored="" />
            I have stored them
          </label>
          <div class="buttons">
            <CopyButton source="codes" look="" />
            <button class="primary" type="submit">Done</button>
          </div>
        </form>
      </section>
    </Page>
  );
}
