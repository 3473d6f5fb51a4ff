/** Writes the generated pages and the schema of the models file: `deno task docs`. */
import { GENERATED, writeGeneratedFiles } from "./pages.ts";

const USAGE = `Usage: deno task docs

Writes from the code:
${GENERATED.map((path) => `  ${path}\n`).join("")}`;

if (Deno.args.length === 0) {
  await writeGeneratedFiles();
} else {
  await Deno.stdout.write(new TextEncoder().encode(USAGE));
}
