"""The Messages API through the official anthropic client."""

from __future__ import annotations

import json

import anthropic
import pytest

from conftest import MODEL, PATIENCE, WEATHER


@pytest.fixture(scope="module")
def messages(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=PATIENCE).messages


def plain(text: str, **more) -> dict:
    return {"model": MODEL, "max_tokens": 200, "messages": [{"role": "user", "content": text}], "thinking": {"type": "disabled"}, "extra_body": {"temperature": 0}, **more}


def test_a_plain_request(messages):
    reply = messages.create(**plain("What is the capital of France?"))
    assert reply.type == "message" and reply.role == "assistant" and reply.stop_reason == "end_turn"
    assert "Paris" in reply.content[0].text
    assert reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0


def test_a_stream_is_the_same_reply(messages):
    whole = messages.create(**plain("Tell me a story about a fox.")).content[0].text
    with messages.stream(**plain("Tell me a story about a fox.")) as stream:
        assert "".join(stream.text_stream) == whole
        assert stream.get_final_message().content[0].text == whole


def test_a_tool_use(messages):
    tool = {"name": "get_weather", "description": WEATHER["function"]["description"], "input_schema": WEATHER["function"]["parameters"]}
    reply = messages.create(**plain("What is the weather in Paris?", tools=[tool]))
    assert reply.stop_reason == "tool_use"
    use = next(block for block in reply.content if block.type == "tool_use")
    assert use.name == "get_weather" and use.input == {"city": "Paris"}


def test_tokens_are_counted(messages):
    request = plain("What is the capital of France?")
    counted = messages.count_tokens(model=MODEL, messages=request["messages"], thinking=request["thinking"])
    assert counted.input_tokens == messages.create(**request).usage.input_tokens


def test_errors_have_the_form_of_this_api(server):
    status, body = server.post("/v1/messages", b"{")
    assert status == 400 and body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    for wrong in ({"model": "other"}, {"temperature": -1}, {"messages": []}):
        status, body = server.post("/v1/messages", json.dumps({"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]} | wrong).encode())
        assert status == 400 and body["type"] == "error" and body["error"]["type"] == "invalid_request_error", body
    status, body = server.post("/v1/messages/nothing", b"{}")
    assert status == 404 and body["error"]["type"] == "not_found_error"
