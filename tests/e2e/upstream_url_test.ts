// A gateway that is told of one model server by UPSTREAM_BASE_URL alone, with all that
// operators observe. The promises are in the files of the checks.
import { startGateway } from "../support/gateway/gateway.ts";
import {
  offersInConsole,
  offersToClients,
} from "./discovery/one_server_checks.ts";
import { startListingServer } from "./discovery/listing_server_fixture.ts";
import { checkObservability, SpanCollector } from "./observability_checks.ts";

Deno.test("a gateway with UPSTREAM_BASE_URL", async (t) => {
  const listed = ["bge-m3", "llama3.2:latest", "org/qwen3:8b"];
  await using server = startListingServer([...listed]);
  await using collector = new SpanCollector();
  await using gateway = await startGateway("launched", {
    edges: 2,
    env: { UPSTREAM_BASE_URL: server.baseUrl, ...collector.env },
  });

  await t.step(
    "offers clients every model of the server, and ours as the first",
    () => offersToClients(gateway, server, listed),
  );

  await t.step(
    "shows a request from the caller to the model server",
    (t) => checkObservability(t, { gateway, server, spans: collector.spans }),
  );

  await t.step(
    "offers the models in the console, for keys and to try",
    () => offersInConsole(gateway),
  );
});
