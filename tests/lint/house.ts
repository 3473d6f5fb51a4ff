/**
 * The house rules that `deno lint` checks beside its own: what keeps one thing on a
 * line, a function on a screen and every export explained. CONTRIBUTING.md has the
 * rules as prose.
 */
import { reachesThrough } from "./reaches_through.ts";

/** Positional parameters of a function; what needs more takes an object. */
const PARAMETERS_MAX = 3;
/** Members of a pattern in the head of a loop; what needs more is an object. */
const PATTERN_MEMBERS_MAX = 2;
/** Lines of a function, its signature included. */
const FUNCTION_LINES_MAX = 60;
/** Lines of a function in a file with JSX, where markup takes a line per element. */
const JSX_FUNCTION_LINES_MAX = 100;
/** Characters of the title of a test or a step, as it stands in the source. */
const TEST_TITLE_CHARACTERS_MAX = 100;

/**
 * Names that leave open what the thing is: prepositions and participles that stood for
 * too many things.
 */
const RIDDLES: ReadonlySet<string> = new Set([
  "asked",
  "given",
  "known",
  "of",
  "said",
  "told",
]);

/** Assertions and views of bytes, whose signatures are not ours. */
const FOREIGN_CALL = /^assert\b|\.[gs]et(Uint|Int|Float)\d+$/;
/** Calls with one argument that is true or false, whose signatures are not ours. */
const FOREIGN_SETTER =
  /^resolve$|\.(default|includes|literal|resolve|setKeepAlive|setNoDelay|tryLock)$/;

type AnyFunction =
  | Deno.lint.ArrowFunctionExpression
  | Deno.lint.FunctionDeclaration
  | Deno.lint.FunctionExpression;

/** What stands inside `as const`, `satisfies` and the like. */
function withoutTypes(node: Deno.lint.Expression): Deno.lint.Expression {
  return node.type === "TSAsExpression" ||
      node.type === "TSSatisfiesExpression"
    ? withoutTypes(node.expression)
    : node;
}

/** Whether an expression is `{ … }`. */
function isObjectLiteral(node: Deno.lint.Node): boolean {
  return node.type === "ObjectExpression";
}

/**
 * `...{ a, b }` and `...[a, b]`, also by `Object.assign`: the members can stand in the
 * outer literal. `...(c ? { a } : {})` is `...c && { a }`, the only form of a member
 * that may be absent.
 */
const noSpreadLiteral: Deno.lint.Rule = {
  create(context) {
    return {
      SpreadElement(node) {
        const inner = withoutTypes(node.argument);
        if (isObjectLiteral(inner) || inner.type === "ArrayExpression") {
          context.report({
            node,
            message: "A literal is spread into another literal",
            hint: "Write its members into the outer literal, one per line",
          });
        }
        if (inner.type !== "ConditionalExpression") return;
        const branches = [inner.consequent, inner.alternate].map(withoutTypes);
        if (!branches.some(isObjectLiteral)) return;
        context.report({
          node,
          message: "One of two literals is spread into another literal",
          hint: "Write `...condition && { member }`, or two literals",
        });
      },
      'CallExpression[callee.object.name="Object"][callee.property.name="assign"]'(
        node: Deno.lint.CallExpression,
      ) {
        const literals = node.arguments.filter(isObjectLiteral);
        const [target] = node.arguments;
        if (target === undefined || literals.length === 0) return;
        if (literals.length === 1 && !isObjectLiteral(target)) return;
        if (node.arguments.some(({ type }) => type === "SpreadElement")) return;
        context.report({
          node,
          message: "Object.assign makes an object of literals",
          hint: "Write one literal",
        });
      },
    };
  },
};

/**
 * `a = b = c`, `() => a = b` and `f(a += 1)`: a statement is hidden in an expression.
 */
const noAssignmentInExpression: Deno.lint.Rule = {
  create(context) {
    return {
      AssignmentExpression(node) {
        const { parent } = node;
        if (parent.type === "ExpressionStatement") return;
        if (parent.type === "ForStatement" && parent.test !== node) return;
        context.report({
          node,
          message: "An assignment stands inside an expression",
          hint: "Make it a statement of its own",
        });
      },
    };
  },
};

/** `for (const [a, b, c] of rows)`: a row says by names what each of its members is. */
const namedColumns: Deno.lint.Rule = {
  create(context) {
    return {
      ForOfStatement({ left }) {
        if (left.type !== "VariableDeclaration") return;
        for (const { id } of left.declarations) {
          if (id.type !== "ArrayPattern") continue;
          if (id.elements.length <= PATTERN_MEMBERS_MAX) continue;
          context.report({
            node: id,
            message: `A loop takes ${id.elements.length} members by position`,
            hint: "Make each row an object with named fields",
          });
        }
      },
    };
  },
};

/** A call with many positional arguments cannot be read without the signature. */
const maxParameters: Deno.lint.Rule = {
  create(context) {
    function check(node: AnyFunction): void {
      // `this: Type` declares a type only.
      const count =
        node.params.filter((parameter) =>
          parameter.type !== "Identifier" || parameter.name !== "this"
        ).length;
      if (count <= PARAMETERS_MAX) return;
      context.report({
        node,
        message: `A function has ${count} positional parameters`,
        hint: `Take at most ${PARAMETERS_MAX}, the last one an object`,
      });
    }
    return {
      ArrowFunctionExpression: check,
      FunctionDeclaration: check,
      FunctionExpression: check,
    };
  },
};

/** A function fits on a screen. */
const maxFunctionLines: Deno.lint.Rule = {
  create(context) {
    const linesMax = context.filename.endsWith("x")
      ? JSX_FUNCTION_LINES_MAX
      : FUNCTION_LINES_MAX;
    function check(node: AnyFunction): void {
      const lines = context.sourceCode.getText(node).split("\n").length;
      if (lines <= linesMax) return;
      context.report({
        node,
        message: `A function has ${lines} lines`,
        hint: `Divide it by idea: at most ${linesMax} lines`,
      });
    }
    return {
      ArrowFunctionExpression: check,
      FunctionDeclaration: check,
      FunctionExpression: check,
    };
  },
};

/** Whether the comment right before a node is a docstring. */
function hasDocstring(
  source: Deno.lint.SourceCode,
  node: Deno.lint.ExportNamedDeclaration,
): boolean {
  const comment = source.getCommentsBefore(node).at(-1);
  if (comment?.type !== "Block" || !comment.value.startsWith("*")) return false;
  const between = source.text.slice(comment.range[1], node.range[0]);
  return between.trim() === "";
}

/** What is exported says what it is. */
const documentedExport: Deno.lint.Rule = {
  create(context) {
    return {
      ExportNamedDeclaration(node) {
        if (node.declaration === null) return;
        if (hasDocstring(context.sourceCode, node)) return;
        context.report({
          node,
          message: "An export has no docstring",
          hint: "Say what it is or returns, with units, errors and source",
        });
      },
    };
  },
};

/** The title of a test by its first argument: that, or its member `name`. */
function titleIn(
  argument: Deno.lint.Node | undefined,
): Deno.lint.Node | undefined {
  if (argument?.type !== "ObjectExpression") return argument;
  for (const each of argument.properties) {
    if (each.type !== "Property" || each.key.type !== "Identifier") continue;
    if (each.key.name === "name") return each.value;
  }
}

/** A title is said in one breath, and fits on one line of the report. */
const testTitle: Deno.lint.Rule = {
  create(context) {
    return {
      CallExpression(node) {
        const called = context.sourceCode.getText(node.callee);
        if (!/(^|\.)(test|step|\w+Test)$/.test(called)) return;
        const title = titleIn(node.arguments[0]);
        if (title?.type !== "Literal" && title?.type !== "TemplateLiteral") {
          return;
        }
        const characters = context.sourceCode.getText(title).length - 2;
        if (characters <= TEST_TITLE_CHARACTERS_MAX) return;
        context.report({
          node: title,
          message: `The title of a test has ${characters} characters`,
          hint: `Say what is promised in ${TEST_TITLE_CHARACTERS_MAX}`,
        });
      },
    };
  },
};

/** A name is a noun that says what the thing is. */
const nounName: Deno.lint.Rule = {
  create(context) {
    function check(
      node: Deno.lint.Node | Deno.lint.Parameter | null,
    ): void {
      if (node === null) return;
      switch (node.type) {
        case "Identifier":
        case "PrivateIdentifier":
          if (!RIDDLES.has(node.name.toLowerCase())) return;
          context.report({
            node,
            message: `"${node.name}" does not say what it names`,
            hint: "Take a noun, or a verb for a function",
          });
          return;
        case "ArrayPattern":
          node.elements.forEach(check);
          return;
        case "ObjectPattern":
          for (const each of node.properties) {
            check(each.type === "Property" ? each.value : each);
          }
          return;
        case "AssignmentPattern":
          check(node.left);
          return;
        case "TSParameterProperty":
          check(node.parameter);
          return;
        case "RestElement":
          check(node.argument);
          return;
      }
    }
    function checkFunction(node: AnyFunction): void {
      if (node.type !== "ArrowFunctionExpression") check(node.id);
      node.params.forEach(check);
    }
    return {
      ArrowFunctionExpression: checkFunction,
      FunctionDeclaration: checkFunction,
      FunctionExpression: checkFunction,
      MethodDefinition: ({ key }) => check(key),
      PropertyDefinition: ({ key }) => check(key),
      TSInterfaceDeclaration: ({ id }) => check(id),
      TSTypeAliasDeclaration: ({ id }) => check(id),
      VariableDeclarator: ({ id }) => check(id),
    };
  },
};

/** `f(a, true)`, `start(true)`: only the signature tells what is true. */
const noBooleanArgument: Deno.lint.Rule = {
  create(context) {
    return {
      CallExpression(node) {
        const called = context.sourceCode.getText(node.callee);
        if (FOREIGN_CALL.test(called)) return;
        if (node.arguments.length === 1 && FOREIGN_SETTER.test(called)) return;
        for (const argument of node.arguments) {
          if (argument.type !== "Literal") continue;
          if (typeof argument.value !== "boolean") continue;
          context.report({
            node: argument,
            message: `A call has "${argument.raw}" among its arguments`,
            hint: "Take an object with a named member",
          });
        }
      },
    };
  },
};

/** `log_nats.ts` is `logNats`: one module has one name, wherever it is used. */
const namespaceName: Deno.lint.Rule = {
  create(context) {
    return {
      ImportDeclaration({ source, specifiers }) {
        const [space] = specifiers;
        if (space?.type !== "ImportNamespaceSpecifier") return;
        const module = source.value.split("/").at(-1) ?? "";
        const name = module.replace(/(_fixture)?\.\w+$/, "")
          .replace(/[-_](\w)/g, (_, letter: string) => letter.toUpperCase());
        if (space.local.name === name) return;
        context.report({
          node: space,
          message: `A namespace of "${source.value}" has another name`,
          hint: `Call it ${name}, or import names`,
        });
      },
    };
  },
};

/** The plugin, as `deno.json` loads it. */
const plugin: Deno.lint.Plugin = {
  name: "house",
  rules: {
    "documented-export": documentedExport,
    "max-function-lines": maxFunctionLines,
    "max-parameters": maxParameters,
    "named-columns": namedColumns,
    "namespace-name": namespaceName,
    "no-assignment-in-expression": noAssignmentInExpression,
    "no-boolean-argument": noBooleanArgument,
    "no-spread-literal": noSpreadLiteral,
    "noun-name": nounName,
    "reaches-through": reachesThrough,
    "test-title": testTitle,
  },
};

export default plugin;
