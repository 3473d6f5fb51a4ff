/** A list of models that changes again and again, and the file that has it. */

/** The variable that names the key of the servers. */
export const KEY_ENV = "CHANGING_API_KEY";

/**
 * The list after a number of changes: of servers, weights, and models that go.
 */
export function listAfter(changes: number, urls: readonly string[]): string {
  const [one = "", other = ""] = changes % 2 === 0 ? urls : urls.toReversed();
  const backend = (model: string, base_url: string, more: object = {}) => (
    { type: "openai", model, base_url, api_key_env: KEY_ENV, ...more }
  );
  const chat = (id: string) => ({
    id,
    backends: [
      backend("neutral-3.7-plus", one, { name: "one" }),
      backend("neutral-3.7-plus", other, {
        name: "other",
        weight: changes % 5 + 1,
        headers: { "x-change": `${changes}` },
      }),
    ],
  });
  const speech = {
    id: "spoken",
    kind: "speech",
    backends: [backend("simulated-speech-1", one)],
  };
  const models = [chat("steady"), speech, chat(`extra-${changes}`)];
  return JSON.stringify({ models });
}

/**
 * A list that disagrees with all of those: `steady` has a lower bound and prices,
 * `spoken` is another kind of model, one model is new, and their extra ones are gone.
 */
export function otherList(url: string): string {
  const backends = [{
    type: "openai",
    base_url: url,
    model: "neutral-3.7-plus",
    api_key_env: KEY_ENV,
  }];
  const steady = { output_tokens: 50, prices: { input: "1", output: "1" } };
  return JSON.stringify({
    models: [
      { id: "steady", ...steady, backends },
      { id: "spoken", backends },
      { id: "added", backends },
    ],
  });
}

/** Replaces a file as editors do. */
export async function replace(path: string, text: string): Promise<void> {
  await Deno.writeTextFile(`${path}~`, text);
  await Deno.rename(`${path}~`, path);
}
