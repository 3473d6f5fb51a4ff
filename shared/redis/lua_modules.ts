/**
 * The modules of a script. Redis runs all of a script for each call, so each
 * function takes time to be defined in each of them, and a third of those of an
 * admission are about budgets and end users, which few keys have.
 *
 * A module is a text that ends with `return` at the start of a line, as is usual in
 * Lua.
 */

/** Where a file returns its module. */
const RETURN = /^return /m;

/** The text of a module with an assignment instead of its `return`. */
function bodyOf(text: string, assignment: string): string {
  if (!RETURN.test(text)) throw new TypeError(`No module: ${text}`);
  return text.replace(RETURN, assignment);
}

/**
 * Lua that makes a module for each call, as the local variable `name`. Throws
 * `TypeError` where the text returns none.
 */
export function eagerModule(name: string, text: string): string {
  return `local ${name}\ndo\n${bodyOf(text, `${name} = `)}end\n`;
}

/**
 * Lua that makes a module when a call first needs it: `name()` returns it. Throws as
 * {@link eagerModule} does.
 */
export function lazyModule(name: string, text: string): string {
  const made = `${name}_MADE`;
  return `local ${made}
local function ${name}()
if ${made} then return ${made} end
${bodyOf(text, `${made} = `)}
return ${made}
end
`;
}
