import type { JSX } from "hono/jsx/jsx-runtime";
import type { Account } from "../../domain/owners/account.ts";
import type { Session } from "../../domain/sign_in/sessions.ts";
import { FormErrors, FormToken, type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { NewPasswordField, PasswordField } from "./sign_in_fields.tsx";
import { SessionsCard } from "./sessions_card.tsx";

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
          <PasswordField label="Current password" id="current_password" />
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

function SecondFactorCard(props: AccountPageProps): JSX.Element {
  const isOn = props.account.totpSecret !== null;
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
      <div>
        {isOn
          ? <SwitchOff {...props} />
          : (
            <a class="button" href="/account/second-factor">
              <Icon name="shield" /> Set up
            </a>
          )}
      </div>
    </section>
  );
}

function SwitchOff({ frame, account, errors }: AccountPageProps): JSX.Element {
  return (
    <>
      <p>
        Signing in asks for a code of your authenticator app. Recovery codes
        left: {account.recoveryCodesLeft}.
      </p>
      <form method="post" action="/account/second-factor/off" data-once="">
        <FormErrors errors={listOf(errors.secondFactor)} />
        <FormToken frame={frame} />
        <PasswordField label="Current password" id="off_password" />
        <div class="actions start">
          <button class="danger-text" type="submit">Switch off</button>
        </div>
      </form>
    </>
  );
}
