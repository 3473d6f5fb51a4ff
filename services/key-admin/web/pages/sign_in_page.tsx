import type { JSX } from "hono/jsx/jsx-runtime";
import type { Assets } from "../assets.ts";
import { Card, FormErrors } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { EmailField, PasswordField } from "./sign_in_fields.tsx";

/** What the sign-in page shows. */
export interface SignInPageProps {
  assets: Assets;
  email: string;
  /** Where to go afterwards; a path of the console. */
  next: string;
  errors: readonly string[];
  oidcName: string | null;
  /** False: nobody has an account yet. */
  isSetUp: boolean;
}

/** Sign-in. One form for everything, so that it does not tell which part was wrong. */
export function SignInPage(props: SignInPageProps): JSX.Element {
  const { assets, next, errors, oidcName, isSetUp } = props;
  return (
    <Card title="Sign in" assets={assets}>
      <FormErrors errors={errors} />
      {!isSetUp && <NotSetUp />}
      {oidcName !== null && <Provider name={oidcName} />}
      <form method="post" action="/sign-in" data-once="">
        <input type="hidden" name="next" value={next} />
        <Fields {...props} />
        <button class="primary wide" type="submit">Sign in</button>
      </form>
    </Card>
  );
}

function NotSetUp(): JSX.Element {
  return (
    <p class="banner note">
      <Icon name="key" />
      <span>
        Nobody has an account yet. The service prints a one-time set-up link
        when it starts, and the command <code>owners set-up</code>{" "}
        prints a new one.
      </span>
    </p>
  );
}

/** Signing in through the organisation's provider. */
function Provider({ name }: { name: string }): JSX.Element {
  return (
    <>
      <a class="button primary wide" href="/sign-in/oidc">
        Continue with {name}
      </a>
      <p class="or">
        <span>or</span>
      </p>
    </>
  );
}

function Fields({ email }: SignInPageProps): JSX.Element {
  return (
    <>
      <EmailField value={email} />
      <PasswordField label="Password" isNext={email !== ""} />
      <div class="field">
        <label for="code">
          Code <span class="faint">if you use two-step sign-in</span>
        </label>
        <input
          id="code"
          name="code"
          autocomplete="one-time-code"
          inputmode="text"
          spellcheck={false}
          maxlength={40}
          aria-describedby="code-help"
        />
        <p class="help" id="code-help">
          From your authenticator app, or one of your recovery codes.
        </p>
      </div>
    </>
  );
}
