"""Values of the official package from the JSON of the probe protocol, and back (see spec/recipe_probe.md)."""
import base64
import json

import deepseek_recipe as R

REQUESTS = {
    "chat": (R.ChatCompletionRequest, R.ChatCompletionResponse),
    "messages": (R.MessagesRequest, R.MessagesResponse),
    "responses": (R.ResponsesRequest, R.ResponsesResponse),
}
VERSIONS = {"v4": R.ModelVersion.DeepseekV4Pro, "v4.1": R.ModelVersion.DeepseekV41Flash}
ENCODINGS = {"v4": R.DeepseekV4Encoding, "v4.1": R.DeepseekV41Encoding}
STAGES = {
    "reasoning_start": R.ThinkingInitialStage.ReasoningStart,
    "reasoning_continuation": R.ThinkingInitialStage.ReasoningContinuation,
    "content_continuation": R.ThinkingInitialStage.ContentContinuation,
}
FINISH = {
    "stop": R.InferenceFinishReason.Stop,
    "length": R.InferenceFinishReason.Length,
    "content_filter": R.InferenceFinishReason.ContentFilter,
}


class ProbeError(Exception):
    def __init__(self, error):
        super().__init__(error)
        self.error = error


def enum_name(table, value):
    for name, candidate in table.items():
        if candidate == value:
            return name
    return None


# ---------------------------------------------------------------- inputs

def request_bytes(case):
    if "body_base64" in case:
        return base64.b64decode(case["body_base64"])
    body = case["body"]
    if not isinstance(body, str):
        body = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return body.encode("utf-8")


def special_tokens(spec):
    return R.SpecialTokens(**spec) if spec else None


def conversion_options(spec):
    spec = spec or {}
    options = R.ConversionOptions()
    if "default_thinking_mode" in spec:
        options = options.with_default_thinking_mode(spec["default_thinking_mode"])
    if "reasoning_content_behavior" in spec:
        options = options.with_reasoning_content_behavior({
            "fill_empty": R.ReasoningContentBehavior.FillEmpty,
            "reject": R.ReasoningContentBehavior.Reject,
        }[spec["reasoning_content_behavior"]])
    web = {"drop": R.WebSearchBehavior.Drop, "reject": R.WebSearchBehavior.Reject}
    if "responses_web_search" in spec:
        options = options.with_responses_web_search(web[spec["responses_web_search"]])
    if "messages_web_search" in spec:
        options = options.with_messages_web_search(web[spec["messages_web_search"]])
    if "thinking_max_tokens_upper_bound" in spec:
        options = options.with_thinking_max_tokens_upper_bound(spec["thinking_max_tokens_upper_bound"])
    if "non_thinking_max_tokens_upper_bound" in spec:
        options = options.with_non_thinking_max_tokens_upper_bound(
            spec["non_thinking_max_tokens_upper_bound"])
    if "model_versions" in spec:
        options = options.with_model_versions_by_name(
            {k: VERSIONS[v] for k, v in spec["model_versions"].items()})
    for name, version in spec.get("model_aliases", {}).items():
        options = options.with_model_alias(name, VERSIONS[version])
    if spec.get("special_tokens"):
        options = options.with_special_tokens(special_tokens(spec["special_tokens"]))
    return options


def image_source(spec):
    path = spec.get("path", "")
    detail = spec.get("detail", "high")
    if spec["kind"] == "data_url":
        return R.DataUrlImageSource(spec["data_url"], detail, path=path)
    if spec["kind"] == "url":
        return R.UrlImageSource(spec["url"], detail, path=path)
    return R.BytesImageSource(base64.b64decode(spec["data_base64"]), detail, path=path)


def tool_definition(spec):
    return R.ToolDefinition(spec["name"], spec.get("description"), spec.get("parameters"),
                            spec.get("strict"), spec.get("defer_loading", False))


def message(spec):
    role = spec["role"]
    images = [image_source(s) for s in spec.get("image_sources", [])]
    if role == "system":
        tools = spec.get("tools")
        return R.SystemMessage(spec["content"], images,
                               None if tools is None else [tool_definition(t) for t in tools])
    if role == "user":
        return R.UserMessage(spec["content"], images)
    if role == "tool":
        return R.ToolMessage(spec["content"], spec.get("tool_call_id"), images)
    if role == "latest_reminder":
        return R.LatestReminderMessage(spec["content"])
    calls = spec.get("tool_calls")
    return R.AssistantMessage(
        spec["content"], spec.get("reasoning_content"),
        None if calls is None else [R.ToolCall(c["id"], c["name"], c["arguments"]) for c in calls],
        spec.get("prefix", False))


def conversation(spec):
    return R.Conversation(
        [message(m) for m in spec.get("messages", [])],
        thinking_mode=spec.get("thinking_mode", True),
        tools=[tool_definition(t) for t in spec.get("tools", [])],
        tool_choice=spec.get("tool_choice", "auto"),
        reasoning_effort=spec.get("reasoning_effort"),
        response_format=spec.get("response_format", "text")
        if spec.get("response_format") in (None, "text", "json_object") else "text",
        response_schema=spec.get("response_schema"),
        response_regex=spec.get("response_regex"))


# ---------------------------------------------------------------- outputs

def source_json(source):
    out = {"kind": source.kind, "detail": source.detail, "path": source.path}
    if source.kind == "data_url":
        out["data_url"] = source.data_url
    elif source.kind == "url":
        out["url"] = source.url
    else:
        out["data_base64"] = base64.b64encode(source.data).decode()
    return out


def tool_json(tool):
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters,
            "strict": tool.strict, "defer_loading": tool.defer_loading}


def message_json(m):
    out = {"role": m.role, "content": m.content}
    if m.role in ("system", "user", "tool"):
        out["image_sources"] = [source_json(s) for s in m.image_sources]
    if m.role == "system":
        out["tools"] = None if m.tools is None else [tool_json(t) for t in m.tools]
    if m.role == "tool":
        out["tool_call_id"] = m.tool_call_id
    if m.role == "assistant":
        out["reasoning_content"] = m.reasoning_content
        out["tool_calls"] = None if m.tool_calls is None else [
            {"id": c.id, "name": c.name, "arguments": c.arguments} for c in m.tool_calls]
        out["prefix"] = m.prefix
    return out


def conversation_json(c):
    return {
        "messages": [message_json(m) for m in c.messages],
        "thinking_mode": c.thinking_mode,
        "tools": [tool_json(t) for t in c.tools],
        "tool_choice": c.tool_choice,
        "reasoning_effort": c.reasoning_effort,
        "response_format": c.response_format,
        "response_schema": c.response_schema,
        "response_regex": c.response_regex,
    }


def parsing_json(p):
    return {
        "parse_tool_calls": p.parse_tool_calls,
        "starts_in_tool_calls": p.starts_in_tool_calls,
        "parse_json_output": p.parse_json_output,
        "thinking_initial_stage": enum_name(STAGES, p.thinking_initial_stage),
        "stop_sequences": list(p.stop_sequences),
    }


def inference_json(o):
    constraint = o.output_constraint
    return {
        "max_tokens": o.max_tokens, "temperature": o.temperature, "top_p": o.top_p,
        "logprobs": o.logprobs, "top_logprobs": o.top_logprobs, "seed": o.seed,
        "output_constraint": None if constraint is None
        else {"kind": constraint.kind, "schema": constraint.schema},
    }
