import type { JSX } from "hono/jsx/jsx-runtime";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { CopyButton } from "./copy_button.tsx";
import { type Frame, Page } from "./frame.tsx";
import { Icon } from "./icon.tsx";
import { Curl } from "./curl.tsx";

/**
 * The one page that ever has a full key value. It is the answer to the request
 * that made the key, is never stored by browsers, and cannot be loaded again.
 */
export function CreatedPage({ frame, keyRecord, value, apiUrl, replaces }: {
  frame: Frame;
  keyRecord: KeyRecord;
  value: string;
  apiUrl: string;
  /** Description of when the old key of a rotation ends. */
  replaces: string | null;
}): JSX.Element {
  return (
    <Page title="Store your key" frame={frame} section="keys">
      <section class="card form-card" data-secret="">
        <h1>Store your key now</h1>
        <p class="lead">
          This is the only time you see the full value of{" "}
          <strong>
            <bdi>{keyRecord.description}</bdi>
          </strong>. It cannot be shown again: whoever loses it makes a new one.
        </p>
        <Value value={value} />
        {replaces && (
          <p class="banner note">
            <Icon name="rotate" />
            <span>{replaces}</span>
          </p>
        )}
        <h2>Try it</h2>
        <p>
          Put the key into the variable <code>API_KEY</code>{" "}
          of your server's environment, not into code or a browser.
        </p>
        <Curl apiUrl={apiUrl} model={keyRecord.models[0]} />
        <form class="actions spread" method="get" action="/keys">
          <label class="box">
            <input type="checkbox" required data-stored="" />
            I have stored it
          </label>
          <button class="primary" type="submit">Done</button>
        </form>
      </section>
    </Page>
  );
}

function Value({ value }: { value: string }): JSX.Element {
  return (
    <>
      <label for="value">API key</label>
      <div class="secret">
        <input
          id="value"
          value={value}
          readonly
          spellcheck={false}
          autocomplete="off"
          data-secret-value=""
        />
        <CopyButton source="value" look="primary" />
      </div>
    </>
  );
}

/** The same form came twice: the key is there, its value was in the first answer. */
export function AlreadyCreatedPage({ frame }: { frame: Frame }): JSX.Element {
  return (
    <Page title="Already created" frame={frame} section="keys">
      <section class="card form-card">
        <h1>This key was already created</h1>
        <p>
          The form was sent twice and made one key. Its full value was in the
          first answer only. If you did not store it, delete the key and make a
          new one.
        </p>
        <div class="actions">
          <a class="button primary" href="/keys">To the keys</a>
        </div>
      </section>
    </Page>
  );
}
