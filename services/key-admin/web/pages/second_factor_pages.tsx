import type { JSX } from "hono/jsx/jsx-runtime";
import { CopyButton } from "./copy_button.tsx";
import { FormErrors, FormToken, type Frame, Page } from "./frame.tsx";
import { PasswordField } from "./sign_in_fields.tsx";
import { QrCode } from "./qr_code.tsx";

/** What the page that switches two-step sign-in on shows. */
export interface SecondFactorProps {
  frame: Frame;
  secret: string;
  uri: string;
  ticket: string;
  errors: readonly string[];
}

/** Sets the second factor up: the app reads the secret, a code proves that it did. */
export function SecondFactorPage(props: SecondFactorProps): JSX.Element {
  return (
    <Page title="Two-step sign-in" frame={props.frame} section="account">
      <section class="card form-card">
        <h1>Two-step sign-in</h1>
        <FormErrors errors={props.errors} />
        <ol class="steps">
          <li>
            <Secret {...props} />
          </li>
          <li>
            <Proof {...props} />
          </li>
        </ol>
      </section>
    </Page>
  );
}

function Secret({ secret, uri }: SecondFactorProps): JSX.Element {
  return (
    <>
      <p>
        Scan this with an authenticator app, or{" "}
        <a href={uri}>open it on this device</a>.
      </p>
      <QrCode text={uri} label="QR code for your authenticator app" />
      <p class="faint">
        Or type the secret:{" "}
        <code class="wrap">{secret.match(/.{1,4}/g)?.join(" ")}</code>
      </p>
    </>
  );
}

function Proof({ frame, ticket }: SecondFactorProps): JSX.Element {
  return (
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
          title="Six digits"
          maxlength={10}
          autocomplete="one-time-code"
          autofocus
        />
      </div>
      <PasswordField label="Your password" />
      <div class="actions">
        <a class="button" href="/account">Cancel</a>
        <button class="primary" type="submit">Switch on</button>
      </div>
    </form>
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
