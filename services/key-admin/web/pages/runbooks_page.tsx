/**
 * What to do when an alert fires, for whoever follows its link. Made from
 * docs/troubleshooting.md, and as public as that: it needs no sign-in.
 */
import type { Handler, Routes } from "../context.ts";
import { recognize } from "../request/session.ts";
import { Page } from "../view/layout.tsx";
import { Prose } from "../view/prose.tsx";
import runbooks from "./runbooks.json" with { type: "json" };

const showRunbooks: Handler = async (c) => {
  await recognize(c);
  return (
    <Page
      c={c}
      title="When an alert fires"
      lead="“Page” means that callers are affected now; “ticket”, that they soon will be, or that something is wrong."
    >
      {runbooks.map(({ alert, text }) => (
        <section class="card" key={alert} aria-labelledby={idOf(alert)}>
          <h2 id={idOf(alert)}>{alert}</h2>
          <Prose text={text} />
        </section>
      ))}
    </Page>
  );
};

/** Returns the anchor of a heading, as GitHub and others make it. */
const idOf = (alert: string): string => alert.toLowerCase();

/** The route that the links of alerts lead to. */
export const runbookRoutes: Routes = { "/runbooks": { GET: showRunbooks } };
