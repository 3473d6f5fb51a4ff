import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyFormValues } from "../key_form.ts";
import { FormErrors, FormToken, type Frame, Page } from "./frame.tsx";
import {
  DescriptionField,
  ExpiryField,
  LimitFields,
  ModelsField,
  ScopeFields,
} from "./key_form_fields.tsx";

/** What the form of a key shows. */
export interface KeyFormProps {
  frame: Frame;
  values: KeyFormValues;
  /** Mistakes by field; those of no field under "". */
  errors: ReadonlyMap<string, string>;
  /** A new key carries a nonce, an existing one its version. */
  purpose:
    | { kind: "create"; nonce: string }
    | {
      kind: "edit";
      keyId: string;
      version: number;
      expiresAtMs: number | null;
    };
}

/** Makes or edits a key. */
export function KeyFormPage(props: KeyFormProps): JSX.Element {
  const { frame, errors, purpose } = props;
  const isNew = purpose.kind === "create";
  const title = isNew ? "Create key" : "Edit key";
  const back = isNew ? "/keys" : `/keys/${purpose.keyId}`;
  return (
    <Page title={title} frame={frame} section="keys">
      <section class="card form-card" data-dialog-body="">
        <h1>{title}</h1>
        <form
          method="post"
          action={isNew ? "/keys" : `/keys/${purpose.keyId}/edit`}
          data-once=""
        >
          <FormToken frame={frame} />
          <Proof {...props} />
          <FormErrors errors={[errors.get("") ?? []].flat()} />
          <DescriptionField {...props} />
          <ExpiryField {...props} />
          <ScopeFields {...props} />
          <LimitFields {...props} />
          <ModelsField {...props} />
          <div class="actions">
            <a class="button" href={back} data-close="">Cancel</a>
            <button class="primary" type="submit">
              {isNew ? "Create key" : "Save changes"}
            </button>
          </div>
        </form>
      </section>
    </Page>
  );
}

/** What keeps a form from being used twice, or over somebody else's change. */
function Proof({ purpose }: KeyFormProps): JSX.Element {
  return purpose.kind === "create"
    ? <input type="hidden" name="nonce" value={purpose.nonce} />
    : <input type="hidden" name="version" value={String(purpose.version)} />;
}
