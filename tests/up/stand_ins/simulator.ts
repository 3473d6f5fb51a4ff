import { runStandIn } from "./stand_in.ts";

runStandIn(
  "model-simulator",
  Number(Deno.env.get("PORT")),
  () => new Response("simulator"),
);
