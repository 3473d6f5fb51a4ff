import { testInBrowser } from "../../services/key-admin/browser/chromium_fixture.ts";

testInBrowser(
  "API and console behind the front proxy",
  new URL("proxy_steps_fixture.ts", import.meta.url),
  await hasCaddy(),
);

async function hasCaddy(): Promise<boolean> {
  try {
    const { success } = await new Deno.Command("caddy", {
      args: ["version"],
      stdout: "null",
      stderr: "null",
    }).output();
    return success;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}
