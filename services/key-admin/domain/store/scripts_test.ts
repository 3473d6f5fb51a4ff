import assert from "node:assert/strict";

const SERVICE = new URL("../../", import.meta.url);
/** A call of a script, with its command and how its first argument begins. */
const CALL = /redis\.call\('([A-Z]+)',?\s*([A-Za-z]*)/g;
const WITHOUT_KEY = ["TIME"];

function* sources(folder: URL): Generator<URL> {
  for (const { name, isDirectory } of Deno.readDirSync(folder)) {
    if (isDirectory) yield* sources(new URL(`${name}/`, folder));
    else if (!/_(test|fixture)\.tsx?$/.test(name)) yield new URL(name, folder);
  }
}

Deno.test("every script names the Redis keys it uses in KEYS, as ACLs and clusters need", async () => {
  const strays: string[] = [];
  for (const file of sources(SERVICE)) {
    const text = await Deno.readTextFile(file);
    for (const [call, command = "", argument] of text.matchAll(CALL)) {
      if (argument === "KEYS" || WITHOUT_KEY.includes(command)) continue;
      strays.push(`${file.pathname}: ${call}`);
    }
  }
  assert.deepEqual(strays, []);
});
