import type { JSX } from "hono/jsx/jsx-runtime";
import { type Session, SESSION_LIMITS } from "../../domain/sign_in/sessions.ts";
import { FormToken, type Frame } from "./frame.tsx";
import { Time } from "./values.tsx";

const IDLE_MINUTES = SESSION_LIMITS.idleMs / 60_000;

/** Where the owner is signed in, this browser first. */
export function SessionsCard({ frame, sessions, currentId }: {
  frame: Frame;
  sessions: readonly Session[];
  currentId: string;
}): JSX.Element {
  const rank = ({ id }: Session) => id === currentId ? 0 : 1;
  const currentFirst = (a: Session, b: Session) => rank(a) - rank(b);
  return (
    <section class="card split" aria-labelledby="sessions-title">
      <div>
        <h2 id="sessions-title">Where you are signed in</h2>
        <p class="help">
          A session ends by itself after {IDLE_MINUTES} minutes without use.
        </p>
      </div>
      <div>
        <ul class="sessions">
          {sessions.toSorted(currentFirst).map((session) => (
            <SessionLine
              key={session.id}
              frame={frame}
              session={session}
              isCurrent={session.id === currentId}
            />
          ))}
        </ul>
        <form method="post" action="/account/sessions/end-all">
          <FormToken frame={frame} />
          <button class="danger-text" type="submit">Sign out everywhere</button>
        </form>
      </div>
    </section>
  );
}

function SessionLine({ frame, session, isCurrent }: {
  frame: Frame;
  session: Session;
  isCurrent: boolean;
}): JSX.Element {
  return (
    <li>
      <div>
        <strong>{deviceName(session.userAgent)}</strong>{" "}
        {isCurrent && <span class="badge on">This device</span>}
        <p class="faint">
          {session.ip} · signed in <Time ms={session.createdAtMs} as="minute" />
          {" "}
          · last seen <Time ms={session.seenAtMs} as="relative" />
        </p>
      </div>
      {!isCurrent && (
        <form method="post" action="/account/sessions/end">
          <FormToken frame={frame} />
          <input type="hidden" name="session" value={session.id} />
          <button class="small" type="submit">Sign out</button>
        </form>
      )}
    </li>
  );
}

/** `Firefox on Windows`, as far as a user agent tells. */
function deviceName(userAgent: string): string {
  const browser = [
    [/Edg\//, "Edge"],
    [/Firefox\//, "Firefox"],
    [/Chrome\//, "Chrome"],
    [/Safari\//, "Safari"],
  ] as const;
  const system = [
    [/iPhone|iPad/, "iOS"],
    [/Android/, "Android"],
    [/Windows/, "Windows"],
    [/Mac OS X/, "macOS"],
    [/Linux/, "Linux"],
  ] as const;
  const name = browser.find(([form]) => form.test(userAgent))?.[1] ??
    "A browser";
  const on = system.find(([form]) => form.test(userAgent))?.[1];
  return on === undefined ? name : `${name} on ${on}`;
}
