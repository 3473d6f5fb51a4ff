/** The examples of docs/admin_api.md do what they say, run as they are written. */
import assert from "node:assert/strict";
import { listen, startAdmin } from "./admin_fixture.ts";

const DOCUMENT = new URL("../../../docs/admin_api.md", import.meta.url);

/** The commands of a section. */
function commandsOf(text: string, title: string): string {
  const [, section = ""] = text.split(`\n## ${title}\n`);
  const [own = ""] = section.split("\n## ");
  const blocks = [...own.matchAll(/```sh\n(.*?)```/gs)];
  assert.ok(blocks.length > 0, title);
  return blocks.map(([, block]) => block).join("\n");
}

Deno.test("a key for a CI job, off-boarding and the export of a month work as documented", async () => {
  const { site, value } = await startAdmin();
  await using _ = site;
  await using server = listen(site);
  const { owners, keys, now } = site.deps;
  const ada = await owners.ensure("ada@example.org");
  const text = await Deno.readTextFile(DOCUMENT);
  const month = new Date(now()).toISOString().slice(0, 7);
  const folder = await Deno.makeTempDir();
  const run = async (title: string) => {
    const script = commandsOf(text, title)
      .replaceAll("https://console.example.org", server.origin)
      .replaceAll("sk-admin-…", value)
      .replaceAll("own_…", ada)
      .replaceAll("2026-10", month);
    const begin = `export ADMIN=${server.origin}/admin/v1 KEY=${value}\n`;
    const { success, stdout, stderr } = await new Deno.Command("sh", {
      args: ["-euc", begin + script],
      cwd: folder,
    }).output();
    const [out, err] = [stdout, stderr].map((bytes) =>
      new TextDecoder().decode(bytes)
    );
    assert.ok(success, `${title}: ${err}`);
    assert.ok(!out?.includes('"error"'), `${title}: ${out}`);
    return out ?? "";
  };
  const page = { filter: "all" as const, search: "", after: "", rows: 9 };
  const made = await run("Make a key for a CI job");
  assert.match(made, /"email":"ada@example\.org".*"key":"sk-Cg/s);
  const { rows } = await keys.list(ada, { ...page, day: "20990101" });
  assert.deepEqual(rows.map(({ key }) => key.description), ["Nightly build"]);
  await run("Take somebody off board");
  assert.equal((await owners.read(ada))?.isDisabled, true);
  const months = await run("Export a month");
  assert.ok(months.includes(month));
  const csv = await Deno.readTextFile(`${folder}/${month}.csv`);
  assert.match(csv, /^\uFEFF?month,account,account_id,key_id/);
  await Deno.remove(folder, { recursive: true });
});
