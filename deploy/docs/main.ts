/** Brings the generated parts of the documentation up to date. */
import { withConfiguration } from "./configuration.ts";

const page = new URL("../../docs/operating.md", import.meta.url);
await Deno.writeTextFile(
  page,
  withConfiguration(await Deno.readTextFile(page)),
);
