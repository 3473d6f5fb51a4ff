import type { JSX } from "hono/jsx/jsx-runtime";
import type { Link } from "../../sign_in/links.ts";
import { PASSWORD_CHARS_MIN } from "../../sign_in/password.ts";
import type { Assets } from "../assets.ts";
import { Icon } from "./icon.tsx";
import { Card, FormErrors, FormToken, type Frame } from "./frame.tsx";

/** Sign-in. One form for everything, so that it does not tell which part was wrong. */
export function SignInPage(
  { assets, email, next, errors, oidcName, isSetUp }: {
    assets: Assets;
    email: string;
    /** Where to go afterwards; a path of the console. */
    next: string;
    errors: readonly string[];
    oidcName: string | null;
    /** False: nobody has an account yet. */
    isSetUp: boolean;
  },
): JSX.Element {
  return (
    <Card title="Sign in" assets={assets}>
      <FormErrors errors={errors} />
      {!isSetUp && (
        <p class="banner note">
          <Icon name="key" />
          <span>
            Nobody has an account yet. The service prints a one-time set-up link
            when it starts, and the command <code>owners set-up</code>{" "}
            prints a new one.
          </span>
        </p>
      )}
      {oidcName !== null && (
        <>
          <a class="button primary wide" href="/sign-in/oidc">
            Continue with {oidcName}
          </a>
          <p class="or">
            <span>or</span>
          </p>
        </>
      )}
      <form method="post" action="/sign-in" data-once="">
        <input type="hidden" name="next" value={next} />
        <div class="field">
          <label for="email">E-mail</label>
          <input
            id="email"
            name="email"
            type="email"
            value={email}
            required
            autocomplete="username"
            maxlength={254}
            autofocus={email === ""}
          />
        </div>
        <div class="field">
          <label for="password">Password</label>
          <input
            id="password"
            name="password"
            type="password"
            required
            autocomplete="current-password"
            autofocus={email !== ""}
          />
        </div>
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
        <button class="primary wide" type="submit">Sign in</button>
      </form>
    </Card>
  );
}

const LINK_TEXT: Record<
  Link["kind"],
  [title: string, lead: string, button: string]
> = {
  set_up: [
    "Set up the console",
    "You are the first owner. Keys that were made before now are yours.",
    "Create account",
  ],
  invite: [
    "Welcome",
    "Choose a password for your account.",
    "Create account",
  ],
  reset: ["New password", "Choose a new password.", "Save and sign in"],
};

/** What a set-up, invitation or reset link opens. */
export function LinkPage({ assets, link, path, email, errors }: {
  assets: Assets;
  link: Link;
  path: string;
  email: string;
  errors: readonly string[];
}): JSX.Element {
  const [title, lead, button] = LINK_TEXT[link.kind];
  return (
    <Card title={title} assets={assets} lead={lead}>
      <FormErrors errors={errors} />
      <form method="post" action={path} data-once="">
        <div class="field">
          <label for="email">E-mail</label>
          <input
            id="email"
            name="email"
            type="email"
            value={email}
            required
            readonly={link.kind !== "set_up"}
            autocomplete="username"
            maxlength={254}
            autofocus={email === ""}
          />
        </div>
        <NewPasswordField label="Password" isNext={email !== ""} />
        <button class="primary wide" type="submit">{button}</button>
      </form>
    </Card>
  );
}

/** A new password, typed once: it can be looked at, pasted, and made by a password manager. */
export function NewPasswordField(
  { label, isNext = false }: {
    label: string;
    /** What the page goes on with, so it has the focus. */
    isNext?: boolean;
  },
): JSX.Element {
  return (
    <div class="field">
      <label for="new_password">{label}</label>
      <div class="with-button">
        <input
          id="new_password"
          name="new_password"
          type="password"
          required
          minlength={PASSWORD_CHARS_MIN}
          autocomplete="new-password"
          autofocus={isNext}
          aria-describedby="new-password-help"
        />
        <button
          class="quiet small"
          type="button"
          data-reveal="new_password"
          hidden
        >
          Show
        </button>
      </div>
      <p class="help" id="new-password-help">
        At least {PASSWORD_CHARS_MIN} characters. A few words in a row are fine.
      </p>
    </div>
  );
}

/** Asks for the password again within a session, before something that matters. */
export function ConfirmPage({ frame, next, errors }: {
  frame: Frame;
  next: string;
  errors: readonly string[];
}): JSX.Element {
  return (
    <Card
      title="Is it still you?"
      assets={frame.assets}
      lead="You signed in over an hour ago. Making and deleting keys asks for your password again."
    >
      <FormErrors errors={errors} />
      <form method="post" action="/confirm" data-once="">
        <FormToken frame={frame} />
        <input type="hidden" name="next" value={next} />
        <input
          type="hidden"
          autocomplete="username"
          value={frame.email}
        />
        <div class="field">
          <label for="password">Password of {frame.email}</label>
          <input
            id="password"
            name="password"
            type="password"
            required
            autocomplete="current-password"
            autofocus
          />
        </div>
        <div class="actions">
          <a class="button" href="/keys">Cancel</a>
          <button class="primary" type="submit">Continue</button>
        </div>
      </form>
    </Card>
  );
}

/** Where the status says more than that it did not work. */
const REFUSED_TITLES: ReadonlyMap<number, string> = new Map([
  [403, "Not allowed"],
  [404, "Not found"],
  [429, "Not so fast"],
  [503, "Not available now"],
]);

/** The button of a refusal, by where it leads. */
const BACK_LABELS: ReadonlyMap<string, string> = new Map([
  ["/sign-in", "To the sign-in"],
  ["/keys", "To your keys"],
]);

/** Says why something was not done, and where to go on. */
export function RefusedPage(
  { assets, status, message, requestId, back, here }: {
    assets: Assets;
    status: number;
    message: string;
    requestId: string;
    back: string;
    /** What was asked for: leading there is trying again. */
    here: string;
  },
): JSX.Element {
  const label = back === here
    ? "Try again"
    : URL.canParse(back)
    ? "To the console"
    : BACK_LABELS.get(back);
  return (
    <Card
      title={REFUSED_TITLES.get(status) ?? "That did not work"}
      assets={assets}
    >
      <p>{message}.</p>
      <p class="help">
        {status} · request {requestId}
      </p>
      <div class="actions">
        <a class="button primary" href={back}>
          {label ?? "Go back"}
        </a>
      </div>
    </Card>
  );
}
