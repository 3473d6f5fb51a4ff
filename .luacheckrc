-- How luacheck reads the scripts of Redis; tests/lua_test.ts runs it.
std = "lua51"
max_line_length = 100
ignore = {
  -- Undefined names: the test knows which ones each script is given, and finds others.
  "113",
}
