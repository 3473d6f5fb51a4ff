import type { JSX } from "hono/jsx/jsx-runtime";

/** A step to another page, or its place when there is none. */
export function PagerLink(
  { label, to }: { label: string; to: string | null },
): JSX.Element {
  return to === null
    ? <span class="button small" aria-disabled="true">{label}</span>
    : <a class="button small" href={to}>{label}</a>;
}
