import type { JSX } from "hono/jsx/jsx-runtime";
import type { Link } from "../../domain/sign_in/links.ts";
import type { Assets } from "../assets.ts";
import { Card, FormErrors } from "./frame.tsx";
import { EmailField, NewPasswordField } from "./sign_in_fields.tsx";

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
        <EmailField value={email} isGiven={link.kind !== "set_up"} />
        <NewPasswordField label="Password" isNext={email !== ""} />
        <button class="primary wide" type="submit">{button}</button>
      </form>
    </Card>
  );
}
