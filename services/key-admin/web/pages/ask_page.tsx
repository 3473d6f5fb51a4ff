import type { JSX } from "hono/jsx/jsx-runtime";
import type { Child } from "hono/jsx";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { FormErrors, FormToken, type Frame, Page } from "./frame.tsx";

/** What can be asked about a key before it is done. */
export type Question = "disable" | "delete" | "rotate";

/** What a question is asked with. */
export interface AskProps {
  frame: Frame;
  keyRecord: KeyRecord;
  question: Question;
  /** The key was used within a day: deleting it asks for its last characters. */
  isInUse: boolean;
  nonce: string;
  errors: readonly string[];
}

const TITLES: Record<Question, string> = {
  disable: "Disable this key?",
  delete: "Delete this key?",
  rotate: "Rotate this key",
};

const BUTTONS: Record<Question, string> = {
  disable: "Disable key",
  delete: "Delete key",
  rotate: "Make the new key",
};

/** Asks before something that programs will notice. */
export function AskPage(props: AskProps): JSX.Element {
  const { frame, keyRecord, question, errors } = props;
  return (
    <Page title={TITLES[question]} frame={frame} section="keys">
      <section class="card form-card" data-dialog-body="">
        <h1>{TITLES[question]}</h1>
        <p class="key-line">
          <strong>
            <bdi>{keyRecord.description}</bdi>
          </strong>{" "}
          <code class="hint">{keyRecord.hint}</code>
        </p>
        <FormErrors errors={errors} />
        <form
          method="post"
          action={`/keys/${keyRecord.id}/${question}`}
          data-once=""
        >
          <FormToken frame={frame} />
          <input
            type="hidden"
            name="version"
            value={String(keyRecord.version)}
          />
          <Body {...props} />
          <div class="actions">
            <a class="button" href={`/keys/${keyRecord.id}`} data-close="">
              Cancel
            </a>
            <button
              class={question === "rotate" ? "primary" : "danger"}
              type="submit"
            >
              {BUTTONS[question]}
            </button>
          </div>
        </form>
      </section>
    </Page>
  );
}

function Body(props: AskProps): JSX.Element {
  switch (props.question) {
    case "disable":
      return (
        <>
          <p>
            From the moment you confirm, every request with it is refused. You
            can enable it again at any time.
          </p>
          <StopBox />
        </>
      );
    case "delete":
      return <DeleteBody {...props} />;
    case "rotate":
      return <RotateBody {...props} />;
  }
}

function DeleteBody({ isInUse, keyRecord }: AskProps): JSX.Element {
  return (
    <>
      <p>
        It stops working at once and cannot be brought back. Its entries in the
        audit log stay.
      </p>
      {isInUse
        ? (
          <div class="field">
            <label for="tail">
              It was used within the last day. Type the last four characters of
              its value to confirm.
            </label>
            <input
              id="tail"
              name="tail"
              required
              maxlength={4}
              pattern={keyRecord.hint.slice(-4)}
              autocomplete="off"
              spellcheck={false}
              placeholder={keyRecord.hint.slice(-4)}
            />
          </div>
        )
        : (
          <label class="box">
            <input type="checkbox" name="sure" value="on" required />
            I understand that this cannot be undone
          </label>
        )}
      <StopBox />
    </>
  );
}

/** Has the focus too: a dialog would give it to the first choice, which ends the old key at once. */
const GRACE_SUGGESTED = "24h";

function RotateBody({ nonce }: AskProps): JSX.Element {
  const graces: [value: string, label: Child][] = [
    ["now", "at once"],
    ["1h", "in 1 hour"],
    ["24h", "in 24 hours"],
    ["7d", "in 7 days"],
  ];
  return (
    <>
      <input type="hidden" name="nonce" value={nonce} />
      <p>
        You get a new key with the same settings. Put it into your program while
        the old one still works.
      </p>
      <fieldset class="field">
        <legend>The old key ends</legend>
        <div class="boxes">
          {graces.map(([value, label]) => (
            <label class="box" key={value}>
              <input
                type="radio"
                name="old"
                value={value}
                checked={value === GRACE_SUGGESTED}
                autofocus={value === GRACE_SUGGESTED}
              />
              {label}
            </label>
          ))}
        </div>
      </fieldset>
    </>
  );
}

function StopBox(): JSX.Element {
  return (
    <label class="box">
      <input type="checkbox" name="stop_running" value="on" />
      Also stop requests that are running now
    </label>
  );
}
