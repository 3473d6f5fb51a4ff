import { runStandIn } from "./stand_in.ts";

runStandIn(
  "edge-auth",
  Number(Deno.env.get("PORT")),
  (request) =>
    new URL(request.url).pathname === "/v1/models"
      ? Response.json({ object: "list", data: [{ id: "stand-in-1" }] })
      : new Response("data: [DONE]\n\n"),
);
