/** The request of the page "Try it" as code. */
import { LANGUAGES } from "../../../domain/try/code.ts";
import { Copyable } from "../../view/parts.tsx";

/** The same request for programs. */
export const TryCode = (
  { code }: { code: Readonly<Record<typeof LANGUAGES[number], string>> },
) => (
  <section class="card">
    <div>
      <h2>The same request as code</h2>
      <p class="help">
        It uses the key in <code>OPENAI_API_KEY</code>.
      </p>
    </div>
    {LANGUAGES.map((language, at) => (
      <details name="code" open={at === 0}>
        <summary>{language}</summary>
        <Copyable id={`code-${language}`} label={language}>
          {code[language]}
        </Copyable>
      </details>
    ))}
  </section>
);
