/**
 * The house rule `reaches-through`: an object uses what it was given, not what it finds
 * behind it. `this.#run.dispatcher.options.bus` ties a class to the build of three
 * others, and its test needs all of them.
 */

/** Members from `this` on: a field, an object in it, and what that is asked for. */
const MEMBERS_MAX = 3;

/**
 * What the names of a block stand for: how many members of `this` they are reached
 * through; null: something else.
 */
type Names = Map<string, number | null>;

type Binding = Deno.lint.Node | Deno.lint.Parameter | null;

/** A member of an object, named in the source. */
function isNamedMember(
  node: Deno.lint.Node,
): node is Deno.lint.MemberExpression {
  return node.type === "MemberExpression" && !node.computed;
}

/** `a?.b` is read like `a.b`. */
function isChain(
  node: Deno.lint.Node,
): node is Deno.lint.MemberExpression | Deno.lint.ChainExpression {
  return node.type === "ChainExpression" || isNamedMember(node);
}

/** Keeps what constants stand for while a file is walked. */
class Scopes {
  readonly #scopes: Names[] = [new Map()];

  enter(...parameters: readonly Binding[]): void {
    this.#scopes.push(new Map());
    for (const each of parameters) this.declare(each, null);
  }

  leave(): void {
    this.#scopes.pop();
  }

  /** Gives the names in a pattern their meaning. */
  declare(pattern: Binding, members: number | null): void {
    switch (pattern?.type) {
      case "Identifier":
        this.#scopes.at(-1)?.set(pattern.name, members);
        return;
      case "ObjectPattern":
        for (const each of pattern.properties) {
          const isMember = each.type === "Property" && !each.computed;
          const inside = members === null || !isMember ? null : members + 1;
          this.declare(each.type === "Property" ? each.value : each, inside);
        }
        return;
      case "ArrayPattern":
        for (const each of pattern.elements) this.declare(each, null);
        return;
      case "AssignmentPattern":
        return this.declare(pattern.left, members);
      case "RestElement":
        return this.declare(pattern.argument, null);
      case "TSParameterProperty":
        return this.declare(pattern.parameter, null);
    }
  }

  /** How many members of `this` an expression is reached through. */
  membersOf(expression: Deno.lint.Node | null): number | null {
    let members = 0;
    let node = expression;
    while (node !== null && isChain(node)) {
      if (node.type === "MemberExpression") members += 1;
      node = node.type === "MemberExpression" ? node.object : node.expression;
    }
    if (node?.type === "ThisExpression") return members;
    if (node?.type !== "Identifier") return null;
    const before = this.#lookUp(node.name);
    return before === null ? null : before + members;
  }

  #lookUp(name: string): number | null {
    const scope = this.#scopes.findLast((names) => names.has(name));
    return scope?.get(name) ?? null;
  }
}

/** How many objects a pattern goes into. */
function depthOf(pattern: Binding): number {
  if (pattern?.type === "AssignmentPattern") return depthOf(pattern.left);
  if (pattern?.type !== "ObjectPattern") return 0;
  const depths = pattern.properties.map((each) =>
    each.type === "Property" ? 1 + depthOf(each.value) : 0
  );
  return Math.max(0, ...depths);
}

/** Whether a chain goes on beyond this part of it. */
function goesOn(node: Deno.lint.MemberExpression): boolean {
  const around: Deno.lint.Node = node.parent.type === "ChainExpression"
    ? node.parent.parent
    : node.parent;
  const inner = node.parent.type === "ChainExpression" ? node.parent : node;
  return isNamedMember(around) && around.object === inner;
}

/**
 * `this.#run.dispatcher.options.bus`, also in steps:
 * `const { dispatcher } = this.#run; dispatcher.options.bus`.
 */
export const reachesThrough: Deno.lint.Rule = {
  create(context) {
    const scopes = new Scopes();
    function check(node: Deno.lint.Node, members: number): void {
      if (members <= MEMBERS_MAX) return;
      context.report({
        node,
        message: `A value is reached through ${members} members of "this"`,
        hint: "Take what is used itself, as a narrow interface, or ask the " +
          "object in between for it",
      });
    }
    const enterFunction = (
      { params }: { params: readonly Deno.lint.Parameter[] },
    ) => scopes.enter(...params);
    const leave = () => scopes.leave();
    return {
      ArrowFunctionExpression: enterFunction,
      "ArrowFunctionExpression:exit": leave,
      FunctionDeclaration: enterFunction,
      "FunctionDeclaration:exit": leave,
      FunctionExpression: enterFunction,
      "FunctionExpression:exit": leave,
      BlockStatement: () => scopes.enter(),
      "BlockStatement:exit": leave,
      CatchClause: ({ param }) => scopes.enter(param),
      "CatchClause:exit": leave,
      MemberExpression(node) {
        if (goesOn(node)) return;
        check(node, scopes.membersOf(node) ?? 0);
      },
      VariableDeclarator({ id, init, parent }) {
        const isConstant = parent.kind === "const";
        const members = scopes.membersOf(init);
        const depth = depthOf(id);
        if (members !== null && depth > 0) check(id, members + depth);
        scopes.declare(id, isConstant ? members : null);
      },
    };
  },
};
