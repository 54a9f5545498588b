"""The Responses API through the official openai client."""

from __future__ import annotations

import json

import openai
import pytest

from conftest import MODEL

TOOL = {"type": "function", "name": "get_weather", "description": "Get the current weather for a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def plain(text, **more) -> dict:
    return {"model": MODEL, "input": text, "reasoning": {"effort": "none"}, "temperature": 0, **more}


def test_a_plain_request(client):
    reply = client.responses.create(**plain("What is the capital of France?"))
    assert reply.object == "response" and reply.status == "completed" and reply.model == MODEL
    assert "Paris" in reply.output_text
    assert reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens


def test_a_stream_is_the_same_reply(client):
    whole = client.responses.create(**plain("Tell me a story about a fox.", max_output_tokens=80))
    with client.responses.stream(**plain("Tell me a story about a fox.", max_output_tokens=80)) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == whole.output_text == final.output_text
    assert final.usage == whole.usage


def test_thinking_is_an_item(client):
    reply = client.responses.create(model=MODEL, input="What is 12 plus 30?", max_output_tokens=400)
    assert reply.output[0].type == "reasoning"
    assert reply.usage.output_tokens_details.reasoning_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_turn_by_its_id(client, stream):
    request = plain("What is the weather in Paris?", tools=[TOOL])
    first = run(client, stream, **request)
    call = next(item for item in first.output if item.type == "function_call")
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"}
    answer = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temperature": 21, "condition": "sunny"}'}
    second = run(client, stream, **plain([answer], tools=[TOOL], previous_response_id=first.id))
    assert second.output_text
    by_hand = run(client, stream, **plain([{"role": "user", "content": request["input"]}, *[item.model_dump(exclude_none=True) for item in first.output], answer], tools=[TOOL]))
    assert by_hand.output_text == second.output_text
    assert by_hand.usage.input_tokens == second.usage.input_tokens


def run(client, stream: bool, **request):
    if not stream:
        return client.responses.create(**request)
    with client.responses.stream(**request) as events:
        for _ in events:
            pass
        return events.get_final_response()


def test_a_response_is_kept_and_deleted(client):
    reply = client.responses.create(**plain("Hello"))
    assert client.responses.retrieve(reply.id).output_text == reply.output_text
    client.responses.delete(reply.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(reply.id)
    with pytest.raises(openai.BadRequestError, match="Previous response with id"):
        client.responses.create(**plain("Hello", previous_response_id=reply.id))


def test_a_complete_response_cannot_be_cancelled(client):
    reply = client.responses.create(**plain("Hello"))
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(reply.id)
