import assert from "node:assert/strict";
import { createPasswordHasher, passwordProblem } from "./password.ts";

const context = { email: "ada.lovelace@example.org" };

Deno.test("ASVS 6.2: passwords are judged by length and guessability only", async (t) => {
  const cases: [password: string, isFine: boolean][] = [
    ["a".repeat(11), false],
    ["short", false],
    ["correct horse battery staple", true],
    ["Tr0ub4dor&3 with more", true],
    ["mein langes passwort für morgen", true],
    ["密码要够长才行所以我写了很多字", true],
    ["🔑🐎🔋📎🌊🎈🚲🌵🍉🧩🪐🎻", true],
    ["kp9#Lm2$vQ8!xR", true],
    ["jxkvnqpwzrtbm", true],
    ["x".repeat(129), false],
    ["password1234", false],
    ["P@ssw0rd!2024", false],
    ["passwordpassword", false],
    ["adminadmin123", false],
    ["123456789012", false],
    ["qwertyuiop12", false],
    ["1qaz2wsx3edc", false],
    ["aaaaaaaaaaaa", false],
    ["abcabcabcabc", false],
    ["iloveyou2024!", false],
    ["gatewayconsole", false],
    ["ChangeMe12345", false],
    ["lovelace-2024", false],
    ["Ada.Lovelace1", false],
  ];
  for (const [password, isFine] of cases) {
    await t.step(password.slice(0, 40), () => {
      const problem = passwordProblem(password, context);
      assert.equal(problem === null, isFine, problem ?? "accepted");
    });
  }
  const long = "tulip orbit cargo velvet ".repeat(6).slice(0, 128);
  assert.equal(passwordProblem(long, context), null, "128 characters are fine");
});

Deno.test("ASVS 11.4.2: argon2id with 19 MiB, 2 passes, 1 lane", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash("correct horse battery staple");
  assert.match(stored, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  assert.equal(hasher.isOutdated(stored), false);
  assert.equal(hasher.isOutdated("$argon2id$v=19$m=4096,t=1,p=1$x$y"), true);
  assert.notEqual(await hasher.hash("correct horse battery staple"), stored);
  assert.equal(
    await hasher.verify(stored, "correct horse battery staple"),
    true,
  );
  assert.equal(await hasher.verify(stored, "correct horse"), false);
});

Deno.test("the same password in another Unicode form is the same password", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash("caf\u00e9 cr\u00e8me br\u00fbl\u00e9e");
  assert.ok(
    await hasher.verify(stored, "cafe\u0301 cre\u0300me bru\u0302le\u0301e"),
  );
});

Deno.test("ASVS 6.3.8: an account that is not there takes the work of one that is", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash("correct horse battery staple");
  const timeOf = async (hash: string | null) => {
    const startMs = performance.now();
    assert.equal(await hasher.verify(hash, "wrong password"), false);
    return performance.now() - startMs;
  };
  const real: number[] = [];
  const absent: number[] = [];
  for (let round = 0; round < 9; round++) {
    real.push(await timeOf(stored));
    absent.push(await timeOf(null));
  }
  // The work is the same by construction; times of a busy machine only bound it.
  const ratio = Math.min(...absent) / Math.min(...real);
  assert.ok(ratio > 0.5 && ratio < 2, `${ratio}`);
  assert.equal(
    await hasher.verify(null, "nobody has this password"),
    false,
    "the stand-in opens nothing",
  );
});
