import type { JSX } from "hono/jsx/jsx-runtime";
import { Card, FormErrors, FormToken, type Frame } from "./frame.tsx";
import { PasswordField } from "./sign_in_fields.tsx";

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
        <PasswordField label={`Password of ${frame.email}`} isNext />
        <div class="actions">
          <a class="button" href="/keys">Cancel</a>
          <button class="primary" type="submit">Continue</button>
        </div>
      </form>
    </Card>
  );
}
