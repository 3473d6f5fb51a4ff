import { hasFault, logLine, runStandIn } from "./stand_in.ts";

runStandIn(
  "key-admin",
  Number(Deno.env.get("PORT")),
  () => new Response("console"),
);
if (!hasFault("key-admin", "no-setup-link")) {
  logLine({
    event: "setup_link",
    url: `${Deno.env.get("PUBLIC_URL")}/setup#one-time`,
  });
}
