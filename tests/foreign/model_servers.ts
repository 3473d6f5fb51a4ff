/**
 * Guarantee: the gateway works with model servers that nobody here wrote, which
 * show what our own stand-ins cannot. Run by `deno task test:foreign`.
 */
import OpenAI from "openai";
import { checkSdk } from "../compat/sdk_checks.ts";
import { startCluster } from "../support/cluster.ts";
import { installedServers } from "./servers.ts";

const installed = await installedServers();
if (installed.length === 0) throw new Error("No model server is installed");

for (const software of installed) {
  Deno.test(`the gateway in front of ${software.name}`, async (t) => {
    await using server = await software.start();
    await using cluster = await startCluster({
      env: {
        UPSTREAM_BASE_URL: server.baseUrl,
        UPSTREAM_MODEL: server.model,
        UPSTREAM_DIALECT: software.dialect,
      },
    });
    const client = new OpenAI({
      baseURL: cluster.baseUrl(),
      apiKey: cluster.state.api_key,
      maxRetries: 0,
    });
    await checkSdk(t, client, software);
  });
}
