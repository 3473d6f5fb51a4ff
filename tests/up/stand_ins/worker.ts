import { runStandIn } from "./stand_in.ts";

runStandIn("chat-worker", 0, () => new Response("worker"));
