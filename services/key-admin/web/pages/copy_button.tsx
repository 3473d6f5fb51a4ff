import type { JSX } from "hono/jsx/jsx-runtime";
import { Icon } from "./icon.tsx";

/**
 * Copies the text of the element `source`. Shown by the script, which it needs.
 * With `isIcon` the words are for screen readers only.
 */
export function CopyButton(
  { source, label = "Copy", look = "quiet small", isIcon = false }: {
    source: string;
    label?: string;
    look?: string;
    isIcon?: boolean;
  },
): JSX.Element {
  return (
    <button
      class={isIcon ? "quiet small only-icon" : look}
      type="button"
      data-copy={source}
      title={isIcon ? label : undefined}
      hidden
    >
      <Icon name="copy" />{" "}
      <span class={isIcon ? "hidden" : undefined} data-copy-label="">
        {label}
      </span>
    </button>
  );
}
