import type { JSX } from "hono/jsx/jsx-runtime";
import { EMAIL_CHARS_MAX } from "../../domain/owners/directory.ts";
import { PASSWORD_CHARS_MIN } from "../../domain/sign_in/password.ts";

/** Fields of forms that people sign in, set up and confirm with. */

/** An owner's address. It has the focus until it is filled in; one that is given stays as it is. */
export function EmailField(
  { value, isGiven = false }: { value: string; isGiven?: boolean },
): JSX.Element {
  return (
    <div class="field">
      <label for="email">E-mail</label>
      <input
        id="email"
        name="email"
        type="email"
        value={value}
        required
        readonly={isGiven}
        autocomplete="username"
        maxlength={EMAIL_CHARS_MAX}
        autofocus={value === ""}
      />
    </div>
  );
}

/** A password that the owner has. */
export function PasswordField(
  { label, id = "password", isNext = false }: {
    label: string;
    id?: string;
    /** What the page goes on with, so it has the focus. */
    isNext?: boolean;
  },
): JSX.Element {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        name="password"
        type="password"
        required
        autocomplete="current-password"
        autofocus={isNext}
      />
    </div>
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
