import type { JSX } from "hono/jsx/jsx-runtime";
import type { Assets } from "../assets.ts";
import { Card } from "./frame.tsx";

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
