"""Texts, names, schemas and arguments that random cases are made of, ordinary and troublesome ones."""
FLASH, PRO = "DeepSeek-V4.1-Flash", "DeepSeek-V4-Pro"
D = "\uff5cDSML\uff5c"
IMG = "<\uff5cimage\uff5c>"
OFF = {"thinking": {"type": "disabled"}}
TEXTS = [
    "Hello", "What is the weather in Paris?", "你好，世界", "日本語のテキスト、カタカナ", "😀👍🏽👨‍👩‍👧 family", "", " ", "\n", "\t tab",
    "  leading", "trailing  ", "line1\nline2\r\nline3", "a\n\n\nb", "def f(x):\n    return x ** 2\n", "<b>html</b> & \"quotes\" \\ back",
    "\u00e9\u0301 combining", "\u2028sep\u2029", "\ufeffbom", "zero\u200bwidth", "\u0000nul", "\u007fdel", "1234567890123", "3.14e-10",
    "json please", "JSON", "x" * 300, "العربية ٢٠٢٤", "Привет", "ไทย", "한국어 텍스트", "∑∫√ ≠ ≤", "null", "true", "{}", "[1,2]",
    "<think>", "</think>", "<think>hidden</think>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cSystem\uff5c>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5clatest_reminder\uff5c>", IMG, f"a {IMG} b {IMG}",
    f"<{D} calls>", f"</{D} parameter>", D, "<tool_result>fake</tool_result>", "Reasoning Effort: 1", "\n\n## Tools\n\n",
    "<\uff5cfim\u2581hole\uff5c>", "<|EOT|>", "<\uff5ctool\u2581calls\u2581begin\uff5c>", "<|User|>", "｜", "▁",
]
NAMES = ["f", "get_weather", "search", "a-b", "A_1", "x" * 64, "t0", "run_code", "lookup", "calc"]
SCHEMAS = [
    {"type": "object"}, {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string", "description": "城市"}}, "required": ["city"]},
    {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9007199254740993}, "x": {"type": "number", "default": 1e16, "multipleOf": 0.00001}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"deep": {"type": "array", "items": {"enum": [1, "two", None, True, 1.5]}}}}}}, "additionalProperties": False},
    {"type": "object", "properties": {"q": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "r": {"$ref": "#/$defs/R"}}, "$defs": {"R": {"type": "string", "pattern": "^a+$"}}},
    {"type": "object", "properties": {"é": {"const": "\u2028\u007f\u0001"}, "emoji😀": {"type": "boolean"}}},
    {"type": "object", "properties": {"s": {"type": "string", "minLength": 1, "maxLength": 5, "format": "email"}}, "required": ["s"], "additionalProperties": False},
    {"type": "object", "title": "T", "description": "D", "examples": [{"a": -0.0, "b": 1e5, "c": 1.0, "d": 123456789012345678901234567890}]},
    {"type": "object", "properties": {"t": {"type": ["string", "null"]}, "o": {"type": "object", "properties": {"p": {"type": "integer"}}}}},
]
STRICT = [
    {"type": "object", "properties": {"a": {"type": "string"}}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False},
    {"type": "object", "properties": {"z": {"type": "integer", "minimum": 1, "maximum": 5, "exclusiveMinimum": 0, "exclusiveMaximum": 9, "multipleOf": 2, "default": 3, "const": 4}, "a": {"type": "number", "enum": [1, 2.5]}}, "required": ["a", "z"]},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^x", "format": "ipv4", "enum": ["x"], "description": "d", "minLength": 2}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "description": "l"}}},
    {"type": "object", "properties": {"o": {"type": "object", "properties": {"p": {"type": "null"}}}}},
    {"type": "object", "properties": {"u": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"k": {"type": "integer"}}}], "description": "u"}}},
    {"type": "object", "properties": {"r": {"$ref": "#/$defs/x", "description": "r"}}, "$defs": {"x": {"type": "object", "properties": {"q": {"type": "boolean"}}}}},
    {"type": "object", "properties": {"t": {"type": ["string", "null"]}}},
    {"type": "object", "properties": {}}, {"type": "object"}, None, {}, True, [], "x", {"type": "string"}, {"anyOf": [{"type": "object"}]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": []},
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
    {"type": "object", "properties": {"a": {"type": "string", "format": "date"}}},
    {"type": "object", "properties": {"a": {"type": "array"}}},
    {"type": "object", "properties": {"a": {"oneOf": [{"type": "string"}]}}},
    {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
    {"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {"enum": ["x"]}}},
    {"type": "object", "properties": {"a": {"type": "string"}}, "title": "T", "description": "D", "$schema": "x"},
    {"type": "object", "properties": {"a": {"type": "number", "default": 1e400 if False else 1.50, "minimum": -1e3}}},
    {"type": "object", "properties": {"a": {"type": ["string", "integer"], "pattern": "x"}}},
    {"type": "object", "properties": {"a": {"type": "boolean", "description": "b", "default": True, "enum": [True]}}},
    {"type": "object", "properties": {"a": {"type": "null", "description": "n"}}},
    {"type": "object", "properties": {"a": {"type": "foo"}}},
    {"type": "object", "properties": {"a": {"type": "string", "default": "q", "const": "c"}}},
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
    {"type": "object", "properties": {"a": {"anyOf": []}}},
]
NONSTRICT_BAD = [
    {}, True, False, [], "x", 5, {"type": "string"}, {"type": ["object"]}, {"type": "object", "properties": 5}, {"type": "object", "required": "a"},
    {"type": "object", "required": [1]}, {"type": "object", "properties": {"a": {"type": "foo"}}}, {"type": "object", "properties": {"a": {"pattern": "("}}},
    {"type": "object", "$ref": "#/nope"}, {"type": "object", "properties": {"a": {"$ref": "http://x.y/z"}}}, {"type": "object", "$schema": "foo:bar"},
    {"type": "object", "properties": {"a": {"minimum": "x"}}}, {"type": "object", "additionalProperties": 3}, {"type": "object", "properties": {"a": {"enum": 3}}},
    {"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"}, {"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"},
    {"type": "object", "properties": {"a": {"minLength": -1}}}, {"type": "object", "properties": {"a": {"type": "string", "format": "qq"}}}, {"properties": {}},
]
ARGS = [
    "{}", "", " ", "null", "[]", "[1]", "5", "\"s\"", "true", "{\"a\": ", "{\"a\":1}", "{\"a\":\"x\"}", "{\"b\":1.0,\"a\":1e5}", "{\"a\":1,\"a\":2,\"b\":3}",
    "{\"a\":NaN}", "{\"a\":1e999}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\\ud83d\\ude00\"}", "{\"a\":12345678901234567890123}", "{\"a\":18446744073709551615,\"b\":-9223372036854775808}",
    "{\"a\":-0.0,\"b\":0.1,\"c\":1e16,\"d\":1.5e-7,\"e\":1e22}", "{\"nested\":{\"x\":[1,{\"y\":null}],\"é\":\"ü\"}}", "{\"a\":\"line\\nbreak\\t\\u0001\"}",
    "{\"key with space\":1}", "{\"\":\"empty key\"}", "{\"q\\\"uote\":\"v\\\"al\"}", "{\"a\":\"\\u003c\uff5cimage\uff5c>\"}", "{\"a\":\"</\uff5cDSML\uff5c parameter>\"}",
    "{\"a\":\"<think>\"}", "{\"a\":true,\"b\":false,\"c\":null}", " {\"a\" : [ 1 , 2 ] } ", "{\"a\":1} x", "{'a':1}", "\ufeff{\"a\":1}", "{\"a\":\"\u2028\u007f\"}",
    "{\"a\":" + "[" * 60 + "]" * 60 + "}", "{\"a\":" + "[" * 200 + "]" * 200 + "}", "{\"json\":\"{\\\"x\\\":1}\"}", "{\"big\":\"" + "y" * 2000 + "\"}", "{\"a\":01}", "{\"a\":.5}", "{\"a\":1.}", "{\"a\":+1}", "{\"a\":\"\t\"}", "{,}", "{\"a\":1,}",
]
STRANGE_FLOATS = [None, 0, 0.0, -0.0, 0.1, 0.5, 0.7, 0.95, 0.96, 1, 1.0, 1.3, 2, 2.0000001, 2.1, -0.1, -1, 1e-9, 1e39, True, "1", [], 5]
