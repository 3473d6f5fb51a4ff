/** The users of `deploy/redis/users.acl`, for a Redis that a test has started itself. */

const FILE = new URL("../../../deploy/redis/users.acl", import.meta.url);

/**
 * The rules of one user with a password of the test's, as `ACL SETUSER` takes them:
 * `["edge-auth", "on", ">secret", "resetkeys", …]`. A user without a password has none.
 */
export async function aclRules(user: string, password: string) {
  const text = (await Deno.readTextFile(FILE)).replaceAll(/\n +/g, " ");
  const line = text.split("\n").find((each) =>
    each.startsWith(`user ${user} `)
  );
  if (line === undefined) throw new Error(`No user ${user} in ${FILE}`);
  return line.replace(/#@\w+@/, `>${password}`).split(" ").slice(1);
}
