/**
 * The modules of a script. Redis runs the whole script at each call, so that each call
 * takes the time to define every function. A third of those of an admission are about
 * budgets and end users, which few keys have: a lazy module defines its functions only
 * in calls that need them.
 *
 * A module is a text that ends with a `return` at the start of a line, as is usual in
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
