import type { JSX } from "hono/jsx/jsx-runtime";
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { CopyButton } from "./copy_button.tsx";

/** A request to try, with the key in a variable so that it stays out of the shell's history. */
export function Curl(
  { apiUrl, model = DEFAULT_MODEL_ID }: {
    apiUrl: string;
    /** One that the key may use. */
    model?: string | undefined;
  },
): JSX.Element {
  const command = `curl ${apiUrl}/chat/completions \\
  -H "Authorization: Bearer $API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": "${model}",
       "messages": [{"role": "user", "content": "Hello"}]}'`;
  return (
    <div class="code">
      <pre
        tabindex={0}
        aria-label="Example request"
      ><code id="curl">{command}</code></pre>
      <CopyButton source="curl" />
    </div>
  );
}
