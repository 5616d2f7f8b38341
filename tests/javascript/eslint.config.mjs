// The rules of docs/assets and of these tests. What a name is, tsc knows better: it reads the types (tsconfig.json).
// JAVASCRIPT names the folder with the packages; by default where `make` installs them.
import { createRequire } from "node:module"

const packages = process.env.JAVASCRIPT ?? new URL("../../.venv/javascript/", import.meta.url).pathname
const recommended = createRequire(`${packages}/`)("@eslint/js").configs.recommended

export default [
  recommended,
  {
    languageOptions: { ecmaVersion: "latest", sourceType: "module" },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "no-empty": ["error", { allowEmptyCatch: true }],
      "array-callback-return": ["error", { allowImplicit: true }],
      complexity: ["error", 14],
      curly: ["error", "multi-line"],
      "default-case-last": "error",
      eqeqeq: "error",
      "max-depth": ["error", 3],
      "max-len": ["error", { code: 120 }],
      "max-lines": ["error", { max: 150, skipComments: true }],
      "max-lines-per-function": ["error", { max: 120, skipBlankLines: true, skipComments: true }],
      "no-alert": "error",
      "no-console": "error",
      "no-else-return": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-lonely-if": "error",
      "no-new": "error",
      "no-param-reassign": "error",
      "no-return-assign": ["error", "except-parens"],
      "no-self-compare": "error",
      "no-sequences": "error",
      "no-shadow": "error",
      "no-throw-literal": "error",
      "no-unmodified-loop-condition": "error",
      "no-unneeded-ternary": "error",
      "no-unused-expressions": "error",
      "no-useless-concat": "error",
      "no-useless-return": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      "prefer-object-has-own": "error",
      "prefer-object-spread": "error",
      radix: "error",
      "require-await": "error"
    }
  },
  // A case stands in a line.
  { files: ["**/tests/**"], rules: { "max-len": "off", "max-lines": "off", "max-lines-per-function": "off" } }
]
